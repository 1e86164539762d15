//! One shard: what the lock holder does.
//!
//! Every function ends in `_locked`: the caller holds the shard's lock, and no
//! other process writes anything but expiry words of its own, frequencies,
//! hints, and zeros into slots.
//!
//! The order of stores makes every prefix a valid state:
//!
//! ```text
//! record words (relaxed)  a crash leaves garbage beyond head: overwritten next time
//! head (release)          a crash leaves a record no slot points at: dead
//! slot (release)          the write has happened, in one store
//! ```

use std::alloc::{Layout, handle_alloc_error};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::stats::PolicyCounter;
use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS, RESERVE_PAGES, RESERVE_SHARE, control};
use crate::format::record::{self, TAG_INT};
use crate::memory::Mem;
use crate::shard::read::{
    BEFORE_ANY_DEADLINE_MS, Buffer, CHAIN, Key, Locator, Look, OFFSET_MASK, Seen, Shard, Want,
    page_table_word, ring_of, slot_word,
};

pub(crate) const SMALL: usize = 0;
pub(crate) const MAIN: usize = 1;
/// No ring ever gets here: at 100 GB/s it would take a decade.
const END_OF_TIME: u64 = 1 << 62;
/// Words made present at once (64 KiB): what is done under the lock is to stay short.
const PIECE_WORDS: usize = 1 << 13;
/// Writes between two looks of the sweeper at a bucket.
pub(crate) const SWEEP_EVERY: u64 = 8;

/// What `set` did.
#[derive(Debug, Clone, Copy)]
pub enum Stored {
    /// The value is there.
    Yes(Locator),
    /// Key and value are larger than `max_item`; the old value is gone.
    TooLarge,
}

/// What `add` did.
#[derive(Debug, Clone, Copy)]
pub enum Added {
    /// The key was free.
    Stored(Locator),
    /// The key has a value.
    Exists,
    /// Key and value are larger than `max_item`.
    TooLarge,
}

/// What `incr` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incr {
    /// The new value.
    Value(i64),
    /// There is no such key.
    Missing,
    /// The value is not a 64-bit integer.
    NotInteger,
    /// The sum needs more than 64 bits; nothing was changed.
    Overflow,
}

/// A record built outside the lock.
pub(crate) struct Draft<'a> {
    pub key: Key<'a>,
    pub words: &'a mut Vec<u64>,
    pub body_hash: u64,
}

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

    /// The slot of a key, expired or not. Under the lock a slot can only empty.
    ///
    /// Ends the process if there is no memory for what is wanted, as Rust does: who would take the
    /// key for absent, and holds the lock, would store it twice.
    pub fn find_locked(&self, key: Key, buffer: &mut Buffer, want: Want) -> Option<Seen> {
        buffer.starved = false;
        for _ in 0..CHAIN * BUCKET_SLOTS {
            match self.find(key, BEFORE_ANY_DEADLINE_MS, buffer, want) {
                Look::Hit(seen) => return Some(seen),
                _ if buffer.starved => handle_alloc_error(Layout::new::<Seen>()),
                // Its slot is empty now. It may have been another key's, and this one behind it.
                Look::Damaged => {}
                _ => break,
            }
        }
        None
    }

    /// Stores a draft, whatever is there now.
    pub fn set_locked(&self, draft: Draft, now_ms: u64, buffer: &mut Buffer) -> Option<Locator> {
        self.make_room_locked(draft.words.len(), now_ms);
        let existing = self.find_locked(draft.key, buffer, Want::Nothing);
        self.put_locked(draft, existing, true)
    }

    /// Stores a draft if the key is free: `Err` if it is not.
    pub fn add_locked(
        &self,
        draft: Draft,
        now_ms: u64,
        buffer: &mut Buffer,
    ) -> Result<Option<Locator>, ()> {
        self.make_room_locked(draft.words.len(), now_ms);
        let existing = self.find_locked(draft.key, buffer, Want::Nothing);
        match existing {
            Some(seen) if !record::is_over(seen.expires_at_ms, now_ms) => Err(()),
            _ => Ok(self.put_locked(draft, existing, true)),
        }
    }

    /// Stores a draft if the key has this version.
    pub fn cas_locked(
        &self,
        draft: Draft,
        version: u64,
        now_ms: u64,
        buffer: &mut Buffer,
    ) -> Option<Locator> {
        self.make_room_locked(draft.words.len(), now_ms);
        let seen = self.find_alive_locked(draft.key, now_ms, buffer, Want::Nothing)?;
        if seen.header.version != version {
            return None;
        }
        self.put_locked(draft, Some(seen), false)
    }

    /// Stores a draft and leaves the old value in `buffer`.
    pub fn get_and_set_locked(
        &self,
        draft: Draft,
        now_ms: u64,
        buffer: &mut Buffer,
    ) -> (Option<Seen>, Option<Locator>) {
        self.make_room_locked(draft.words.len(), now_ms);
        let Draft { key, words, body_hash } = draft;
        loop {
            let existing = self.find_locked(key, buffer, Want::Whole);
            let again = Draft { key, words: &mut *words, body_hash };
            // A delete that came in between must be seen by the next look.
            match (self.put_locked(again, existing, existing.is_none()), existing) {
                (None, Some(_)) => {}
                (place, seen) => {
                    let alive = seen.filter(|s| !record::is_over(s.expires_at_ms, now_ms));
                    return (alive, place);
                }
            }
        }
    }

    /// Adds to a counter; keeps its deadline. `words` is scratch.
    pub fn incr_locked(
        &self,
        key: Key,
        delta: i64,
        now_ms: u64,
        buffer: &mut Buffer,
        words: &mut Vec<u64>,
    ) -> Incr {
        self.make_room_locked(record::words_for(key.bytes.len(), 8), now_ms);
        let Some(seen) = self.find_alive_locked(key, now_ms, buffer, Want::Whole) else {
            return Incr::Missing;
        };
        let (TAG_INT, Ok(old)) = (seen.header.tag, <[u8; 8]>::try_from(buffer.value())) else {
            return Incr::NotInteger;
        };
        let Some(new) = i64::from_le_bytes(old).checked_add(delta) else {
            return Incr::Overflow;
        };
        let value = new.to_le_bytes();
        let body_hash = record::build(
            words,
            self.seed,
            key.hash,
            key.bytes,
            TAG_INT,
            &value,
            seen.expires_at_ms,
        );
        match self.put_locked(Draft { key, words, body_hash }, Some(seen), false) {
            Some(_) => Incr::Value(new),
            None => Incr::Missing,
        }
    }

    /// Gives a key another deadline, in place.
    pub fn touch_locked(
        &self,
        key: Key,
        expires_at_ms: u64,
        now_ms: u64,
        buffer: &mut Buffer,
        want: Want,
    ) -> Option<Seen> {
        let seen = self.find_alive_locked(key, now_ms, buffer, want)?;
        let at = self.locate(ring_of(seen.word), self.offset_of(seen.word) + 2)?;
        self.mem.store(at, record::pack_expiry(expires_at_ms, key.hash, self.seed), Relaxed);
        (self.mem.load(seen.slot, Acquire) == seen.word).then_some(Seen { expires_at_ms, ..seen })
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
    }

    fn find_alive_locked(
        &self,
        key: Key,
        now_ms: u64,
        buffer: &mut Buffer,
        want: Want,
    ) -> Option<Seen> {
        self.find_locked(key, buffer, want)
            .filter(|seen| !record::is_over(seen.expires_at_ms, now_ms))
    }

    /// Appends a draft and publishes it. With `!revive`, a key that is deleted
    /// meanwhile stays deleted and the result is `None`. Room has been made.
    fn put_locked(&self, draft: Draft, existing: Option<Seen>, revive: bool) -> Option<Locator> {
        let key = draft.key;
        let words = draft.words.len();
        let ring = match existing {
            // An overwritten value keeps the standing of its key.
            Some(seen) => ring_of(seen.word),
            None => self.ring_for_new_locked(key.hash, words),
        };
        let version = self.word(control::VERSION).wrapping_add(1);
        self.set_word(control::VERSION, version);
        record::seal(draft.words, draft.body_hash, version);
        let Some(offset) = self.append_locked(ring, draft.words) else {
            self.count(PolicyCounter::NoRoom, 1);
            self.reclaim_pages_locked();
            if let Some(seen) = existing {
                self.take(seen.slot, seen.word, seen.header.words);
            }
            return None;
        };
        let word = slot_word(key.hash, ring, offset);
        let slot = match existing {
            Some(seen) => self.replace_locked(&seen, word, revive)?,
            None => self.publish_locked(key.hash, word),
        };
        self.mem.add(self.base + control::LIVE + ring, words as u64);
        self.mem.add(self.base + control::ITEMS, 1);
        Some(self.place(slot, word, key.hash))
    }

    fn replace_locked(&self, seen: &Seen, word: u64, revive: bool) -> Option<usize> {
        if self.mem.cas(seen.slot, seen.word, word).is_ok() {
            self.count_gone(seen.word, seen.header.words);
            return Some(seen.slot);
        }
        // Deleted meanwhile: the slot is 0 and nobody else fills it (I4).
        if !revive {
            return None;
        }
        self.mem.store(seen.slot, word, Release);
        Some(seen.slot)
    }

    fn ring_for_new_locked(&self, hash: u64, words: usize) -> usize {
        if self.ghost_take_locked(hash) {
            self.count(PolicyCounter::GhostHits, 1);
            return MAIN;
        }
        // Until the shard is full for the first time, what does not fit small
        // goes to main at once: nothing has to be chosen yet, and nothing copied.
        let filling = self.word(control::BEEN_FULL) == 0;
        let small_is_full = self.live_words(SMALL) >= self.small_target();
        let too_large_for_small = words as u64 > self.small_target();
        if too_large_for_small || filling && small_is_full { MAIN } else { SMALL }
    }

    /// Pages held back so that the cleaner can copy the largest record there is
    /// before it lets go of the old one. Without them it would have to evict it.
    pub fn reserve_pages(&self) -> u64 {
        let largest = (self.word(control::LARGEST) >> self.geo.page_shift) + 2;
        let pages = self.geo.pages as u64;
        largest.min(pages / RESERVE_SHARE).max(RESERVE_PAGES)
    }

    /// Words of records the shard can hold, as large as they are.
    pub fn room_words(&self) -> u64 {
        (self.geo.pages as u64 - self.reserve_pages()) << self.geo.page_shift
    }

    /// Words the small ring may hold when the shard is full: a tenth.
    pub fn small_target(&self) -> u64 {
        self.room_words() / 10
    }

    /// Puts a key's word into a free slot, or over the least used one.
    fn publish_locked(&self, hash: u64, word: u64) -> usize {
        for step in 0..CHAIN {
            let bucket = self.bucket(hash, step);
            for slot in bucket..bucket + BUCKET_SLOTS {
                let there = self.mem.load(slot, Relaxed);
                if there == 0 || !self.live(there) {
                    self.set_frequency_locked(slot, 0);
                    self.mem.store(slot, word, Release);
                    return slot;
                }
            }
            // Before the item goes further, or a reader would stop here (I7).
            self.mark_locked(hash, step..step + 1);
        }
        let slot = self.least_used_slot(hash);
        self.drop_slot_locked(slot, PolicyCounter::EvictedIndex);
        self.set_frequency_locked(slot, 0);
        self.mem.store(slot, word, Release);
        slot
    }

    fn least_used_slot(&self, hash: u64) -> usize {
        let slots = (0..CHAIN).flat_map(|step| {
            let bucket = self.bucket(hash, step);
            bucket..bucket + BUCKET_SLOTS
        });
        slots.min_by_key(|slot| self.frequency(*slot)).expect("a chain has slots")
    }

    /// Empties a slot and counts why.
    pub fn drop_slot_locked(&self, slot: usize, why: PolicyCounter) {
        let word = self.mem.load(slot, Acquire);
        if word == 0 {
            return;
        }
        let words = if self.live(word) {
            self.header(ring_of(word), self.offset_of(word)).map_or(0, |header| header.words)
        } else {
            0
        };
        if words == 0 {
            let _ = self.mem.cas(slot, word, 0);
        } else if self.take(slot, word, words) {
            self.count(why, 1);
        }
    }

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

    /// Appends whole words to a ring; where they begin, or `None` if no page is
    /// free. Room for a draft has been made before.
    pub fn append_locked(&self, ring: usize, words: &[u64]) -> Option<u64> {
        let head = self.word(control::HEAD + ring);
        // `safe_tail` may have been moved by the owner before, whose fence does not
        // order this owner's bytes: a reader who sees them must see it too.
        self.mem.fence(Release);
        let mut done = 0;
        while done < words.len() {
            let at = head + done as u64;
            self.page_for_writing_locked(ring, at >> self.geo.page_shift)?;
            let left = (self.geo.page_words() - (at & (self.geo.page_words() - 1))) as usize;
            let run = left.min(words.len() - done);
            self.mem.copy_in(self.locate(ring, at)?, &words[done..done + run]);
            done += run;
        }
        self.mem.store(self.base + control::HEAD + ring, head + words.len() as u64, Release);
        Some(head)
    }

    /// Makes sure that a page number of a ring has a page behind it (I6).
    fn page_for_writing_locked(&self, ring: usize, number: u64) -> Option<()> {
        let entry = self.page_table_entry(ring, number);
        let wanted = (number + 1) << 1 | ring as u64;
        let there = self.page_of(ring, number);
        if there.is_some_and(|page| self.word(self.geo.descriptors + page) == wanted) {
            return Some(());
        }
        let page = self.free_page_locked(ring, number)?;
        self.prepare_page_locked(page);
        // The descriptor first: a page that is claimed twice is impossible, one
        // that is claimed in vain is free again when its number leaves the window.
        self.set_word(self.geo.descriptors + page, wanted);
        self.set_word(entry, page_table_word(number, page));
        Some(())
    }

    /// Makes memory present in pieces, ahead of the first lap, which takes the pages in order.
    fn prepare_page_locked(&self, page: usize) {
        let pages = (PIECE_WORDS >> self.geo.page_shift).max(1);
        if self.word(self.geo.descriptors + page) != 0 || !page.is_multiple_of(pages) {
            return;
        }
        let pages = pages.min(self.geo.pages - page);
        let at = self.base + self.geo.pages_at + (page << self.geo.page_shift);
        if !self.mem.prepare(at, pages << self.geo.page_shift) {
            self.count(PolicyCounter::NotPrepared, 1);
        }
    }

    /// Finds a page whose number is outside its ring's window (I6), which is
    /// taken to reach to `number`: the pages before it, in a record of several
    /// pages, are claimed already and `head` has yet to move.
    fn free_page_locked(&self, ring: usize, number: u64) -> Option<usize> {
        let cursor = self.word(control::PAGE_CURSOR) as usize % self.geo.pages;
        let mut windows = [self.window_pages(SMALL), self.window_pages(MAIN)];
        windows[ring].end = windows[ring].end.max(number + 1);
        let free =
            (0..self.geo.pages).map(|step| (cursor + step) % self.geo.pages).find(|page| {
                let descriptor = self.word(self.geo.descriptors + page);
                let number = (descriptor >> 1).wrapping_sub(1);
                descriptor == 0 || !windows[(descriptor & 1) as usize].contains(&number)
            })?;
        self.set_word(control::PAGE_CURSOR, free as u64 + 1);
        Some(free)
    }

    /// Frees the pages that claim a number inside a window to which the page table
    /// leads elsewhere: a crash between the two stores of a claim leaves one, and
    /// the room counted by windows would be missing it until its number is over.
    pub fn reclaim_pages_locked(&self) {
        let windows = [self.window_pages(SMALL), self.window_pages(MAIN)];
        for page in 0..self.geo.pages {
            let descriptor = self.word(self.geo.descriptors + page);
            let ring = (descriptor & 1) as usize;
            let number = (descriptor >> 1).wrapping_sub(1);
            if windows[ring].contains(&number) && self.page_of(ring, number) != Some(page) {
                self.set_word(self.geo.descriptors + page, 0);
            }
        }
    }

    /// Page numbers that hold records of a ring, and the one being written.
    pub fn window_pages(&self, ring: usize) -> std::ops::Range<u64> {
        let first = self.word(control::SAFE_TAIL + ring) >> self.geo.page_shift;
        let head = self.word(control::HEAD + ring);
        first..(head >> self.geo.page_shift) + 1
    }

    /// Pages outside both windows.
    pub fn free_pages(&self) -> u64 {
        let used: u64 = [SMALL, MAIN]
            .map(|ring| {
                let window = self.window_pages(ring);
                window.end - window.start
            })
            .iter()
            .sum();
        (self.geo.pages as u64).saturating_sub(used)
    }

    pub fn place(&self, slot: usize, word: u64, hash: u64) -> Locator {
        Locator {
            slot: slot as u64,
            word,
            expiry_at: self.expiry_at(word) as u64,
            hash,
            shard: self.number,
            epoch: 0,
        }
    }

    pub fn count(&self, counter: PolicyCounter, by: u64) {
        let at = control::COUNTERS + counter as usize;
        self.set_word(at, self.word(at).wrapping_add(by));
    }

    /// The slot that holds exactly this word, if any does.
    pub fn slot_of(&self, hash: u64, word: u64) -> Option<usize> {
        for step in 0..CHAIN {
            let bucket = self.bucket(hash, step);
            let mut slots = bucket..bucket + BUCKET_SLOTS;
            if let Some(slot) = slots.find(|slot| self.mem.load(*slot, Acquire) == word) {
                return Some(slot);
            }
            if !self.goes_on(bucket, hash) {
                break;
            }
        }
        None
    }
}
