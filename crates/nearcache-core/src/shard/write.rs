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
//!
//! Not here: the pages behind a ring (`rings.rs`), what is done to a shard first (`normalise.rs`),
//! the sweeper (`sweeper.rs`), the cleaner (`eviction/clean.rs`).

use std::alloc::{Layout, handle_alloc_error};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::stats::PolicyCounter;
use crate::format::layout::{BUCKET_SLOTS, control};
use crate::format::record::{self, TAG_INT};
use crate::memory::Mem;
use crate::shard::read::{
    BEFORE_ANY_DEADLINE_MS, Buffer, CHAIN, Key, Locator, Look, Seen, Shard, Want, ring_of,
    slot_word,
};
use crate::shard::rings::{MAIN, SMALL};

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
    /// The slot of a key, expired or not. Under the lock a slot can only empty.
    ///
    /// Ends the process if there is no memory for what is wanted, as Rust does. A caller that took
    /// the key for absent would store it a second time.
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
        if self.note_new_locked(hash) {
            return MAIN;
        }
        // Until the shard is full for the first time, what does not fit small
        // goes to main at once: nothing has to be chosen yet, and nothing copied.
        let filling = self.word(control::BEEN_FULL) == 0;
        let small_part = self.small_part(self.room_words());
        let small_is_full = self.live_words(SMALL) >= small_part;
        let too_large_for_small = words as u64 > small_part;
        if too_large_for_small || filling && small_is_full { MAIN } else { SMALL }
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
        let standing =
            |slot: &usize| (self.frequency(*slot), ring_of(self.mem.load(*slot, Relaxed)));
        slots.min_by_key(standing).expect("a chain has slots")
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
