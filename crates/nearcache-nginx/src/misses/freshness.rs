//! May nginx keep this response, and for how long? From what the log has of its headers.
//!
//! In nginx's order: `X-Accel-Expires` over `Cache-Control` (`s-maxage` over `max-age`) over
//! `Expires` over `*_cache_valid`; `Set-Cookie` and some `Vary` forbid it in any case. Source:
//! ngx_http_upstream_process_headers and its likes in ngx_http_upstream.c.

use crate::log::numbers;
use crate::log::record::{Field, Record};
use crate::log::time;
use crate::misses::why::Why;

/// (status, or `None` for `any`; seconds); the first that fits counts.
pub type ByStatus = Vec<(Option<u16>, u32)>;

/// What `*_cache_valid` and `*_ignore_headers` of the configuration say, if it is known.
#[derive(Clone, Debug, Default)]
pub struct CacheValid {
    /// `None`: the configuration is not known.
    pub valid_s: Option<ByStatus>,
    /// [`Field::bit`] of each ignored header.
    pub ignored: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is kept for so many seconds.
    Lives(u32),
    /// It is not kept, for this reason.
    Not(Why),
    /// The log does not say.
    Unsaid,
}

/// Longer than nginx stores a `Vary`.
const LONGEST_VARY: usize = 128;
const LIFETIMES: [Field; 3] = [Field::AccelExpires, Field::CacheControl, Field::Expires];

impl CacheValid {
    pub fn judge(&self, record: &Record<'_>) -> Verdict {
        if self.header(record, Field::SetCookie).is_some_and(|text| !matches!(text, b"" | b"0")) {
            return Verdict::Not(Why::SetCookie);
        }
        if self
            .header(record, Field::Vary)
            .is_some_and(|vary| vary == b"*" || vary.len() > LONGEST_VARY)
        {
            return Verdict::Not(Why::Vary);
        }
        self.by_headers(record).unwrap_or_else(|| self.by_configuration(record))
    }

    /// Would the log show it if the response forbade storing? Else that it may be stored is a guess.
    pub fn hears_what_forbids(&self, record: &Record<'_>) -> bool {
        let heard = |field: Field| self.ignored & field.bit() != 0 || record.says(field);
        heard(Field::SetCookie) && heard(Field::CacheControl)
    }

    /// `None` if no header that counts was sent, or the log has none of them.
    fn by_headers(&self, record: &Record<'_>) -> Option<Verdict> {
        let now_s = record.time_us.map(|us| us / 1_000_000);
        let accel = self.header(record, Field::AccelExpires).and_then(|text| accel(text, now_s));
        let control = || self.header(record, Field::CacheControl).and_then(cache_control);
        let expires = || self.header(record, Field::Expires).map(|text| expires(text, now_s));
        accel.or_else(control).or_else(expires)
    }

    fn by_configuration(&self, record: &Record<'_>) -> Verdict {
        let heard = |field: &Field| self.ignored & field.bit() != 0 || record.says(*field);
        let (Some(valid), Some(status)) = (&self.valid_s, record.status()) else {
            return Verdict::Unsaid;
        };
        let found = valid.iter().find(|(wanted, _)| wanted.is_none_or(|wanted| wanted == status));
        match found {
            Some((_, ttl_s)) if *ttl_s > 0 => Verdict::Lives(*ttl_s),
            // A header that the log does not have may have given a lifetime.
            _ if !LIFETIMES.iter().all(heard) => Verdict::Unsaid,
            None if !matches!(status, 200 | 301 | 302) => Verdict::Not(Why::Status),
            _ => Verdict::Not(Why::NoTtl),
        }
    }

    fn header<'a>(&self, record: &Record<'a>, field: Field) -> Option<&'a [u8]> {
        if self.ignored & field.bit() != 0 {
            return None;
        }
        // JSON logs have an empty text for what is absent.
        record.text(field).filter(|text| !text.is_empty())
    }
}

/// `60`, `0` or `@1431857103`.
fn accel(text: &[u8], now_s: Option<i64>) -> Option<Verdict> {
    if let Some(moment) = text.strip_prefix(b"@") {
        return until(i64::try_from(numbers::whole(moment)?).ok()?, now_s);
    }
    Some(lives(numbers::whole(text)?))
}

fn cache_control(text: &[u8]) -> Option<Verdict> {
    for (word, why) in
        [(&b"no-cache"[..], Why::NoCache), (b"no-store", Why::NoStore), (b"private", Why::Private)]
    {
        if find_ignoring_case(text, word).is_some() {
            return Some(Verdict::Not(why));
        }
    }
    let age = [&b"s-maxage="[..], b"max-age="]
        .iter()
        .find_map(|word| find_ignoring_case(text, word).map(|at| &text[at + word.len()..]))?;
    let digits = age.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(numbers::whole(&age[..digits]).map_or(Verdict::Not(Why::NoTtl), lives))
}

fn expires(text: &[u8], now_s: Option<i64>) -> Verdict {
    match time::http_date(text) {
        Some(moment) => until(moment, now_s).unwrap_or(Verdict::Unsaid),
        // nginx takes what is no date for a date in the past.
        None => Verdict::Not(Why::NoTtl),
    }
}

fn until(moment_s: i64, now_s: Option<i64>) -> Option<Verdict> {
    Some(lives(u64::try_from(moment_s.saturating_sub(now_s?)).unwrap_or(0)))
}

fn lives(seconds: u64) -> Verdict {
    match u32::try_from(seconds) {
        Ok(0) => Verdict::Not(Why::NoTtl),
        Ok(seconds) => Verdict::Lives(seconds),
        Err(_) => Verdict::Lives(u32::MAX),
    }
}

/// `word` must be in lower case.
fn find_ignoring_case(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(valid: &CacheValid, fields: &[(Field, &'static str)]) -> Verdict {
        let mut record = Record::empty();
        record.time_us = Some(1_431_857_103_000_000);
        for field in LIFETIMES {
            record.put(field, b"-");
        }
        record.put(Field::Status, b"200");
        for (field, text) in fields {
            record.put(*field, text.as_bytes());
        }
        valid.judge(&record)
    }

    fn hour() -> CacheValid {
        CacheValid { valid_s: Some(vec![(Some(200), 3600)]), ignored: 0 }
    }

    #[test]
    fn headers_count_in_the_order_of_nginx() {
        use Field::{AccelExpires, CacheControl, Expires};
        let judge = |fields| judge(&hour(), fields);
        assert_eq!(judge(&[]), Verdict::Lives(3600));
        assert_eq!(judge(&[(CacheControl, "public, max-age=60, s-maxage=9")]), Verdict::Lives(9));
        assert_eq!(judge(&[(CacheControl, "Max-Age=60")]), Verdict::Lives(60));
        assert_eq!(judge(&[(CacheControl, "max-age=0")]), Verdict::Not(Why::NoTtl));
        assert_eq!(judge(&[(CacheControl, "max-age=60, private")]), Verdict::Not(Why::Private));
        assert_eq!(judge(&[(CacheControl, "no-store")]), Verdict::Not(Why::NoStore));
        assert_eq!(judge(&[(CacheControl, "public")]), Verdict::Lives(3600));
        assert_eq!(judge(&[(AccelExpires, "5"), (CacheControl, "private")]), Verdict::Lives(5));
        assert_eq!(judge(&[(AccelExpires, "0")]), Verdict::Not(Why::NoTtl));
        assert_eq!(judge(&[(AccelExpires, "@1431857113")]), Verdict::Lives(10));
        assert_eq!(judge(&[(Expires, "Sun, 17 May 2015 10:06:03 GMT")]), Verdict::Lives(60));
        assert_eq!(judge(&[(Expires, "0")]), Verdict::Not(Why::NoTtl));
    }

    #[test]
    fn cookies_and_vary_forbid_unless_ignored() {
        use Field::{SetCookie, Vary};
        assert_eq!(judge(&hour(), &[(SetCookie, "a=b")]), Verdict::Not(Why::SetCookie));
        assert_eq!(judge(&hour(), &[(SetCookie, "0")]), Verdict::Lives(3600));
        assert_eq!(judge(&hour(), &[(Vary, "*")]), Verdict::Not(Why::Vary));
        assert_eq!(judge(&hour(), &[(Vary, "Accept-Encoding")]), Verdict::Lives(3600));
        let ignoring = CacheValid { ignored: SetCookie.bit() | Vary.bit(), ..hour() };
        assert_eq!(judge(&ignoring, &[(SetCookie, "a=b"), (Vary, "*")]), Verdict::Lives(3600));
    }

    #[test]
    fn without_a_configuration_or_the_headers_nothing_is_claimed() {
        use Field::{CacheControl, Status};
        let unknown = CacheValid::default();
        assert_eq!(judge(&unknown, &[]), Verdict::Unsaid);
        assert_eq!(judge(&unknown, &[(CacheControl, "max-age=3")]), Verdict::Lives(3));
        assert_eq!(judge(&hour(), &[(Status, "404")]), Verdict::Not(Why::Status));
        let none = CacheValid { valid_s: Some(vec![]), ignored: 0 };
        assert_eq!(judge(&none, &[]), Verdict::Not(Why::NoTtl));
        let any = CacheValid { valid_s: Some(vec![(None, 7)]), ignored: 0 };
        assert_eq!(judge(&any, &[(Status, "404")]), Verdict::Lives(7));
        let mut bare = Record::empty();
        bare.put(Status, b"404");
        assert_eq!(hour().judge(&bare), Verdict::Unsaid);
    }
}
