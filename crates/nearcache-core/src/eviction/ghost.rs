//! Keys that were evicted from the small ring a short while ago.
//!
//! A set-associative table of 32-bit entries, `fingerprint:20 | time:12`, two to a
//! word. Time is the number of words evicted from the small ring, in units of
//! 1/64 of the shard's capacity. S3-FIFO's ghost holds the keys of 9/10 of a
//! capacity, less those that came back; an age of one capacity is the same within
//! a few per cent and needs no queue. The clock of 12 bits runs for 64
//! capacities, so an old entry that nobody has overwritten looks young for 1.6 %
//! of the time. It is all a hint: a wrong answer sends an item to the other ring,
//! and no more.

use std::sync::atomic::Ordering::Relaxed;

use crate::format::layout::{GHOST_SET_WORDS, control};
use crate::memory::Mem;
use crate::shard::read::Shard;

const TIME_BITS: u32 = 12;
const TIME_MASK: u32 = (1 << TIME_BITS) - 1;
const UNITS_PER_CAPACITY: u64 = 64;
const MAX_AGE: u32 = UNITS_PER_CAPACITY as u32;
const WAYS: usize = GHOST_SET_WORDS * 2;

impl<M: Mem> Shard<'_, M> {
    /// Remembers a key that is being evicted with its record of `words` words.
    pub(crate) fn ghost_insert_locked(&self, hash: u64, words: usize) {
        let clock = self.word(control::GHOST_CLOCK).wrapping_add(words as u64);
        self.set_word(control::GHOST_CLOCK, clock);
        let now = self.ghost_time(clock);
        let oldest = (0..WAYS).max_by_key(|way| age(self.ghost_entry(hash, *way), now));
        self.set_ghost_entry(hash, oldest.unwrap_or(0), fingerprint(hash) << TIME_BITS | now);
    }

    /// Whether a key was evicted a short while ago; forgets it if so.
    pub(crate) fn ghost_take_locked(&self, hash: u64) -> bool {
        let now = self.ghost_time(self.word(control::GHOST_CLOCK));
        let found = (0..WAYS).find(|way| {
            let entry = self.ghost_entry(hash, *way);
            entry >> TIME_BITS == fingerprint(hash) && age(entry, now) <= MAX_AGE
        });
        if let Some(way) = found {
            self.set_ghost_entry(hash, way, 0);
        }
        found.is_some()
    }

    fn ghost_time(&self, clock: u64) -> u32 {
        let unit = (self.geo.capacity_words() / UNITS_PER_CAPACITY).max(1);
        (clock / unit) as u32 & TIME_MASK
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

/// Never 0, so that 0 is an empty entry.
fn fingerprint(hash: u64) -> u32 {
    ((hash >> 40) as u32 & 0xf_ffff).max(1)
}

/// Units since an entry was made; the largest there is for an empty one.
fn age(entry: u32, now: u32) -> u32 {
    if entry == 0 { u32::MAX } else { now.wrapping_sub(entry) & TIME_MASK }
}
