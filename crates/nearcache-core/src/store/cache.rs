//! The operations, over any memory: which shard, under which lock, counted how.
//!
//! `host_store.rs` puts a file under it. Tests put private memory under it, or memory
//! that kills its process.
//!
//! In `cache/`: named locks, what only a file has, the cache as a whole; and tests.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use crate::base::error::Error;
use crate::base::stats::{Counter, PolicyCounter};
use crate::format::layout::{Config, Geometry, control};
use crate::format::record::{self, MAX_KEY_BYTES};
use crate::memory::{Boxed, Mem};
use crate::shard::read::{Buffer, Found, Key, Locator, Look, Seen, Shard, Want, hash_of};
use crate::shard::scan::Item;
use crate::shard::write::{Added, Draft, Incr, Stored};
use crate::sync::holder::Busy;
use crate::sync::lock::{Inherited, Locks, PATIENCE_MS, Wait};
use crate::sync::process::{self, ProcessSlot};

/// Scratch memory above this is given back after use.
const SCRATCH_WORDS: usize = 1 << 17;

thread_local! {
    /// The record being built and the record being looked at, of this thread.
    static SCRATCH: RefCell<(Vec<u64>, Buffer)> = RefCell::default();
}

/// A cache in some memory.
pub struct Cache<M: Mem> {
    mem: M,
    geometry: Geometry,
    locks: Locks,
    seed: u64,
    process: [AtomicUsize; 2],
    identity: AtomicU64,
    /// By shard: since when its lock has been busy without any write, 0 if not.
    stuck: Vec<Stuck>,
    hopeless: AtomicBool,
    pub(crate) epoch: u32,
}

/// A lock that stays busy, as this process sees it.
#[derive(Default)]
struct Stuck {
    since_ms: AtomicU64,
    version: AtomicU64,
}

impl Cache<Boxed> {
    /// A cache in private memory, for tests and Miri.
    pub fn boxed(config: &Config) -> Result<Self, Error> {
        let geometry = Geometry::new(config)?;
        let locks = (0..=geometry.shards).map(|_| std::sync::Mutex::new(())).collect();
        let memory = Boxed::new(geometry.total_words);
        Ok(Self::new(memory, geometry, Locks::Private(locks), 1).with_new_shards())
    }
}

impl<M: Mem> Cache<M> {
    pub(crate) fn new(mem: M, geometry: Geometry, locks: Locks, seed: u64) -> Self {
        assert!(mem.words() >= geometry.total_words);
        let stuck = (0..geometry.shards).map(|_| Stuck::default()).collect();
        let cache = Self {
            mem,
            geometry,
            locks,
            seed,
            process: Default::default(),
            identity: AtomicU64::new(0),
            stuck,
            hopeless: AtomicBool::new(false),
            epoch: 0,
        };
        cache.enter_process();
        cache
    }

    /// For memory that is not of a file, all zeros: what a new file has in its shards from the start.
    fn with_new_shards(self) -> Self {
        for number in 0..self.geometry.shards {
            self.shard(number).set_sweeper_visits_locked(0);
        }
        self
    }

    /// Takes a slot of counters: at the start, and in a child after fork.
    pub fn enter_process(&self) {
        let [at, shared] = ProcessSlot::claim(&self.mem).into_parts();
        self.process[0].store(at, Relaxed);
        self.process[1].store(shared, Relaxed);
        self.identity.store(process::identity_of_this_process(), Relaxed);
    }

    /// Counts something.
    #[inline]
    pub fn count(&self, counter: Counter) {
        let parts = [self.process[0].load(Relaxed), self.process[1].load(Relaxed)];
        ProcessSlot::from_parts(parts).count(&self.mem, counter);
    }

    /// Hashes a key, once for all operations on it.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: hash_of(bytes, self.seed) }
    }

    /// A random number of its file.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Largest key and value together, in bytes.
    pub fn max_item_bytes(&self) -> u64 {
        self.geometry.max_item_bytes()
    }

    #[inline]
    fn shard(&self, number: usize) -> Shard<'_, M> {
        Shard {
            mem: &self.mem,
            geo: &self.geometry,
            base: self.geometry.shard_at(number),
            number: number as u32,
            seed: self.seed,
        }
    }

    #[inline]
    fn shard_of(&self, key: Key) -> Shard<'_, M> {
        self.shard((key.hash >> 58) as usize & (self.geometry.shards - 1))
    }

    fn shards(&self) -> impl Iterator<Item = Shard<'_, M>> {
        (0..self.geometry.shards).map(|number| self.shard(number))
    }

    /// Copies a value into `buffer`. Takes no lock and waits for nobody.
    #[inline]
    pub fn get(&self, key: Key, now_ms: u64, buffer: &mut Buffer) -> Option<Found> {
        let shard = self.shard_of(key);
        let seen = self.counted(shard.find(key, now_ms, buffer, Want::Whole))?;
        shard.touch_frequency(seen.slot);
        Some(self.found(&shard, key, &seen))
    }

    /// Copies the first `value_bytes` of a value, up to seven more; does not count as a use.
    ///
    /// What it found is verified if that is all of the value, else only its key is.
    pub fn head(
        &self,
        key: Key,
        value_bytes: usize,
        now_ms: u64,
        buffer: &mut Buffer,
    ) -> Option<Found> {
        let shard = self.shard_of(key);
        match shard.find(key, now_ms, buffer, Want::Head(value_bytes)) {
            Look::Hit(seen) => Some(self.found(&shard, key, &seen)),
            _ => None,
        }
    }

    /// Asks for the memory that `get` of this key will look at first.
    #[inline]
    pub fn prefetch(&self, key: Key) {
        self.mem.prefetch(self.shard_of(key).bucket(key.hash, 0));
    }

    /// Whether there is a value; does not count as a use.
    pub fn contains(&self, key: Key, now_ms: u64) -> bool {
        self.expires_at(key, now_ms).is_some()
    }

    /// The deadline of a key: `Some(0)` never, `None` no such key.
    pub fn expires_at(&self, key: Key, now_ms: u64) -> Option<u64> {
        with_scratch(|_, buffer| {
            match self.shard_of(key).find(key, now_ms, buffer, Want::Nothing) {
                Look::Hit(seen) => Some(seen.expires_at_ms),
                _ => None,
            }
        })
    }

    /// Whether the value read at `place` is still the value of its key: two loads
    /// and the deadline, no copy. A `true` counts as a hit.
    #[inline]
    pub fn still_current(&self, place: &Locator, now_ms: u64) -> bool {
        if place.epoch != self.epoch {
            return false;
        }
        let shard = self.shard(place.shard as usize);
        if !shard.still_current(place, now_ms) {
            return false;
        }
        shard.touch_frequency(place.slot as usize);
        self.count(Counter::Hits);
        true
    }

    /// Stores a value.
    pub fn set(
        &self,
        key: Key,
        tag: u8,
        value: &[u8],
        expires_at_ms: u64,
        now_ms: u64,
        wait: Wait,
    ) -> Result<Stored, Busy> {
        let drafted = self.with_draft(key, tag, value, expires_at_ms, |draft, buffer| {
            self.locked(key, wait, |shard| shard.set_locked(draft, now_ms, buffer))
        });
        match drafted {
            Some(stored) => Ok(match stored? {
                Some(place) => {
                    self.count(Counter::Sets);
                    Stored::Yes(self.stamped(place))
                }
                None => Stored::TooLarge,
            }),
            None => {
                self.refuse(key, now_ms, Counter::TooLarge);
                Ok(Stored::TooLarge)
            }
        }
    }

    /// Stores a value if the key has none.
    pub fn add(
        &self,
        key: Key,
        tag: u8,
        value: &[u8],
        expires_at_ms: u64,
        now_ms: u64,
        wait: Wait,
    ) -> Result<Added, Busy> {
        let drafted = self.with_draft(key, tag, value, expires_at_ms, |draft, buffer| {
            self.locked(key, wait, |shard| shard.add_locked(draft, now_ms, buffer))
        });
        let Some(added) = drafted else {
            if self.contains(key, now_ms) {
                return Ok(Added::Exists);
            }
            self.count(Counter::TooLarge);
            return Ok(Added::TooLarge);
        };
        Ok(match added? {
            Err(()) => Added::Exists,
            Ok(None) => Added::TooLarge,
            Ok(Some(place)) => {
                self.count(Counter::Sets);
                Added::Stored(self.stamped(place))
            }
        })
    }

    /// Stores a value if the key still has `version`.
    #[expect(clippy::too_many_arguments, reason = "what a cas is")]
    pub fn cas(
        &self,
        key: Key,
        tag: u8,
        value: &[u8],
        version: u64,
        expires_at_ms: u64,
        now_ms: u64,
        wait: Wait,
    ) -> Result<bool, Busy> {
        let drafted = self.with_draft(key, tag, value, expires_at_ms, |draft, buffer| {
            self.locked(key, wait, |shard| shard.cas_locked(draft, version, now_ms, buffer))
        });
        let Some(stored) = drafted else {
            self.count(Counter::TooLarge);
            return Ok(false);
        };
        let stored = stored?.is_some();
        if stored {
            self.count(Counter::Sets);
        }
        Ok(stored)
    }

    /// Stores a value and leaves the old one in `buffer`.
    #[expect(clippy::too_many_arguments, reason = "a set and a get")]
    pub fn get_and_set(
        &self,
        key: Key,
        tag: u8,
        value: &[u8],
        expires_at_ms: u64,
        now_ms: u64,
        wait: Wait,
        buffer: &mut Buffer,
    ) -> Result<Option<Found>, Busy> {
        let drafted = self.with_draft(key, tag, value, expires_at_ms, |draft, _| {
            self.locked(key, wait, |shard| shard.get_and_set_locked(draft, now_ms, buffer))
        });
        let Some(result) = drafted else {
            let old = self.get(key, now_ms, buffer);
            self.refuse(key, now_ms, Counter::TooLarge);
            return Ok(old);
        };
        let (old, place) = result?;
        if place.is_some() {
            self.count(Counter::Sets);
        }
        self.count(if old.is_some() { Counter::Hits } else { Counter::Misses });
        Ok(old.map(|seen| self.found(&self.shard_of(key), key, &seen)))
    }

    /// Adds to a 64-bit integer (tag [`crate::TAG_INT`]); its deadline stays.
    pub fn incr(&self, key: Key, delta: i64, now_ms: u64, wait: Wait) -> Result<Incr, Busy> {
        with_scratch(|words, buffer| {
            self.locked(key, wait, |shard| shard.incr_locked(key, delta, now_ms, buffer, words))
        })
    }

    /// Gives a key another deadline; false if there is no such key.
    pub fn touch(
        &self,
        key: Key,
        expires_at_ms: u64,
        now_ms: u64,
        wait: Wait,
    ) -> Result<bool, Busy> {
        let touched = with_scratch(|_, buffer| {
            self.touch_wanting(key, expires_at_ms, Want::Nothing, now_ms, wait, buffer)
        });
        Ok(touched?.is_some())
    }

    /// [`Cache::touch`], which leaves what [`Cache::head`] would in `buffer`: of the value touched.
    pub fn touch_head(
        &self,
        key: Key,
        expires_at_ms: u64,
        value_bytes: usize,
        now_ms: u64,
        wait: Wait,
        buffer: &mut Buffer,
    ) -> Result<Option<Found>, Busy> {
        let want = Want::Head(value_bytes);
        let touched = self.touch_wanting(key, expires_at_ms, want, now_ms, wait, buffer)?;
        Ok(touched.map(|seen| self.found(&self.shard_of(key), key, &seen)))
    }

    fn touch_wanting(
        &self,
        key: Key,
        expires_at_ms: u64,
        want: Want,
        now_ms: u64,
        wait: Wait,
        buffer: &mut Buffer,
    ) -> Result<Option<Seen>, Busy> {
        self.locked(key, wait, |shard| shard.touch_locked(key, expires_at_ms, now_ms, buffer, want))
    }

    /// Takes a value out; true if there was one. Takes no lock, so a stopped
    /// writer cannot hold up an invalidation.
    pub fn delete(&self, key: Key, now_ms: u64) -> bool {
        let deleted = with_scratch(|_, buffer| self.shard_of(key).delete(key, now_ms, buffer));
        if deleted {
            self.count(Counter::Deletes);
        }
        deleted
    }

    /// For a write that was given up after its wait, and whose caller is not told: the old value
    /// must not stay.
    pub fn set_refused(&self, key: Key, now_ms: u64) {
        self.refuse(key, now_ms, Counter::DroppedBusy);
    }

    /// Shows some buckets' items, from a cursor (0 at first); the next cursor, 0
    /// at the end. At least `limit` items are shown if there are as many. An item
    /// that is there from the first call to the last is shown once.
    pub fn scan(&self, cursor: u64, limit: usize, now_ms: u64, each: &mut dyn FnMut(Item)) -> u64 {
        let buckets = self.geometry.buckets as u64;
        let end = buckets * self.geometry.shards as u64;
        let mut shown = 0;
        for at in cursor..end {
            if shown >= limit {
                return at;
            }
            let shard = self.shard((at / buckets) as usize);
            shard.scan_bucket((at % buckets) as usize, now_ms, &mut |item| {
                shown += 1;
                each(item);
            });
        }
        0
    }

    /// Drops everything; the time depends on the size of the index, not on what is there.
    pub fn clear(&self, wait: Wait) -> Result<(), Busy> {
        for number in 0..self.geometry.shards {
            self.locked_number(number, wait, |shard| shard.clear_locked())?;
        }
        Ok(())
    }

    /// Evicts about `items` items in the order of the policy, from the fullest
    /// shards; how many went.
    pub fn cull(&self, items: u64, wait: Wait) -> Result<u64, Busy> {
        let mut gone = 0;
        while gone < items {
            let fullest = self.shards().max_by_key(Shard::items);
            let Some(shard) = fullest.filter(|shard| shard.items() > 0) else {
                break;
            };
            let number = shard.number as usize;
            match self.locked_number(number, wait, |shard| shard.cull_locked(1))? {
                0 => break,
                culled => gone += culled,
            }
        }
        Ok(gone)
    }

    /// The identity of this process, also in a child that was forked and did not come through
    /// [`Cache::enter_process`]: a child must not hold its parent's locks.
    fn identity(&self) -> u64 {
        let known = self.identity.load(Relaxed);
        if (known >> 32) as u32 == std::process::id() && known as u32 != 0 {
            return known;
        }
        let identity = process::identity_of_this_process();
        self.identity.store(identity, Relaxed);
        identity
    }

    #[inline]
    fn counted(&self, look: Look<Seen>) -> Option<Seen> {
        let why = match look {
            Look::Hit(seen) => {
                self.count(Counter::Hits);
                return Some(seen);
            }
            Look::Miss => None,
            Look::Expired => Some(Counter::Expired),
            Look::Unstable => Some(Counter::Gave),
            Look::Damaged => Some(Counter::Damaged),
        };
        self.count(Counter::Misses);
        if let Some(counter) = why {
            self.count(counter);
        }
        None
    }

    #[inline]
    fn found(&self, shard: &Shard<M>, key: Key, seen: &Seen) -> Found {
        Found {
            tag: seen.header.tag,
            version: seen.header.version,
            expires_at_ms: seen.expires_at_ms,
            place: self.stamped(shard.place(seen.slot, seen.word, key.hash)),
        }
    }

    fn stamped(&self, place: Locator) -> Locator {
        Locator { epoch: self.epoch, ..place }
    }

    fn refuse(&self, key: Key, now_ms: u64, why: Counter) {
        self.delete(key, now_ms);
        self.count(why);
    }

    /// Builds the record outside the lock; `None` if it is larger than allowed.
    fn with_draft<R>(
        &self,
        key: Key,
        tag: u8,
        value: &[u8],
        expires_at_ms: u64,
        work: impl FnOnce(Draft, &mut Buffer) -> R,
    ) -> Option<R> {
        let words = record::words_for(key.bytes.len(), value.len());
        if words > self.geometry.max_record_words || key.bytes.len() > MAX_KEY_BYTES {
            return None;
        }
        Some(with_scratch(|words, buffer| {
            let body_hash =
                record::build(words, self.seed, key.hash, key.bytes, tag, value, expires_at_ms);
            work(Draft { key, words, body_hash }, buffer)
        }))
    }

    #[inline]
    fn locked<R>(
        &self,
        key: Key,
        wait: Wait,
        work: impl FnOnce(&Shard<M>) -> R,
    ) -> Result<R, Busy> {
        self.locked_number(self.shard_of(key).number as usize, wait, work)
    }

    fn locked_number<R>(
        &self,
        number: usize,
        wait: Wait,
        work: impl FnOnce(&Shard<M>) -> R,
    ) -> Result<R, Busy> {
        let shard = self.shard(number);
        if wait != Wait::Try {
            self.count(Counter::Waits);
        }
        let result = self.locks.with(number, wait, |inherited| {
            shard.set_word(control::OWNER, self.identity.load(Relaxed));
            shard.normalise_locked();
            if inherited == Inherited::OwnerDied {
                shard.count(PolicyCounter::Recoveries, 1);
                shard.recount_locked();
            }
            let result = work(&shard);
            shard.set_word(control::OWNER, 0);
            result
        });
        match result {
            Err(_) if wait != Wait::Try => self.note_busy(&shard),
            Ok(_) if self.stuck[number].since_ms.load(Relaxed) != 0 => {
                self.stuck[number].since_ms.store(0, Relaxed);
            }
            _ => {}
        }
        result
    }

    /// Finds out whether a lock is hopeless: taken for seconds, nothing written
    /// meanwhile, and its owner gone or never there. (A stopped owner is neither.)
    fn note_busy(&self, shard: &Shard<M>) {
        let stuck = &self.stuck[shard.number as usize];
        let (now_ms, version) = (crate::base::clock::boot_ms(), shard.word(control::VERSION));
        let since_ms = stuck.since_ms.load(Relaxed);
        if since_ms == 0 || stuck.version.load(Relaxed) != version {
            stuck.version.store(version, Relaxed);
            stuck.since_ms.store(now_ms, Relaxed);
        } else if now_ms.saturating_sub(since_ms) >= PATIENCE_MS {
            let owner = shard.word(control::OWNER);
            if owner == 0 || !process::is_alive(owner) {
                self.hopeless.store(true, Relaxed);
            }
        }
    }

    /// Whether a shard's lock will never be free again.
    pub(crate) fn has_hopeless_lock(&self) -> bool {
        self.hopeless.load(Relaxed)
    }
}

fn with_scratch<R>(work: impl FnOnce(&mut Vec<u64>, &mut Buffer) -> R) -> R {
    SCRATCH.with_borrow_mut(|(words, buffer)| {
        let result = work(words, buffer);
        if words.capacity() > SCRATCH_WORDS {
            *words = Vec::new();
        }
        result
    })
}

#[cfg(feature = "crash-injection")]
mod crash_injection;
pub(crate) mod named_locks;
mod of_file;
mod overview;

#[cfg(test)]
mod ageing;
#[cfg(test)]
mod border;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod damaged;
#[cfg(test)]
mod marks;
#[cfg(test)]
mod paused;
#[cfg(test)]
mod preparing;
