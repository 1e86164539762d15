//! Keys that were evicted a short while ago, and from which ring.
//!
//! A set-associative table of 32-bit entries, `fingerprint:19 | ring:1 | time:12`, two to a
//! word. Time counts what was evicted, in units of 1/64 of what the shard holds; the clock
//! of 12 bits runs for 64 shards full, so an old entry that nobody has overwritten looks
//! young for 1.4 % of the time. It is all a hint: a wrong answer sends an item to the other
//! ring, or moves their border a little, and no more.

use std::sync::atomic::Ordering::Relaxed;

use crate::format::layout::{GHOST_SET_WORDS, control};
use crate::memory::Mem;
use crate::shard::read::Shard;
use crate::shard::rings::SMALL;

const TIME_BITS: u32 = 12;
const TIME_MASK: u32 = (1 << TIME_BITS) - 1;
const RING_BIT: u32 = 1 << TIME_BITS;
/// Units of time in which as much is evicted as the shard holds.
pub(crate) const TURNOVER: u64 = 64;
/// The clock itself counts finer.
const UNITS_OF_CLOCK: u64 = TURNOVER << 32;
const WAYS: usize = GHOST_SET_WORDS * 2;

/// A key that was evicted and is wanted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Returned {
    /// The ring it was evicted from.
    pub ring: usize,
    /// How long ago, in units of 1/64 of a turnover.
    pub age: u32,
}

impl<M: Mem> Shard<'_, M> {
    /// Remembers a key that is being evicted with its record of `words` words, of `held`.
    pub(crate) fn ghost_insert_locked(&self, hash: u64, ring: usize, words: usize, held: u64) {
        let passed = (words as u64).saturating_mul(UNITS_OF_CLOCK) / held;
        let clock = self.word(control::GHOST_CLOCK).wrapping_add(passed);
        self.set_word(control::GHOST_CLOCK, clock);
        let now = self.ghost_time();
        let oldest = (0..WAYS).max_by_key(|way| age(self.ghost_entry(hash, *way), now));
        let ring = if ring == SMALL { 0 } else { RING_BIT };
        self.set_ghost_entry(hash, oldest.unwrap_or(0), fingerprint(hash) | ring | now);
    }

    /// Whether a key was evicted within a few turnovers; forgets it if so.
    pub(crate) fn ghost_take_locked(&self, hash: u64) -> Option<Returned> {
        let now = self.ghost_time();
        let way = (0..WAYS).find(|way| {
            let entry = self.ghost_entry(hash, *way);
            entry & !(RING_BIT | TIME_MASK) == fingerprint(hash)
        })?;
        let entry = self.ghost_entry(hash, way);
        self.set_ghost_entry(hash, way, 0);
        let ring = usize::from(entry & RING_BIT != 0);
        Some(Returned { ring, age: age(entry, now) })
    }

    fn ghost_time(&self) -> u32 {
        (self.word(control::GHOST_CLOCK) / (UNITS_OF_CLOCK / TURNOVER)) as u32 & TIME_MASK
    }

    fn ghost_word(&self, hash: u64, way: usize) -> usize {
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let set = (mixed * self.geo.ghost_sets as u64) >> 32;
        self.geo.ghost + set as usize * GHOST_SET_WORDS + way / 2
    }

    fn ghost_entry(&self, hash: u64, way: usize) -> u32 {
        (self.mem.load(self.base + self.ghost_word(hash, way), Relaxed) >> (way % 2 * 32)) as u32
    }

    fn set_ghost_entry(&self, hash: u64, way: usize, entry: u32) {
        let at = self.base + self.ghost_word(hash, way);
        let shift = way % 2 * 32;
        let other = self.mem.load(at, Relaxed) & !(0xffff_ffff << shift);
        self.mem.store(at, other | u64::from(entry) << shift, Relaxed);
    }
}

/// In its place in an entry. Never 0, so that 0 is an empty entry.
fn fingerprint(hash: u64) -> u32 {
    ((hash >> 40) as u32 & 0x7_ffff).max(1) << (TIME_BITS + 1)
}

/// Units since an entry was made; the largest there is for an empty one.
fn age(entry: u32, now: u32) -> u32 {
    if entry == 0 { u32::MAX } else { now.wrapping_sub(entry) & TIME_MASK }
}
