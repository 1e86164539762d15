//! One shard: what the owner of its lock finds there is made sane, or dropped.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::base::stats::PolicyCounter;
use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS, control};
use crate::memory::Mem;
use crate::shard::read::{OFFSET_MASK, Shard};
use crate::shard::rings::{MAIN, SMALL};

/// No ring ever gets here: at 100 GB/s it would take a decade.
const END_OF_TIME: u64 = 1 << 62;

impl<M: Mem> Shard<'_, M> {
    /// The whole "recovery" of a shard: done whenever the lock is taken.
    pub fn normalise_locked(&self) {
        for ring in [SMALL, MAIN] {
            let safe_tail = self.word(control::SAFE_TAIL + ring);
            if self.word(control::HEAD + ring) < safe_tail {
                // A crash inside `abandon_ring_locked`, or a damaged word.
                self.abandon_ring_locked(ring);
            } else if self.word(control::TAIL + ring) < safe_tail {
                self.set_word(control::TAIL + ring, safe_tail);
            }
        }
        if !(self.window_is_sane(SMALL) && self.window_is_sane(MAIN)) {
            self.reset_locked();
        }
    }

    /// Starts a ring again beyond every offset it can have given out. With the
    /// first store no slot word passes the window test any more. (`head` would do
    /// in a whole file; a damaged one may lie, but not further than the ring is
    /// long, or the window is not sane.)
    fn abandon_ring_locked(&self, ring: usize) {
        let room = (self.geo.pages as u64) << self.geo.page_shift;
        let fresh = self.word(control::SAFE_TAIL + ring).saturating_add(room);
        self.mem.store(self.base + control::SAFE_TAIL + ring, fresh, Release);
        self.mem.fence(Release);
        self.set_word(control::TAIL + ring, fresh);
        self.set_word(control::HEAD + ring, fresh);
    }

    /// Whether a ring's words can be true (I1): what follows may then subtract
    /// them and walk from one to the next without an end out of sight.
    fn window_is_sane(&self, ring: usize) -> bool {
        let [safe_tail, tail, head] =
            [control::SAFE_TAIL, control::TAIL, control::HEAD].map(|at| self.word(at + ring));
        let room = (self.geo.pages as u64) << self.geo.page_shift;
        safe_tail <= tail && tail <= head && head - safe_tail <= room && head < END_OF_TIME
    }

    /// Starts a shard again whose control words are damaged.
    ///
    /// The rings go on where `head` is, modulo what a slot word holds of it, so
    /// that offsets stay far from the end of 64 bits. The slots are emptied first:
    /// with `safe_tail` in doubt the window test is in doubt. Killed in between,
    /// the next owner finds the words as bad, or the slots empty.
    fn reset_locked(&self) {
        self.count(PolicyCounter::Resets, 1);
        self.empty_index_locked();
        for ring in [SMALL, MAIN] {
            let head = self.word(control::HEAD + ring) & OFFSET_MASK;
            for at in [control::HEAD, control::TAIL, control::SAFE_TAIL] {
                self.set_word(at + ring, head);
            }
        }
        self.clear_locked();
    }

    fn empty_index_locked(&self) {
        let index = self.base + self.geo.index;
        for bucket in (index..).step_by(BUCKET_WORDS).take(self.geo.buckets) {
            for slot in bucket..bucket + BUCKET_SLOTS {
                if self.mem.load(slot, Relaxed) != 0 {
                    self.mem.store(slot, 0, Release);
                }
            }
        }
    }

    /// Drops everything at once: no slot word passes the window test any more.
    pub fn clear_locked(&self) {
        for ring in [SMALL, MAIN] {
            self.abandon_ring_locked(ring);
            self.set_word(control::LIVE + ring, 0);
        }
        self.forget_marks_locked();
        self.set_word(control::ITEMS, 0);
        self.set_word(control::BEEN_FULL, 0);
        self.set_word(control::LARGEST, 0);
        self.forget_border_locked();
    }
}
