//! Do hosts share entries? What a log shows, where nobody says what keys are made of.
//!
//! A URL was fetched for one host, and a second host asks for it, for the first time in this log:
//! found in the cache, it is one entry for both; missed although the first host's is there, it is
//! two. By the first part of the path, for that is what locations mostly are.

use std::collections::{BTreeMap, HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_64;

use crate::base::hashing::ByHash;
use crate::base::text;
use crate::log::record::{CacheStatus, Field};
use crate::log::request::Request;

/// What comes beyond these bounds tells nothing.
const MOST_URLS: usize = 1 << 17;
const MOST_PARTS: usize = 256;
const LONGEST_PART: usize = 64;

/// First requests of a URL by another host than the one it was fetched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    pub shared: u64,
    pub apart: u64,
}

#[derive(Debug, Default)]
pub struct Hosts {
    /// By target: the host it was fetched for first. 0: it was there before the log.
    fetched_for: HashMap<u64, u64, ByHash>,
    /// Targets of hosts that have asked.
    asked: HashSet<u64, ByHash>,
    pub parts: BTreeMap<Box<[u8]>, Sharing>,
}

impl Hosts {
    pub fn take(&mut self, request: &Request<'_>) {
        let (Some(status), Some(host)) = (request.cache, request.record.text(Field::Host)) else {
            return;
        };
        let is_there = match status {
            CacheStatus::Miss => false,
            CacheStatus::Bypass | CacheStatus::None | CacheStatus::Unknown => return,
            _ => true,
        };
        let host = xxh3_64(host);
        let name = request.target_hash ^ host;
        if self.asked.len() >= MOST_URLS || !self.asked.insert(name) {
            return;
        }
        let first =
            *self.fetched_for.entry(request.target_hash).or_insert(if is_there { 0 } else { host });
        if first == 0 || first == host {
            return;
        }
        let part = first_part(text::split_target(request.target).0);
        if self.parts.len() < MOST_PARTS || self.parts.contains_key(part) {
            let sharing = self.parts.entry(part.into()).or_default();
            sharing.shared += u64::from(is_there);
            sharing.apart += u64::from(!is_there);
        }
    }
}

/// `/api/` of `/api/x/1`; `/` of what has only one part.
fn first_part(path: &[u8]) -> &[u8] {
    let end = memchr::memchr_iter(b'/', path).nth(1);
    match end {
        Some(at) if at < LONGEST_PART && path.starts_with(b"/") => &path[..=at],
        _ => b"/",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_locations_begin_with() {
        for (path, part) in [("/api/x/1", "/api/"), ("/x", "/"), ("/", "/"), ("", "/"), ("*", "/")]
        {
            assert_eq!(first_part(path.as_bytes()), part.as_bytes(), "{path}");
        }
    }
}
