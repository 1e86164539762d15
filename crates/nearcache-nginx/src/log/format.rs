//! `log_format` compiled: what separates the variables, and which of them are wanted.
//!
//! A variable reaches to the next occurrence of the text that follows it in the format.
//! nginx escapes quotes in values (`escape=default` as `\x22`, `escape=json` as `\"`), so
//! a quoted variable cannot hide the quote that ends it; an unquoted one that holds the
//! separator is a line that does not fit, or fits in the only way it can.

use std::fmt;

use crate::log::record::{Field, Record};

pub const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" \
                            $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

/// How to read one line.
#[derive(Clone, Debug)]
pub enum Format {
    Text(Plan),
    /// One flat JSON object a line; names of members are those of nginx's variables.
    Json,
}

/// Why a format cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// It names no variable at all.
    NoVariables,
    /// Nothing stands between these two, so nobody can tell where one ends.
    NothingBetween(String, String),
    /// It has no variable that this crate knows.
    NothingKnown,
}

impl fmt::Display for FormatError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::NoVariables => write!(out, "the log format names no variable"),
            FormatError::NothingBetween(a, b) => {
                write!(out, "nothing separates ${a} from ${b}, so a line cannot be read")
            }
            FormatError::NothingKnown => {
                write!(out, "the log format has no variable that can be used")
            }
        }
    }
}

/// A format of literals and variables.
#[derive(Clone, Debug)]
pub struct Plan {
    before: Vec<u8>,
    steps: Vec<Step>,
    names: Vec<String>,
}

#[derive(Clone, Debug)]
struct Step {
    field: Option<Field>,
    /// The text that ends the variable; empty at the end of the line.
    until: Vec<u8>,
}

impl Format {
    /// `combined`, `json`, or the text of a `log_format`. `key` names the variable that
    /// holds the cache key, if it is not one of the usual.
    pub fn compile(text: &str, key: Option<&str>) -> Result<Format, FormatError> {
        match text {
            "combined" => Plan::compile(COMBINED, key).map(Format::Text),
            "json" => Ok(Format::Json),
            _ => Plan::compile(text, key).map(Format::Text),
        }
    }

    /// The variables it has, as far as they are known beforehand.
    pub fn variables(&self) -> &[String] {
        match self {
            Format::Text(plan) => &plan.names,
            Format::Json => &[],
        }
    }
}

impl Plan {
    fn compile(text: &str, key: Option<&str>) -> Result<Plan, FormatError> {
        let (before, pieces) = split(text);
        if pieces.is_empty() {
            return Err(FormatError::NoVariables);
        }
        for pair in pieces.windows(2) {
            if pair[0].1.is_empty() {
                return Err(FormatError::NothingBetween(pair[0].0.clone(), pair[1].0.clone()));
            }
        }
        let steps: Vec<Step> = pieces
            .iter()
            .map(|(name, until)| Step {
                field: if Some(name.as_str()) == key {
                    Some(Field::Key)
                } else {
                    Field::of_variable(name)
                },
                until: until.clone().into_bytes(),
            })
            .collect();
        if steps.iter().all(|step| step.field.is_none()) {
            return Err(FormatError::NothingKnown);
        }
        let names = pieces.into_iter().map(|(name, _)| name).collect();
        Ok(Plan { before: before.into_bytes(), steps, names })
    }

    /// `None` if the line does not fit.
    pub(crate) fn read<'a>(&self, line: &'a [u8]) -> Option<Record<'a>> {
        let mut rest = line.strip_prefix(self.before.as_slice())?;
        let mut record = Record::empty();
        for step in &self.steps {
            let end = end_of(rest, &step.until)?;
            if let Some(field) = step.field {
                record.put(field, &rest[..end]);
            }
            rest = &rest[end + step.until.len()..];
        }
        rest.is_empty().then_some(record)
    }
}

/// Where `until` begins; the end if it is empty.
fn end_of(text: &[u8], until: &[u8]) -> Option<usize> {
    let Some((first, others)) = until.split_first() else {
        return Some(text.len());
    };
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(*first, &text[from..])?;
        if text[at + 1..].starts_with(others) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The literal before the first variable, then every variable with the literal after it.
fn split(text: &str) -> (String, Vec<(String, String)>) {
    let mut before = String::new();
    let mut pieces: Vec<(String, String)> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let literal = &rest[..at];
        match pieces.last_mut() {
            Some(piece) => piece.1.push_str(literal),
            None => before.push_str(literal),
        }
        let (name, after) = variable(&rest[at + 1..]);
        if name.is_empty() {
            // A dollar that names nothing is itself.
            match pieces.last_mut() {
                Some(piece) => piece.1.push('$'),
                None => before.push('$'),
            }
        } else {
            pieces.push((name.to_owned(), String::new()));
        }
        rest = after;
    }
    match pieces.last_mut() {
        Some(piece) => piece.1.push_str(rest),
        None => before.push_str(rest),
    }
    (before, pieces)
}

/// `name` or `{name}` at the start, and what follows.
fn variable(text: &str) -> (&str, &str) {
    if let Some(inner) = text.strip_prefix('{')
        && let Some(end) = inner.find('}')
    {
        return (&inner[..end], &inner[end + 1..]);
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    (&text[..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Plan {
        Plan::compile(text, None).unwrap()
    }

    #[test]
    fn a_combined_line_is_read() {
        let line = br#"1.2.3.4 - joe [17/May/2015:10:05:03 +0000] "GET /a b?c=\x22 HTTP/1.1" 200 12 "-" "x""#;
        let record = compile(COMBINED).read(line).unwrap();
        assert_eq!(record.method(), Some(&b"GET"[..]));
        assert_eq!(record.uri(), Some(&br"/a b?c=\x22"[..]));
        assert_eq!((record.status(), record.bytes_sent()), (Some(200), Some(12)));
        assert_eq!(record.cache_status(), None);
        assert_eq!(record.upstream(), None);
    }

    #[test]
    fn braces_and_lone_dollars_are_understood() {
        let plan = compile("$$ ${status}x$request_time;");
        let record = plan.read(b"$$ 404x0.5;").unwrap();
        assert_eq!(record.status(), Some(404));
        assert_eq!(record.request_us(), Some(500_000));
    }

    #[test]
    fn a_line_that_does_not_fit_is_none() {
        for line in [&b""[..], b"200", b"1.2.3.4 - joe", b"a b c d e f g h"] {
            assert!(compile(COMBINED).read(line).is_none());
        }
        assert!(compile("$status x").read(b"200 x and more").is_none());
    }

    #[test]
    fn formats_that_cannot_be_read_say_why() {
        let error = |text| Plan::compile(text, None).unwrap_err();
        assert_eq!(error("none"), FormatError::NoVariables);
        assert_eq!(
            error("$status$request"),
            FormatError::NothingBetween("status".into(), "request".into())
        );
        assert_eq!(error("$remote_addr x"), FormatError::NothingKnown);
    }

    #[test]
    fn the_key_may_have_any_name() {
        let plan = Plan::compile("$my_key $status", Some("my_key")).unwrap();
        let record = plan.read(b"https://a/ 200").unwrap();
        assert_eq!(record.text(Field::Key), Some(&b"https://a/"[..]));
    }
}
