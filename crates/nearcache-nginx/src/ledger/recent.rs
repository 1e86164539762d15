//! What came since somebody last looked, for those who watch a log while nginx writes it.
//!
//! These are the same judgements and sums as the ledger's, of a second and not of a month. Taking
//! them out costs what happened in between, however long the log is and however many groups it has.
//! They are bounded as the ledger is, also if nobody looks.

use std::collections::HashMap;

use crate::base::hashing::ByHash;
use crate::base::histogram::Histogram;
use crate::ledger::sums::Tally;
use crate::ledger::top::{Asked, Top};
use crate::log::record::CacheStatus;
use crate::log::request::Request;
use crate::misses::judge::Judgement;
use crate::misses::why::Why;

#[derive(Debug, Default)]
pub struct Recent {
    by_group: HashMap<u64, Tally, ByHash>,
    /// The heaviest missed URLs.
    pub top: Top,
    /// How long requests took that were served from the cache; empty if the log does not say.
    pub served: Histogram,
    /// And those that were not, though somebody upstream may have been asked.
    pub missed: Histogram,
    pub first_us: Option<i64>,
    pub last_us: Option<i64>,
}

impl Recent {
    pub(crate) fn take(&mut self, request: &Request<'_>, group: u32, judgement: &Judgement) {
        self.by_group.entry(u64::from(group)).or_default().take(request, judgement);
        if let (Some(us), Some(times)) = (request.request_us, self.times_of(request, judgement)) {
            times.add(us);
        }
        if let Some(us) = request.end_us {
            self.first_us = Some(self.first_us.map_or(us, |first| first.min(us)));
            self.last_us = Some(self.last_us.map_or(us, |last| last.max(us)));
        }
    }

    fn times_of(&mut self, request: &Request<'_>, judgement: &Judgement) -> Option<&mut Histogram> {
        if request.cache.is_some_and(CacheStatus::is_served) {
            return Some(&mut self.served);
        }
        judgement.missed().map(|_| &mut self.missed)
    }

    pub(crate) fn take_miss(&mut self, asked: Asked<'_>, weight: u64, miss: (Why, u64)) {
        self.top.add(asked, weight, miss);
    }

    /// Those with requests, in the order of the table.
    pub fn by_group(&self) -> Vec<(usize, &Tally)> {
        let mut found: Vec<_> =
            self.by_group.iter().map(|(group, tally)| (*group as usize, tally)).collect();
        found.sort_unstable_by_key(|(group, _)| *group);
        found
    }
}
