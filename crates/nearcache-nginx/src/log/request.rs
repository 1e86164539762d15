//! A record as the parts of the pass want it: everything parsed once.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::base::text;
use crate::log::numbers::Upstream;
use crate::log::record::{CacheStatus, Field, Record};

/// What the keys of one location are made of, beside the path, where the log does not have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts {
    pub scheme: bool,
    pub host: bool,
    pub method: bool,
    /// `$request_uri` and not `$uri`.
    pub args: bool,
}

impl Default for KeyParts {
    /// Nobody knows: all that tells requests apart, but for the method.
    fn default() -> KeyParts {
        KeyParts { scheme: true, host: true, method: false, args: true }
    }
}

impl KeyParts {
    /// Words of `scheme`, `host`, `method` and `args`; `None` for another.
    pub fn parse(text: &str) -> Option<KeyParts> {
        let mut parts = KeyParts { scheme: false, host: false, method: false, args: false };
        for word in text.split_ascii_whitespace() {
            match word {
                "scheme" => parts.scheme = true,
                "host" => parts.host = true,
                "method" => parts.method = true,
                "args" => parts.args = true,
                _ => return None,
            }
        }
        Some(parts)
    }

    /// Of a location by its number, out of those of all; the last is for what matches none.
    pub fn of(all: &[KeyParts], location: u16) -> KeyParts {
        let last = all.len().saturating_sub(1);
        all.get(usize::from(location).min(last)).copied().unwrap_or_default()
    }
}

/// What stands for the cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyText {
    Key,
    SchemeHostUri,
    HostUri,
    Uri,
}

impl KeyText {
    pub fn of(record: &Record<'_>, parts: KeyParts) -> KeyText {
        if record.says(Field::Key) {
            KeyText::Key
        } else if !(parts.host && record.says(Field::Host)) {
            KeyText::Uri
        } else if parts.scheme && record.says(Field::Scheme) {
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
    /// With the key that nobody knows better of; see [`Request::keyed`].
    /// `joined` is for the target if it has to be put together.
    pub fn of(record: &'a Record<'a>, joined: &'a mut Vec<u8>) -> Request<'a> {
        let (method, uri) = record.method_and_uri();
        let target = with_args(record, uri.unwrap_or(b""), joined);
        let target_hash = xxh3_64(target);
        let request_us = record.request_us();
        let end_us = record.time_us;
        let began_us = end_us.zip(request_us).map(|(end, took)| end.saturating_sub_unsigned(took));
        Request {
            record,
            method,
            target,
            target_hash,
            key_text: target,
            place: 0,
            key: target_hash,
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

    /// With the key of its location, if the log does not have it.
    pub fn keyed(mut self, parts: KeyParts) -> Request<'a> {
        if let Some(text) = logged_key(self.record) {
            (self.key_text, self.key) = (text, xxh3_64(text));
            return self;
        }
        self.place = self.place_of(parts);
        if parts.args {
            self.key = self.target_hash ^ self.place;
        } else {
            self.key_text = text::split_target(self.target).0;
            self.key = xxh3_64(self.key_text) ^ self.place;
        }
        self
    }

    /// A hash of what stands before the path; a scheme alone tells nothing where hosts do.
    fn place_of(&self, parts: KeyParts) -> u64 {
        let host = self.record.text(Field::Host).filter(|_| parts.host);
        if parts.host && host.is_none() {
            return 0;
        }
        let mut place = host.map_or(0, xxh3_64);
        let scheme = self.record.text(Field::Scheme).filter(|_| parts.scheme);
        if host.is_some() || scheme.is_some() {
            place = xxh3_64_with_seed(scheme.unwrap_or(b""), place);
        }
        match self.method.filter(|_| parts.method) {
            Some(method) => xxh3_64_with_seed(method, place),
            None => place,
        }
    }

    /// The key as text, with what stands before the path where the log has it apart.
    pub fn spell(&self, parts: KeyParts, out: &mut Vec<u8>) {
        out.clear();
        if logged_key(self.record).is_none() {
            let method = self.method.filter(|_| parts.method);
            let host = self.record.text(Field::Host).filter(|_| parts.host);
            let scheme = self.record.text(Field::Scheme).filter(|_| parts.scheme);
            out.extend_from_slice(method.unwrap_or(b""));
            if let Some(scheme) = scheme.filter(|_| host.is_some() || !parts.host) {
                out.extend_from_slice(scheme);
                out.extend_from_slice(b"://");
            }
            out.extend_from_slice(host.unwrap_or(b""));
        }
        out.extend_from_slice(self.key_text);
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

/// JSON logs have an empty key where no cache took part.
fn logged_key<'a>(record: &Record<'a>) -> Option<&'a [u8]> {
    record.text(Field::Key).filter(|key| !key.is_empty())
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
