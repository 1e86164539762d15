//! One shard that the threads of a model share: what they do to it, in every order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::Mutex;

use crate::format::layout::{BUCKET_WORDS, Geometry, control};
use crate::format::record;
use crate::memory::Mem;
use crate::shard::read::{Buffer, CHAIN, Key, Locator, Look, Shard, Want, hash_of};
use crate::shard::rings::MAIN;
use crate::shard::write::Draft;
use crate::store::models::memory::{Memory, Rule, View};

pub const NOW: u64 = 1_000;
const SEED: u64 = 7;
const PAGES: usize = 8;
const PAGE_SHIFT: u32 = 3;
const BUCKETS: usize = 2;
pub const KEY: &[u8] = b"k";
pub const OTHER: &[u8] = b"o";

fn geometry() -> Geometry {
    let page_table = control::WORDS;
    let table_len = 2 * PAGES;
    let descriptors = page_table + 2 * table_len;
    let index = descriptors + PAGES;
    let ghost = index + BUCKETS * BUCKET_WORDS;
    let pages_at = ghost + 8;
    let total_words = pages_at + (PAGES << PAGE_SHIFT);
    Geometry {
        total_words,
        shards: 1,
        shard_words: total_words,
        page_shift: PAGE_SHIFT,
        pages: PAGES,
        table_len,
        buckets: BUCKETS,
        ghost_sets: 1,
        max_record_words: 8,
        page_table,
        descriptors,
        index,
        ghost,
        pages_at,
    }
}

/// One shard and its lock, shared by the threads of a model.
pub struct World {
    memory: Memory,
    geometry: Geometry,
    lock: Mutex<()>,
    /// What the threads of the model do not keep to; only in `fences.rs`.
    broken: Option<Rule>,
}

impl World {
    /// With `KEY` holding `[1; 31]`: a record of one page.
    pub fn new(broken: Option<Rule>) -> Arc<Self> {
        let (geometry, lock) = (geometry(), Mutex::new(()));
        let world = Arc::new(Self { memory: Memory::new(&geometry), geometry, lock, broken });
        world.shard(|shard| shard.set_sweeper_visits_locked(0));
        world.set(KEY, 1);
        world
    }

    pub fn shard<R>(&self, work: impl FnOnce(&Shard<View>) -> R) -> R {
        let mem = &View::new(&self.memory, &self.geometry, self.broken);
        work(&Shard { mem, geo: &self.geometry, base: 0, number: 0, seed: SEED })
    }

    pub fn locked<R>(&self, work: impl FnOnce(&Shard<View>) -> R) -> R {
        let _guard = self.lock.lock().unwrap();
        self.shard(|shard| {
            shard.normalise_locked();
            work(shard)
        })
    }

    pub fn set(&self, key: &[u8], fill: u8) {
        self.set_until(key, fill, 0);
    }

    pub fn set_until(&self, key: &[u8], fill: u8, expires_at_ms: u64) -> Locator {
        self.write(key, fill, expires_at_ms, |shard, draft| {
            shard.set_locked(draft, NOW, &mut Buffer::default())
        })
        .expect("there is room")
    }

    /// Writes `KEY` if it still has the version that [`World::new`] gave it.
    pub fn swap(&self, fill: u8) {
        self.write(KEY, fill, 0, |shard, draft| {
            shard.cas_locked(draft, 1, NOW, &mut Buffer::default())
        });
    }

    fn write(
        &self,
        key: &[u8],
        fill: u8,
        expires_at_ms: u64,
        how: impl FnOnce(&Shard<View>, Draft) -> Option<Locator>,
    ) -> Option<Locator> {
        let (mut words, key) = (Vec::new(), hashed(key));
        let value = [fill; 31];
        let body_hash =
            record::build(&mut words, SEED, key.hash, key.bytes, 0x80, &value, expires_at_ms);
        let draft = Draft { key, words: &mut words, body_hash };
        self.locked(|shard| how(shard, draft))
    }

    /// What a reader sees: the fill of the value and its deadline. Any other
    /// answer than a whole value or a miss is a fault, even one that the checksum
    /// would turn into a miss.
    pub fn get(&self) -> Option<(u8, u64)> {
        self.get_key(KEY)
    }

    pub fn get_key(&self, key: &[u8]) -> Option<(u8, u64)> {
        let mut buffer = Buffer::default();
        match self.shard(|shard| shard.find(hashed(key), NOW, &mut buffer, Want::Whole)) {
            Look::Hit(seen) => {
                let fill = buffer.value()[0];
                assert_eq!(buffer.value(), [fill; 31], "wrong answer");
                Some((fill, seen.expires_at_ms))
            }
            Look::Miss | Look::Unstable => None,
            other => panic!("wrong answer: {other:?}"),
        }
    }

    /// Puts `KEY` where it would be if it had found its first bucket full.
    pub fn push_on(&self) {
        self.locked(|shard| {
            let Look::Hit(seen) =
                shard.find(hashed(KEY), NOW, &mut Buffer::default(), Want::Nothing)
            else {
                panic!("it is there");
            };
            let bucket = |step| shard.bucket(hashed(KEY).hash, step);
            let step = (1..CHAIN).find(|step| bucket(*step) != bucket(0)).unwrap();
            shard.mark_locked(hashed(KEY).hash, 0..step);
            self.memory.store(seen.slot, 0, Ordering::Relaxed);
            self.memory.store(bucket(step), seen.word, Ordering::Release);
        });
    }

    /// The sweeper's visits to all buckets, so often that both sets of marks are renewed.
    pub fn sweep_twice(&self) {
        for _ in 0..2 * BUCKETS {
            self.locked(|shard| shard.sweep_bucket_locked(NOW));
        }
    }

    pub fn delete(&self) -> bool {
        self.shard(|shard| shard.delete(hashed(KEY), NOW, &mut Buffer::default()))
    }

    /// Drops everything, and sees to it that the next record takes the page of
    /// the first.
    pub fn clear(&self) {
        self.locked(|shard| {
            shard.clear_locked();
            shard.set_word(control::PAGE_CURSOR, 0);
        });
    }

    /// Moves what is alive in the first page. (A record of a page is too large for
    /// the small ring here.)
    pub fn pack(&self) {
        self.locked(|shard| {
            assert!(shard.pack_page_locked(MAIN, NOW));
            shard.set_word(control::PAGE_CURSOR, 0);
        });
    }

    pub fn is_sound(&self) {
        let mut faults = Vec::new();
        self.locked(|shard| shard.check_locked(&mut faults));
        assert_eq!(faults, Vec::<String>::new());
    }
}

pub fn hashed(key: &[u8]) -> Key<'_> {
    let hash = hash_of(key, SEED);
    Key { bytes: key, hash }
}

/// Runs the steps side by side, in every order, and then `afterwards`.
pub fn in_any_order(
    preemptions: usize,
    steps: &'static [fn(&World)],
    afterwards: impl Fn(&World) + Sync + Send + 'static,
) {
    in_any_order_from(|_| (), preemptions, steps, afterwards);
}

pub fn in_any_order_from(
    before: fn(&World),
    preemptions: usize,
    steps: &'static [fn(&World)],
    afterwards: impl Fn(&World) + Sync + Send + 'static,
) {
    let make = move || {
        let world = World::new(None);
        before(&world);
        world
    };
    explore(make, preemptions, steps, afterwards);
}

pub fn explore(
    make: impl Fn() -> Arc<World> + Sync + Send + 'static,
    preemptions: usize,
    steps: &'static [fn(&World)],
    afterwards: impl Fn(&World) + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(move || {
        let world = make();
        let threads: Vec<_> = steps
            .iter()
            .map(|step| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || step(&world))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        afterwards(&world);
        world.is_sound();
    });
}

/// A reader's look at a key that is set once and may be dropped.
pub fn get_the_first(world: &World) {
    assert!(matches!(world.get(), None | Some((1, 0))), "wrong answer");
}

pub fn clear(world: &World) {
    world.clear();
}

pub fn set_other(world: &World) {
    world.set(OTHER, 9);
}
