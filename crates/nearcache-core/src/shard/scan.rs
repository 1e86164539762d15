//! One shard: showing its items, without any lock.

use std::sync::atomic::Ordering::Acquire;

use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS};
use crate::format::record::{self, HEADER_WORDS};
use crate::memory::Mem;
use crate::shard::read::{MAX_RETRIES, Shard, hash_of, ring_of};

/// One item, as a scan shows it.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The bytes of the key.
    pub key: &'a [u8],
    /// Length of the payload.
    pub value_len: usize,
    /// The first byte the writer gave.
    pub tag: u8,
    /// Milliseconds since the epoch; 0 = never.
    pub expires_at_ms: u64,
    /// Changes with every write of the key.
    pub version: u64,
}

impl<M: Mem> Shard<'_, M> {
    /// Shows the items of one bucket.
    pub fn scan_bucket(&self, bucket: usize, now_ms: u64, each: &mut dyn FnMut(Item)) {
        let at = self.base + self.geo.index + bucket * BUCKET_WORDS;
        let mut words = Vec::new();
        for slot in at..at + BUCKET_SLOTS {
            for _ in 0..MAX_RETRIES {
                let word = self.mem.load(slot, Acquire);
                if word == 0 || self.scan_word(word, now_ms, &mut words, each) {
                    break;
                }
                if self.is_stale(slot, word) {
                    break;
                }
            }
        }
    }

    /// Shows the item behind a word, if there is one; false if it was moved or
    /// overwritten meanwhile.
    fn scan_word(
        &self,
        word: u64,
        now_ms: u64,
        words: &mut Vec<u64>,
        each: &mut dyn FnMut(Item),
    ) -> bool {
        if !self.live(word) {
            return false;
        }
        let (ring, offset) = (ring_of(word), self.offset_of(word));
        let header =
            self.header(ring, offset).filter(|header| header.plausible(self.geo.max_record_words));
        let copied = header.filter(|header| {
            words.resize(HEADER_WORDS + header.key_len.div_ceil(8), 0);
            self.copy_out(ring, offset, words)
        });
        self.mem.fence(Acquire);
        if !self.live(word) {
            return false;
        }
        let Some(header) = copied else {
            return true;
        };
        let expires = record::unpack_expiry(header.expiry, header.hash, self.seed);
        let key = &record::bytes(&words[HEADER_WORDS..])[..header.key_len];
        // The checksum would need the value; a damaged key shows by its hash.
        if let Some(expires_at_ms) = expires.filter(|ms| !record::is_over(*ms, now_ms))
            && hash_of(key, self.seed) == header.hash
        {
            each(Item {
                key,
                value_len: header.value_len(),
                tag: header.tag,
                expires_at_ms,
                version: header.version,
            });
        }
        true
    }
}
