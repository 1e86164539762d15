//! What is remembered of every key: a few words each, by the 64-bit XXH3 of the key.
//!
//! Beyond `most` keys are sampled by hash, as SHARDS does it (Waldspurger et al., FAST 2015):
//! whenever the table is full the rate is halved, keys outside of the sample are forgotten, and
//! each event of a kept key then stands for twice as many. The hash is that of a key's family, so
//! that spellings of one key stay together.

use std::collections::HashMap;

use crate::base::hashing::ByHash;

/// A copy was stored, or must have been.
pub const STORED: u8 = 1;
/// That copies of this key are kept is certain: one was served, or headers say so.
pub const PROVEN: u8 = 2;
/// When the copy was stored is known, from its fetch.
pub const FETCHED: u8 = 4;

pub const UNKNOWN_TTL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// End of the last request.
    pub last_us: i64,
    /// When the copy was stored, or first served in this log.
    pub stored_us: i64,
    /// When the last fetch that is known of ended.
    pub busy_until_us: i64,
    pub family: u64,
    pub ttl_s: u32,
    pub uses: u32,
    /// Hash of the Accept-Encoding the copy was made for.
    pub variant: u32,
    /// [`STORED`] and the others.
    pub flags: u8,
    /// See [`crate::urls::spelling`].
    pub oddities: u8,
}

impl Seen {
    pub fn new(family: u64, oddities: u8) -> Seen {
        Seen {
            last_us: i64::MIN,
            stored_us: 0,
            busy_until_us: i64::MIN,
            family,
            ttl_s: UNKNOWN_TTL,
            uses: 0,
            variant: 0,
            flags: 0,
            oddities,
        }
    }

    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Was the copy older than its lifetime? Unknown lifetimes are not over.
    pub fn expired_at(&self, us: i64) -> bool {
        let ttl_us = i64::from(self.ttl_s) * 1_000_000;
        self.ttl_s != UNKNOWN_TTL && us.saturating_sub(self.stored_us) >= ttl_us
    }

    /// Had nobody asked for it for longer than that?
    pub fn idle_at(&self, us: i64, inactive_us: i64) -> bool {
        us.saturating_sub(self.last_us) > inactive_us
    }
}

#[derive(Debug)]
pub struct Keys {
    table: HashMap<u64, Seen, ByHash>,
    /// The spelling of each family that was stored last.
    families: HashMap<u64, u64, ByHash>,
    most: usize,
    /// The rate is 1 / 2^halvings.
    halvings: u32,
}

impl Keys {
    pub fn new(most: usize) -> Keys {
        let (table, families) = (HashMap::default(), HashMap::default());
        Keys { table, families, most: most.max(1), halvings: 0 }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many keys each kept one stands for.
    pub fn weight(&self) -> u64 {
        1 << self.halvings
    }

    pub fn get(&self, key: u64) -> Option<&Seen> {
        self.table.get(&key)
    }

    /// Is a key that is not in the table to be remembered?
    pub fn admits(&self, family: u64) -> bool {
        is_sampled(family, self.halvings)
    }

    pub fn put(&mut self, key: u64, seen: Seen) {
        if self.table.insert(key, seen).is_none() {
            while self.table.len() > self.most {
                self.halve();
            }
        }
    }

    /// The spelling of the family that was stored last, if it is not `key` itself.
    pub fn sibling(&self, key: u64, family: u64) -> Option<&Seen> {
        let other = *self.families.get(&family)?;
        if other == key { None } else { self.table.get(&other) }
    }

    pub fn stored(&mut self, key: u64, family: u64) {
        self.families.insert(family, key);
    }

    fn halve(&mut self) {
        // Were all hashes alike, 63 halvings would end it.
        if self.halvings == 63 {
            self.table.clear();
            self.families.clear();
            return;
        }
        self.halvings += 1;
        let halvings = self.halvings;
        self.table.retain(|_, seen| is_sampled(seen.family, halvings));
        self.families.retain(|family, _| is_sampled(*family, halvings));
    }
}

/// Mixed once more, so that what decides here is not what the tables place by.
fn is_sampled(family: u64, halvings: u32) -> bool {
    let mixed = family.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed.checked_shr(64 - halvings).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    #[test]
    fn beyond_the_bound_a_known_share_is_kept() {
        let mut keys = Keys::new(1000);
        for number in 0u64..50_000 {
            let hash = xxh3_64(&number.to_le_bytes());
            if keys.get(hash).is_some() || keys.admits(hash) {
                keys.put(hash, Seen::new(hash, 0));
            }
        }
        assert!(keys.len() <= 1000);
        let estimate = keys.len() as u64 * keys.weight();
        assert!((40_000..60_000).contains(&estimate), "{estimate}");
        assert_eq!(keys.weight(), 64);
    }

    #[test]
    fn hashes_that_are_all_alike_do_not_hang() {
        let mut keys = Keys::new(1);
        for key in 0..100 {
            keys.put(key, Seen::new(0, 0));
        }
        assert!(keys.len() <= 1);
    }
}
