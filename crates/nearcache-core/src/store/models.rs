//! The small protocols under loom, which tries the orders of accesses and, for
//! relaxed ones, the old values that the memory model allows.
//!
//! What runs is [`Shard`] itself, over a geometry of a few pages of eight words.
//! Words that decide what a reader returns are loom's: pages, page tables, slots
//! and `safe_tail`. The others (what only the lock holder reads, and hints) are
//! plain atomics, or there would be too many orders to try. At most two
//! preemptions an execution, one where relaxed reads alone make many.
//!
//! That each fence is needed is shown in `models/fences.rs`, which takes them away.
//!
//! Limits: loom does not let a load see a store that comes later in another
//! thread's order than it could by itself (load buffering), and has no kernel in
//! it, so a death inside the lock is not here but in `tests/crash`.

mod fences;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::Mutex;
use loom::sync::atomic::AtomicU64 as Modelled;

use crate::format::layout::{BUCKET_WORDS, Geometry, LOCK_PLACE_TABLE, LOCK_PLACE_WORDS, control};
use crate::format::record;
use crate::locks::lock_queue::BELL;
use crate::locks::named_locks::{Liveness, NamedLocks, Turn};
use crate::memory::Mem;
use crate::shard::read::{Buffer, CHAIN, Key, Locator, Look, Shard, Want};
use crate::shard::write::{Draft, MAIN};
use fences::{Rule, View};

const NOW: u64 = 1_000;
const SEED: u64 = 7;
const PAGES: usize = 8;
const PAGE_SHIFT: u32 = 3;
const BUCKETS: usize = 2;
const KEY: &[u8] = b"k";
const OTHER: &[u8] = b"o";

enum Word {
    Modelled(Modelled),
    Plain(AtomicU64),
}

struct Memory {
    words: Vec<Word>,
}

impl Memory {
    fn new(geometry: &Geometry) -> Self {
        let slots = geometry.index..geometry.ghost;
        let tails = control::SAFE_TAIL..control::SAFE_TAIL + 2;
        let tables = geometry.page_table..geometry.descriptors;
        let decides = |at: &usize| {
            slots.contains(at)
                || tails.contains(at)
                || tables.contains(at)
                || *at >= geometry.pages_at
        };
        Self::of(geometry.total_words, decides)
    }

    fn of(words: usize, decides: impl Fn(&usize) -> bool) -> Self {
        let word = |at: usize| match decides(&at) {
            true => Word::Modelled(Modelled::new(0)),
            false => Word::Plain(AtomicU64::new(0)),
        };
        Self { words: (0..words).map(word).collect() }
    }

    /// [`Mem::cas`] with an order of the caller's.
    fn swap(&self, at: usize, old: u64, new: u64, order: Ordering) -> Result<(), u64> {
        match &self.words[at] {
            Word::Modelled(word) => word.compare_exchange(old, new, order, Ordering::Acquire),
            Word::Plain(word) => word.compare_exchange(old, new, order, Ordering::Acquire),
        }
        .map(|_| ())
    }
}

impl Mem for Memory {
    fn words(&self) -> usize {
        self.words.len()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        match &self.words[at] {
            Word::Modelled(word) => word.load(order),
            Word::Plain(word) => word.load(order),
        }
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
        match &self.words[at] {
            Word::Modelled(word) => word.store(value, order),
            Word::Plain(word) => word.store(value, order),
        }
    }
    fn cas(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.swap(at, old, new, Ordering::AcqRel)
    }
    fn add(&self, at: usize, delta: u64) {
        match &self.words[at] {
            Word::Modelled(word) => word.fetch_add(delta, Ordering::Relaxed),
            Word::Plain(word) => word.fetch_add(delta, Ordering::Relaxed),
        };
    }
    fn fence(&self, order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

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
struct World {
    memory: Memory,
    geometry: Geometry,
    lock: Mutex<()>,
    /// What the threads of the model do not keep to; only in `fences.rs`.
    broken: Option<Rule>,
}

impl World {
    /// With `KEY` holding `[1; 31]`: a record of one page.
    fn new(broken: Option<Rule>) -> Arc<Self> {
        let (geometry, lock) = (geometry(), Mutex::new(()));
        let world = Arc::new(Self { memory: Memory::new(&geometry), geometry, lock, broken });
        world.shard(|shard| shard.set_sweeper_visits_locked(0));
        world.set(KEY, 1);
        world
    }

    fn shard<R>(&self, work: impl FnOnce(&Shard<View>) -> R) -> R {
        let mem = &View::new(&self.memory, &self.geometry, self.broken);
        work(&Shard { mem, geo: &self.geometry, base: 0, number: 0, seed: SEED })
    }

    fn locked<R>(&self, work: impl FnOnce(&Shard<View>) -> R) -> R {
        let _guard = self.lock.lock().unwrap();
        self.shard(|shard| {
            shard.normalise_locked();
            work(shard)
        })
    }

    fn set(&self, key: &[u8], fill: u8) {
        self.set_until(key, fill, 0);
    }

    fn set_until(&self, key: &[u8], fill: u8, expires_at_ms: u64) -> Locator {
        self.write(key, fill, expires_at_ms, |shard, draft| {
            shard.set_locked(draft, NOW, &mut Buffer::default())
        })
        .expect("there is room")
    }

    /// Writes `KEY` if it still has the version that [`World::new`] gave it.
    fn swap(&self, fill: u8) {
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
    fn get(&self) -> Option<(u8, u64)> {
        self.get_key(KEY)
    }

    fn get_key(&self, key: &[u8]) -> Option<(u8, u64)> {
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
    fn push_on(&self) {
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
    fn sweep_twice(&self) {
        for _ in 0..2 * BUCKETS {
            self.locked(|shard| shard.sweep_bucket_locked(NOW));
        }
    }

    fn delete(&self) -> bool {
        self.shard(|shard| shard.delete(hashed(KEY), NOW, &mut Buffer::default()))
    }

    /// Drops everything, and sees to it that the next record takes the page of
    /// the first.
    fn clear(&self) {
        self.locked(|shard| {
            shard.clear_locked();
            shard.set_word(control::PAGE_CURSOR, 0);
        });
    }

    /// Moves what is alive in the first page. (A record of a page is too large for
    /// the small ring here.)
    fn pack(&self) {
        self.locked(|shard| {
            assert!(shard.pack_page_locked(MAIN, NOW));
            shard.set_word(control::PAGE_CURSOR, 0);
        });
    }

    fn is_sound(&self) {
        let mut faults = Vec::new();
        self.locked(|shard| shard.check_locked(&mut faults));
        assert_eq!(faults, Vec::<String>::new());
    }
}

fn hashed(key: &[u8]) -> Key<'_> {
    let hash = crate::shard::read::hash_of(key, SEED);
    Key { bytes: key, hash }
}

/// Runs the steps side by side, in every order, and then `afterwards`.
fn in_any_order(
    preemptions: usize,
    steps: &'static [fn(&World)],
    afterwards: impl Fn(&World) + Sync + Send + 'static,
) {
    in_any_order_from(|_| (), preemptions, steps, afterwards);
}

fn in_any_order_from(
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

fn explore(
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
fn get_the_first(world: &World) {
    assert!(matches!(world.get(), None | Some((1, 0))), "wrong answer");
}

fn clear(world: &World) {
    world.clear();
}

fn set_other(world: &World) {
    world.set(OTHER, 9);
}

#[test]
fn a_record_that_is_written_over_is_never_read() {
    const CLEAR_AND_WRITE_OVER: fn(&World) = |world| {
        world.clear();
        world.set(OTHER, 9);
    };
    in_any_order(1, &[get_the_first, CLEAR_AND_WRITE_OVER], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn nor_if_the_next_owner_of_the_lock_writes_over_it() {
    in_any_order(1, &[get_the_first, clear, set_other], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_deleted_record_stays_deleted_though_it_is_being_moved() {
    const DELETE: fn(&World) = |world| assert!(world.delete());
    in_any_order(2, &[DELETE, World::pack], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_record_that_is_moved_is_there_all_along() {
    const GET: fn(&World) = |world| assert_eq!(world.get(), Some((1, 0)));
    const MOVE_AND_WRITE_OVER: fn(&World) = |world| {
        world.pack();
        world.set(OTHER, 9);
    };
    in_any_order(2, &[GET, MOVE_AND_WRITE_OVER], |world| {
        assert_eq!(world.get(), Some((1, 0)));
    });
}

#[test]
fn of_two_sets_of_a_key_one_is_the_last() {
    const FIRST: fn(&World) = |world| world.set(KEY, 2);
    const SECOND: fn(&World) = |world| world.set(KEY, 3);
    const GET: fn(&World) = |world| assert!(world.get().is_some());
    in_any_order(2, &[FIRST, SECOND, GET], |world| {
        assert!(matches!(world.get(), Some((2 | 3, 0))));
    });
}

#[test]
fn a_set_and_a_delete_of_a_key_leave_a_whole_value_or_none() {
    const SET: fn(&World) = |world| world.set(KEY, 2);
    const DELETE: fn(&World) = |world| assert!(world.delete());
    in_any_order(2, &[SET, DELETE], |world| {
        assert!(matches!(world.get(), None | Some((2, 0))));
    });
}

#[test]
fn a_swap_never_brings_back_what_was_deleted() {
    const SWAP: fn(&World) = |world| world.swap(2);
    const DELETE: fn(&World) = |world| assert!(world.delete());
    in_any_order(2, &[SWAP, DELETE], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_new_key_is_read_whole_or_missed() {
    const GET: fn(&World) = |world| {
        assert!(matches!(world.get_key(OTHER), None | Some((9, 0))));
    };
    in_any_order(2, &[set_other, GET], |world| {
        assert_eq!(world.get_key(OTHER), Some((9, 0)));
    });
}

#[test]
fn after_a_clear_there_is_nothing() {
    in_any_order(2, &[get_the_first, clear], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_key_behind_a_full_bucket_is_found_while_marks_are_renewed() {
    const GET: fn(&World) = |world| assert_eq!(world.get(), Some((1, 0)));
    in_any_order_from(World::push_on, 2, &[GET, World::sweep_twice], |world| {
        assert_eq!(world.get(), Some((1, 0)));
    });
}

#[test]
fn a_key_behind_a_full_bucket_is_deleted_while_marks_are_renewed() {
    const DELETE: fn(&World) = |world| assert!(world.delete());
    in_any_order_from(World::push_on, 2, &[DELETE, World::sweep_twice], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_touch_is_seen_whole_or_not_at_all() {
    const TOUCH: fn(&World) = |world| {
        let touched = world.locked(|shard| {
            shard.touch_locked(hashed(KEY), 5_000, NOW, &mut Buffer::default(), Want::Nothing)
        });
        assert!(touched.is_some());
    };
    const GET: fn(&World) = |world| {
        assert!(matches!(world.get(), Some((1, 0 | 5_000))));
    };
    in_any_order(2, &[TOUCH, GET], |world| {
        assert_eq!(world.get(), Some((1, 5_000)));
    });
}

/// The table of named locks and its mutex. The bells are loom's: they alone are looked at
/// without the mutex.
struct LockWorld {
    memory: Memory,
    mutex: Mutex<()>,
}

impl LockWorld {
    const WAITERS: usize = 2;
    const LOCK: &[u8] = b"l";

    fn new() -> Self {
        let places = LOCK_PLACE_TABLE..LOCK_PLACE_TABLE + Self::WAITERS * LOCK_PLACE_WORDS;
        let bell = |at: &usize| places.contains(at) && at % LOCK_PLACE_WORDS == BELL;
        Self { memory: Memory::of(places.end, bell), mutex: Mutex::new(()) }
    }

    fn locked<R>(&self, work: impl FnOnce(NamedLocks<Memory>) -> R) -> R {
        const ME: u64 = 1;
        let _guard = self.mutex.lock().unwrap();
        work(NamedLocks { mem: &self.memory, me: ME, now_ms: NOW, liveness: Liveness::new(ME) })
    }

    fn ask(&self, ticket: u64) -> Turn {
        self.locked(|locks| locks.ask(Self::LOCK, ticket, NOW, NOW)).unwrap()
    }

    fn release(&self, token: u64) {
        self.locked(|locks| assert!(locks.release(Self::LOCK, token).is_some()));
    }

    /// Sleeps without an end until its bell rings, as a futex does.
    fn take(&self) -> u64 {
        let mut ticket = 0;
        loop {
            match self.ask(ticket) {
                Turn::Taken(token) => return token,
                Turn::Wait(waiting) => {
                    ticket = waiting.ticket;
                    let (at, seen) = waiting.bell.expect("places are free");
                    while self.memory.load(at, Ordering::Relaxed) == seen {
                        loom::thread::yield_now();
                    }
                }
            }
        }
    }
}

/// With waiters that look at nothing but their bells, so a lost one would hang the model.
#[test]
fn every_waiter_is_called_in_its_turn() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(|| {
        let world = Arc::new(LockWorld::new());
        let token = world.take();
        let waiters: Vec<_> = (0..LockWorld::WAITERS)
            .map(|_| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.release(world.take()))
            })
            .collect();
        world.release(token);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert!(world.locked(|locks| locks.held()) == 0);
    });
}
