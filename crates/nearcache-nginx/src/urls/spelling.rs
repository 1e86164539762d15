//! Spellings of one key: keys that differ only in case, order of arguments, tracking or encoding.
//!
//! All spellings have one *family*, a hash that ignores these. Whether two spellings get
//! the same answer the log does not know: that is for evidence (equal bodies) to show.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::base::text;

/// What about a key could have been spelled otherwise, in the order of [`NAMES`].
pub const CASE: u8 = 1;
pub const ORDER: u8 = 2;
pub const TRACKING: u8 = 4;
pub const ENCODING: u8 = 8;
pub const NAMES: [&str; 4] = ["case", "order", "tracking", "encoding"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    pub family: u64,
    /// [`CASE`] and the others: what this spelling has of each.
    pub oddities: u8,
}

impl Spelling {
    pub fn of(key: &[u8], scratch: &mut Vec<u8>) -> Spelling {
        let (base, args) = match memchr::memchr(b'?', key) {
            Some(at) => (&key[..at], &key[at + 1..]),
            None => (key, &b""[..]),
        };
        let mut oddities = 0;
        let base = normal_hash(base, false, &mut oddities, scratch);
        let mut sum = 0u64;
        let mut last: &[u8] = b"";
        for piece in args.split(|byte| *byte == b'&').filter(|piece| !piece.is_empty()) {
            if is_tracking(piece.split(|byte| *byte == b'=').next().unwrap_or(piece)) {
                oddities |= TRACKING;
                continue;
            }
            if piece < last {
                oddities |= ORDER;
            }
            last = piece;
            // A sum does not mind the order.
            sum = sum.wrapping_add(normal_hash(piece, true, &mut oddities, scratch));
        }
        Spelling { family: xxh3_64_with_seed(&sum.to_le_bytes(), base), oddities }
    }

    /// What two spellings of one family differ in.
    pub fn differences(ours: u8, theirs: u8) -> u8 {
        // Both may be odd in the same respect and yet differ in it: `?b&c&a` and `?c&b&a`.
        if ours == theirs { ours } else { ours ^ theirs }
    }
}

fn normal_hash(text: &[u8], plus: bool, oddities: &mut u8, scratch: &mut Vec<u8>) -> u64 {
    let (mut upper, mut quoted) = (false, false);
    for byte in text {
        upper |= byte.is_ascii_uppercase();
        quoted |= matches!(byte, b'%' | b'\\') || (plus && *byte == b'+');
    }
    if !upper && !quoted {
        return xxh3_64(text);
    }
    scratch.clear();
    if quoted {
        *oddities |= ENCODING;
        text::plain(text, plus, scratch);
    } else {
        scratch.extend_from_slice(text);
    }
    if upper {
        *oddities |= CASE;
    }
    scratch.make_ascii_lowercase();
    xxh3_64(without_spaces(scratch, plus))
}

/// `q= abba ` is `q=abba`, in arguments.
fn without_spaces(plain: &mut Vec<u8>, is_argument: bool) -> &[u8] {
    if !is_argument {
        return plain;
    }
    let trimmed = plain.trim_ascii_end().len();
    plain.truncate(trimmed);
    if let Some(at) = memchr::memchr(b'=', plain) {
        let blanks = plain[at + 1..].iter().take_while(|byte| **byte == b' ').count();
        plain.drain(at + 1..at + 1 + blanks);
    }
    plain
}

/// Arguments that only tell where a visitor came from.
pub(crate) fn is_tracking(name: &[u8]) -> bool {
    name.starts_with(b"utm_")
        || matches!(
            name,
            b"fbclid"
                | b"gclid"
                | b"gclsrc"
                | b"dclid"
                | b"gbraid"
                | b"wbraid"
                | b"msclkid"
                | b"mc_cid"
                | b"mc_eid"
                | b"yclid"
                | b"igshid"
                | b"igsh"
                | b"twclid"
                | b"ttclid"
                | b"li_fat_id"
                | b"srsltid"
                | b"_ga"
                | b"_gl"
                | b"_hsenc"
                | b"_hsmi"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(key: &str) -> Spelling {
        Spelling::of(key.as_bytes(), &mut Vec::new())
    }

    #[test]
    fn spellings_of_one_key_are_one_family() {
        let plain = spelled("https://a/s?p=2&q=abba");
        assert_eq!(plain.oddities, 0);
        for (key, oddities) in [
            ("https://a/s?q=abba&p=2", ORDER),
            ("https://a/s?p=2&q=ABBA", CASE),
            ("https://a/S?p=2&q=abba", CASE),
            ("https://a/s?p=2&q=abba&utm_source=x&fbclid=1", TRACKING),
            ("https://a/s?p=2&q=%61bba", ENCODING),
            ("https://a/s?p=2&q=+abba%20", ENCODING),
            ("https://a/s?q=Abba&p=2", CASE | ORDER),
            ("https://a/s?&p=2&q=abba&", 0),
        ] {
            assert_eq!(spelled(key), Spelling { family: plain.family, oddities }, "{key}");
        }
    }

    #[test]
    fn other_keys_are_other_families() {
        let plain = spelled("/s?p=2&q=abba").family;
        for key in ["/s", "/s?p=2", "/s?p=2&q=abb", "/s?p=2&q=ab+ba", "/t?p=2&q=abba", "/s?p=2&p=2"]
        {
            assert_ne!(spelled(key).family, plain, "{key}");
        }
        assert_ne!(spelled("/a+b").family, spelled("/a b").family, "a plus in a path is a plus");
    }

    #[test]
    fn differences_name_what_a_rule_would_mend() {
        assert_eq!(Spelling::differences(CASE, 0), CASE);
        assert_eq!(Spelling::differences(CASE | ORDER, ORDER), CASE);
        assert_eq!(Spelling::differences(ORDER, ORDER), ORDER);
    }
}
