//! Making room: the cleaner and the eviction policy.
//!
//! The cleaner takes the oldest page of a ring, record by record. What the index
//! no longer points at is dead and is skipped. What is alive goes on by S3-FIFO:
//!
//! ```text
//! small  used twice or more -> main                    otherwise -> out
//! main   used               -> main, one use less      otherwise -> out
//! ```
//!
//! New keys enter small, those that small evicted a short while ago main. Which ring
//! is cleaned: small, if it holds its part of what is alive. How large that part is, and
//! what changes with it: `border.rs`.
//!
//! Overwritten and deleted values leave garbage in the log. So that garbage never
//! pushes out live values, nothing alive is evicted while the live records take
//! less than `MAX_LIVE` of the room: the cleaner then only packs them (a cost of
//! u / (1 - u) words copied per word gained, u the share of live words). The
//! exception is an index that is full before the log is.
//!
//! Source of the policy: Yang et al., FIFO queues are all you need for cache
//! eviction, SOSP 2023; parameters of its reference implementation.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::stats::PolicyCounter;
use crate::format::layout::{BUCKET_SLOTS, control};
use crate::format::record::{self, Header};
use crate::memory::Mem;
use crate::shard::read::{Shard, slot_word};
use crate::shard::rings::{MAIN, SMALL};
use crate::shard::sweeper::SWEEP_EVERY;

/// Share of the room that live records may take before any is evicted: 7/8.
const MAX_LIVE: (u64, u64) = (7, 8);
/// Share of the index that may be in use before items are evicted for it. A fuller one
/// evicts where its buckets are full, whatever the policy says.
const MAX_INDEXED: (u64, u64) = (14, 15);
/// Words that one write may look through (1 MiB) before it stops keeping anything:
/// a bound on the work done under the lock.
const MAX_WORDS_CLEANED: u64 = 1 << 17;

/// What the cleaner does with a live record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Keep all: there is enough garbage.
    Pack,
    /// Decide by use.
    Evict,
    /// Keep none: this write has worked enough.
    Drop,
}

impl<M: Mem> Shard<'_, M> {
    /// Frees enough pages to append `words` words to either ring; now and then
    /// looks for what is over.
    pub fn make_room_locked(&self, words: usize, now_ms: u64) {
        if self.word(control::VERSION).is_multiple_of(SWEEP_EVERY) {
            self.sweep_bucket_locked(now_ms);
        }
        if words as u64 > self.word(control::LARGEST) {
            self.set_word(control::LARGEST, words as u64);
        }
        let needed = (words as u64 >> self.geo.page_shift) + 1 + self.reserve_pages();
        let mut cleaned = 0_u64;
        if self.free_pages() < needed {
            self.set_word(control::BEEN_FULL, 1);
        }
        let index_is_full = self.index_is_full();
        if index_is_full {
            self.set_word(control::BEEN_FULL, 1);
            self.count(PolicyCounter::IndexFull, 1);
        }
        while self.free_pages() < needed || index_is_full && self.index_is_full() {
            let mode = match cleaned {
                MAX_WORDS_CLEANED.. => Mode::Drop,
                _ if self.has_garbage() && !self.index_is_full() => Mode::Pack,
                _ => Mode::Evict,
            };
            if !self.clean_page_locked(self.ring_to_clean(mode), mode, now_ms) {
                // Nothing is left. A count that says otherwise was damaged.
                return self.recount_locked();
            }
            cleaned += self.geo.page_words();
        }
    }

    /// Evicts items in the policy's order; how many went.
    pub fn cull_locked(&self, items: u64) -> u64 {
        let before = self.items();
        while before.saturating_sub(self.items()) < items && self.items() > 0 {
            let ring = self.ring_to_clean(Mode::Evict);
            if self.window_is_empty(ring) {
                break;
            }
            self.clean_record_locked(ring, Mode::Drop, u64::MAX);
            self.publish_tail_locked(ring);
        }
        before.saturating_sub(self.items())
    }

    fn has_garbage(&self) -> bool {
        self.all_live_words().saturating_mul(MAX_LIVE.1) < self.room_words() * MAX_LIVE.0
    }

    fn index_is_full(&self) -> bool {
        let slots = (self.geo.buckets * BUCKET_SLOTS) as u64;
        self.items().saturating_mul(MAX_INDEXED.1) >= slots * MAX_INDEXED.0
    }

    fn ring_to_clean(&self, mode: Mode) -> usize {
        if self.window_is_empty(SMALL) {
            return MAIN;
        }
        if self.window_is_empty(MAIN) {
            return SMALL;
        }
        let small_stays = match mode {
            Mode::Pack => self.garbage_share(MAIN) > self.garbage_share(SMALL),
            // Main is full of what is in use, or the bound would not have been reached.
            Mode::Drop => false,
            Mode::Evict => self.live_words(SMALL) < self.small_part(self.all_live_words()),
        };
        if small_stays { MAIN } else { SMALL }
    }

    /// Dead words per 1024 words of a ring.
    fn garbage_share(&self, ring: usize) -> u64 {
        let size = self.word(control::HEAD + ring) - self.word(control::TAIL + ring);
        size.saturating_sub(self.live_words(ring)) * 1024 / size.max(1)
    }

    fn window_is_empty(&self, ring: usize) -> bool {
        self.word(control::TAIL + ring) >= self.word(control::HEAD + ring)
    }

    /// Cleans records until the tail has left a page. False if there is nothing.
    fn clean_page_locked(&self, ring: usize, mode: Mode, now_ms: u64) -> bool {
        if self.window_is_empty(ring) {
            return false;
        }
        let page = self.word(control::TAIL + ring) >> self.geo.page_shift;
        while self.word(control::TAIL + ring) >> self.geo.page_shift == page
            && !self.window_is_empty(ring)
        {
            self.clean_record_locked(ring, mode, now_ms);
        }
        self.publish_tail_locked(ring);
        true
    }

    /// Moves what is alive in the oldest page, whatever room there is.
    #[cfg(test)]
    pub fn pack_page_locked(&self, ring: usize, now_ms: u64) -> bool {
        self.clean_page_locked(ring, Mode::Pack, now_ms)
    }

    /// Lets go of everything before `tail`. Before any byte of it is overwritten.
    fn publish_tail_locked(&self, ring: usize) {
        let tail = self.word(control::TAIL + ring);
        // Release: after the slots of the records that were moved; see `is_stale`.
        self.mem.store(self.base + control::SAFE_TAIL + ring, tail, Release);
        self.mem.fence(Release);
    }

    /// Takes the oldest record of a ring out of it.
    fn clean_record_locked(&self, ring: usize, mode: Mode, now_ms: u64) {
        let tail = self.word(control::TAIL + ring);
        let head = self.word(control::HEAD + ring);
        let header = self.header(ring, tail).filter(|header| {
            header.plausible(self.geo.max_record_words) && tail + header.words as u64 <= head
        });
        let Some(header) = header else {
            // Not a record: the file was damaged. Only this shard starts again.
            self.count(PolicyCounter::Resets, 1);
            self.clear_locked();
            return;
        };
        let word = slot_word(header.hash, ring, tail);
        if let Some(slot) = self.slot_of(header.hash, word) {
            self.settle_locked(ring, mode, now_ms, slot, word, &header);
        }
        self.set_word(control::TAIL + ring, tail + header.words as u64);
    }

    /// Decides about a live record at the tail of a ring.
    fn settle_locked(
        &self,
        ring: usize,
        mode: Mode,
        now_ms: u64,
        slot: usize,
        word: u64,
        header: &Header,
    ) {
        let expires = record::unpack_expiry(header.expiry, header.hash, self.seed);
        if expires.is_none_or(|ms| record::is_over(ms, now_ms)) && mode != Mode::Drop {
            return self.drop_slot_locked(slot, PolicyCounter::Expired);
        }
        let frequency = self.frequency(slot);
        let next = match (mode, ring, frequency) {
            (Mode::Drop, ..) => None,
            (_, SMALL, uses) if uses >= self.promote_at() => Some((MAIN, 0)),
            (Mode::Pack, ..) => Some((ring, frequency)),
            (_, MAIN, 1..) => Some((MAIN, self.uses_left(frequency))),
            _ => None,
        };
        if let Some((to, frequency)) = next
            && self.move_locked(slot, word, header, to)
        {
            self.set_frequency_locked(slot, frequency);
            return;
        }
        self.note_evicted_locked(ring, header.hash, header.words);
        let why = match ring {
            SMALL => PolicyCounter::EvictedSmall,
            _ => PolicyCounter::EvictedMain,
        };
        self.drop_slot_locked(slot, why);
    }

    /// Copies a record to the head of a ring. False if there is no page for it, or no memory.
    fn move_locked(&self, slot: usize, word: u64, header: &Header, to: usize) -> bool {
        let from = crate::shard::read::ring_of(word);
        let mut words = Vec::new();
        if words.try_reserve_exact(header.words).is_err() {
            return false;
        }
        words.resize(header.words, 0);
        if !self.copy_out(from, self.offset_of(word), &mut words) {
            return false;
        }
        let Some(offset) = self.append_locked(to, &words) else {
            return false;
        };
        let moved = slot_word(header.hash, to, offset);
        // Fails if the key was deleted meanwhile: the copy is dead, all is well.
        if self.mem.cas(slot, word, moved).is_ok() {
            let live = self.base + control::LIVE;
            self.mem.add(live + from, (header.words as u64).wrapping_neg());
            self.mem.add(live + to, header.words as u64);
            self.count(PolicyCounter::CopiedWords, header.words as u64);
            if from == SMALL && to == MAIN {
                self.count(PolicyCounter::Promoted, 1);
            }
        }
        true
    }

    /// Walks a ring's records from its tail; `false` if it is not made of records.
    pub fn walk_ring(&self, ring: usize, each: &mut dyn FnMut(u64, &Header)) -> bool {
        let mut at = self.word(control::TAIL + ring);
        let head = self.mem.load(self.base + control::HEAD + ring, Acquire);
        while at < head {
            let header = self.header(ring, at).filter(|header| {
                header.plausible(self.geo.max_record_words) && at + header.words as u64 <= head
            });
            let Some(header) = header else { return false };
            each(at, &header);
            at += header.words as u64;
        }
        true
    }

    /// After the death of an owner: the hints may be off, and a damaged file is
    /// best noticed now. Sets the hints right, or clears the shard.
    pub fn recount_locked(&self) {
        self.reclaim_pages_locked();
        let mut items = 0;
        for ring in [SMALL, MAIN] {
            let mut live = 0;
            let whole = self.walk_ring(ring, &mut |at, header| {
                if self.slot_of(header.hash, slot_word(header.hash, ring, at)).is_some() {
                    live += header.words as u64;
                    items += 1;
                }
            });
            if !whole {
                self.count(PolicyCounter::Resets, 1);
                return self.clear_locked();
            }
            self.mem.store(self.base + control::LIVE + ring, live, Relaxed);
        }
        self.mem.store(self.base + control::ITEMS, items, Relaxed);
    }
}
