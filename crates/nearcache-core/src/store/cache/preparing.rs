//! Memory is made present ahead of its first write, in pieces, and only in the first lap.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::format::layout::Config;
use crate::memory::{Boxed, Mem};
use crate::store::cache::Cache;
use crate::sync::lock::{Locks, Wait};

const NOW_MS: u64 = 1_000;
const SET: Wait = Wait::UpTo(crate::sync::holder::SLICE);

/// Notes what was prepared, and that nothing among the records was written before.
struct Noting {
    inner: Boxed,
    records_at: usize,
    prepared: RefCell<Vec<Range<usize>>>,
    has_it: bool,
}

impl Mem for Noting {
    fn words(&self) -> usize {
        self.inner.words()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.inner.load(at, order)
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
        let prepared = || self.prepared.borrow().iter().any(|piece| piece.contains(&at));
        assert!(at < self.records_at || prepared(), "word {at} was not prepared");
        self.inner.store(at, value, order);
    }
    fn cas(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.inner.cas(at, old, new)
    }
    fn add(&self, at: usize, delta: u64) {
        self.inner.add(at, delta);
    }
    fn fence(&self, order: Ordering) {
        self.inner.fence(order);
    }
    fn prepare(&self, at: usize, words: usize) -> bool {
        self.prepared.borrow_mut().push(at..at + words);
        self.has_it
    }
}

/// A store of one shard, written through three times.
fn written(size_bytes: u64, has_it: bool) -> Cache<Noting> {
    let private = Cache::boxed(&Config::of_size(size_bytes)).unwrap();
    let geometry = private.geometry.clone();
    let records_at = geometry.shard_at(0) + geometry.pages_at;
    let inner = Boxed::new(geometry.total_words);
    let mem = Noting { inner, records_at, prepared: RefCell::default(), has_it };
    let lock = || std::sync::Mutex::new(());
    let cache =
        Cache::new(mem, geometry, Locks::Private(vec![lock(), lock()]), 1).with_new_shards();
    for key in 0..3 * size_bytes / 1_000 {
        let key = key.to_le_bytes();
        cache.set(cache.key(&key), 0, &[7; 1_000], 0, NOW_MS, SET).unwrap();
    }
    cache
}

#[test]
fn each_piece_is_prepared_once_before_it_is_written() {
    for size_bytes in [1 << 20, 15 << 20] {
        let cache = written(size_bytes, true);
        let prepared = cache.mem.prepared.borrow();
        assert!(prepared.iter().all(|piece| piece.len() <= 1 << 13));
        let words: usize = prepared.iter().map(Range::len).sum();
        assert_eq!(words, cache.geometry.pages << cache.geometry.page_shift);
        assert!(prepared.len() as u64 <= size_bytes / (48 << 10));
    }
}

#[test]
fn what_the_kernel_does_not_prepare_is_written_all_the_same_and_counted() {
    let cache = written(1 << 20, false);
    let pieces = cache.mem.prepared.borrow().len() as u64;
    assert!(cache.stats(NOW_MS).contains(&("not_prepared", pieces)));
}
