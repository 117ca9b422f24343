//! Properties of decoder and handshake over random bytes: total, independent of how bytes are cut, bounded.

use crate::random::Random;

use super::decoder::{Reply, ReplyDecoder};
use super::frames;
use super::handshake::ClientHandshake;

const CASES: u64 = 3_000;

/// Frames as a server would write them, mutated now and then.
fn bytes(random: &mut Random) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..1 + random.below(6) {
        let key: Vec<u8> = (0..random.below(140)).map(|_| b'a' + random.below(26) as u8).collect();
        match random.below(9) {
            0 => data.extend_from_slice(b"L10.0.0.2:5225\n"),
            1 => data.extend_from_slice(b"Mnode-1:1\n"),
            2 => data.extend_from_slice(b"Eno_leader\n"),
            3 => data.push(b'\n'),
            4 => data.extend((0..random.below(300)).map(|_| random.next() as u8)),
            kind => {
                let opcode = [frames::GRANTED, frames::GRANTED_WAITED, b'T', b'R'][kind as usize - 5];
                data.push(opcode);
                let size = match opcode {
                    frames::GRANTED => 16,
                    frames::GRANTED_WAITED => 20,
                    _ => 8,
                };
                data.extend((0..size).map(|_| random.next() as u8 & 0x1f));
                data.extend_from_slice(&key);
                data.push(b'\n');
            }
        }
    }
    if random.below(3) == 0 && !data.is_empty() {
        let at = random.below(data.len() as u64) as usize;
        data[at] ^= 1 << random.below(8);
    }
    data
}

fn drain(decoder: &mut ReplyDecoder, seen: &mut Vec<String>) {
    loop {
        match decoder.next() {
            Ok(None) => return,
            Ok(Some(reply)) => seen.push(format!("{reply:?}")),
            Err(malformed) => {
                if seen.last().is_none_or(|last| *last != malformed.0) {
                    seen.push(malformed.0);
                }
                return;
            }
        }
    }
}

#[test]
fn what_is_decoded_does_not_depend_on_how_bytes_are_cut_and_little_is_kept() {
    let mut random = Random::from_seed(1);
    for _ in 0..CASES {
        let data = bytes(&mut random);
        let (mut whole, mut cut) = (Vec::new(), Vec::new());
        let mut decoder = ReplyDecoder::default();
        decoder.feed(&data);
        drain(&mut decoder, &mut whole);
        let mut decoder = ReplyDecoder::default();
        let mut rest = &data[..];
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(1 + random.below(rest.len() as u64) as usize);
            rest = others;
            decoder.feed(piece);
            drain(&mut decoder, &mut cut);
            assert!(decoder.pending() <= 21 + 193, "{} bytes are kept", decoder.pending());
        }
        assert_eq!(whole, cut, "{data:?}");
    }
}

#[test]
fn what_a_server_writes_is_read_back() {
    let mut random = Random::from_seed(2);
    for _ in 0..CASES {
        let (token, owner, waited) = (1 + random.below((1 << 62) - 1), random.next(), random.next() as u32);
        let mut data = vec![frames::GRANTED_WAITED];
        data.extend_from_slice(&token.to_be_bytes());
        data.extend_from_slice(&owner.to_be_bytes());
        data.extend_from_slice(&waited.to_be_bytes());
        data.extend_from_slice(b"key\n");
        let mut decoder = ReplyDecoder::default();
        decoder.feed(&data);
        assert_eq!(
            decoder.next(),
            Ok(Some(Reply::Granted { token, owner, waited_ms: Some(waited), key: b"key" }))
        );
    }
}

#[test]
fn any_bytes_end_a_handshake_or_leave_it_waiting_for_a_bounded_line() {
    let mut random = Random::from_seed(3);
    for _ in 0..CASES {
        let mut handshake = ClientHandshake::new(String::new());
        let mut send = Vec::new();
        let mut data: Vec<u8> = if random.below(2) == 0 { b"TICKETING/1+x".to_vec() } else { Vec::new() };
        data.extend((0..random.below(400)).map(|_| 0x0a + (random.next() as u8 & 0x5f)));
        let verdict = handshake.feed(&data, &mut send);
        if verdict.is_none() {
            assert!(handshake.take_rest().len() < 256);
        }
    }
}
