//! How long are the values of one argument, or of one part of the path?
//!
//! In characters as people typed them, so that a rule like "cache queries of at most nine
//! characters" can be judged before it is made.

use xxhash_rust::xxh3::xxh3_64;

use crate::base::distinct::Distinct;
use crate::base::text;

/// Longer values count as this.
pub const LONGEST: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Argument(Vec<u8>),
    /// Counted from 1.
    PathPart(usize),
}

/// Values of one length.
#[derive(Clone, Debug, Default)]
pub struct OfLength {
    pub requests: u64,
    pub served: u64,
    pub upstream_us: u64,
    pub distinct: Distinct,
}

#[derive(Debug)]
pub struct Lengths {
    subject: Subject,
    under: Vec<u8>,
    scratch: Vec<u8>,
    pub by_length: Vec<Option<OfLength>>,
    pub distinct: Distinct,
    pub absent: u64,
}

impl Lengths {
    /// Only paths that begin with `under` count.
    pub fn new(subject: Subject, under: &str) -> Lengths {
        Lengths {
            subject,
            under: under.as_bytes().to_vec(),
            scratch: Vec::new(),
            by_length: vec![None; LONGEST + 1],
            distinct: Distinct::default(),
            absent: 0,
        }
    }

    pub fn take(&mut self, target: &[u8], served: bool, upstream_us: u64) {
        let (path, args) = text::split_target(target);
        if !path.starts_with(&self.under) {
            return;
        }
        let value = value_of(path, args, &self.subject, &mut self.scratch);
        let Some(value) = value else {
            self.absent += 1;
            return;
        };
        let plus = matches!(self.subject, Subject::Argument(_));
        text::plain(value, plus, &mut self.scratch);
        self.count(served, upstream_us);
    }

    /// The value that was made plain.
    fn count(&mut self, served: bool, upstream_us: u64) {
        let hash = xxh3_64(&self.scratch);
        self.distinct.add(hash);
        let length = text::characters(&self.scratch).min(LONGEST);
        let of_length = self.by_length[length].get_or_insert_default();
        of_length.requests += 1;
        of_length.served += u64::from(served);
        of_length.upstream_us = of_length.upstream_us.saturating_add(upstream_us);
        of_length.distinct.add(hash);
    }

    pub fn requests(&self) -> u64 {
        self.by_length.iter().flatten().map(|of_length| of_length.requests).sum()
    }
}

fn value_of<'a>(
    path: &'a [u8],
    args: &'a [u8],
    subject: &Subject,
    scratch: &mut Vec<u8>,
) -> Option<&'a [u8]> {
    match subject {
        Subject::Argument(name) => argument(args, name, scratch),
        Subject::PathPart(number) => path_part(path, *number),
    }
}

/// How many characters the subject has in this target; `None` if it is not there.
pub(crate) fn value_length(
    target: &[u8],
    subject: &Subject,
    scratch: &mut Vec<u8>,
) -> Option<usize> {
    let (path, args) = text::split_target(target);
    let value = value_of(path, args, subject, scratch)?;
    text::plain(value, matches!(subject, Subject::Argument(_)), scratch);
    Some(text::characters(scratch))
}

/// The first argument of that name, whatever way the name is encoded.
fn argument<'a>(args: &'a [u8], name: &[u8], scratch: &mut Vec<u8>) -> Option<&'a [u8]> {
    let found = text::arguments(args).find(|(theirs, _)| {
        *theirs == name || {
            theirs.contains(&b'%') && {
                text::plain(theirs, true, scratch);
                scratch == name
            }
        }
    });
    found.map(|(_, value)| value.unwrap_or(b""))
}

fn path_part(path: &[u8], number: usize) -> Option<&[u8]> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.into_iter().nth(number.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(subject: Subject, targets: &[&str]) -> Vec<(usize, u64)> {
        let mut lengths = Lengths::new(subject, "/s");
        for target in targets {
            lengths.take(target.as_bytes(), false, 7);
        }
        let counted = lengths.by_length.iter().enumerate();
        counted.filter_map(|(n, of)| of.as_ref().map(|of| (n, of.requests))).collect()
    }

    #[test]
    fn characters_of_an_argument_are_counted_as_typed() {
        let targets =
            ["/s?q=a+b", "/s?x=1&q=%C3%A9%20x", r"/s?q=\xC3\xA9", "/s?q=", "/s?q", "/t?q=a"];
        let q = Subject::Argument(b"q".to_vec());
        assert_eq!(lengths(q.clone(), &targets), [(0, 2), (1, 1), (3, 2)]);
        let long = format!("/s?q={}", "x".repeat(5000));
        assert_eq!(lengths(q, &[&long, "/s?%71=abc&q=a"]), [(3, 1), (LONGEST, 1)]);
    }

    #[test]
    fn parts_of_the_path_count_from_one() {
        assert_eq!(
            lengths(Subject::PathPart(2), &["/s/ab/c", "/s//ab%41", "/s"]),
            [(2, 1), (3, 1)]
        );
        assert_eq!(lengths(Subject::PathPart(0), &["/s/ab"]), []);
    }

    #[test]
    fn absent_and_distinct_are_told() {
        let mut lengths = Lengths::new(Subject::Argument(b"q".to_vec()), "");
        for target in ["/?q=a", "/?q=b", "/?q=a", "/"] {
            lengths.take(target.as_bytes(), true, 5);
        }
        assert_eq!((lengths.requests(), lengths.absent, lengths.distinct.estimate()), (3, 1, 2));
        let of_one = lengths.by_length[1].as_ref().unwrap();
        assert_eq!((of_one.served, of_one.upstream_us, of_one.distinct.estimate()), (3, 15, 2));
    }
}
