//! One shard: finding and reading records, without any lock.
//!
//! A reader copies a record and then looks whether the copy can have been
//! disturbed (`live`). The argument, for a byte `b` of the reader's record that
//! a later record overwrites:
//!
//! ```text
//! writer   safe_tail.store(beyond the old record); fence(Release); b.store
//! reader   b.load; fence(Acquire); safe_tail.load
//! ```
//!
//! If the load of `b` saw the new byte, the fences make the store of `safe_tail`
//! visible to the reader's look, which then says "not live". Otherwise every byte
//! is of the record that the slot word, loaded with Acquire, published. The page
//! table has the same order: an entry changes only after `safe_tail` has left
//! the page it led to.
//!
//! Not here: anything that needs the lock (`write.rs`, `eviction/clean.rs`), and showing all items
//! (`scan.rs`).

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS, Geometry, control};
use crate::format::record::{self, HEADER_WORDS, Header};
use crate::memory::Mem;

/// Buckets an item may be in: the next is looked at if the item's mark says so (`bucket.rs`).
pub(crate) const CHAIN: usize = 8;
/// Times a reader starts again when a record moved under it, then it is a miss.
pub(super) const MAX_RETRIES: usize = 8;
/// The time at which no value is over.
pub const BEFORE_ANY_DEADLINE_MS: u64 = 0;
const PAGE_BITS: u32 = 20;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;
pub(crate) const OFFSET_MASK: u64 = (1 << 48) - 1;

/// A key and its hash.
#[derive(Debug, Clone, Copy)]
pub struct Key<'k> {
    /// The bytes of the key.
    pub bytes: &'k [u8],
    /// 64-bit hash of the bytes, seeded per file.
    pub hash: u64,
}

/// Where a value was read, to ask later whether it is still the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Locator {
    pub(crate) slot: u64,
    pub(crate) word: u64,
    pub(crate) expiry_at: u64,
    pub(crate) hash: u64,
    pub(crate) shard: u32,
    pub(crate) epoch: u32,
}

/// What a read found; the payload is in the [`Buffer`].
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The first byte the writer gave.
    pub tag: u8,
    /// Changes with every write of the key.
    pub version: u64,
    /// Milliseconds since the epoch; 0 = never.
    pub expires_at_ms: u64,
    /// For `Store::still_current`.
    pub place: Locator,
}

/// A copy of the record read last. Keep one per thread and use it again.
#[derive(Debug, Default)]
pub struct Buffer {
    words: Vec<u64>,
    start: usize,
    len: usize,
    pub(crate) starved: bool,
}

impl Buffer {
    /// The payload of the value read last.
    pub fn value(&self) -> &[u8] {
        &record::bytes(&self.words)[self.start..self.start + self.len]
    }

    /// Whether there was no memory for a value: that nothing was read says nothing then.
    pub fn starved(&self) -> bool {
        self.starved
    }

    #[cold]
    fn grow(&mut self, words: usize) -> bool {
        self.starved = self.words.try_reserve(words - self.words.len()).is_err();
        if !self.starved {
            self.words.resize(words, 0);
        }
        !self.starved
    }
}

/// How much of a value a look copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    Nothing,
    /// So many bytes, or all if there are fewer. Verified only then: the checksum is of the whole.
    Head(usize),
    /// All of it, verified.
    Whole,
}

impl Want {
    /// How many words of a record to copy.
    #[inline]
    fn words(self, header: &Header) -> usize {
        let of_value = match self {
            Want::Nothing => 0,
            Want::Head(bytes) => bytes.min(header.value_len()),
            Want::Whole => return header.words,
        };
        HEADER_WORDS + (header.key_len + of_value).div_ceil(8)
    }
}

/// What looking for a key came to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Look<T> {
    Hit(T),
    Miss,
    Expired,
    /// The record moved under the reader too often.
    Unstable,
    /// The record is damaged; its slot has been emptied.
    Damaged,
}

/// A slot whose record has the wanted key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub slot: usize,
    pub word: u64,
    pub header: Header,
    pub expires_at_ms: u64,
}

/// A view of one shard. Offsets given to `word` are within the shard.
pub(crate) struct Shard<'a, M: Mem> {
    pub mem: &'a M,
    pub geo: &'a Geometry,
    pub base: usize,
    pub number: u32,
    pub seed: u64,
}

/// Hash of a key: seeded per file.
#[inline]
pub(crate) fn hash_of(key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}

/// Slot word of a record.
#[inline]
pub(crate) fn slot_word(hash: u64, ring: usize, offset: u64) -> u64 {
    tag_of(hash) << 49 | (ring as u64) << 48 | offset & OFFSET_MASK
}

/// Page table entry: which page holds a page number.
#[inline]
pub(crate) fn page_table_word(number: u64, page: usize) -> u64 {
    (number + 1) << PAGE_BITS | page as u64
}

#[inline]
pub(crate) fn tag_of(hash: u64) -> u64 {
    (hash >> 32 & 0x7fff).max(1)
}

#[inline]
pub(crate) fn ring_of(word: u64) -> usize {
    (word >> 48 & 1) as usize
}

enum Read {
    Whole(Header, u64),
    /// Not this key.
    Other,
    /// It was overwritten while being read.
    Torn,
    Damaged,
}

impl<'a, M: Mem> Shard<'a, M> {
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        self.mem.load(self.base + at, Relaxed)
    }

    #[inline]
    pub fn set_word(&self, at: usize, value: u64) {
        self.mem.store(self.base + at, value, Relaxed);
    }

    /// First word of the k-th bucket a hash may be in.
    #[inline]
    pub fn bucket(&self, hash: u64, step: usize) -> usize {
        let mixed = match step {
            0 => hash as u32 as u64,
            _ => hash.rotate_left(17 * step as u32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32,
        };
        let bucket = (mixed * self.geo.buckets as u64) >> 32;
        self.base + self.geo.index + bucket as usize * BUCKET_WORDS
    }

    /// The window test: whether the record a word points at is intact (I3).
    #[inline]
    pub fn live(&self, word: u64) -> bool {
        let safe_tail = self.mem.load(self.base + control::SAFE_TAIL + ring_of(word), Relaxed);
        // A ring is never longer than the pages there are.
        let room = (self.geo.pages as u64) << self.geo.page_shift;
        (word.wrapping_sub(safe_tail) & OFFSET_MASK) < room
    }

    /// The full offset of a live word: the 48 bits, near `safe_tail`.
    #[inline]
    pub fn offset_of(&self, word: u64) -> u64 {
        let safe_tail = self.mem.load(self.base + control::SAFE_TAIL + ring_of(word), Relaxed);
        safe_tail.wrapping_add(word.wrapping_sub(safe_tail) & OFFSET_MASK)
    }

    /// The word that leads to a page of a ring.
    #[inline]
    pub fn page_table_entry(&self, ring: usize, page_number: u64) -> usize {
        self.geo.page_table
            + ring * self.geo.table_len
            + (page_number as usize & (self.geo.table_len - 1))
    }

    /// The page behind a page number of a ring; `None` if there is none. An entry
    /// names its number, so an offset that was damaged leads nowhere.
    #[inline]
    pub fn page_of(&self, ring: usize, number: u64) -> Option<usize> {
        let entry = self.word(self.page_table_entry(ring, number));
        let page = (entry & PAGE_MASK) as usize;
        (entry == page_table_word(number, page) && page < self.geo.pages).then_some(page)
    }

    /// Where a word of a ring is in memory; `None` if the page table is damaged.
    #[inline]
    pub fn locate(&self, ring: usize, offset: u64) -> Option<usize> {
        let page = self.page_of(ring, offset >> self.geo.page_shift)?;
        let inside = (offset & (self.geo.page_words() - 1)) as usize;
        Some(self.base + self.geo.pages_at + (page << self.geo.page_shift) + inside)
    }

    /// Copies words out of a ring, page by page. False if the page table is damaged.
    #[inline]
    pub fn copy_out(&self, ring: usize, offset: u64, into: &mut [u64]) -> bool {
        let mut done = 0;
        while done < into.len() {
            let at = offset.wrapping_add(done as u64);
            let left = (self.geo.page_words() - (at & (self.geo.page_words() - 1))) as usize;
            let run = left.min(into.len() - done);
            let Some(from) = self.locate(ring, at) else {
                return false;
            };
            self.mem.copy_out(from, &mut into[done..done + run]);
            done += run;
        }
        true
    }

    #[inline]
    pub fn header(&self, ring: usize, offset: u64) -> Option<Header> {
        let mut words = [0; HEADER_WORDS];
        self.copy_out(ring, offset, &mut words).then(|| Header::decode(words))
    }

    /// Copies the record behind a slot word and says whether it is the key's.
    #[inline]
    fn read(&self, word: u64, key: Key, buffer: &mut Buffer, want: Want) -> Read {
        let (ring, offset) = (ring_of(word), self.offset_of(word));
        let torn_or = |verdict: Read| {
            self.mem.fence(Acquire);
            if self.live(word) { verdict } else { Read::Torn }
        };
        let Some(header) = self.header(ring, offset) else {
            return torn_or(Read::Damaged);
        };
        if header.hash != key.hash || header.key_len != key.bytes.len() {
            return torn_or(Read::Other);
        }
        // Before anything is allocated by these lengths.
        if !header.plausible(self.geo.max_record_words) {
            return torn_or(Read::Damaged);
        }
        let words = want.words(&header);
        if buffer.words.len() < words && !buffer.grow(words) {
            return Read::Torn;
        }
        let copy = &mut buffer.words[..words];
        if !self.copy_out(ring, offset, copy) {
            return torn_or(Read::Damaged);
        }
        self.mem.fence(Acquire);
        if !self.live(word) {
            return Read::Torn;
        }
        let body = &record::bytes(&copy[HEADER_WORDS..]);
        if &body[..header.key_len] != key.bytes {
            return Read::Other;
        }
        if want != Want::Nothing
            && words == header.words
            && !record::verify(copy, &header, self.seed)
        {
            return Read::Damaged;
        }
        let Some(expires) = record::unpack_expiry(header.expiry, header.hash, self.seed) else {
            return Read::Damaged;
        };
        buffer.start = HEADER_WORDS * 8 + header.key_len;
        // What is left of the copy: with `Whole`, without the pad.
        buffer.len = header.value_len().min(words * 8 - buffer.start);
        Read::Whole(header, expires)
    }

    /// Finds a key, and copies what is wanted of its value.
    #[inline]
    pub fn find(&self, key: Key, now_ms: u64, buffer: &mut Buffer, want: Want) -> Look<Seen> {
        let tag = tag_of(key.hash);
        for step in 0..CHAIN {
            let bucket = self.bucket(key.hash, step);
            for slot in bucket..bucket + BUCKET_SLOTS {
                match self.look_at(slot, tag, key, now_ms, buffer, want) {
                    Look::Miss => {}
                    found => return found,
                }
            }
            if !self.goes_on(bucket, key.hash) {
                break;
            }
        }
        Look::Miss
    }

    #[inline]
    fn look_at(
        &self,
        slot: usize,
        tag: u64,
        key: Key,
        now_ms: u64,
        buffer: &mut Buffer,
        want: Want,
    ) -> Look<Seen> {
        for _ in 0..MAX_RETRIES {
            let word = self.mem.load(slot, Acquire);
            if word >> 49 != tag {
                return Look::Miss;
            }
            if !self.live(word) {
                if self.is_stale(slot, word) {
                    return Look::Miss;
                }
                continue;
            }
            match self.read(word, key, buffer, want) {
                Read::Whole(header, expires_at_ms) => {
                    if record::is_over(expires_at_ms, now_ms) {
                        return Look::Expired;
                    }
                    return Look::Hit(Seen { slot, word, header, expires_at_ms });
                }
                Read::Other => return Look::Miss,
                Read::Damaged => {
                    let _ = self.mem.cas(slot, word, 0);
                    return Look::Damaged;
                }
                Read::Torn => {}
            }
        }
        Look::Unstable
    }

    /// Whether a word outside its window is still in its slot, so that the slot is
    /// as good as empty. If not, the record was moved while the word was looked
    /// at, and to call that a miss would make a missed delete of it.
    #[cold]
    pub(super) fn is_stale(&self, slot: usize, word: u64) -> bool {
        // Who has seen the new `safe_tail` must see where the record went before.
        self.mem.fence(Acquire);
        self.mem.load(slot, Acquire) == word
    }

    /// Where a record's expiry word is, for `Locator`.
    #[inline]
    pub fn expiry_at(&self, word: u64) -> usize {
        self.locate(ring_of(word), self.offset_of(word).wrapping_add(2)).unwrap_or(0)
    }

    /// Whether the record read at `place` is still its key's value.
    #[inline]
    pub fn still_current(&self, place: &Locator, now_ms: u64) -> bool {
        if self.mem.load(place.slot as usize, Acquire) != place.word {
            return false;
        }
        let expiry = self.mem.load(place.expiry_at as usize, Relaxed);
        self.mem.fence(Acquire);
        self.live(place.word)
            && record::unpack_expiry(expiry, place.hash, self.seed)
                .is_some_and(|ms| !record::is_over(ms, now_ms))
    }

    /// Takes a key out, without the lock. True if there was a value that was not over.
    ///
    /// A missed delete would be a resurrected value, so when the record keeps
    /// moving every slot that may be the key's is emptied: to delete too much is
    /// always right in a cache. One that is over goes as well: a `touch` that waits for the
    /// lock has its time from before, and a clock may be set back.
    pub fn delete(&self, key: Key, now_ms: u64, buffer: &mut Buffer) -> bool {
        for _ in 0..MAX_RETRIES {
            match self.find(key, BEFORE_ANY_DEADLINE_MS, buffer, Want::Nothing) {
                Look::Hit(seen) => {
                    if self.take(seen.slot, seen.word, seen.header.words) {
                        return !record::is_over(seen.expires_at_ms, now_ms);
                    }
                }
                Look::Expired | Look::Miss => return false,
                Look::Damaged => {}
                Look::Unstable => break,
            }
        }
        self.empty_all_slots(key.hash);
        true
    }

    /// Turns a full slot into an empty one. Only the winner counts it.
    pub fn take(&self, slot: usize, word: u64, words: usize) -> bool {
        if self.mem.cas(slot, word, 0).is_err() {
            return false;
        }
        self.count_gone(word, words);
        true
    }

    /// Hints about a record that is no longer in the index.
    pub fn count_gone(&self, word: u64, words: usize) {
        self.mem.add(self.base + control::LIVE + ring_of(word), (words as u64).wrapping_neg());
        self.mem.add(self.base + control::ITEMS, u64::MAX);
    }

    fn empty_all_slots(&self, hash: u64) {
        for step in 0..CHAIN {
            let bucket = self.bucket(hash, step);
            for slot in bucket..bucket + BUCKET_SLOTS {
                let mut word = self.mem.load(slot, Acquire);
                // Again if it was moved just now: that may be the one to delete.
                while word >> 49 == tag_of(hash) {
                    match self.mem.cas(slot, word, 0) {
                        Ok(()) => break,
                        Err(there) => word = there,
                    }
                }
            }
        }
    }

    /// Items held, those expired but not swept included. A hint.
    pub fn items(&self) -> u64 {
        (self.word(control::ITEMS) as i64).max(0) as u64
    }

    /// Words of live records in a ring. A hint.
    pub fn live_words(&self, ring: usize) -> u64 {
        (self.word(control::LIVE + ring) as i64).max(0) as u64
    }
}
