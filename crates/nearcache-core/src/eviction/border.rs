//! How much of a shard the small ring gets: what comes back soon after its eviction says.
//!
//! A small ring of a tenth is right for steady traffic and for scans: what is asked for once
//! leaves soon. It is wrong where popularity moves, as each newly popular item is evicted
//! once before it is kept. So the border follows what either ring loses by being no larger.
//! Of the items that a ring evicts, some come back before the shard has evicted a fifth of
//! what it holds; a ring that is larger by a little would have kept those. The ring with the
//! larger share of them grows.
//!
//! ```text
//! share *= e^(STEP * (s - m) / (s + m + PRIOR))      s, m: returned / evicted, of small and main
//! ```
//!
//! once per fifth of a turnover, in which the shard evicts as much as it holds. Counts of the
//! past weigh half as much each time, as what returns was evicted a while ago. `PRIOR` keeps
//! few returns from saying much. Where nothing comes back soon (a loop larger than the shard)
//! the border stays where it is.
//!
//! While the small ring is large, most items are evicted from it, so the policy must be that
//! of a recency list: one use earns a place in main, and main forgets all uses of what it
//! keeps. While it is small: S3-FIFO, two uses, and main forgets one.
//!
//! Source of the idea: S3-FIFO-D of the paper (section 6.2.2) moves the border by returns, a
//! thousandth at a time; ARC (Megiddo and Modha, FAST 2003) weighs them by the sizes of its
//! ghosts. Rates, ages and steps are ours: docs/design-decisions.md has what was tried.

use crate::base::stats::PolicyCounter;
use crate::eviction::ghost::{Returned, TURNOVER};
use crate::format::layout::control;
use crate::memory::Mem;
use crate::shard::read::Shard;
use crate::shard::rings::{MAIN, SMALL};

/// The share is a fraction of this.
const WHOLE: u64 = 1 << 16;
pub(crate) const LEAST: f64 = 0.1;
const MOST: f64 = 0.8;
/// Above this share the policy is that of a recency list.
const LARGE: f64 = 0.2;
/// An age below which a return says that the ring was too small; also how often the border moves.
const SOON: u64 = TURNOVER / 5;
const STEP: f64 = 0.5;
const PRIOR: f64 = 0.12;
/// What small evicted is remembered until small has evicted this part of what the shard holds.
const REMEMBERED: f64 = 0.9;
/// But for no more turnovers than this, as the ghost has no room for more.
const MOST_REMEMBERED: f64 = 3.0;

impl<M: Mem> Shard<'_, M> {
    /// Share of the small ring, a hint: any value of the word is one.
    pub(crate) fn small_share(&self) -> f64 {
        match self.word(control::SMALL_SHARE) {
            0 => LEAST,
            share => (share as f64 / WHOLE as f64).clamp(LEAST, MOST),
        }
    }

    /// Of so many words, how many the small ring is to have.
    pub(crate) fn small_part(&self, words: u64) -> u64 {
        (words as f64 * self.small_share()) as u64
    }

    /// Uses in the small ring that earn a place in main.
    pub(crate) fn promote_at(&self) -> u8 {
        if self.small_share() > LARGE { 1 } else { 2 }
    }

    /// The uses that main counts for an item that it keeps.
    pub(crate) fn uses_left(&self, uses: u8) -> u8 {
        if self.small_share() > LARGE { 0 } else { uses - 1 }
    }

    /// Counts an item that is being evicted, and moves the border if it is time.
    pub(crate) fn note_evicted_locked(&self, ring: usize, hash: u64, words: usize) {
        let held = self.all_live_words().max(1);
        self.ghost_insert_locked(hash, ring, words, held);
        self.add_to(control::EVICTED_WORDS + ring, words as u64);
        self.add_to(control::EVICTED_ITEMS, 1);
        self.add_to(control::SINCE_MOVED, words as u64);
        let since = self.word(control::SINCE_MOVED);
        if since.saturating_mul(TURNOVER) >= held.saturating_mul(SOON) {
            self.set_word(control::SINCE_MOVED, 0);
            self.move_border_locked();
        }
    }

    /// Whether a new key is one that small evicted not long ago; counts what came back soon.
    pub(crate) fn note_new_locked(&self, hash: u64) -> bool {
        let Some(Returned { ring, age }) = self.ghost_take_locked(hash) else {
            return false;
        };
        if u64::from(age) <= SOON {
            self.add_to(control::RETURNED + ring, 1);
        }
        let remembered = ring == SMALL && f64::from(age) <= self.remembered();
        if remembered {
            self.count(PolicyCounter::GhostHits, 1);
        }
        remembered
    }

    /// How long what small evicted is remembered, in units of the ghost's clock.
    fn remembered(&self) -> f64 {
        let small = self.word(control::EVICTED_WORDS + SMALL) as f64 + 1.0;
        let all = small + self.word(control::EVICTED_WORDS + MAIN) as f64;
        TURNOVER as f64 * (REMEMBERED * all / small).min(MOST_REMEMBERED)
    }

    fn move_border_locked(&self) {
        let words = |ring| self.word(control::EVICTED_WORDS + ring) as f64;
        let items = self.word(control::EVICTED_ITEMS).max(1) as f64;
        let mean = ((words(SMALL) + words(MAIN)) / items).max(1.0);
        let rate = |ring| self.word(control::RETURNED + ring) as f64 / (words(ring) / mean + 1.0);
        let (small, main) = (rate(SMALL), rate(MAIN));
        let change = (STEP * (small - main) / (small + main + PRIOR)).exp();
        let share = (self.small_share() * change).clamp(LEAST, MOST);
        self.set_word(control::SMALL_SHARE, (share * WHOLE as f64) as u64);
        for at in [SMALL, MAIN]
            .into_iter()
            .flat_map(|ring| [control::EVICTED_WORDS + ring, control::RETURNED + ring])
        {
            self.set_word(at, self.word(at) / 2);
        }
        self.set_word(control::EVICTED_ITEMS, self.word(control::EVICTED_ITEMS) / 2);
    }

    /// Puts the border where it is in a new shard.
    pub(crate) fn forget_border_locked(&self) {
        for at in control::SMALL_SHARE..control::WORDS {
            self.set_word(at, 0);
        }
    }

    fn add_to(&self, at: usize, by: u64) {
        self.set_word(at, self.word(at).saturating_add(by));
    }
}
