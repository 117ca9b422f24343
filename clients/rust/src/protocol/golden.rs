//! The golden vectors that the Python suite reads as well.

use std::path::Path;

use serde_json::Value;

use super::decoder::{Reply, ReplyDecoder};
use super::frames;
use super::handshake::{ClientHandshake, Verdict, digest, parse_banner};

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/protocol/golden.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("the golden file is JSON")
}

fn cases<'a>(golden: &'a Value, section: &str) -> &'a [Value] {
    let cases = golden[section].as_array().map(Vec::as_slice).unwrap_or_default();
    assert!(!cases.is_empty(), "no {section}");
    cases
}

fn hex(case: &Value, field: &str) -> Vec<u8> {
    let digits: Vec<u8> = text(case, field).bytes().filter(|byte| *byte != b' ').collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect("two hex digits"))
        .collect()
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("no {field} in {case}"))
}

fn number(fields: &Value, field: &str) -> u64 {
    match &fields[field] {
        Value::String(text) => text.parse().expect("a decimal number"),
        value => value.as_u64().unwrap_or_else(|| panic!("no {field} in {fields}")),
    }
}

fn seconds(fields: &Value, field: &str) -> u16 {
    number(fields, field).try_into().expect("sixteen bits")
}

/// What the decoder gives, as the golden file writes it.
fn fields_of(reply: Reply<'_>) -> Value {
    let shown = |key: &[u8]| String::from_utf8(key.to_vec()).expect("a checked key");
    match reply {
        Reply::Granted { token, owner, waited_ms: None, key } => serde_json::json!({
            "opcode": "A", "token": token.to_string(), "owner": owner.to_string(), "key": shown(key)}),
        Reply::Granted { token, owner, waited_ms: Some(waited), key } => serde_json::json!({
            "opcode": "G", "token": token.to_string(), "owner": owner.to_string(), "waited_ms": waited,
            "key": shown(key)}),
        Reply::Refused { opcode, owner, key } => serde_json::json!({
            "opcode": char::from(opcode).to_string(), "owner": owner.to_string(), "key": shown(key)}),
        Reply::Echoed { opcode, number, key } => serde_json::json!({
            "opcode": char::from(opcode).to_string(), "token": number.to_string(), "key": shown(key)}),
        Reply::Leader(text) => serde_json::json!({"opcode": "L", "text": text}),
        Reply::Moved(text) => serde_json::json!({"opcode": "M", "text": text}),
        Reply::Error(text) => serde_json::json!({"opcode": "E", "text": text}),
    }
}

#[test]
fn every_request_is_encoded_byte_by_byte() {
    let golden = golden();
    let mut opcodes = Vec::new();
    for case in cases(&golden, "requests") {
        let fields = &case["fields"];
        let opcode = text(fields, "opcode").as_bytes()[0];
        let key = fields["key"].as_str().unwrap_or_default().as_bytes();
        let mut out = Vec::new();
        match opcode {
            frames::ACQUIRE | frames::Q => frames::encode_acquire(
                &mut out,
                opcode,
                seconds(fields, "wait"),
                seconds(fields, "lease"),
                number(fields, "owner"),
                key,
            ),
            frames::RELEASE => frames::encode_release(&mut out, number(fields, "token"), key),
            frames::CANCEL => frames::encode_cancel(&mut out, number(fields, "owner"), key),
            frames::EXTEND => {
                frames::encode_extend(&mut out, number(fields, "token"), seconds(fields, "lease"), key);
            }
            frames::HELLO => frames::encode_hello(&mut out, text(fields, "text").as_bytes()),
            _ => panic!("{case}"),
        }
        assert_eq!(out, hex(case, "hex"), "{}", text(case, "name"));
        opcodes.push(opcode);
    }
    for opcode in *b"ARQCXH" {
        assert!(opcodes.contains(&opcode), "no vector for {}", char::from(opcode));
    }
}

#[test]
fn every_reply_is_read_whole_and_byte_by_byte() {
    let golden = golden();
    let mut opcodes = Vec::new();
    for case in cases(&golden, "replies") {
        let bytes = hex(case, "hex");
        opcodes.push(bytes[0]);
        let mut decoder = ReplyDecoder::default();
        decoder.feed(&bytes);
        assert_eq!(decoder.next().unwrap().map(fields_of).as_ref(), Some(&case["fields"]), "{case}");
        assert_eq!(decoder.next(), Ok(None));
        for (number, byte) in bytes.iter().enumerate() {
            assert_eq!(decoder.next(), Ok(None), "{number} bytes of {case}");
            decoder.feed(&[*byte]);
        }
        assert_eq!(decoder.next().unwrap().map(fields_of).as_ref(), Some(&case["fields"]), "{case}");
    }
    for opcode in *b"AGTBVRNXLME" {
        assert!(opcodes.contains(&opcode), "no vector for {}", char::from(opcode));
    }
}

#[test]
fn a_bad_reply_is_malformed_and_stays_so() {
    let golden = golden();
    for case in cases(&golden, "bad_replies") {
        let mut decoder = ReplyDecoder::default();
        decoder.feed(&hex(case, "hex"));
        assert!(decoder.next().is_err(), "{case}");
        decoder.feed(b"L10.0.0.2:5225\n");
        assert!(decoder.next().is_err(), "{case}");
    }
}

#[test]
fn responses_prove_the_token() {
    let golden = golden();
    for case in cases(&golden, "responses") {
        let made = digest(text(case, "token"), text(case, "nonce"));
        assert_eq!(made, format!("{}\n", text(case, "response")).into_bytes(), "{case}");
    }
}

#[test]
fn banners_are_read_or_refused() {
    let golden = golden();
    for case in cases(&golden, "banners") {
        let banner = parse_banner(text(case, "line").trim_end_matches('\n').as_bytes()).expect("a good banner");
        let fields = &case["fields"];
        assert_eq!(fields["extended"], banner.extended, "{case}");
        assert_eq!(fields["standalone"], banner.standalone, "{case}");
        assert_eq!(fields["domain"].as_str(), banner.domain.as_deref(), "{case}");
        assert_eq!(fields["node_address"].as_str(), banner.node_address.as_deref(), "{case}");
        assert_eq!(fields["nonce"], banner.nonce, "{case}");
        let first_token = fields["first_token"].as_str().map_or(0, |digits| digits.parse().unwrap());
        assert_eq!(banner.first_token, first_token, "{case}");
    }
    for case in cases(&golden, "bad_banners") {
        assert!(parse_banner(text(case, "line").trim_end_matches('\n').as_bytes()).is_err(), "{case}");
    }
}

#[test]
fn handshakes_go_as_written_however_they_are_cut() {
    let golden = golden();
    for case in cases(&golden, "handshakes") {
        let script = [text(case, "banner"), text(case, "first_line")].concat().into_bytes();
        for size in [1, 7, script.len()] {
            let mut handshake = ClientHandshake::new(text(case, "client_token").to_owned());
            let mut sent = Vec::new();
            let mut verdict = None;
            for piece in script.chunks(size) {
                assert_eq!(verdict, None, "{case}");
                verdict = handshake.feed(piece, &mut sent);
            }
            assert_eq!(String::from_utf8(sent).unwrap(), text(case, "response"), "{case}");
            let leader = case["leader"].as_str().map(str::to_owned);
            let expected = match text(case, "client_outcome") {
                "ready" => Verdict::Ready { leader },
                reason => Verdict::Refused(reason.to_owned()),
            };
            assert_eq!(verdict, Some(expected), "{case}");
            assert!(handshake.take_rest().is_empty());
        }
    }
}
