//! Tables whose keys are hashes already.

use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type ByHash = BuildHasherDefault<AsIs>;

/// Takes a 64-bit XXH3 for what it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only 64-bit hashes are keys");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
