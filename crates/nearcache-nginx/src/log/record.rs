//! One request as the log tells it. What the format does not say is absent, never guessed.

use crate::log::numbers::{self, Upstream};
use crate::log::time::Clock;

/// The variables of nginx that this crate understands. Others are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Field {
    Msec,
    TimeLocal,
    TimeIso8601,
    Request,
    Method,
    Uri,
    Args,
    Host,
    Scheme,
    Status,
    BytesSent,
    RequestTime,
    UpstreamTime,
    CacheStatus,
    UpstreamBytes,
    Key,
    CacheControl,
    AccelExpires,
    Expires,
    Vary,
    SetCookie,
    AcceptEncoding,
    ContentType,
    Authorization,
    Cookie,
    UpstreamStatus,
}

/// How many fields there are.
pub const FIELDS: usize = Field::UpstreamStatus as usize + 1;

impl Field {
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The field that a variable of nginx fills, by its name without `$`.
    ///
    /// `$cl_key` is what `nearcache nginx config` calls the key; another name can be given
    /// to [`crate::Format::compile`].
    pub fn of_variable(name: &str) -> Option<Field> {
        Some(match name {
            "msec" => Field::Msec,
            "time_local" => Field::TimeLocal,
            "time_iso8601" => Field::TimeIso8601,
            "request" => Field::Request,
            "request_method" => Field::Method,
            "request_uri" | "uri" | "document_uri" => Field::Uri,
            "args" | "query_string" => Field::Args,
            "host" | "http_host" | "server_name" => Field::Host,
            "scheme" => Field::Scheme,
            "status" => Field::Status,
            "body_bytes_sent" | "bytes_sent" => Field::BytesSent,
            "request_time" => Field::RequestTime,
            "upstream_response_time" => Field::UpstreamTime,
            "upstream_cache_status" => Field::CacheStatus,
            "upstream_bytes_received" | "upstream_response_length" => Field::UpstreamBytes,
            "upstream_status" => Field::UpstreamStatus,
            "cl_key" | "cache_key" => Field::Key,
            "upstream_http_cache_control" | "sent_http_cache_control" => Field::CacheControl,
            "upstream_http_x_accel_expires" => Field::AccelExpires,
            "upstream_http_expires" | "sent_http_expires" => Field::Expires,
            "upstream_http_vary" | "sent_http_vary" => Field::Vary,
            "upstream_http_set_cookie" | "sent_http_set_cookie" | "cl_set_cookie" => {
                Field::SetCookie
            }
            "http_accept_encoding" => Field::AcceptEncoding,
            "sent_http_content_type" | "upstream_http_content_type" => Field::ContentType,
            "http_authorization" | "cl_authorization" => Field::Authorization,
            "http_cookie" | "cl_cookie" => Field::Cookie,
            _ => return None,
        })
    }
}

/// What nginx says of its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CacheStatus {
    /// `-`: no cache took part.
    None,
    Miss,
    Bypass,
    Expired,
    Stale,
    Updating,
    Revalidated,
    Hit,
    /// A word that no nginx of today writes.
    Unknown,
}

impl CacheStatus {
    pub fn parse(text: &[u8]) -> CacheStatus {
        match text {
            b"HIT" => CacheStatus::Hit,
            b"MISS" | b"SCARCE" => CacheStatus::Miss,
            b"EXPIRED" => CacheStatus::Expired,
            b"STALE" => CacheStatus::Stale,
            b"UPDATING" => CacheStatus::Updating,
            b"REVALIDATED" => CacheStatus::Revalidated,
            b"BYPASS" => CacheStatus::Bypass,
            b"-" | b"" => CacheStatus::None,
            _ => CacheStatus::Unknown,
        }
    }
}

/// One line. Slices are as logged: nginx's own escapes (`\x22`) are not undone.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When the request ended, in microseconds since 1970.
    pub time_us: Option<i64>,
    fields: [Option<&'a [u8]>; FIELDS],
    /// A bit for every field that the line has, be it as `-`.
    said: u32,
}

impl<'a> Record<'a> {
    pub(crate) fn empty() -> Record<'a> {
        Record { time_us: None, fields: [None; FIELDS], said: 0 }
    }

    pub(crate) fn put(&mut self, field: Field, text: &'a [u8]) {
        self.fields[field as usize] = Some(text);
        self.said |= field.bit();
    }

    /// The text of a field; `None` if the format has none or the line says `-`.
    pub fn text(&self, field: Field) -> Option<&'a [u8]> {
        self.fields[field as usize].filter(|text| !matches!(text, [b'-']))
    }

    /// Reads the time. From `$msec` if there is one: the others have whole seconds only.
    /// False if the line has a time that is none.
    pub(crate) fn read_time(&mut self, clock: &mut Clock) -> bool {
        let (text, parsed) = if let Some(text) = self.text(Field::Msec) {
            (Some(text), numbers::seconds_as_us(text).and_then(|us| i64::try_from(us).ok()))
        } else if let Some(text) = self.text(Field::TimeLocal) {
            (Some(text), clock.local(text).map(|seconds| seconds * 1_000_000))
        } else if let Some(text) = self.text(Field::TimeIso8601) {
            (Some(text), clock.iso8601(text).map(|seconds| seconds * 1_000_000))
        } else {
            (None, None)
        };
        self.time_us = parsed;
        text.is_none() || parsed.is_some()
    }

    pub fn method(&self) -> Option<&'a [u8]> {
        self.method_and_uri().0
    }

    /// The target of the request as the client sent it, with its arguments.
    pub fn uri(&self) -> Option<&'a [u8]> {
        self.method_and_uri().1
    }

    /// Both at the price of one: often they are in the same field.
    pub fn method_and_uri(&self) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let (method, uri) = (self.text(Field::Method), self.text(Field::Uri));
        if method.is_some() && uri.is_some() {
            return (method, uri);
        }
        let (in_line, target) = self.request().unzip();
        (method.or(in_line), uri.or(target))
    }

    pub fn status(&self) -> Option<u16> {
        self.text(Field::Status).and_then(numbers::whole).and_then(|n| u16::try_from(n).ok())
    }

    pub fn bytes_sent(&self) -> Option<u64> {
        self.text(Field::BytesSent).and_then(numbers::whole)
    }

    pub fn request_us(&self) -> Option<u64> {
        self.text(Field::RequestTime).and_then(numbers::seconds_as_us)
    }

    /// `None` if the format does not say; zero asked if it says that nobody was.
    pub fn upstream(&self) -> Option<Upstream> {
        self.fields[Field::UpstreamTime as usize].map(numbers::upstream_times)
    }

    /// `None` if the format does not say; [`CacheStatus::None`] if it says `-`.
    pub fn cache_status(&self) -> Option<CacheStatus> {
        self.fields[Field::CacheStatus as usize].map(CacheStatus::parse)
    }

    /// Does the format have this field at all?
    pub fn says(&self, field: Field) -> bool {
        self.said & field.bit() != 0
    }

    /// The [`Field::bit`] of every field it has.
    pub fn said(&self) -> u32 {
        self.said
    }

    /// `GET /path HTTP/1.1` as method and target; `None` for what is no request line
    /// (a TLS handshake on a plain port, a client that sent nothing).
    fn request(&self) -> Option<(&'a [u8], &'a [u8])> {
        let line = self.text(Field::Request)?;
        let space = memchr::memchr(b' ', line)?;
        let (method, rest) = (&line[..space], &line[space + 1..]);
        if method.is_empty()
            || !method.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_')
        {
            return None;
        }
        // Targets with spaces are malformed but logged: the last word is the protocol.
        let end = memchr::memrchr(b' ', rest)
            .filter(|at| rest[at + 1..].starts_with(b"HTTP/"))
            .unwrap_or(rest.len());
        (end > 0).then_some((method, &rest[..end]))
    }
}
