//! Operations that take no lock, stopped before any one of their accesses while
//! writers move every record: as if a debugger had picked the worst moment.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use crate::format::layout::{BUCKET_SLOTS, Config};
use crate::memory::{Boxed, Mem};
use crate::shard::read::Buffer;
use crate::store::cache::Cache;
use crate::sync::lock::{Locks, Wait};

const NOW_MS: u64 = 1_000;
const KEY: &[u8] = b"there all along";
const SET: Wait = Wait::UpTo(crate::sync::holder::SLICE);

/// Runs `storm` once, before access number `left`.
struct Paused<'a> {
    inner: &'a Boxed,
    left: Cell<u64>,
    storm: RefCell<Option<Box<dyn FnOnce() + 'a>>>,
}

impl Paused<'_> {
    fn tick(&self) {
        self.left.set(self.left.get().saturating_sub(1));
        if self.left.get() == 0
            && let Some(storm) = self.storm.take()
        {
            storm();
        }
    }
}

impl Mem for Paused<'_> {
    fn words(&self) -> usize {
        self.inner.words()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.tick();
        self.inner.load(at, order)
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.tick();
        self.inner.store(at, value, order);
    }
    fn cas(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.tick();
        self.inner.cas(at, old, new)
    }
    fn add(&self, at: usize, delta: u64) {
        self.tick();
        self.inner.add(at, delta);
    }
    fn fence(&self, order: Ordering) {
        self.inner.fence(order);
    }
}

/// The whole log is written anew, more than once; the key is kept by moving it.
fn storm(cache: &Cache<Boxed>) {
    // On a thread of its own: the stopped operation has borrowed this one's scratch.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..1_000_u64 {
                let key = cache.key(if round % 2 == 0 { b"odd" } else { b"even" });
                cache.set(key, 0, &[round as u8; 2_000], 0, NOW_MS, SET).unwrap();
            }
        });
    });
}

/// A store with room in every bucket.
fn roomy() -> Cache<Boxed> {
    let cache = Cache::boxed(&Config::of_size(1 << 20)).unwrap();
    for key in [KEY, b"odd", b"even"] {
        cache.set(cache.key(key), 0, b"value", 0, NOW_MS, SET).unwrap();
    }
    cache
}

/// A store whose key found its bucket full, and of so few buckets that the sweeper goes round
/// them many times in a storm.
fn crowded() -> Cache<Boxed> {
    let config = Config { mean_item_bytes: Some(65_536), ..Config::of_size(1 << 20) };
    let cache = Cache::boxed(&config).unwrap();
    assert!(cache.geometry.buckets < 10);
    let home = |key: &[u8]| cache.shard(0).bucket(cache.key(key).hash, 0);
    let others = (0..1_000_u32).map(u32::to_le_bytes).filter(|key| home(key) == home(KEY));
    for key in others.take(BUCKET_SLOTS) {
        cache.set(cache.key(&key), 0, b"value", 0, NOW_MS, SET).unwrap();
    }
    cache.set(cache.key(KEY), 0, b"value", 0, NOW_MS, SET).unwrap();
    let place = cache.get(cache.key(KEY), NOW_MS, &mut Buffer::default()).unwrap().place;
    let slot = place.slot as usize;
    assert!(!(home(KEY)..home(KEY) + BUCKET_SLOTS).contains(&slot));
    cache
}

/// Does `work` once for every access it may be stopped before, on a cache of its
/// own each time, and then `judge`s what it said and left.
fn stopped_anywhere<R>(
    make: fn() -> Cache<Boxed>,
    work: impl Fn(&Cache<Paused<'_>>) -> R,
    judge: impl Fn(R, &Cache<Boxed>, u64),
) {
    for before in 1.. {
        let cache = make();
        let storm: Box<dyn FnOnce()> = Box::new(|| storm(&cache));
        let mem = Paused {
            inner: &cache.mem,
            left: Cell::new(u64::MAX),
            storm: RefCell::new(Some(storm)),
        };
        let locks = Locks::Private(Vec::new());
        let paused = Cache::new(mem, cache.geometry.clone(), locks, cache.seed);
        paused.mem.left.set(before);
        let result = work(&paused);
        let was_stopped = paused.mem.storm.take().is_none();
        drop(paused);
        if !was_stopped {
            assert!(before > 20, "it looked at the memory {before} times only");
            return;
        }
        judge(result, &cache, before);
    }
}

#[test]
fn a_get_stopped_anywhere_finds_what_is_there_all_along() {
    for make in [roomy, crowded] {
        stopped_anywhere(
            make,
            |cache| cache.get(cache.key(KEY), NOW_MS, &mut Buffer::default()).is_some(),
            |found, _, before| assert!(found, "stopped before access {before}"),
        );
    }
}

#[test]
fn a_delete_stopped_anywhere_leaves_nothing() {
    for make in [roomy, crowded] {
        stopped_anywhere(
            make,
            |cache| cache.delete(cache.key(KEY), NOW_MS),
            |_, cache, before| {
                let left = cache.get(cache.key(KEY), NOW_MS, &mut Buffer::default());
                assert!(left.is_none(), "stopped before access {before}");
            },
        );
    }
}

#[test]
fn a_scan_stopped_anywhere_shows_what_is_there_all_along_once() {
    stopped_anywhere(
        roomy,
        |cache| {
            // Only the key's bucket: all others are the same again.
            let shard = cache.shard_of(cache.key(KEY));
            let first = shard.base + shard.geo.index;
            let bucket = (shard.bucket(cache.key(KEY).hash, 0) - first) / 8;
            let mut shown = 0;
            shard.scan_bucket(bucket, NOW_MS, &mut |item| shown += u64::from(item.key == KEY));
            shown
        },
        |shown, _, before| assert_eq!(shown, 1, "stopped before access {before}"),
    );
}
