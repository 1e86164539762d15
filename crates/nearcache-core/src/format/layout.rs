//! Every shared byte: where it is and what it means.
//!
//! ```text
//! file    page 0         header: frozen prefix, gates, configuration
//!         8 pages        statistics, 256 processes x 128 bytes
//!         16 pages       named locks, 1024 x 64 bytes
//!         16 pages       places in their queues, 1024 x 64 bytes
//!         shards         n x shard_bytes, each page aligned
//!
//! shard   line 0-1       mutex (128 bytes reserved)
//!         line 2         writer: head[2] tail[2] version sweep_cursor page_cursor ghost_clock
//!         line 3         hints: live[2] items been_full owner largest
//!         line 4         reader: safe_tail[2]
//!         line 5-6       counters of the policy, written under the lock
//!         line 7         border of the rings
//!         ...            page table: 2 rings x table_len words
//!         ...            page descriptors: one word a page
//!         ...            index: buckets of 64 bytes
//!         ...            ghost: sets of 64 bytes
//!         ...            pages
//!
//! bucket  7 slot words | marks:24 | marks:24 | unused:2 | frequencies: 7 x 2
//! slot    tag:15 (never 0) | ring:1 | offset:48 in words        0 = empty
//! page descriptor   (page number + 1) << 1 | ring               0 = never used
//! page table entry  page number + 1:44 | page:20                0 = never used
//! ```
//!
//! A ring is a log of words numbered from 0 that never repeat. Its pages are
//! scattered: `page_table[ring][page_number % table_len]` is the physical page,
//! right for every page number inside the ring's window. Records cross page
//! borders freely. So the two rings share one pool of pages, and either may
//! grow while the other does not need the room.
//!
//! The numbers of the geometry are computed from the file's size and `max_item`
//! alone. [`LAYOUT_VERSION`] is in the file's name: a change of anything here
//! or in `format/record.rs` needs a new one.

use crate::base::error::Error;

/// In the file name and the header; a new one for any change of layout.
pub const LAYOUT_VERSION: u64 = 5;
/// The smallest file there is.
pub const MIN_SIZE_BYTES: u64 = 1 << 20;
const MAX_SIZE_BYTES: u64 = 1 << 40;

/// What a user may choose about a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Size of the file, all overhead included, in bytes.
    pub size_bytes: u64,
    /// Nobody asked for that size: a file that is there keeps its own size, and a new file
    /// takes at most half of what is free.
    pub or_less: bool,
    /// Largest key and value together, in bytes; an eighth of a shard if not given.
    pub max_item_bytes: Option<u64>,
    /// Mean size of a record (key, value and 32 bytes) to make the index for, in
    /// bytes; [`DEFAULT_MEAN_ITEM_BYTES`] if not given. Larger items never feel
    /// it; smaller ones fill the index before the log is full.
    pub mean_item_bytes: Option<u64>,
}

impl Config {
    /// A file of this size, the rest by default.
    pub fn of_size(size_bytes: u64) -> Self {
        Self { size_bytes, ..Self::default() }
    }
}

/// Right for most of what Django caches. Half as many bytes would cost 5 % of the file more.
pub const DEFAULT_MEAN_ITEM_BYTES: u64 = 256;
const MEAN_ITEM_RANGE: std::ops::RangeInclusive<u64> = 64..=65536;

pub(crate) const PAGE_BYTES: usize = 4096;
const WORDS_PER_PAGE: usize = PAGE_BYTES / 8;

/// "nearcach", little endian.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"nearcach");

/// Words of the header. The first eight never change between layouts.
pub(crate) mod header {
    pub const MAGIC: usize = 0;
    pub const LAYOUT: usize = 1;
    pub const TOTAL_BYTES: usize = 2;
    /// Pointer width, byte order and sizeof(pthread_mutex_t).
    pub const MACHINE: usize = 3;
    pub const LIBC: usize = 4;
    pub const BOOT_ID: usize = 5; // and 6
    pub const UID: usize = 7;
    pub const PID_NAMESPACE: usize = 8;
    pub const CREATED_MS: usize = 9;
    pub const SEED: usize = 10;
    pub const MAX_ITEM: usize = 11;
    pub const SHARDS: usize = 12;
    /// Stored last: a file without it was never finished.
    pub const READY: usize = 13;
    pub const MEAN_ITEM: usize = 14;
    pub const TIME_NAMESPACE: usize = 15;
    /// The last fencing token.
    pub const TOKEN: usize = 16;
    /// Counter of arrivals in the queues of named locks.
    pub const TICKET: usize = 17;
    /// Slots of named locks, and places in their queues, at and above these are free.
    pub const LOCKS_USED: usize = 18;
    pub const PLACES_USED: usize = 19;
    /// Not 0: another file has the name, or is about to. Nobody uses this one any more.
    pub const REPLACED: usize = 20;
    /// Totals of processes that are gone, one word a counter.
    pub const RETIRED: usize = 32;
    /// Mutex of the named-lock table.
    pub const LOCK_MUTEX: usize = 128;
}

pub(crate) const READY: u64 = 0x7265_6164_7921;

pub(crate) const PROCESS_SLOTS: usize = 256;
pub(crate) const PROCESS_WORDS: usize = 16;
pub(crate) const PROCESSES: usize = WORDS_PER_PAGE;
pub(crate) const NAMED_LOCKS: usize = 1024;
pub(crate) const NAMED_LOCK_WORDS: usize = 8;
pub(crate) const NAMED_LOCK_TABLE: usize = PROCESSES + PROCESS_SLOTS * PROCESS_WORDS;
pub(crate) const LOCK_PLACES: usize = 1024;
pub(crate) const LOCK_PLACE_WORDS: usize = 8;
pub(crate) const LOCK_PLACE_TABLE: usize = NAMED_LOCK_TABLE + NAMED_LOCKS * NAMED_LOCK_WORDS;
const SHARDS_AT: usize = LOCK_PLACE_TABLE + LOCK_PLACES * LOCK_PLACE_WORDS;
const _: () = assert!(SHARDS_AT == 41 * WORDS_PER_PAGE, "file format: bump LAYOUT_VERSION");

/// Words of a shard's control lines.
pub(crate) mod control {
    pub const HEAD: usize = 16; // [ring]
    pub const TAIL: usize = 18; // [ring]
    pub const VERSION: usize = 20;
    /// Visits of the sweeper, with a check (`shard/bucket.rs`).
    pub const SWEEP: usize = 21;
    pub const PAGE_CURSOR: usize = 22;
    pub const GHOST_CLOCK: usize = 23;
    pub const LIVE: usize = 24; // [ring], words
    pub const ITEMS: usize = 26;
    /// Not 0 once room had to be made: the shard has been full.
    pub const BEEN_FULL: usize = 27;
    /// Who holds the lock, 0 for nobody: only looked at when it stays taken.
    pub const OWNER: usize = 28;
    /// Words of the largest record since the last clear: what to hold back.
    pub const LARGEST: usize = 29;
    pub const SAFE_TAIL: usize = 32; // [ring]
    pub const COUNTERS: usize = 40;
    /// Share of the small ring, and what moves it (`eviction/border.rs`).
    pub const SMALL_SHARE: usize = 56;
    pub const EVICTED_WORDS: usize = 57; // [ring]
    pub const RETURNED: usize = 59; // [ring]
    pub const EVICTED_ITEMS: usize = 61;
    pub const SINCE_MOVED: usize = 62;
    pub const WORDS: usize = 64;
}
const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= control::HEAD * 8);

pub(crate) const BUCKET_WORDS: usize = 8;
pub(crate) const BUCKET_SLOTS: usize = 7;
pub(crate) const GHOST_SET_WORDS: usize = 8;

/// Bytes of index an item takes: a slot is 64 / 7 bytes, and the index is to be
/// 70 % full when the log is.
const INDEX_BYTES_PER_ITEM: u64 = 13;
/// Share of the index for the ghost: about one remembered key per item held.
const GHOST_SHARE: usize = 4;
const SHARD_BYTES: u64 = 16 << 20;
const MAX_SHARDS: usize = 64;
/// A shard has about this many pages, so that a page held back is below 1 %.
const PAGES_PER_SHARD: usize = 512;
/// Pages an insert leaves free for the cleaner to copy survivors into, at least.
pub(crate) const RESERVE_PAGES: u64 = 2;
/// Share of the pages it leaves free at most, however large the records are.
pub(crate) const RESERVE_SHARE: u64 = 16;

/// Where everything is in a file of a given size. Offsets of parts are in words
/// from the start of the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub total_words: usize,
    pub shards: usize,
    pub shard_words: usize,
    pub page_shift: u32,
    pub pages: usize,
    pub table_len: usize,
    pub buckets: usize,
    pub ghost_sets: usize,
    pub max_record_words: usize,
    pub page_table: usize,
    pub descriptors: usize,
    pub index: usize,
    pub ghost: usize,
    pub pages_at: usize,
}

impl Geometry {
    /// The geometry of a file, or why there is none.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let size = config.size_bytes;
        if size < MIN_SIZE_BYTES {
            return Err(Error::Option(format!(
                "size is {size} bytes; the minimum is {MIN_SIZE_BYTES} bytes (1MB)"
            )));
        }
        if size > MAX_SIZE_BYTES {
            return Err(Error::Option(format!(
                "size is {size} bytes; the maximum is {MAX_SIZE_BYTES} bytes (1TB)"
            )));
        }
        let mean_item = config.mean_item_bytes.unwrap_or(DEFAULT_MEAN_ITEM_BYTES);
        if !MEAN_ITEM_RANGE.contains(&mean_item) {
            return Err(Error::Option(format!(
                "mean_item is {mean_item} bytes; it must be from {} to {} bytes",
                MEAN_ITEM_RANGE.start(),
                MEAN_ITEM_RANGE.end()
            )));
        }
        let mut shards = (size / SHARD_BYTES).clamp(1, MAX_SHARDS as u64) as usize;
        shards = 1 << shards.ilog2();
        loop {
            let geometry = Self::with_shards(size, shards, mean_item);
            let wanted = match config.max_item_bytes {
                Some(bytes) => (bytes as usize).div_ceil(8) + crate::format::record::HEADER_WORDS,
                None => geometry.default_max_record_words(),
            };
            if wanted <= geometry.default_max_record_words() {
                return Ok(Self { max_record_words: wanted, ..geometry });
            }
            if shards == 1 {
                let most =
                    (geometry.default_max_record_words() - crate::format::record::HEADER_WORDS) * 8;
                return Err(Error::Option(format!(
                    "max_item is too large: a file of {size} bytes takes items of up to {most} bytes; \
                     raise size to at least {} times max_item or lower max_item",
                    10
                )));
            }
            shards /= 2;
        }
    }

    fn with_shards(size: u64, shards: usize, mean_item: u64) -> Self {
        let total_words = size as usize / PAGE_BYTES * WORDS_PER_PAGE;
        let shard_words = (total_words - SHARDS_AT) / shards / WORDS_PER_PAGE * WORDS_PER_PAGE;
        let index_words = (shard_words as u64 * INDEX_BYTES_PER_ITEM
            / (mean_item + INDEX_BYTES_PER_ITEM)) as usize;
        let buckets = (index_words / BUCKET_WORDS).max(1);
        let ghost_sets = (index_words / GHOST_SHARE / GHOST_SET_WORDS).max(1);
        let page_words = (shard_words / PAGES_PER_SHARD).clamp(512, 32768);
        let page_shift = page_words.ilog2();
        let page_words = 1_usize << page_shift;
        let rest =
            shard_words - control::WORDS - buckets * BUCKET_WORDS - ghost_sets * GHOST_SET_WORDS;
        // A page costs its words, a descriptor, and up to 2 x 2 words of page table.
        let pages = rest / (page_words + 5) - 1;
        let table_len = (pages + 1).next_power_of_two();
        let page_table = control::WORDS;
        let descriptors = page_table + 2 * table_len;
        let index = (descriptors + pages).next_multiple_of(BUCKET_WORDS);
        let ghost = index + buckets * BUCKET_WORDS;
        let pages_at = ghost + ghost_sets * GHOST_SET_WORDS;
        assert!(pages_at + pages * page_words <= shard_words, "the parts fit the shard");
        Self {
            total_words,
            shards,
            shard_words,
            page_shift,
            pages,
            table_len,
            buckets,
            ghost_sets,
            max_record_words: 0,
            page_table,
            descriptors,
            index,
            ghost,
            pages_at,
        }
    }

    fn default_max_record_words(&self) -> usize {
        (self.capacity_words() as usize / 8).min(crate::format::record::MAX_WORDS)
    }

    /// Words of log a shard can hold.
    pub fn capacity_words(&self) -> u64 {
        (self.pages as u64 - RESERVE_PAGES) << self.page_shift
    }

    pub fn page_words(&self) -> u64 {
        1 << self.page_shift
    }

    pub fn shard_at(&self, shard: usize) -> usize {
        SHARDS_AT + shard * self.shard_words
    }

    /// Largest key and value together.
    pub fn max_item_bytes(&self) -> u64 {
        (self.max_record_words - crate::format::record::HEADER_WORDS) as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_geometry_that_fits() {
        for size in
            (0..=20).map(|k| MIN_SIZE_BYTES << k).chain((0..500).map(|k| MIN_SIZE_BYTES + k * 4097))
        {
            let geometry = Geometry::new(&Config::of_size(size)).unwrap();
            assert!(geometry.shard_at(geometry.shards) <= geometry.total_words);
            assert!(geometry.pages as u64 > 2 * RESERVE_PAGES);
            assert!(geometry.table_len > geometry.pages);
            assert!(geometry.max_record_words as u64 * 4 < geometry.capacity_words());
        }
    }

    #[test]
    fn a_size_below_the_minimum_is_refused() {
        let error = Geometry::new(&Config::of_size(1000)).unwrap_err();
        assert!(error.to_string().contains("minimum"));
    }

    #[test]
    fn a_large_max_item_gets_fewer_and_larger_shards() {
        let small = Geometry::new(&Config::of_size(256 << 20)).unwrap();
        let large = Geometry::new(&Config {
            size_bytes: 256 << 20,
            max_item_bytes: Some(8 << 20),
            ..Config::default()
        })
        .unwrap();
        assert_eq!(small.shards, 16);
        assert!(large.shards < small.shards);
        assert!(large.max_item_bytes() >= 8 << 20);
        assert!(
            Geometry::new(&Config { max_item_bytes: Some(1 << 20), ..Config::of_size(1 << 20) })
                .is_err()
        );
    }
}
