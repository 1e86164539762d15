//! A log as the model wants it: 32 bytes a request (`asked.rs`), every key once.
//!
//! Beyond the bounds keys are sampled by hash (SHARDS, Waldspurger et al., FAST 2015). The
//! hash is of the key under all rules that will be tried, so that spellings which a rule
//! makes one key are kept or left out together.
//!
//! Not here: what nginx would do with them (`model.rs`).

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::base::hashing::ByHash;
use crate::base::text;
use crate::ledger::prices::Fitted;
use crate::log::filter::Filter;
use crate::log::lines::Consumer;
use crate::log::numbers;
use crate::log::record::{CacheStatus, Field, Record};
use crate::log::request::{KeyParts, Request};
use crate::misses::freshness::{CacheValid, Verdict};
use crate::misses::why::Why;
use crate::urls::groups::Groups;
use crate::urls::locations::Locations;
use crate::whatif::asked::{
    AS_BEFORE, Asked, FAILED, FORBIDDEN, GET, GOOD, LONGEST_LIFE, NO_TTL, NOT_ASKED, UNSAID,
};
use crate::whatif::fact::{Fact, Refetches};
use crate::whatif::hosts::Hosts;
use crate::whatif::key_rules::KeyRules;
use crate::whatif::lifetime::{Lifetime, Lifetimes};

/// A longer key is cut; nginx refuses longer request lines by default.
const LONGEST_KEY: usize = 8192;
const MOST_KEY_BYTES: usize = 512 << 20;
const SAMPLE_BITS: u32 = 24;
const MOST_GROUPS: usize = 10_000;
/// Targets whose location is remembered; a power of two.
const REMEMBERED: usize = 1 << 14;

/// Every key once: its text, its hash for sampling, and what the log shows of it.
#[derive(Debug, Default)]
pub struct Keys {
    text: Vec<u8>,
    ends: Vec<u32>,
    samples: Vec<u32>,
    pub facts: Vec<Fact>,
    places: HashMap<u64, u32, ByHash>,
}

impl Keys {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn text(&self, key: u32) -> &[u8] {
        let begin = if key == 0 { 0 } else { self.ends[key as usize - 1] as usize };
        &self.text[begin..self.ends[key as usize] as usize]
    }

    fn put(&mut self, hash: u64, sample: u32, text: &[u8], fact: Fact) -> u32 {
        let key = self.ends.len() as u32;
        self.text.extend_from_slice(text);
        self.ends.push(self.text.len() as u32);
        self.samples.push(sample);
        self.facts.push(fact);
        self.places.insert(hash, key);
        key
    }
}

pub struct TraceOptions {
    pub places: Locations,
    /// For each location, and for what matches none as the last.
    pub valid: Vec<CacheValid>,
    /// All rules that will be tried, together.
    pub sample_by: KeyRules,
    pub max_keys: usize,
    pub max_requests: usize,
    /// Of keys that the log does not have: as `valid`.
    pub key_parts: Vec<KeyParts>,
}

#[derive(Debug)]
pub struct Trace {
    places: Locations,
    groups: Groups,
    valid: Vec<CacheValid>,
    sample_by: KeyRules,
    max_keys: usize,
    max_requests: usize,
    key_parts: Vec<KeyParts>,
    /// (hash of a target, its location), by the last bits of the hash.
    remembered: Vec<(u64, u16)>,
    pub requests: Vec<Asked>,
    pub keys: Keys,
    /// What a fetch of each key takes, in microseconds; when it is finished.
    pub prices_us: Vec<u64>,
    /// Keys whose hash is below it are kept.
    threshold: u32,
    /// All that a cache took part in (or might have, if the log does not say), sampled or not.
    pub seen: u64,
    /// Of them by logged status.
    pub seen_by: [u64; CacheStatus::Unknown as usize + 1],
    /// Lines with status `-`: no cache took part.
    pub uncached: u64,
    /// Lines without time or URL.
    pub unusable: u64,
    /// Only lines of a time and host; the others are counted.
    pub filter: Filter,
    pub left_out: u64,
    /// [`Field::bit`] of everything that at least one line had.
    pub said: u32,
    pub refetches: Vec<Refetches>,
    /// Do hosts share entries? Looked at where nobody said what keys are made of.
    pub hosts: Hosts,
    /// The commonest time to live.
    pub usual_life: Option<u32>,
    /// What is learned of responses that do not say how long they live.
    pub lifetime: Option<Lifetime>,
    lifetimes: Lifetimes,
    lives: HashMap<u32, u64>,
    joined: Vec<u8>,
    spelled: Vec<u8>,
    coarse: Vec<u8>,
}

impl Trace {
    pub fn new(options: TraceOptions) -> Trace {
        Trace {
            places: options.places,
            groups: Groups::by_shape(MOST_GROUPS),
            valid: options.valid,
            sample_by: options.sample_by,
            max_keys: options.max_keys.max(1),
            max_requests: options.max_requests.max(1),
            key_parts: options.key_parts,
            remembered: vec![(0, u16::MAX); REMEMBERED],
            requests: Vec::new(),
            keys: Keys::default(),
            prices_us: Vec::new(),
            threshold: 1 << SAMPLE_BITS,
            seen: 0,
            seen_by: [0; CacheStatus::Unknown as usize + 1],
            uncached: 0,
            unusable: 0,
            filter: Filter::default(),
            left_out: 0,
            said: 0,
            refetches: vec![Refetches::default(); 64],
            hosts: Hosts::default(),
            usual_life: None,
            lifetime: None,
            lifetimes: Lifetimes::default(),
            lives: HashMap::new(),
            joined: Vec::new(),
            spelled: Vec::new(),
            coarse: Vec::new(),
        }
    }

    /// The share of keys that is kept.
    pub fn rate(&self) -> f64 {
        f64::from(self.threshold) / f64::from(1u32 << SAMPLE_BITS)
    }

    /// A line is written when its request ends; the model wants them as they began.
    pub fn finish(&mut self) {
        // Of one moment, who was told UPDATING came after who updates, whose line is written later.
        let order = |asked: &Asked| (asked.start_us, asked.logged == CacheStatus::Updating);
        if !self.requests.is_sorted_by_key(order) {
            self.requests.sort_by_key(order);
        }
        let commonest = self.lives.iter().max_by_key(|(life, count)| (**count, **life));
        self.usual_life = commonest.map(|(life, _)| *life);
        self.lifetime = self.lifetimes.estimate();
        if let Some(found) = self.lifetime {
            self.keys.facts.iter_mut().for_each(|fact| fact.judge(found.seconds));
        }
        self.prices_us = self.prices_us();
    }

    fn prices_us(&self) -> Vec<u64> {
        let facts = || self.keys.facts.iter().map(|fact| (fact.group, &fact.fetches));
        let fitted = Fitted::new(self.groups.table(), facts, std::iter::empty);
        facts().map(|(group, fetches)| fitted.price_us(group, fetches).round() as u64).collect()
    }

    /// `None` if the key is not among the sampled.
    fn key_of(&mut self, request: &Request<'_>, place: u16) -> Option<u32> {
        if let Some(key) = self.keys.places.get(&request.key) {
            return Some(*key);
        }
        let mut spelled = std::mem::take(&mut self.spelled);
        request.spell(KeyParts::of(&self.key_parts, place), &mut spelled);
        spelled.truncate(LONGEST_KEY);
        self.sample_by.apply(&spelled, &mut self.coarse);
        let sample = (xxh3_64(&self.coarse) >> (u64::BITS - SAMPLE_BITS)) as u32;
        let key = (sample < self.threshold).then(|| {
            let group = self.groups.of(request.target, place);
            self.keys.put(request.key, sample, &spelled, Fact::new(place, group))
        });
        self.spelled = spelled;
        key
    }

    fn add(&mut self, request: &Request<'_>, key: u32, start_us: i64) {
        let fact = &mut self.keys.facts[key as usize];
        let place = fact.place;
        let valid = &self.valid[usize::from(place).min(self.valid.len() - 1)];
        let life = life(valid, request);
        let mut asked = Asked {
            start_us,
            key,
            variant: variant(request.record),
            bytes: u32::try_from(request.bytes).unwrap_or(u32::MAX),
            upstream_us: upstream_us(request),
            life,
            place,
            logged: request.cache.unwrap_or(CacheStatus::Unknown),
            flags: flags(request),
        };
        let tells_life = fact.learn(request, &mut asked, &mut self.refetches);
        fact.witness(&asked, &mut self.lifetimes);
        if tells_life && life <= LONGEST_LIFE {
            *self.lives.entry(life).or_default() += 1;
        }
        if self.lives.len() > 10_000 {
            self.lives.clear(); // absolute times, each once: none of them is usual
        }
        self.requests.push(asked);
    }

    /// Half of the keys, and their requests, are forgotten.
    fn halve(&mut self) {
        self.threshold /= 2;
        let old = std::mem::take(&mut self.keys);
        let hashes: HashMap<u32, u64> =
            old.places.iter().map(|(hash, key)| (*key, *hash)).collect();
        let mut moved = vec![u32::MAX; old.len()];
        for key in 0..old.len() as u32 {
            if old.samples[key as usize] < self.threshold {
                let (sample, fact) = (old.samples[key as usize], old.facts[key as usize]);
                moved[key as usize] = self.keys.put(hashes[&key], sample, old.text(key), fact);
            }
        }
        self.requests.retain_mut(|asked| {
            asked.key = moved[asked.key as usize];
            asked.key != u32::MAX
        });
    }
}

impl Consumer for Trace {
    fn take(&mut self, record: &Record<'_>) {
        self.said |= record.said();
        if !(self.filter.in_time(record) && self.filter.is_host(record)) {
            self.left_out += 1;
            return;
        }
        let mut joined = std::mem::take(&mut self.joined);
        let request = Request::of(record, &mut joined);
        let place = self.place_of(&request);
        if self.filter.is_location(place) {
            let parts = KeyParts::of(&self.key_parts, place);
            self.take_request(&request.keyed(parts), place);
        } else {
            self.left_out += 1;
        }
        self.joined = joined;
    }
}

impl Trace {
    fn place_of(&mut self, request: &Request<'_>) -> u16 {
        let at = request.target_hash as usize % REMEMBERED;
        let (hash, place) = self.remembered[at];
        if hash == request.target_hash && place != u16::MAX {
            return place;
        }
        let place = self.places.of(text::split_target(request.target).0);
        self.remembered[at] = (request.target_hash, place);
        place
    }

    fn take_request(&mut self, request: &Request<'_>, place: u16) {
        if request.cache == Some(CacheStatus::None) {
            self.uncached += 1;
            return;
        }
        let (Some(start_us), false) = (request.start_us, request.key_text.is_empty()) else {
            self.unusable += 1;
            return;
        };
        if self.key_parts.is_empty() && !request.record.says(Field::Key) {
            self.hosts.take(request);
        }
        self.seen += 1;
        self.seen_by[request.cache.unwrap_or(CacheStatus::Unknown) as usize] += 1;
        if let Some(key) = self.key_of(request, place) {
            self.add(request, key, start_us);
        }
        while self.threshold > 1
            && (self.keys.len() > self.max_keys
                || self.requests.len() > self.max_requests
                || self.keys.text.len() > MOST_KEY_BYTES)
        {
            self.halve();
        }
    }
}

/// How long the response of this line lives if it is stored.
fn life(valid: &CacheValid, request: &Request<'_>) -> u32 {
    let shows_stored = request.cache.is_some_and(CacheStatus::is_served);
    let record = request.record;
    // A copy's Expires is what is left of its life. What a 304 or 206 was before nginx made it
    // so, and what was never sent (499), is not known either.
    let from_expires = record.text(Field::Expires).is_some()
        && record.text(Field::CacheControl).is_none()
        && record.text(Field::AccelExpires).is_none();
    if (shows_stored && from_expires) || matches!(record.status(), Some(206 | 304 | 416 | 499)) {
        return AS_BEFORE;
    }
    match valid.judge(record) {
        Verdict::Lives(seconds) => seconds.min(LONGEST_LIFE),
        Verdict::Not(Why::NoTtl | Why::Status) => NO_TTL,
        Verdict::Not(_) => FORBIDDEN,
        Verdict::Unsaid => UNSAID,
    }
}

fn flags(request: &Request<'_>) -> u8 {
    let status = request.record.status();
    let upstream = request.record.text(Field::UpstreamStatus).and_then(last_status);
    let good = matches!(status, Some(200 | 206 | 301 | 302 | 304 | 416 | 499));
    let failed = request.cache == Some(CacheStatus::Stale) && upstream.is_some_and(|s| s >= 500);
    (if request.is_get() { GET } else { 0 })
        | (if good { GOOD } else { 0 })
        | (if failed { FAILED } else { 0 })
}

/// `502, 504 : 200` as 200.
fn last_status(text: &[u8]) -> Option<u64> {
    text.rsplit(|byte| matches!(byte, b' ' | b',' | b':')).find_map(numbers::whole)
}

fn upstream_us(request: &Request<'_>) -> u32 {
    let us = match request.upstream {
        Some(upstream) if upstream.asked > 0 => upstream.total_us,
        // A request ends with the update behind it, which no line shows.
        _ if request.cache == Some(CacheStatus::Stale) => match request.request_us {
            Some(us) => us,
            None => return NOT_ASKED,
        },
        Some(_) => return NOT_ASKED,
        None if request.cache.is_some_and(CacheStatus::is_served) => return NOT_ASKED,
        None => match request.request_us {
            Some(us) => us,
            None => return NOT_ASKED,
        },
    };
    u32::try_from(us).unwrap_or(NOT_ASKED - 1).min(NOT_ASKED - 1)
}

/// What nginx hashes of a request whose response has `Vary: Accept-Encoding`. Other headers
/// are in no log.
fn variant(record: &Record<'_>) -> u32 {
    let varies = record.text(Field::Vary).is_some_and(|vary| {
        vary.windows(15).any(|name| name.eq_ignore_ascii_case(b"accept-encoding"))
    });
    if !varies {
        return 0;
    }
    let encodings = record.text(Field::AcceptEncoding).unwrap_or(b"");
    let mut joined = Vec::with_capacity(encodings.len());
    for word in encodings.split(|byte| matches!(byte, b' ' | b',')).filter(|word| !word.is_empty())
    {
        joined.extend_from_slice(word);
        joined.push(b',');
    }
    (xxh3_64(&joined) as u32).max(1)
}
