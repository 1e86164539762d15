//! Which `location` of the configuration a path falls into, by nginx's own rules.
//!
//! An exact match wins. Else the longest prefix is remembered; if it is no `^~`, the first
//! regular expression that matches, in the order of the file, wins over it. Source:
//! ngx_http_core_find_location. Nested locations are for the caller to flatten.

use std::fmt;

use fancy_regex::{Regex, RegexBuilder};

use crate::base::text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `=`
    Exact,
    /// `^~`
    FirmPrefix,
    /// nothing
    Prefix,
    /// `~`
    Regex,
    /// `~*`
    RegexIgnoringCase,
}

impl Kind {
    pub fn parse(text: &str) -> Result<Kind, PatternError> {
        Ok(match text {
            "=" => Kind::Exact,
            "^~" => Kind::FirmPrefix,
            "" => Kind::Prefix,
            "~" => Kind::Regex,
            "~*" => Kind::RegexIgnoringCase,
            _ => return Err(PatternError::UnknownKind(text.to_owned())),
        })
    }
}

/// A location or group that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    UnknownKind(String),
    /// The pattern, and what is wrong with it.
    BadRegex(String, String),
    /// More locations than fit their number.
    TooMany(usize),
}

impl fmt::Display for PatternError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::UnknownKind(kind) => {
                write!(
                    out,
                    "{kind:?} is no kind of location; nginx has \"=\", \"^~\", \"\", \"~\" and \"~*\""
                )
            }
            PatternError::BadRegex(pattern, reason) => {
                write!(out, "the regular expression {pattern:?} cannot be used: {reason}")
            }
            PatternError::TooMany(count) => {
                write!(out, "{count} locations are more than the {} that fit", u16::MAX - 1)
            }
        }
    }
}

/// Patterns with look-around or references backwards may take exponentially many steps.
const MOST_STEPS: usize = 100_000;

pub(crate) fn compile(pattern: &str, ignore_case: bool) -> Result<Regex, PatternError> {
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .backtrack_limit(MOST_STEPS)
        .build()
        .map_err(|error| PatternError::BadRegex(pattern.to_owned(), error.to_string()))
}

/// The locations of a configuration, by their position in it.
#[derive(Debug, Default)]
pub struct Locations {
    count: u16,
    exact: Vec<(Vec<u8>, u16)>,
    prefixes: Vec<(Vec<u8>, Kind, u16)>,
    regexes: Vec<(Regex, u16)>,
    scratch: Vec<u8>,
    /// Matches that were given up because they took too many steps.
    pub gave_up: u64,
}

impl Locations {
    pub fn new(patterns: &[(Kind, String)]) -> Result<Locations, PatternError> {
        let mut locations = Locations::default();
        if patterns.len() >= usize::from(u16::MAX) {
            return Err(PatternError::TooMany(patterns.len()));
        }
        for (number, (kind, pattern)) in (0u16..).zip(patterns) {
            let bytes = pattern.clone().into_bytes();
            match kind {
                Kind::Exact => locations.exact.push((bytes, number)),
                Kind::Prefix | Kind::FirmPrefix => {
                    locations.prefixes.push((bytes, *kind, number));
                }
                Kind::Regex => locations.regexes.push((compile(pattern, false)?, number)),
                Kind::RegexIgnoringCase => {
                    locations.regexes.push((compile(pattern, true)?, number))
                }
            }
            locations.count += 1;
        }
        // The longest first; of two alike, which nginx would refuse, the first in the file.
        locations.prefixes.sort_by_key(|(prefix, _, _)| std::cmp::Reverse(prefix.len()));
        Ok(locations)
    }

    /// How many there are; also the number of the place for what matches none.
    pub fn none(&self) -> u16 {
        self.count
    }

    /// Of a path as logged, without arguments.
    pub fn of(&mut self, path: &[u8]) -> u16 {
        if self.count == 0 {
            return 0;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let found = self.find(text::normal_path(path, &mut scratch));
        self.scratch = scratch;
        found.unwrap_or(self.count)
    }

    fn find(&mut self, path: &[u8]) -> Option<u16> {
        if let Some((_, number)) = self.exact.iter().find(|(exact, _)| exact == path) {
            return Some(*number);
        }
        let longest = self.prefixes.iter().find(|(prefix, _, _)| path.starts_with(prefix));
        match longest {
            Some((_, Kind::FirmPrefix, number)) => Some(*number),
            _ => {
                let number = longest.map(|(_, _, number)| *number);
                self.first_regex(path).or(number)
            }
        }
    }

    fn first_regex(&mut self, path: &[u8]) -> Option<u16> {
        if self.regexes.is_empty() {
            return None;
        }
        let path = String::from_utf8_lossy(path);
        for (regex, number) in &self.regexes {
            match regex.is_match(&path) {
                Ok(true) => return Some(*number),
                Ok(false) => {}
                Err(_) => self.gave_up += 1,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of nginx's documentation of `location`.
    fn documented() -> Locations {
        let patterns = [
            (Kind::Exact, "/"),
            (Kind::Prefix, "/"),
            (Kind::Prefix, "/documents/"),
            (Kind::FirmPrefix, "/images/"),
            (Kind::RegexIgnoringCase, r"\.(gif|jpg|jpeg)$"),
        ];
        Locations::new(&patterns.map(|(kind, text)| (kind, text.to_owned()))).unwrap()
    }

    #[test]
    fn locations_match_as_documented() {
        let mut locations = documented();
        for (path, number) in [
            ("/", 0),
            ("/index.html", 1),
            ("/documents/document.html", 2),
            ("/images/1.gif", 3),
            ("/documents/1.JPG", 4),
            ("/documents/../images/1.jpg", 3),
            ("*", 5),
        ] {
            assert_eq!(locations.of(path.as_bytes()), number, "{path}");
        }
    }

    #[test]
    fn look_around_works_and_runaway_patterns_end() {
        let kinds = [
            (Kind::Regex, "^/(?!static)".to_owned()),
            (Kind::Regex, r"^/static/(a*)*\1$".to_owned()),
        ];
        let mut locations = Locations::new(&kinds).unwrap();
        assert_eq!(locations.of(b"/x"), 0);
        assert_eq!(locations.of(b"/static/aa"), 1);
        let long = format!("/static/{}b", "a".repeat(64));
        assert_eq!(locations.of(long.as_bytes()), 2);
        assert_eq!(locations.gave_up, 1);
    }

    #[test]
    fn what_cannot_be_used_says_so() {
        assert_eq!(Kind::parse("@"), Err(PatternError::UnknownKind("@".into())));
        let error = Locations::new(&[(Kind::Regex, "(".into())]).unwrap_err();
        assert!(error.to_string().contains("\"(\""));
    }
}
