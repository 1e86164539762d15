//! From chunks of bytes to records: lines across the edges of chunks, bad ones counted.

use crate::log::format::Format;
use crate::log::json;
use crate::log::record::Record;
use crate::log::time::Clock;

/// A line longer than this is no log line; it is counted as bad and skipped.
pub const LONGEST_LINE: usize = 1 << 20;
/// So many bad lines are kept to be shown, and so much of each.
const BAD_KEPT: usize = 5;
const BAD_SHOWN: usize = 200;

/// Takes the records of a log, one by one.
pub trait Consumer {
    fn take(&mut self, record: &Record<'_>);
}

/// A line that did not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Counted from 1, over everything that was fed.
    pub number: u64,
    /// Its beginning.
    pub text: Vec<u8>,
}

/// Reads lines of one format.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    clock: Clock,
    /// A line that began in an earlier chunk.
    begun: Vec<u8>,
    /// The line that began earlier is too long; it goes on until the next newline.
    too_long: bool,
    pub lines: u64,
    pub bytes: u64,
    pub bad: u64,
    pub bad_examples: Vec<Bad>,
}

impl Reader {
    pub fn new(format: Format) -> Reader {
        Reader {
            format,
            clock: Clock::default(),
            begun: Vec::new(),
            too_long: false,
            lines: 0,
            bytes: 0,
            bad: 0,
            bad_examples: Vec::new(),
        }
    }

    /// Takes the next bytes of the log, which may begin and end anywhere.
    pub fn feed(&mut self, chunk: &[u8], consumer: &mut impl Consumer) {
        self.bytes += chunk.len() as u64;
        let mut rest = chunk;
        if !self.begun.is_empty() || self.too_long {
            let Some(end) = memchr::memchr(b'\n', rest) else {
                self.keep(rest);
                return;
            };
            self.keep(&rest[..end]);
            let line = std::mem::take(&mut self.begun);
            self.end_line(&line, consumer);
            self.begun = line;
            self.begun.clear();
            rest = &rest[end + 1..];
        }
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.line(&rest[..end], consumer);
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    /// The log has ended: a last line without a newline is one nevertheless.
    pub fn finish(&mut self, consumer: &mut impl Consumer) {
        if !self.begun.is_empty() || self.too_long {
            let line = std::mem::take(&mut self.begun);
            self.end_line(&line, consumer);
        }
    }

    /// The variables that the format names, as far as they are known beforehand.
    pub fn variables(&self) -> &[String] {
        self.format.variables()
    }

    fn keep(&mut self, text: &[u8]) {
        if self.too_long || self.begun.len() + text.len() > LONGEST_LINE {
            self.too_long = true;
            let room = BAD_SHOWN.saturating_sub(self.begun.len()).min(text.len());
            self.begun.extend_from_slice(&text[..room]);
            return;
        }
        self.begun.extend_from_slice(text);
    }

    fn end_line(&mut self, line: &[u8], consumer: &mut impl Consumer) {
        if std::mem::take(&mut self.too_long) {
            self.lines += 1;
            self.refuse(line);
        } else {
            self.line(line, consumer);
        }
    }

    fn line(&mut self, line: &[u8], consumer: &mut impl Consumer) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        self.lines += 1;
        let record = match &self.format {
            Format::Text(plan) => plan.read(line),
            Format::Json => json::read(line),
        };
        if let Some(mut record) = record
            && record.read_time(&mut self.clock)
        {
            consumer.take(&record);
        } else {
            self.refuse(line);
        }
    }

    fn refuse(&mut self, line: &[u8]) {
        self.bad += 1;
        if self.bad_examples.len() < BAD_KEPT {
            let text = line[..line.len().min(BAD_SHOWN)].to_vec();
            self.bad_examples.push(Bad { number: self.lines, text });
        }
    }
}
