//! One flat JSON object a line, scanned in place.
//!
//! This is no JSON parser: it checks no more than it must to find the members. Members that are not
//! known are skipped over, whatever is in them. Escapes in strings are left as they are. A known
//! member that is an object or an array is no variable of nginx. Another program wrote it, and read
//! as a text it would be one URL for all requests.

use crate::log::record::{Field, Record};

/// `None` if the line is no object, breaks off, has no member that is known (applications, too,
/// write JSON to the output of a container), or has an object or array for a known one.
pub(crate) fn read(line: &[u8]) -> Option<Record<'_>> {
    let mut at = skip_space(line, 0);
    if line.get(at) != Some(&b'{') {
        return None;
    }
    at = skip_space(line, at + 1);
    let mut record = Record::empty();
    loop {
        let (name, after) = string(line, at)?;
        at = skip_space(line, after);
        if line.get(at) != Some(&b':') {
            return None;
        }
        at = skip_space(line, at + 1);
        let is_nested = matches!(line.get(at), Some(b'{' | b'['));
        let (value, after) = value(line, at)?;
        if let Some(field) = std::str::from_utf8(name).ok().and_then(Field::of_variable) {
            if is_nested {
                return None;
            }
            record.put(field_of(field, value), value);
        }
        at = skip_space(line, after);
        match line.get(at)? {
            b',' => at = skip_space(line, at + 1),
            b'}' => {
                let is_request = record.said() != 0 && skip_space(line, at + 1) == line.len();
                return is_request.then_some(record);
            }
            _ => return None,
        }
    }
}

/// `request` is often the URL alone: `"request":"$request_uri"`.
fn field_of(field: Field, value: &[u8]) -> Field {
    if field == Field::Request && value.first() == Some(&b'/') { Field::Uri } else { field }
}

/// The inside of the string at `at`, and the place after it.
fn string(line: &[u8], at: usize) -> Option<(&[u8], usize)> {
    if line.get(at) != Some(&b'"') {
        return None;
    }
    let begin = at + 1;
    let mut from = begin;
    loop {
        let found = from + memchr::memchr2(b'"', b'\\', line.get(from..)?)?;
        if line[found] == b'"' {
            return Some((&line[begin..found], found + 1));
        }
        from = found + 2;
    }
}

/// A string without its quotes, or a number, `true`, `null`, `{...}` as it stands.
fn value(line: &[u8], at: usize) -> Option<(&[u8], usize)> {
    match line.get(at)? {
        b'"' => string(line, at),
        b'{' | b'[' => nested(line, at),
        _ => {
            let length =
                line[at..].iter().position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\t'))?;
            let text = &line[at..at + length];
            // As nginx's own word for nothing.
            Some((if text == b"null" { b"-" } else { text }, at + length))
        }
    }
}

/// Over an object or array, by counting brackets outside strings.
fn nested(line: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let (mut depth, mut i) = (0usize, at);
    loop {
        match line.get(i)? {
            b'"' => i = string(line, i)?.1,
            b'{' | b'[' => (depth, i) = (depth + 1, i + 1),
            b'}' | b']' => {
                (depth, i) = (depth - 1, i + 1);
                if depth == 0 {
                    return Some((&line[at..i], i));
                }
            }
            _ => i += 1,
        }
    }
}

fn skip_space(line: &[u8], at: usize) -> usize {
    let rest = line.get(at..).unwrap_or(b"");
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    at + blank.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::CacheStatus;

    #[test]
    fn members_are_found_by_the_names_of_variables() {
        let line = br#"{"msec":"1.5", "status": 200,"x":{"y":["}"]},"request_uri":"/\"a","upstream_cache_status":"HIT","upstream_response_time":null}"#;
        let record = read(line).unwrap();
        assert_eq!(record.status(), Some(200));
        assert_eq!(record.uri(), Some(&br#"/\"a"#[..]));
        assert_eq!(record.cache_status(), Some(CacheStatus::Hit));
        assert_eq!(record.upstream().unwrap().asked, 0);
    }

    #[test]
    fn a_request_that_is_only_a_url_is_one() {
        let record = read(br#"{"status":200,"request":"/a?b=1"}"#).unwrap();
        assert_eq!(record.uri(), Some(&b"/a?b=1"[..]));
    }

    #[test]
    fn what_is_no_object_or_knows_no_variable_is_none() {
        let wrong: [&[u8]; 14] = [
            b" {} ",
            b"{\"level\":\"info\"}",
            b"{\"status\":1}x",
            b"",
            b"{",
            b"[]",
            b"{\"a\"}",
            b"{\"a\":",
            b"{\"a\":1",
            b"{\"a\":\"\\\"}",
            b"{\"a\":1}x",
            b"{\"a\":[1}",
            b"{\"status\":200,\"request\":{\"uri\":\"/\"}}",
            b"{\"host\":[\"a\"],\"status\":200}",
        ];
        for line in wrong {
            assert!(read(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
        assert!(read(br#" {"status":"200"} "#).is_some());
    }
}
