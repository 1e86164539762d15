//! One shard: the sweeper, which visits the buckets in turn. The lock is held.

use std::sync::atomic::Ordering::Acquire;

use crate::base::stats::PolicyCounter;
use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS};
use crate::format::record;
use crate::memory::Mem;
use crate::shard::read::{Shard, ring_of};

/// Writes between two looks of the sweeper at a bucket.
pub(crate) const SWEEP_EVERY: u64 = 8;

impl<M: Mem> Shard<'_, M> {
    /// Visits one bucket: drops what is over or no longer there, so that expired values do
    /// not stay until their turn in the ring comes, and renews its marks (`bucket.rs`). Clears
    /// a shard whose cursor is damaged: nobody knows what marks it has lost.
    pub fn sweep_bucket_locked(&self, now_ms: u64) {
        let Some(visits) = self.sweeper_visits() else {
            self.count(PolicyCounter::Resets, 1);
            self.clear_locked();
            return self.set_sweeper_visits_locked(0);
        };
        let bucket = (visits % self.geo.buckets as u64) as usize;
        let at = self.base + self.geo.index + bucket * BUCKET_WORDS;
        for slot in at..at + BUCKET_SLOTS {
            let word = self.mem.load(slot, Acquire);
            if word == 0 {
                continue;
            }
            if !self.live(word) {
                let _ = self.mem.cas(slot, word, 0);
                continue;
            }
            let Some(header) = self.header(ring_of(word), self.offset_of(word)) else {
                continue;
            };
            let expires = record::unpack_expiry(header.expiry, header.hash, self.seed);
            if expires.is_none_or(|ms| record::is_over(ms, now_ms)) {
                self.drop_slot_locked(slot, PolicyCounter::Expired);
            } else if !self.mark_again_locked(header.hash, at) {
                self.drop_slot_locked(slot, PolicyCounter::Unreachable);
            }
        }
        self.change_marks_locked(at);
        self.set_sweeper_visits_locked(visits + 1);
    }
}
