//! The sums: per URL group and per hour. Those of locations and of everything follow.

use std::collections::HashMap;

use crate::base::hashing::ByHash;
use crate::base::histogram::Histogram;
use crate::log::record::CacheStatus;
use crate::log::request::Request;
use crate::misses::judge::Judgement;
use crate::misses::why::{WHY_NAMES, Why};
use crate::urls::groups::Group;

/// By [`place_of`].
pub const STATUS_NAMES: [&str; 10] =
    ["-", "MISS", "BYPASS", "EXPIRED", "STALE", "UPDATING", "REVALIDATED", "HIT", "?", ""];

/// Two years and a quarter; a log with more hours has broken times.
const MOST_HOURS: usize = 20_000;
const MOST_SERVED: usize = 1_000_000;
const HOUR_S: i64 = 3600;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub requests: u64,
    pub bytes: u64,
    pub upstream_us: u64,
    pub request_us: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub requests: u64,
    pub us: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By status, see [`STATUS_NAMES`].
    pub statuses: [Count; STATUS_NAMES.len()],
    pub cacheable: u64,
    pub fetches: Histogram,
    /// By reason, with the upstream's time.
    pub why: [Sum; WHY_NAMES.len()],
    pub lock_waits: Sum,
}

impl Count {
    fn add(&mut self, other: &Count) {
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.upstream_us = self.upstream_us.saturating_add(other.upstream_us);
        self.request_us = self.request_us.saturating_add(other.request_us);
    }
}

impl Sum {
    pub fn add(&mut self, requests: u64, us: u64) {
        self.requests = self.requests.saturating_add(requests);
        self.us = self.us.saturating_add(us);
    }
}

impl Tally {
    pub fn count(&self) -> Count {
        let mut sum = Count::default();
        self.statuses.iter().for_each(|count| sum.add(count));
        sum
    }

    pub fn merge(&mut self, other: &Tally) {
        self.statuses.iter_mut().zip(&other.statuses).for_each(|(ours, theirs)| ours.add(theirs));
        self.cacheable += other.cacheable;
        self.fetches.merge(&other.fetches);
        self.why.iter_mut().zip(&other.why).for_each(|(a, b)| a.add(b.requests, b.us));
        self.lock_waits.add(other.lock_waits.requests, other.lock_waits.us);
    }

    pub(crate) fn take(&mut self, request: &Request<'_>, judgement: &Judgement) {
        let count = Count {
            requests: 1,
            bytes: request.bytes,
            upstream_us: request.upstream_us(),
            request_us: request.took_us(),
        };
        self.statuses[place_of(request.cache)].add(&count);
        let weight = judgement.weight;
        if let Some(why) = judgement.why {
            self.why[why as usize].add(weight, count.upstream_us.saturating_mul(weight));
        }
        self.cacheable += u64::from(is_cacheable(request.cache, judgement.why));
        if let Some(waited_us) = judgement.waited_us {
            self.lock_waits.add(weight, waited_us.saturating_mul(weight));
        }
        if request.cache.is_some_and(CacheStatus::is_fetch)
            && let Some(us) = request.fetch_us()
        {
            self.fetches.add(us);
        }
    }
}

fn place_of(status: Option<CacheStatus>) -> usize {
    status.map_or(STATUS_NAMES.len() - 1, |status| status as usize)
}

fn is_cacheable(status: Option<CacheStatus>, why: Option<Why>) -> bool {
    let no_cache =
        [None, Some(CacheStatus::None), Some(CacheStatus::Unknown), Some(CacheStatus::Bypass)];
    !no_cache.contains(&status) && !why.is_some_and(Why::is_uncacheable)
}

#[derive(Clone, Debug)]
pub struct Hour {
    /// Unix time of its beginning; `None` for lines without a usable time.
    pub start_s: Option<i64>,
    pub tally: Tally,
}

#[derive(Debug)]
pub struct Ledger {
    /// How far the beginnings of hours are from those of UTC.
    utc_offset_s: i64,
    by_group: Vec<Tally>,
    hours: Vec<Hour>,
    hour_places: HashMap<u64, usize, ByHash>,
    last_hour: Option<(Option<i64>, usize)>,
    /// Requests served, by hour (upper half) and group.
    served: HashMap<u64, u64, ByHash>,
}

/// Stands for a group once the pairs of hours and groups are too many.
pub const ANY_GROUP: u32 = u32::MAX;

impl Ledger {
    pub fn new(utc_offset_s: i64) -> Ledger {
        Ledger {
            utc_offset_s,
            by_group: Vec::new(),
            hours: Vec::new(),
            hour_places: HashMap::default(),
            last_hour: None,
            served: HashMap::default(),
        }
    }

    pub fn take(&mut self, request: &Request<'_>, group: u32, judgement: &Judgement) {
        let place = group as usize;
        if place >= self.by_group.len() {
            self.by_group.resize_with(place + 1, Tally::default);
        }
        self.by_group[place].take(request, judgement);
        let hour = self.hour(request.end_us);
        self.hours[hour].tally.take(request, judgement);
        if request.cache.is_some_and(CacheStatus::is_served) {
            self.count_served(hour, group);
        }
    }

    fn hour(&mut self, end_us: Option<i64>) -> usize {
        let start_s = end_us.map(|us| {
            let local_s = (us / 1_000_000).saturating_add(self.utc_offset_s);
            local_s.div_euclid(HOUR_S).saturating_mul(HOUR_S).saturating_sub(self.utc_offset_s)
        });
        if let Some((last, place)) = self.last_hour
            && last == start_s
        {
            return place;
        }
        let place = self.hour_place(start_s);
        self.last_hour = Some((start_s, place));
        place
    }

    fn hour_place(&mut self, start_s: Option<i64>) -> usize {
        // No hour begins at the largest number there is.
        let name = start_s.unwrap_or(i64::MAX) as u64;
        if let Some(place) = self.hour_places.get(&name) {
            return *place;
        }
        if start_s.is_some() && self.hours.len() >= MOST_HOURS {
            return self.hour_place(None);
        }
        self.hours.push(Hour { start_s, tally: Tally::default() });
        self.hour_places.insert(name, self.hours.len() - 1);
        self.hours.len() - 1
    }

    fn count_served(&mut self, hour: usize, group: u32) {
        let pair = |group: u32| (hour as u64) << 32 | u64::from(group);
        let full = self.served.len() >= MOST_SERVED && !self.served.contains_key(&pair(group));
        *self.served.entry(pair(if full { ANY_GROUP } else { group })).or_default() += 1;
    }

    pub fn by_group(&self) -> &[Tally] {
        &self.by_group
    }

    /// Per location, what matches none last; `none` is the number of that.
    pub fn by_location(&self, groups: &[Group], none: u16) -> Vec<Tally> {
        let mut tallies = vec![Tally::default(); usize::from(none) + 1];
        for (tally, group) in self.by_group.iter().zip(groups) {
            tallies[usize::from(group.location)].merge(tally);
        }
        tallies
    }

    /// Ascending, each with (group, requests served); what has no time comes first.
    pub fn by_hour(&self) -> Vec<(&Hour, Vec<(u32, u64)>)> {
        let mut served = vec![Vec::new(); self.hours.len()];
        for (pair, requests) in &self.served {
            served[(pair >> 32) as usize].push((*pair as u32, *requests));
        }
        let mut hours: Vec<_> = self.hours.iter().zip(served).collect();
        hours.iter_mut().for_each(|(_, served)| served.sort_unstable());
        hours.sort_by_key(|(hour, _)| hour.start_s);
        hours
    }
}
