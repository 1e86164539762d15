//! A record as the parts of the pass want it: everything parsed once.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::record::{CacheStatus, Field, Record, Upstream};

/// What stands for the cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyText {
    Key,
    SchemeHostUri,
    HostUri,
    Uri,
}

impl KeyText {
    pub fn of(record: &Record<'_>, has_host: bool) -> KeyText {
        if record.says(Field::Key) {
            KeyText::Key
        } else if !(has_host && record.says(Field::Host)) {
            KeyText::Uri
        } else if record.says(Field::Scheme) {
            KeyText::SchemeHostUri
        } else {
            KeyText::HostUri
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            KeyText::Key => "key",
            KeyText::SchemeHostUri => "scheme+host+uri",
            KeyText::HostUri => "host+uri",
            KeyText::Uri => "uri",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub record: &'a Record<'a>,
    pub method: Option<&'a [u8]>,
    /// Empty if the line has none, or none that can be read.
    pub target: &'a [u8],
    pub target_hash: u64,
    /// The key as text, or the part of it that may be spelled in several ways.
    pub key_text: &'a [u8],
    /// What belongs to the key beside it: a hash of scheme and host.
    pub place: u64,
    pub key: u64,
    /// `None` if the line does not say.
    pub cache: Option<CacheStatus>,
    pub bytes: u64,
    pub request_us: Option<u64>,
    pub upstream: Option<Upstream>,
    pub end_us: Option<i64>,
    /// When it began; `None` if the log does not tell how long requests took.
    pub began_us: Option<i64>,
    /// When it began, or else when it ended.
    pub start_us: Option<i64>,
    /// How much later than logged it may have been: a second if times are whole seconds.
    pub slack_us: i64,
}

impl<'a> Request<'a> {
    /// `has_host`: a key that the log does not have is taken to have the host, if the log has that.
    /// `joined` is for the target if it has to be put together.
    pub fn of(record: &'a Record<'a>, has_host: bool, joined: &'a mut Vec<u8>) -> Request<'a> {
        let (method, uri) = record.method_and_uri();
        let target = with_args(record, uri.unwrap_or(b""), joined);
        let target_hash = xxh3_64(target);
        // JSON logs have an empty key where no cache took part.
        let (key_text, place, key) = match record.text(Field::Key).filter(|key| !key.is_empty()) {
            Some(text) => (text, 0, xxh3_64(text)),
            None => {
                let place = if has_host { place_of(record) } else { 0 };
                (target, place, target_hash ^ place)
            }
        };
        let request_us = record.request_us();
        let end_us = record.time_us;
        let began_us = end_us.zip(request_us).map(|(end, took)| end.saturating_sub_unsigned(took));
        Request {
            record,
            method,
            target,
            target_hash,
            key_text,
            place,
            key,
            cache: record.cache_status(),
            bytes: record.bytes_sent().unwrap_or(0),
            request_us,
            upstream: record.upstream(),
            end_us,
            began_us,
            start_us: began_us.or(end_us),
            slack_us: if record.says(Field::Msec) { 0 } else { 1_000_000 },
        }
    }

    /// What no method is given for counts as one.
    pub fn is_get(&self) -> bool {
        self.method.is_none_or(|method| matches!(method, b"GET" | b"HEAD"))
    }

    /// Was somebody upstream asked, for all the line says?
    pub fn may_have_asked(&self) -> bool {
        self.upstream.is_none_or(|upstream| upstream.asked > 0)
    }

    pub fn upstream_us(&self) -> u64 {
        self.upstream.map_or(0, |upstream| upstream.total_us)
    }

    pub fn took_us(&self) -> u64 {
        self.request_us.unwrap_or(0)
    }

    /// How long the answer took to make: of the whole request if nothing else is known.
    pub fn fetch_us(&self) -> Option<u64> {
        match self.upstream {
            Some(upstream) => (upstream.asked > 0).then_some(upstream.total_us),
            None => self.request_us,
        }
    }

    /// When the answer was there; a slow client may have taken much longer to read it.
    pub fn fetched_us(&self) -> Option<i64> {
        match (self.began_us, self.upstream) {
            (Some(began), Some(upstream)) => {
                Some(began.saturating_add_unsigned(upstream.total_us).min(self.end_us?))
            }
            _ => self.end_us,
        }
    }
}

/// The target with its arguments, also where the log has them apart (`$uri`, `$args`).
fn with_args<'a>(record: &Record<'a>, target: &'a [u8], joined: &'a mut Vec<u8>) -> &'a [u8] {
    match record.text(Field::Args) {
        Some(args) if !args.is_empty() && memchr::memchr(b'?', target).is_none() => {
            joined.clear();
            joined.extend_from_slice(target);
            joined.push(b'?');
            joined.extend_from_slice(args);
            joined
        }
        _ => target,
    }
}

fn place_of(record: &Record<'_>) -> u64 {
    let host = match record.text(Field::Host) {
        Some(host) => xxh3_64(host),
        None => return 0,
    };
    xxh3_64_with_seed(record.text(Field::Scheme).unwrap_or(b""), host)
}

impl CacheStatus {
    /// Was the whole response made anew because no copy would do?
    pub fn is_fetch(self) -> bool {
        matches!(self, CacheStatus::Miss | CacheStatus::Expired)
    }

    /// Did a copy answer without anybody waiting for the upstream?
    pub fn is_served(self) -> bool {
        matches!(self, CacheStatus::Hit | CacheStatus::Stale | CacheStatus::Updating)
    }
}
