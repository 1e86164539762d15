//! A store that has been written through many times, next to a new one: what a miss costs.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::format::layout::Config;
use crate::memory::{Boxed, Mem};
use crate::shard::read::Buffer;
use crate::store::cache::Cache;
use crate::sync::lock::{Locks, Wait};

const NOW_MS: u64 = 1_000;
const SIZE_BYTES: u64 = 4 << 20;
const SET: Wait = Wait::UpTo(crate::sync::holder::SLICE);
const MISSES: u64 = 20_000;

/// Counts the words read.
struct Counted<'a> {
    inner: &'a Boxed,
    loads: Cell<u64>,
}

impl Mem for Counted<'_> {
    fn words(&self) -> usize {
        self.inner.words()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.loads.set(self.loads.get() + 1);
        self.inner.load(at, order)
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
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
}

fn write(cache: &Cache<Boxed>, keys: std::ops::Range<u64>, value_bytes: usize) {
    let value = vec![7; value_bytes];
    for key in keys {
        let bytes = key.to_le_bytes();
        cache.set(cache.key(&bytes), 0, &value, 0, NOW_MS, SET).unwrap();
    }
}

fn words_per_miss(cache: &Cache<Boxed>) -> f64 {
    let mem = Counted { inner: &cache.mem, loads: Cell::new(0) };
    let counted = Cache::new(mem, cache.geometry.clone(), Locks::Private(Vec::new()), cache.seed);
    counted.mem.loads.set(0);
    let mut buffer = Buffer::default();
    for miss in 0..MISSES {
        let bytes = (u64::MAX - miss).to_le_bytes();
        assert!(counted.get(counted.key(&bytes), NOW_MS, &mut buffer).is_none());
    }
    counted.mem.loads.get() as f64 / MISSES as f64
}

/// One store as it fills for the first time, at ten times its size written, and cleared.
fn words_by_age(value_bytes: usize) -> [f64; 3] {
    let cache = Cache::boxed(&Config::of_size(SIZE_BYTES)).unwrap();
    let fills = SIZE_BYTES / (value_bytes as u64 + 40);
    write(&cache, 0..fills, value_bytes);
    let fresh = words_per_miss(&cache);
    write(&cache, fills..10 * fills, value_bytes);
    let aged = words_per_miss(&cache);
    assert_eq!(cache.check(SET), Vec::<String>::new());
    cache.clear(SET).unwrap();
    [fresh, aged, words_per_miss(&cache)]
}

#[test]
fn a_miss_costs_as_much_at_any_age() {
    for value_bytes in [200, 216, 1000] {
        let [fresh, aged, cleared] = words_by_age(value_bytes);
        println!("{value_bytes} bytes: {fresh:.2}, {aged:.2}, {cleared:.2} words a miss");
        assert!(aged <= 1.2 * fresh, "{value_bytes} bytes: {aged} words a miss, {fresh} at first");
        assert!(cleared <= fresh, "{value_bytes} bytes: {cleared} words a miss in an empty store");
    }
}

/// Far more items than the index was made for: each goes past many buckets.
#[test]
fn a_crowded_index_is_as_good_as_new_after_a_clear() {
    let [_, crowded, cleared] = words_by_age(8);
    println!("crowded: {crowded:.2}, {cleared:.2} words a miss");
    assert!(cleared < 12.0 && cleared < crowded);
}
