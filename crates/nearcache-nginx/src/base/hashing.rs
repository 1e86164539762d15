//! Tables whose keys are hashes already.
//!
//! What a log holds was chosen by others, and the hashes are of no secret: whoever knows how they
//! are made could ask for URLs that all fall into one place of a table, which makes a pass quadratic.
//! So places are mixed with a seed of this process. Hashes stay as they are, and with them which
//! keys are sampled: the same log gives the same figures.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

static SEEDS: OnceLock<[u64; 2]> = OnceLock::new();

#[derive(Clone, Copy, Debug)]
pub(crate) struct ByHash([u64; 2]);

impl Default for ByHash {
    fn default() -> ByHash {
        ByHash(*SEEDS.get_or_init(seeds))
    }
}

fn seeds() -> [u64; 2] {
    [0, 1].map(|each: u64| RandomState::new().hash_one(each))
}

impl BuildHasher for ByHash {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed { seeds: self.0, mixed: 0 }
    }
}

pub struct Mixed {
    seeds: [u64; 2],
    mixed: u64,
}

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.mixed
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only 64-bit hashes are keys");
    }

    fn write_u64(&mut self, hash: u64) {
        // Twice: with one seed in six, one multiplication leaves numbers that stand in equal
        // distances in too few places.
        self.mixed = fold(fold(hash ^ self.seeds[0], self.seeds[1] | 1), 0x9e37_79b9_7f4a_7c15);
    }
}

/// Both halves of a product, together.
fn fold(hash: u64, factor: u64) -> u64 {
    let product = u128::from(hash) * u128::from(factor);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn hashes_that_were_made_to_meet_do_not() {
        for _ in 0..30 {
            let table = ByHash(seeds());
            // A table of 2^17 places takes the lowest bits, and tells its tenants apart by the highest.
            let places: HashSet<u64> =
                (0..1 << 16).map(|made: u64| table.hash_one(made << 20) & 0x1_ffff).collect();
            assert!(places.len() > 50_000, "{} with {table:?}", places.len());
        }
    }

    #[test]
    fn tables_of_one_process_agree() {
        assert_eq!(ByHash::default().hash_one(7u64), ByHash::default().hash_one(7u64));
    }
}
