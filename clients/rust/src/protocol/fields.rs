//! The fields of the client protocol: ranges, rules for keys and addresses, and how bytes are shown.
//!
//! Keys are bytes everywhere: they are compared as bytes and never normalised. Nothing here clips a value; whoever
//! has one out of range refuses it.

/// Seconds. 0 is one immediate try that is never queued; there is no endless wait.
pub(crate) const WAIT_MAX: u64 = 255;
/// Seconds.
pub(crate) const LEASE_MIN: u64 = 1;
/// Seconds.
pub(crate) const LEASE_MAX: u64 = 250;
pub(crate) const KEY_BYTES_MAX: usize = 128;
/// Up to this, a key of too many bytes is a bad key; beyond it the frame is bad.
pub(crate) const KEY_LINE_MAX: usize = 192;
/// What a client may say of itself in `H`.
pub(crate) const HELLO_BYTES_MAX: usize = 64;
pub(crate) const ADDRESS_BYTES_MAX: usize = 120;
pub(crate) const REASON_BYTES_MAX: usize = 64;
/// A line of the handshake, its newline included.
pub(crate) const LINE_BYTES_MAX: usize = 256;
/// Set in every owner, which no token has: one table can hold releases and cancels.
pub(crate) const OWNER_TOP_BIT: u64 = 1 << 63;
/// Tokens are 1 up to, and without, this number.
pub(crate) const TOKEN_END: u64 = 1 << 62;

/// Says what makes `key` no valid key, or `None` where it is one.
pub(crate) fn key_problem(key: &[u8]) -> Option<&'static str> {
    if key.is_empty() {
        Some("it is empty")
    } else if key.len() > KEY_BYTES_MAX {
        Some("it has more than 128 bytes")
    } else if key.contains(&b' ') {
        Some("it contains a space")
    } else if key.iter().any(|&byte| byte == b'\r' || byte == b'\n') {
        Some("it contains a line break")
    } else if std::str::from_utf8(key).is_err() {
        Some("it is not valid UTF-8")
    } else {
        None
    }
}

/// Says what makes `address` no `host:port` that can travel on the wire, or `None` where it is one.
///
/// Visible ASCII of at most 120 bytes; an IPv6 address stands in brackets. `+` is kept out because it separates the
/// fields of the banner.
pub(crate) fn address_problem(address: &[u8]) -> Option<&'static str> {
    if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
        return Some("an address has 1 to 120 bytes");
    }
    if !address.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'+') {
        return Some("an address consists of visible ASCII characters without space and +");
    }
    let Some(colon) = address.iter().rposition(|&byte| byte == b':').filter(|&at| at > 0) else {
        return Some("an address is written host:port");
    };
    let (host, port) = (&address[..colon], &address[colon + 1..]);
    if parse_port(port).is_none() {
        return Some("the port of an address is a number from 1 to 65535");
    }
    let well_formed = match host.strip_prefix(b"[") {
        Some(inner) => {
            host.ends_with(b"]")
                && host.contains(&b':')
                && !inner.contains(&b'[')
                && !host[..host.len() - 1].contains(&b']')
        }
        None => !host.contains(&b':') && !host.contains(&b']'),
    };
    if well_formed { None } else { Some("an IPv6 address is written [host]:port") }
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.is_empty() || digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    u16::try_from(number).ok().filter(|&port| port > 0)
}

/// Takes `host:port` apart, without the brackets of an IPv6 host.
pub(crate) fn split_address(address: &str) -> Result<(&str, u16), &'static str> {
    if let Some(problem) = address_problem(address.as_bytes()) {
        return Err(problem);
    }
    let (host, port) = address.rsplit_once(':').ok_or("an address is written host:port")?;
    let port = parse_port(port.as_bytes()).ok_or("the port of an address is a number from 1 to 65535")?;
    Ok((host.trim_matches(['[', ']']), port))
}

/// Makes any text fit for `H`: what cannot be printed becomes `?`, what goes beyond 64 bytes is cut off between
/// characters.
pub(crate) fn hello_text(text: &str) -> Vec<u8> {
    let mut plain = String::with_capacity(HELLO_BYTES_MAX);
    for char in text.chars() {
        let shown = if char == ' ' || char.is_ascii_graphic() || char.is_alphanumeric() { char } else { '?' };
        if plain.len() + shown.len_utf8() > HELLO_BYTES_MAX {
            break;
        }
        plain.push(shown);
    }
    plain.into_bytes()
}

/// Shows a key or another text from outside on one line: printable and unambiguous.
///
/// What is not printable becomes `\u{…}`, a byte that is no UTF-8 `\xff`, a backslash is doubled.
pub(crate) fn escaped(data: &[u8]) -> String {
    let mut shown = String::with_capacity(data.len());
    for chunk in data.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\'' | '"' => shown.push(char),
                _ => shown.extend(char.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_1_to_128_bytes_of_utf8_without_space_and_line_break() {
        for good in ["k".as_bytes(), "좌석:A-12".as_bytes(), &[b'x'; 128], b"tab\tand\x00nul"] {
            assert_eq!(key_problem(good), None, "{good:?}");
        }
        for bad in [b"".as_slice(), &[b'x'; 129], b"a b", b"a\nb", b"a\rb", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80"]
        {
            assert!(key_problem(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_are_host_and_port() {
        for (address, host, port) in
            [("10.0.0.1:5225", "10.0.0.1", 5225), ("node-1:1", "node-1", 1), ("[fd00::2]:65535", "fd00::2", 65535)]
        {
            assert_eq!(split_address(address), Ok((host, port)));
        }
        for bad in [
            "",
            "host",
            ":5225",
            "host:",
            "host:0",
            "host:65536",
            "host:x",
            "host:+1",
            "a b:1",
            "a+b:1",
            "fd00::2:5225",
            "[fd00::2:5225",
            "[fd00::2]]:1",
            "[host]:1",
            "h\u{f6}st:1",
            "host:00001x",
            "host:123456",
        ] {
            assert!(split_address(bad).is_err(), "{bad:?}");
        }
        assert!(split_address(&format!("{}:1", "x".repeat(119))).is_err());
    }

    #[test]
    fn what_a_client_says_of_itself_fits_into_its_frame() {
        assert_eq!(hello_text("web 좌석\n\u{202e}"), "web 좌석??".as_bytes());
        assert_eq!(hello_text(&"x".repeat(100)).len(), 64);
        let cut = hello_text(&"좌".repeat(40));
        assert_eq!(cut.len(), 63);
        assert!(std::str::from_utf8(&cut).is_ok());
    }

    #[test]
    fn what_comes_from_outside_is_shown_on_one_line() {
        assert_eq!(escaped("좌석'1\"".as_bytes()), "좌석'1\"");
        assert_eq!(escaped(b"a\n\x1b\\\xff"), "a\\n\\u{1b}\\\\\\xff");
        assert_eq!(escaped("\u{202e}".as_bytes()), "\\u{202e}");
    }
}
