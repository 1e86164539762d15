//! What a logged target says: its path and arguments, and text without its three wrappings.
//!
//! A byte may be wrapped by nginx when it logs (`\xC3`, or in JSON `\u001f` and `\"`), by the
//! client in the target (`%C3`), and in arguments a space is `+`.

/// Path and arguments of a target; of `http://host/path`, too, as proxies ask.
pub(crate) fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    let target = without_authority(target);
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, b""),
    }
}

fn without_authority(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') {
        return target;
    }
    let Some(at) = memchr::memmem::find(target, b"://") else { return target };
    let rest = &target[at + 3..];
    match memchr::memchr(b'/', rest) {
        Some(slash) => &rest[slash..],
        None => b"/",
    }
}

/// `name=value` of every argument; the value is `None` without `=`.
pub(crate) fn arguments(args: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    args.split(|byte| *byte == b'&').filter(|piece| !piece.is_empty()).map(|piece| {
        match memchr::memchr(b'=', piece) {
            Some(at) => (&piece[..at], Some(&piece[at + 1..])),
            None => (piece, None),
        }
    })
}

/// Appends `text` without nginx's escapes.
pub(crate) fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (used, byte) = escape_at(&rest[at..]);
        match byte {
            Some(code) => push_char(code, used == 4, out),
            None => out.extend_from_slice(&rest[at..at + used]),
        }
        rest = &rest[at + used..];
    }
    out.extend_from_slice(rest);
}

/// How long the escape at the start of `text` is, and what it stands for.
fn escape_at(text: &[u8]) -> (usize, Option<u32>) {
    match text.get(1) {
        Some(b'x') => match text.get(2..4).and_then(hex) {
            Some(byte) => (4, Some(byte)),
            None => (2, None),
        },
        Some(b'u') => match text.get(2..6).and_then(hex) {
            Some(code) => (6, Some(code)),
            None => (2, None),
        },
        Some(b'n') => (2, Some(10)),
        Some(b'r') => (2, Some(13)),
        Some(b't') => (2, Some(9)),
        Some(b'b') => (2, Some(8)),
        Some(b'f') => (2, Some(12)),
        Some(other @ (b'"' | b'\\' | b'/')) => (2, Some(u32::from(*other))),
        // A lone backslash is itself.
        _ => (1, None),
    }
}

/// A byte as it is, a code point as UTF-8 (half a surrogate pair as the replacement).
fn push_char(code: u32, is_byte: bool, out: &mut Vec<u8>) {
    if is_byte {
        out.push(code as u8);
        return;
    }
    let char = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Takes `%41` out of the bytes from `from` on, and reads `+` as a space if asked to.
pub(crate) fn unquote(text: &mut Vec<u8>, from: usize, plus: bool) {
    let (mut read, mut write) = (from, from);
    while read < text.len() {
        let (byte, used) = match text[read] {
            b'%' => match text.get(read + 1..read + 3).and_then(hex) {
                Some(byte) => (byte as u8, 3),
                None => (b'%', 1),
            },
            b'+' if plus => (b' ', 1),
            byte => (byte, 1),
        };
        text[write] = byte;
        (read, write) = (read + used, write + 1);
    }
    text.truncate(write);
}

/// Unescaped and unquoted, as people would type it.
pub(crate) fn plain(text: &[u8], plus: bool, out: &mut Vec<u8>) {
    out.clear();
    unescape(text, out);
    unquote(out, 0, plus);
}

/// Characters of UTF-8; a broken sequence counts as one.
pub(crate) fn characters(text: &[u8]) -> usize {
    let count = |chunk: std::str::Utf8Chunk<'_>| {
        chunk.valid().chars().count() + usize::from(!chunk.invalid().is_empty())
    };
    text.utf8_chunks().map(count).sum()
}

/// The path as nginx matches locations against it: decoded, slashes merged, dots resolved.
pub(crate) fn normal_path<'a>(path: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    let plain_already = !path.iter().any(|byte| matches!(byte, b'%' | b'\\'))
        && memchr::memmem::find(path, b"//").is_none()
        && memchr::memmem::find(path, b"/.").is_none();
    if plain_already {
        return path;
    }
    plain(path, false, scratch);
    resolve(scratch);
    scratch
}

/// Merges slashes and resolves `.` and `..` in place. Never grows.
fn resolve(path: &mut Vec<u8>) {
    let decoded = std::mem::take(path);
    let trailing = matches!(decoded.rsplit(|byte| *byte == b'/').next(), Some(b"" | b"." | b".."));
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => path.truncate(path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
            _ => {
                path.push(b'/');
                path.extend_from_slice(segment);
            }
        }
    }
    if trailing || path.is_empty() {
        path.push(b'/');
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plainly(text: &str) -> String {
        let mut out = Vec::new();
        plain(text.as_bytes(), true, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn all_three_wrappings_come_off() {
        assert_eq!(plainly("a+b%20c"), "a b c");
        assert_eq!(plainly(r"\xC3\xA9"), "é");
        assert_eq!(plainly("%C3%A9"), "é");
        assert_eq!(plainly(r#"\"\\\u0041\/\n"#), "\"\\A/\n");
        for text in ["%", "%4", "%zz", r"\", r"\x", r"\xg1", r"\u12", r"\q"] {
            assert_eq!(plainly(text), text);
        }
    }

    #[test]
    fn characters_are_counted_not_bytes() {
        assert_eq!(characters("naïve".as_bytes()), 5);
        assert_eq!(characters(b"a\xffb"), 3);
        assert_eq!(characters(b""), 0);
    }

    #[test]
    fn targets_are_split() {
        assert_eq!(split_target(b"/a?b=c?d"), (&b"/a"[..], &b"b=c?d"[..]));
        assert_eq!(split_target(b"http://h/a?b"), (&b"/a"[..], &b"b"[..]));
        assert_eq!(split_target(b"http://h"), (&b"/"[..], &b""[..]));
        assert_eq!(split_target(b"*"), (&b"*"[..], &b""[..]));
        let pairs: Vec<_> = arguments(b"a=1&&b&c==").collect();
        assert_eq!(pairs, [(&b"a"[..], Some(&b"1"[..])), (b"b", None), (b"c", Some(b"="))]);
    }

    #[test]
    fn paths_become_what_nginx_matches() {
        let mut scratch = Vec::new();
        for (path, normal) in [
            ("/a/b", "/a/b"),
            ("/a//b/", "/a/b/"),
            ("/a/./b/../c", "/a/c"),
            ("/a/b/..", "/a/"),
            ("/../..", "/"),
            ("/%61%2Fb", "/a/b"),
            ("//", "/"),
        ] {
            assert_eq!(normal_path(path.as_bytes(), &mut scratch), normal.as_bytes(), "{path}");
        }
    }
}
