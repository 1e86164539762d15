//! What a replay found: answers by status, what they saved, what they held, and how old they were.

use crate::log::record::CacheStatus;
use crate::whatif::asked::{Asked, BEFORE, NOT_ASKED};
use crate::whatif::rekey::Rekeyed;
use crate::whatif::rules::Rules;
use crate::whatif::store::Store;

const STATUSES: usize = CacheStatus::Unknown as usize + 1;
/// Ages in quarters of a power of two of a millisecond.
const AGES: usize = 256;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    pub requests: u64,
    pub bytes: u64,
}

/// One view of the requests: all of them, or the settled ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// By predicted status.
    pub by: [Answers; STATUSES],
    /// `logged[a][b]`: logged as `a`, predicted as `b`.
    pub logged: [[u64; STATUSES]; STATUSES],
    /// Bytes by logged status.
    pub logged_bytes: [u64; STATUSES],
}

impl Default for Answered {
    fn default() -> Answered {
        Answered {
            by: [Answers::default(); STATUSES],
            logged: [[0; STATUSES]; STATUSES],
            logged_bytes: [0; STATUSES],
        }
    }
}

impl Answered {
    fn add(&mut self, asked: &Asked, status: CacheStatus) {
        let answers = &mut self.by[status as usize];
        answers.requests += 1;
        answers.bytes += u64::from(asked.bytes);
        self.logged[asked.logged as usize][status as usize] += 1;
        self.logged_bytes[asked.logged as usize] += u64::from(asked.bytes);
    }

    pub fn requests(&self) -> u64 {
        self.by.iter().map(|answers| answers.requests).sum()
    }

    /// Answered from the cache, nobody waited for the upstream.
    pub fn served(&self) -> u64 {
        SERVED.iter().map(|status| self.by[*status as usize].requests).sum()
    }
}

const SERVED: [CacheStatus; 3] = [CacheStatus::Hit, CacheStatus::Stale, CacheStatus::Updating];

#[derive(Clone, Debug, Default)]
pub struct OfKey {
    requests: u32,
    served: u32,
}

/// Copies of one age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Age {
    pub count: u64,
    pub sum_us: u64,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub all: Answered,
    pub settled: Answered,
    /// Requests that no cache could take: another method, a location without one.
    pub uncached: u64,
    pub fetches: u64,
    /// What fetches took, and what of it the log has itself.
    pub upstream_us: u64,
    pub saved_us: u64,
    pub lock_waits: u64,
    pub lock_wait_us: u64,
    /// Settled answers from the cache, by the age of the copy.
    pub ages: Vec<Age>,
    pub oldest_us: u64,
    /// Settled answers from the cache although the origin is known to have had something new.
    pub outdated: u64,
    pub peak_bytes: u64,
    pub end_bytes: u64,
    pub peak_nodes: u64,
    pub inactive: u64,
    pub evicted: u64,
    pub keys: u64,
    pub merged: u64,
    /// Keys that were asked for once.
    pub one_hit: u64,
    /// Sum over keys of the squared residual of its hits; for the error of a sample.
    pub residuals: f64,
    of_key: Vec<OfKey>,
}

impl Outcome {
    pub(crate) fn new(keys: usize) -> Outcome {
        Outcome {
            all: Answered::default(),
            settled: Answered::default(),
            uncached: 0,
            fetches: 0,
            upstream_us: 0,
            saved_us: 0,
            lock_waits: 0,
            lock_wait_us: 0,
            ages: vec![Age::default(); AGES],
            oldest_us: 0,
            outdated: 0,
            peak_bytes: 0,
            end_bytes: 0,
            peak_nodes: 0,
            inactive: 0,
            evicted: 0,
            keys: 0,
            merged: 0,
            one_hit: 0,
            residuals: 0.0,
            of_key: vec![OfKey::default(); keys],
        }
    }

    pub(crate) fn uncached(&mut self, asked: &Asked) {
        self.uncached += 1;
        if asked.upstream_us != NOT_ASKED {
            self.upstream_us += u64::from(asked.upstream_us);
        }
    }

    pub(crate) fn answered(
        &mut self,
        asked: &Asked,
        rekeyed: &Rekeyed,
        status: CacheStatus,
        waited_us: i64,
        rules: &Rules,
    ) {
        self.all.add(asked, status);
        if is_settled(asked, rules) {
            self.settled.add(asked, status);
        }
        let of_key = &mut self.of_key[rekeyed.keys[asked.key as usize] as usize];
        of_key.requests = of_key.requests.saturating_add(1);
        of_key.served = of_key.served.saturating_add(u32::from(status.is_served()));
        if waited_us > 0 {
            self.lock_waits += 1;
            self.lock_wait_us = self.lock_wait_us.saturating_add(waited_us as u64);
        }
    }

    pub(crate) fn fetched(&mut self, us: u64) {
        self.fetches += 1;
        self.upstream_us = self.upstream_us.saturating_add(us);
    }

    pub(crate) fn served(
        &mut self,
        fetch_us: u64,
        age_us: i64,
        is_outdated: bool,
        asked: &Asked,
        rules: &Rules,
    ) {
        self.saved_us = self.saved_us.saturating_add(fetch_us);
        if !is_settled(asked, rules) {
            return;
        }
        let age_us = age_us as u64;
        let age = &mut self.ages[age_bucket(age_us)];
        age.count += 1;
        age.sum_us = age.sum_us.saturating_add(age_us);
        self.oldest_us = self.oldest_us.max(age_us);
        self.outdated += u64::from(is_outdated);
    }

    pub(crate) fn finish(&mut self, store: &Store, rules: &Rules, rekeyed: &Rekeyed) {
        for (zone, of) in store.zones.iter().zip(&rules.zones) {
            self.peak_bytes += zone.peak_blocks * u64::from(of.block_bytes);
            self.end_bytes += zone.blocks * u64::from(of.block_bytes);
            self.peak_nodes += zone.peak_nodes;
            self.inactive += zone.inactive;
            self.evicted += zone.evicted;
        }
        let (requests, served) = (self.all.requests() as f64, self.all.served() as f64);
        let ratio = if requests > 0.0 { served / requests } else { 0.0 };
        for of_key in std::mem::take(&mut self.of_key) {
            self.keys += u64::from(of_key.requests > 0);
            self.one_hit += u64::from(of_key.requests == 1);
            let residual = f64::from(of_key.served) - ratio * f64::from(of_key.requests);
            self.residuals += residual * residual;
        }
        self.merged = (rekeyed.keys.len() - rekeyed.count()) as u64;
    }
}

/// What a copy from before the log answered tells nothing about the model: it begins empty.
fn is_settled(asked: &Asked, rules: &Rules) -> bool {
    asked.start_us.saturating_sub(rules.later_us) >= rules.settled_us && !asked.has(BEFORE)
}

fn age_bucket(age_us: u64) -> usize {
    let ms = age_us / 1000;
    let Some(log) = ms.checked_ilog2() else { return 0 };
    let quarter = if log >= 2 { (ms >> (log - 2)) & 3 } else { 0 };
    (1 + 4 * log as usize + quarter as usize).min(AGES - 1)
}
