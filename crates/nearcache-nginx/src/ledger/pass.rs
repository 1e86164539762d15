//! The log pass: one reading of the log, all the sums of `report`, `misses` and `queries`.
//!
//! ```text
//!  Record ──> Request ──┬─> group and location  (groups.rs, locations.rs)
//!            (request.rs)├─> Judgement: why was it not served?  (judge.rs, keys.rs)
//!                        ├─> Ledger: sums by group and hour  (sums.rs)
//!                        ├─> Prices: what a fetch of each URL takes  (prices.rs)
//!                        ├─> Top: the heaviest URLs  (top.rs)
//!                        ├─> Recent: the same since the last look  (recent.rs)
//!                        └─> Lengths of an argument  (lengths.rs)
//! ```
//!
//! Memory is bounded by the limits of each of these, whatever the log.

use crate::base::text;
use crate::ledger::lengths::{Lengths, Subject};
use crate::ledger::prices::{Prices, Saved};
use crate::ledger::recent::Recent;
use crate::ledger::sums::{Ledger, Sum, Tally};
use crate::ledger::top::{Asked, Top};
use crate::log::filter::Filter;
use crate::log::lines::Consumer;
use crate::log::record::{Field, Record};
use crate::log::request::{KeyParts, KeyText, Request};
use crate::misses::judge::{Judgement, Misses, Rules};
use crate::misses::why::Why;
use crate::urls::groups::Groups;
use crate::urls::locations::{Kind, Locations, PatternError};
use crate::urls::spelling;

/// What a pass is to look at.
#[derive(Clone, Debug)]
pub struct Options {
    pub locations: Vec<(Kind, String)>,
    /// Regular expression and name of a URL group.
    pub groups: Vec<(String, String)>,
    pub max_groups: usize,
    pub rules: Rules,
    pub max_keys: usize,
    /// Of keys that the log does not have: for each location, and for what matches none as the last.
    pub key_parts: Vec<KeyParts>,
    /// Whose lengths, and under which path.
    pub lengths: Option<(Subject, String)>,
    pub utc_offset_s: i64,
}

/// What the heaviest URLs are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankedBy {
    UpstreamTime,
    RequestTime,
    Requests,
}

/// A line that is older than one before by more than this was not written after it.
const BACKWARDS_US: i64 = 60_000_000;
/// Targets whose group is remembered; a power of two.
const REMEMBERED: usize = 1 << 14;

#[derive(Debug)]
pub struct LogPass {
    groups: Groups,
    locations: Locations,
    /// (hash of the target, its group), by the last bits of the hash.
    remembered: Vec<(u64, u32)>,
    misses: Misses,
    ledger: Ledger,
    prices: Prices,
    top: Top,
    lengths: Option<Lengths>,
    key_parts: Vec<KeyParts>,
    /// Counted only if it is there; who looks puts an empty one in its place.
    pub recent: Option<Recent>,
    joined: Vec<u8>,
    /// What is counted; all unless it is set.
    pub filter: Filter,
    /// Lines that the filter left out.
    pub left_out: u64,
    /// From the first record on.
    pub key_text: Option<KeyText>,
    pub ranked_by: Option<RankedBy>,
    /// [`Field::bit`] of every field that any line had.
    pub said: u32,
    pub first_us: Option<i64>,
    pub last_us: Option<i64>,
    pub backwards: u64,
    /// See [`spelling::NAMES`].
    pub spellings: [Sum; spelling::NAMES.len()],
}

impl LogPass {
    pub fn new(options: Options) -> Result<LogPass, PatternError> {
        Ok(LogPass {
            groups: Groups::new(&options.groups, options.max_groups)?,
            locations: Locations::new(&options.locations)?,
            remembered: vec![(0, u32::MAX); REMEMBERED],
            misses: Misses::new(options.rules, options.max_keys),
            ledger: Ledger::new(options.utc_offset_s),
            prices: Prices::default(),
            top: Top::default(),
            lengths: options.lengths.map(|(subject, under)| Lengths::new(subject, &under)),
            key_parts: options.key_parts,
            recent: None,
            joined: Vec::new(),
            filter: Filter::default(),
            left_out: 0,
            key_text: None,
            ranked_by: None,
            said: 0,
            first_us: None,
            last_us: None,
            backwards: 0,
            spellings: [Sum::default(); spelling::NAMES.len()],
        })
    }

    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn misses(&self) -> &Misses {
        &self.misses
    }

    pub fn top(&self) -> &Top {
        &self.top
    }

    pub fn lengths(&self) -> Option<&Lengths> {
        self.lengths.as_ref()
    }

    /// What the answers of each group were worth, in the order of the groups.
    pub fn saved(&self) -> Vec<Saved> {
        self.prices.saved(self.groups.table())
    }

    pub fn by_location(&self) -> Vec<Tally> {
        self.ledger.by_location(self.groups.table(), self.locations.none())
    }

    /// Matches of regular expressions that took too many steps and count as none.
    pub fn gave_up(&self) -> u64 {
        self.groups.gave_up + self.locations.gave_up
    }

    fn group_of(&mut self, request: &Request<'_>) -> u32 {
        let place = request.target_hash as usize % REMEMBERED;
        let (hash, group) = self.remembered[place];
        if hash == request.target_hash && group != u32::MAX {
            return group;
        }
        let path = text::split_target(request.target).0;
        let location = self.locations.of(path);
        let group = self.groups.of(request.target, location);
        self.remembered[place] = (request.target_hash, group);
        group
    }

    /// What the log can tell, of lines that are left out, too.
    fn note(&mut self, record: &Record<'_>) {
        self.said |= record.said();
        let parts = KeyParts::of(&self.key_parts, u16::MAX);
        self.key_text.get_or_insert_with(|| KeyText::of(record, parts));
        self.ranked_by.get_or_insert_with(|| RankedBy::of(record));
    }

    fn note_time(&mut self, record: &Record<'_>) {
        if let Some(time_us) = record.time_us {
            let last_us = self.last_us.unwrap_or(time_us);
            self.backwards += u64::from(time_us < last_us.saturating_sub(BACKWARDS_US));
            self.first_us = Some(self.first_us.unwrap_or(time_us).min(time_us));
            self.last_us = Some(last_us.max(time_us));
        }
    }

    fn count(&mut self, record: &Record<'_>, joined: &mut Vec<u8>) {
        let request = Request::of(record, joined);
        let group = self.group_of(&request);
        let location = self.groups.table()[group as usize].location;
        let request = request.keyed(KeyParts::of(&self.key_parts, location));
        if !(self.filter.is_host(record) && self.filter.is_location(location)) {
            self.left_out += 1;
            return;
        }
        let judgement = self.misses.judge(&request);
        self.ledger.take(&request, group, &judgement);
        if let Some(status) = request.cache {
            self.prices.take(&request, group, status);
        }
        if let Some(recent) = &mut self.recent {
            recent.take(&request, group, &judgement);
        }
        if let Some(why) = judgement.missed() {
            self.count_miss(&request, group, why, &judgement);
        }
        if let Some(lengths) = &mut self.lengths {
            let served = request.cache.is_some_and(|status| status.is_served());
            lengths.take(request.target, served, request.upstream_us());
        }
    }

    fn count_miss(&mut self, request: &Request<'_>, group: u32, why: Why, judgement: &Judgement) {
        let weight = match self.ranked_by {
            Some(RankedBy::UpstreamTime) => request.upstream_us(),
            Some(RankedBy::RequestTime) => request.took_us(),
            _ => 1,
        };
        let miss = (why, request.upstream_us());
        let asked = Asked {
            key: request.key,
            url: request.target,
            host: request.record.text(Field::Host),
            group,
        };
        self.top.add(asked, weight, miss);
        if let Some(recent) = &mut self.recent {
            recent.take_miss(asked, weight, miss);
        }
        for (bit, sum) in self.spellings.iter_mut().enumerate() {
            if judgement.differs & (1 << bit) != 0 {
                let us = request.upstream_us().saturating_mul(judgement.weight);
                sum.add(judgement.weight, us);
            }
        }
    }
}

impl Consumer for LogPass {
    fn take(&mut self, record: &Record<'_>) {
        self.note(record);
        if !self.filter.in_time(record) {
            self.left_out += 1;
            return;
        }
        // The span is that of the log, also for a host or location that is rarely asked.
        self.note_time(record);
        let mut joined = std::mem::take(&mut self.joined);
        self.count(record, &mut joined);
        self.joined = joined;
    }
}

impl RankedBy {
    fn of(record: &Record<'_>) -> RankedBy {
        if record.says(Field::UpstreamTime) {
            RankedBy::UpstreamTime
        } else if record.says(Field::RequestTime) {
            RankedBy::RequestTime
        } else {
            RankedBy::Requests
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            RankedBy::UpstreamTime => "upstream_us",
            RankedBy::RequestTime => "request_us",
            RankedBy::Requests => "requests",
        }
    }
}
