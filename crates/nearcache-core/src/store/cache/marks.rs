//! Damaged marks and a damaged cursor of the sweeper: a key that no look-up finds any more is
//! not found later, behind a newer value of it.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS, Config, control};
use crate::memory::{Boxed, Mem};
use crate::shard::read::Buffer;
use crate::store::cache::Cache;
use crate::sync::holder::SLICE;
use crate::sync::lock::Wait;

const NOW_MS: u64 = 1_000;
const SET: Wait = Wait::UpTo(SLICE);
/// So many small items that most buckets are full, and items are far along their paths.
const KEYS: u64 = 4_000;
const SWEPT: u64 = 40_000;

fn full() -> Cache<Boxed> {
    let config = Config { mean_item_bytes: Some(512), ..Config::of_size(1 << 20) };
    let cache = Cache::boxed(&config).unwrap();
    (0..KEYS).for_each(|key| set(&cache, key, 0));
    cache
}

fn set(cache: &Cache<Boxed>, key: u64, value: u64) {
    let [key, value] = [key, value].map(u64::to_le_bytes);
    cache.set(cache.key(&key), 0x80, &value, 0, NOW_MS, SET).unwrap();
}

fn get(cache: &Cache<Boxed>, key: u64) -> Option<u64> {
    let mut buffer = Buffer::default();
    cache.get(cache.key(&key.to_le_bytes()), NOW_MS, &mut buffer)?;
    Some(u64::from_le_bytes(buffer.value().try_into().unwrap()))
}

/// Writes and deletes; each read must find what was written last, or nothing.
fn use_it(cache: &Cache<Boxed>) {
    let mut written = HashMap::new();
    for step in 1..SWEPT {
        let key = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let key = key % KEYS;
        if step % 5 == 0 {
            cache.delete(cache.key(&key.to_le_bytes()), NOW_MS);
            written.insert(key, None);
        } else {
            set(cache, key, step);
            written.insert(key, Some(step));
        }
        let key = (key + step) % KEYS;
        if let Some(found) = get(cache, key) {
            assert_eq!(Some(found), *written.get(&key).unwrap_or(&Some(0)), "{key} at {step}");
        }
    }
    assert_eq!(cache.check(SET), Vec::<String>::new());
}

fn stat(cache: &Cache<Boxed>, name: &str) -> u64 {
    cache.stats(NOW_MS).iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn nothing_is_removed_from_a_whole_store() {
    let cache = full();
    use_it(&cache);
    assert_eq!([stat(&cache, "unreachable"), stat(&cache, "shard_resets")], [0, 0]);
    assert!(stat(&cache, "evicted_index") > 0, "buckets are full");
}

#[test]
fn a_damaged_cursor_clears_the_shard() {
    for damage in [1, 7, 150, 173, 1 << 20, 1 << 47] {
        let cache = full();
        let shard = cache.shard(0);
        shard.set_word(control::SWEEP, shard.word(control::SWEEP).wrapping_add(damage));
        use_it(&cache);
        assert_eq!(stat(&cache, "shard_resets"), 1);
    }
}

#[test]
fn what_lost_its_marks_is_removed() {
    let cache = full();
    let shard = cache.shard(0);
    let index = shard.base + shard.geo.index;
    let tails = (index + BUCKET_SLOTS..).step_by(BUCKET_WORDS).take(shard.geo.buckets);
    tails.for_each(|tail| shard.mem.store(tail, 0, Relaxed));
    let visits = shard.geo.buckets as u64;
    (0..visits).for_each(|_| shard.sweep_bucket_locked(NOW_MS));
    assert!(stat(&cache, "unreachable") > 0);
    assert_eq!(cache.check(SET), Vec::<String>::new());
    use_it(&cache);
}
