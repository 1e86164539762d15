//! A name as 128 bits: two names never share a lock in practice.

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// Keeps the names of claims apart from those of locks.
const CLAIM_SEED: u64 = 0x636c_6169_6d73;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(pub [u64; 2]);

impl Name {
    pub fn of(name: &[u8]) -> Self {
        Self::split(xxh3_128(name))
    }

    pub fn of_claim(name: &[u8]) -> Self {
        Self::split(xxh3_128_with_seed(name, CLAIM_SEED))
    }

    fn split(hash: u128) -> Self {
        Self([hash as u64, (hash >> 64) as u64])
    }
}
