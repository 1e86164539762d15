//! A cache whose process dies before a given write: for the tests that kill at each of them.

use crate::base::error::Error;
use crate::file::region::{Left, OPEN_TIMEOUT, Region};
use crate::format::layout::Config;
use crate::memory::Counting;
use crate::store::cache::Cache;

impl Cache<Counting> {
    /// The same file, but this process dies before its `kill_before`-th write.
    pub fn counting(
        base: &std::path::Path,
        config: &Config,
        kill_before: u64,
    ) -> Result<Self, Error> {
        let region = Region::open(base, config, OPEN_TIMEOUT, Left::default())?;
        let Region { mapped, geometry, locks, seed, presence, .. } = region;
        std::mem::forget(presence);
        let mut cache = Self::new(Counting::new(mapped, 0), geometry, locks, seed);
        cache.mem = Counting::new(mapped, kill_before);
        Ok(cache)
    }
}
