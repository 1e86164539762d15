//! Which requests count: those of a time, a host, a location. What is left out is counted.

use crate::log::record::{Field, Record};

/// Without any condition it lets everything through.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Requests that ended then or later, in microseconds since 1970.
    pub since_us: Option<i64>,
    /// Requests that ended before.
    pub until_us: Option<i64>,
    /// In lower case; the log may have any case, and a port behind it.
    pub host: Option<Vec<u8>>,
    /// A position among the locations.
    pub location: Option<u16>,
}

impl Filter {
    /// Does its time fit? A line without a time fits no bound.
    pub(crate) fn in_time(&self, record: &Record<'_>) -> bool {
        let since = self.since_us.is_none_or(|us| record.time_us.is_some_and(|t| t >= us));
        let until = self.until_us.is_none_or(|us| record.time_us.is_some_and(|t| t < us));
        since && until
    }

    pub(crate) fn is_host(&self, record: &Record<'_>) -> bool {
        self.host.as_ref().is_none_or(|wanted| {
            record
                .text(Field::Host)
                .is_some_and(|host| without_port(host).eq_ignore_ascii_case(wanted))
        })
    }

    pub(crate) fn is_location(&self, location: u16) -> bool {
        self.location.is_none_or(|wanted| wanted == location)
    }
}

/// `$http_host` has the port that the client named; `[::1]:80` has colons of its own.
fn without_port(host: &[u8]) -> &[u8] {
    match memchr::memrchr(b':', host) {
        Some(at) if host[at + 1..].iter().all(u8::is_ascii_digit) => &host[..at],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_case_and_port() {
        let filter = Filter { host: Some(b"a.example".to_vec()), ..Filter::default() };
        let mut record = Record::empty();
        assert!(!filter.is_host(&record));
        for (host, fits) in [
            (&b"a.example"[..], true),
            (b"A.Example:8080", true),
            (b"b.example", false),
            (b"a.example.org", false),
            (b"-", false),
        ] {
            record.put(Field::Host, host);
            assert_eq!(filter.is_host(&record), fits, "{}", String::from_utf8_lossy(host));
        }
        assert_eq!(without_port(b"[::1]:80"), b"[::1]");
        assert!(Filter::default().is_host(&record));
    }

    #[test]
    fn a_time_fits_from_its_beginning_to_before_its_end() {
        let filter = Filter { since_us: Some(5), until_us: Some(7), ..Filter::default() };
        let mut record = Record::empty();
        assert!(!filter.in_time(&record));
        for (time_us, fits) in [(4, false), (5, true), (6, true), (7, false)] {
            record.time_us = Some(time_us);
            assert_eq!(filter.in_time(&record), fits);
        }
    }
}
