//! The last word of a bucket: how often its items were used, and which keys go on behind it.
//!
//! ```text
//!  63        40        16  14        0
//!  ┌─────────┬─────────┬───┬─────────┐
//!  │ marks 1 │ marks 0 │ 0 │ 7 x 2   │ frequencies of the seven slots
//!  └─────────┴─────────┴───┴─────────┘
//! ```
//!
//! An item that found a bucket full is in a later one of its path, and has left its mark, one
//! bit of 24 chosen by its hash, in each bucket before (I7). A look-up goes on past a bucket
//! only if the mark of its key is there.
//!
//! Marks must go with their items, or misses would look at more and more buckets as a store
//! ages. Nothing that takes an item out could take its mark along: it may be shared, and a
//! delete holds no lock. So there are two sets, and the sweeper renews them: it visits the
//! buckets in turn, marks the paths of all items it finds in one, and then changes that
//! bucket's set, emptying the one it changes to. Between two visits to a bucket every item that
//! went past it was visited once, so its mark is in the set that is kept.
//!
//! Both sets are one word: who reads it in one load cannot see an item's mark in neither. A
//! visit that was cut short by its process's death is made again, as the cursor moves last.
//!
//! A mark that is lost hides its item, and a later write of the key makes a second one. A mark
//! set again would bring the old one back. So the cursor, which says what set is in use, has a
//! check, and an item that the sweeper finds without its marks is removed.

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS, control};
use crate::format::record;
use crate::memory::Mem;
use crate::shard::read::{CHAIN, Shard};

pub(crate) const MOST_FREQUENT: u8 = 3;
const FREQUENCY_BITS: usize = 2;
const FREQUENCIES: u64 = (1 << (BUCKET_SLOTS * FREQUENCY_BITS)) - 1;
const MARKS: u64 = 24;
const FIRST_MARK: u64 = 16;
const ONE_SET: u64 = ((1 << MARKS) - 1) << FIRST_MARK;

fn frequency_of(word: u64, slot: usize) -> u8 {
    (word >> (slot * FREQUENCY_BITS)) as u8 & MOST_FREQUENT
}

fn with_frequency(word: u64, slot: usize, frequency: u8) -> u64 {
    let at = slot * FREQUENCY_BITS;
    word & !(u64::from(MOST_FREQUENT) << at) | u64::from(frequency) << at
}

/// A key's bit of the first set. From bits of the hash that choose neither bucket nor shard.
fn mark_of(hash: u64) -> u64 {
    let eleven_bits = hash >> 47 & 0x7ff;
    1 << (FIRST_MARK + ((eleven_bits * MARKS) >> 11))
}

impl<M: Mem> Shard<'_, M> {
    /// Whether a look-up of the key goes on past this bucket.
    #[inline]
    pub fn goes_on(&self, bucket: usize, hash: u64) -> bool {
        let marks = mark_of(hash) * (1 | 1 << MARKS);
        self.mem.load(bucket + BUCKET_SLOTS, Relaxed) & marks != 0
    }

    /// Counts a use of a slot, for the eviction policy: at most three writes while the record
    /// lives. One that is lost to another reader's is no loss.
    #[inline]
    pub fn touch_frequency(&self, slot: usize) {
        let (at, inside) = self.tail_of(slot);
        let word = self.mem.load(at, Relaxed);
        let frequency = frequency_of(word, inside);
        if frequency < MOST_FREQUENT {
            let _ = self.mem.cas(at, word, with_frequency(word, inside, frequency + 1));
        }
    }

    pub fn frequency(&self, slot: usize) -> u8 {
        let (at, inside) = self.tail_of(slot);
        frequency_of(self.mem.load(at, Relaxed), inside)
    }

    pub fn set_frequency_locked(&self, slot: usize, frequency: u8) {
        let (at, inside) = self.tail_of(slot);
        self.change(at, |word| with_frequency(word, inside, frequency));
    }

    /// Leaves a key's mark in some buckets of its path (I7).
    pub fn mark_locked(&self, hash: u64, steps: Range<usize>) {
        for step in steps {
            let bucket = self.bucket(hash, step);
            let set = self.set_in_use(bucket);
            self.change(bucket + BUCKET_SLOTS, |word| word | mark_of(hash) << (set * MARKS));
        }
    }

    /// Marks the path of an item that the sweeper found in a bucket. False if no look-up
    /// finds the item there: a mark of its path, or its hash, was damaged.
    pub fn mark_again_locked(&self, hash: u64, bucket: usize) -> bool {
        let step = self.step_of(hash, bucket);
        if let Some(step) = step {
            self.mark_locked(hash, 0..step);
        }
        step.is_some()
    }

    /// How far along its path an item of a bucket is; `None` if no look-up comes there.
    pub fn step_of(&self, hash: u64, bucket: usize) -> Option<usize> {
        let step = (0..CHAIN).find(|step| self.bucket(hash, *step) == bucket)?;
        (0..step).all(|before| self.goes_on(self.bucket(hash, before), hash)).then_some(step)
    }

    /// Visits of the sweeper to all buckets together; `None` if the word is damaged.
    pub fn sweeper_visits(&self) -> Option<u64> {
        record::checked(self.word(control::SWEEP), self.number.into(), self.seed)
    }

    pub fn set_sweeper_visits_locked(&self, visits: u64) {
        let word = record::with_check(visits, self.number.into(), self.seed);
        // Release: not before the marks.
        self.mem.store(self.base + control::SWEEP, word, Release);
    }

    /// The end of the sweeper's visit, but for the cursor: the other set is used from now on.
    pub fn change_marks_locked(&self, bucket: usize) {
        let other = 1 - self.set_in_use(bucket);
        self.change(bucket + BUCKET_SLOTS, |word| word & !(ONE_SET << (other * MARKS)));
    }

    /// Nothing is in the index any more.
    pub fn forget_marks_locked(&self) {
        let first = self.base + self.geo.index;
        for bucket in (first..).step_by(BUCKET_WORDS).take(self.geo.buckets) {
            self.change(bucket + BUCKET_SLOTS, |word| word & FREQUENCIES);
        }
    }

    /// Which set of a bucket new marks go to: each visit changes it.
    fn set_in_use(&self, bucket: usize) -> u64 {
        let number = ((bucket - self.base - self.geo.index) / BUCKET_WORDS) as u64;
        let buckets = self.geo.buckets as u64;
        // Damaged: nothing is taken from either set until the shard has been cleared.
        let visits = record::unchecked(self.word(control::SWEEP)) + (buckets - 1 - number);
        (visits / buckets) & 1
    }

    /// The last word of a slot's bucket, and the number of the slot in it.
    #[inline]
    fn tail_of(&self, slot: usize) -> (usize, usize) {
        let inside = (slot - self.base - self.geo.index) % BUCKET_WORDS;
        (slot - inside + BUCKET_SLOTS, inside)
    }

    /// Readers count uses in the same word, a few times for each item.
    fn change(&self, at: usize, change: impl Fn(u64) -> u64) {
        let mut there = self.mem.load(at, Relaxed);
        while change(there) != there {
            match self.mem.cas(at, there, change(there)) {
                Ok(()) => return,
                Err(now) => there = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_and_marks_do_not_meet() {
        let full = (0..BUCKET_SLOTS).fold(0, |word, slot| with_frequency(word, slot, 3));
        assert_eq!(full, FREQUENCIES);
        assert_eq!(with_frequency(full, 6, 1), FREQUENCIES & !(2 << 12));
        assert_eq!((0..BUCKET_SLOTS).map(|slot| frequency_of(full, slot)).sum::<u8>(), 21);
        assert_eq!(FREQUENCIES & ONE_SET, 0);
        assert_eq!(ONE_SET & ONE_SET << MARKS, 0);
        let all = (0..1 << 11).fold(0, |marks, bits: u64| marks | mark_of(bits << 47));
        assert_eq!(all, ONE_SET);
    }
}
