//! What the cache promises, over private memory and over a file.
//!
//! All but the tests that open a file are for Miri too, which was not at hand when
//! this was written: `cargo +nightly miri test --test basics -- --skip file`.

use nearcache_core::{
    Added, Buffer, Cache, Config, Incr, SLICE, Store, Stored, TAG_INT, Wait, memory::Boxed,
};

const NOW: u64 = 1_000_000;
const WAIT: Wait = Wait::UpTo(SLICE);

fn small() -> Cache<Boxed> {
    Cache::boxed(&Config::of_size(1 << 20)).unwrap()
}

fn get<M: nearcache_core::memory::Mem>(cache: &Cache<M>, key: &[u8], now: u64) -> Option<Vec<u8>> {
    let mut buffer = Buffer::default();
    cache.get(cache.key(key), now, &mut buffer).map(|_| buffer.value().to_vec())
}

fn set<M: nearcache_core::memory::Mem>(
    cache: &Cache<M>,
    key: &[u8],
    value: &[u8],
    expires: u64,
) -> Stored {
    cache.set(cache.key(key), 0x80, value, expires, NOW, WAIT).unwrap()
}

fn private_directory() -> tempfile::TempDir {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(mode).tempdir().unwrap()
}

#[test]
fn a_value_is_readable_up_to_its_deadline_and_gone_at_it() {
    let cache = small();
    set(&cache, b"k", b"v", NOW + 10);
    assert_eq!(get(&cache, b"k", NOW + 9), Some(b"v".to_vec()));
    assert_eq!(get(&cache, b"k", NOW + 10), None);
}

#[test]
fn add_sees_an_expired_key_as_free() {
    let cache = small();
    set(&cache, b"k", b"old", NOW + 10);
    let add = |now| cache.add(cache.key(b"k"), 0x80, b"new", 0, now, WAIT).unwrap();
    assert!(matches!(add(NOW), Added::Exists));
    assert!(matches!(add(NOW + 10), Added::Stored(_)));
    assert_eq!(get(&cache, b"k", NOW + 10), Some(b"new".to_vec()));
    assert!(cache.check(WAIT).is_empty());
}

/// A touch has its time from before it waited for the lock.
#[test]
fn what_was_deleted_when_it_was_over_is_not_touched_back_to_life() {
    let cache = small();
    let key = cache.key(b"k");
    set(&cache, b"k", b"v", NOW + 10);
    assert!(!cache.delete(key, NOW + 10));
    assert!(!cache.touch(key, 0, NOW + 9, WAIT).unwrap());
    assert_eq!(get(&cache, b"k", NOW + 10), None);
}

#[test]
fn what_was_deleted_when_it_was_over_is_not_replaced_by_its_version() {
    let cache = small();
    let key = cache.key(b"k");
    set(&cache, b"k", b"v", NOW + 10);
    let version = cache.get(key, NOW, &mut Buffer::default()).unwrap().version;
    assert!(!cache.delete(key, NOW + 10));
    assert!(!cache.cas(key, 0x80, b"new", version, 0, NOW + 9, WAIT).unwrap());
    assert_eq!(get(&cache, b"k", NOW + 10), None);
}

#[test]
fn a_delete_says_whether_there_was_a_value() {
    let cache = small();
    set(&cache, b"k", b"v", 0);
    assert!(cache.delete(cache.key(b"k"), NOW));
    assert!(!cache.delete(cache.key(b"k"), NOW));
    assert_eq!(cache.len(), 0);
}

#[test]
fn incr_keeps_the_deadline_and_knows_its_limits() {
    let cache = small();
    let key = cache.key(b"n");
    cache.set(key, TAG_INT, &5_i64.to_le_bytes(), NOW + 10, NOW, WAIT).unwrap();
    assert_eq!(cache.incr(key, 3, NOW, WAIT), Ok(Incr::Value(8)));
    assert_eq!(cache.expires_at(key, NOW), Some(NOW + 10));
    assert_eq!(cache.incr(key, i64::MAX, NOW, WAIT), Ok(Incr::Overflow));
    assert_eq!(cache.incr(key, 1, NOW + 10, WAIT), Ok(Incr::Missing));
    set(&cache, b"n", b"text", 0);
    assert_eq!(cache.incr(key, 1, NOW, WAIT), Ok(Incr::NotInteger));
}

#[test]
fn cas_stores_only_over_the_version_that_was_read() {
    let cache = small();
    set(&cache, b"k", b"1", 0);
    let key = cache.key(b"k");
    let version = cache.get(key, NOW, &mut Buffer::default()).unwrap().version;
    assert_eq!(cache.cas(key, 0x80, b"2", version, 0, NOW, WAIT), Ok(true));
    assert_eq!(cache.cas(key, 0x80, b"3", version, 0, NOW, WAIT), Ok(false));
    assert_eq!(get(&cache, b"k", NOW), Some(b"2".to_vec()));
}

#[test]
fn a_value_above_max_item_is_not_stored_and_the_old_one_goes() {
    let cache = small();
    set(&cache, b"k", b"old", 0);
    let large = vec![1; cache.max_item_bytes() as usize + 1];
    assert!(matches!(set(&cache, b"k", &large, 0), Stored::TooLarge));
    assert_eq!(get(&cache, b"k", NOW), None);
    let stats: std::collections::HashMap<_, _> = cache.stats(NOW).into_iter().collect();
    assert_eq!(stats["too_large"], 1);
}

#[test]
fn the_largest_item_fits() {
    let cache = small();
    let value = vec![7; cache.max_item_bytes() as usize - 1];
    for round in 0..50_u8 {
        assert!(matches!(set(&cache, &[round], &value[..value.len()], 0), Stored::Yes(_)));
        assert_eq!(get(&cache, &[round], NOW).as_deref(), Some(&value[..]));
    }
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}

#[test]
fn a_full_cache_evicts_and_stays_sound() {
    let cache = small();
    for n in 0..40_000_u32 {
        let value = vec![n as u8; (n % 300) as usize];
        set(&cache, &n.to_le_bytes(), &value, 0);
        assert_eq!(get(&cache, &n.to_le_bytes(), NOW), Some(value), "{n}");
    }
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
    let held = (0..40_000_u32).filter(|n| get(&cache, &n.to_le_bytes(), NOW).is_some()).count();
    assert_eq!(held as u64, cache.len());
    assert!(held > 3000, "{held}");
}

#[test]
fn garbage_never_pushes_out_live_values() {
    let cache = small();
    for n in 0..1000_u32 {
        set(&cache, &n.to_le_bytes(), &[1; 200], 0);
    }
    for round in 0..50_000_u32 {
        set(&cache, b"counter", &[round as u8; 400], 0);
    }
    let held = (0..1000_u32).filter(|n| get(&cache, &n.to_le_bytes(), NOW).is_some()).count();
    assert_eq!(held, 1000);
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}

#[test]
fn garbage_never_pushes_out_a_large_value_either() {
    let cache = small();
    let large = vec![3; 40_000];
    set(&cache, b"large", &large, 0);
    for round in 0..20_000_u32 {
        set(&cache, b"counter", &[round as u8; 8000], 0);
    }
    assert_eq!(get(&cache, b"large", NOW), Some(large));
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}

#[test]
fn clear_drops_everything() {
    let cache = small();
    for n in 0..100_u32 {
        set(&cache, &n.to_le_bytes(), b"v", 0);
    }
    cache.clear(WAIT).unwrap();
    assert_eq!(cache.len(), 0);
    assert!((0..100_u32).all(|n| get(&cache, &n.to_le_bytes(), NOW).is_none()));
    set(&cache, b"k", b"v", 0);
    assert_eq!(get(&cache, b"k", NOW), Some(b"v".to_vec()));
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}

#[test]
fn a_scan_shows_every_item_once() {
    let cache = small();
    for n in 0..500_u32 {
        set(&cache, &n.to_le_bytes(), b"v", 0);
    }
    let (mut cursor, mut seen) = (0, Vec::new());
    loop {
        cursor = cache.scan(cursor, 50, NOW, &mut |item| seen.push(item.key.to_vec()));
        if cursor == 0 {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 500);
}

#[test]
fn a_place_is_current_until_the_key_is_written_or_over() {
    let cache = small();
    let key = cache.key(b"k");
    let Stored::Yes(place) = set(&cache, b"k", b"v", NOW + 10) else { panic!() };
    assert!(cache.still_current(&place, NOW));
    assert!(!cache.still_current(&place, NOW + 10));
    cache.touch(key, NOW + 20, NOW, WAIT).unwrap();
    assert!(cache.still_current(&place, NOW + 10));
    set(&cache, b"k", b"v", 0);
    assert!(!cache.still_current(&place, NOW));
}

#[test]
fn a_head_is_the_beginning_of_a_value_and_no_use_of_it() {
    let cache = small();
    let (key, mut buffer) = (cache.key(b"k"), Buffer::default());
    assert!(cache.head(key, 5, NOW, &mut buffer).is_none());
    for len in [0, 4, 5, 12, 13, 5000] {
        let value: Vec<u8> = (0..len).map(|n| n as u8).collect();
        set(&cache, b"k", &value, NOW + 10);
        for size in [0, 1, 5, 8, 12, 100, usize::MAX] {
            let found = cache.head(key, size, NOW, &mut buffer).unwrap();
            assert_eq!((found.tag, found.expires_at_ms), (0x80, NOW + 10));
            // Words are copied, so it may be some bytes more.
            let head = buffer.value();
            assert!(value.starts_with(head), "{len} {size}");
            assert!(head.len() >= size.min(len) && head.len() - size.min(len) < 8, "{len} {size}");
        }
    }
    assert!(cache.head(key, 5, NOW + 10, &mut buffer).is_none());
    assert!(cache.stats(NOW).iter().all(|(name, count)| *name != "hits" || *count == 0));
}

#[test]
fn a_touch_tells_the_beginning_of_what_it_touched() {
    let cache = small();
    let (key, mut buffer) = (cache.key(b"k"), Buffer::default());
    assert!(matches!(cache.touch_head(key, 0, 5, NOW, WAIT, &mut buffer), Ok(None)));
    set(&cache, b"k", &[7; 5000], NOW + 10);
    let found = cache.touch_head(key, NOW + 20, 16, NOW, WAIT, &mut buffer).unwrap().unwrap();
    assert_eq!((found.tag, found.expires_at_ms), (0x80, NOW + 20));
    assert!(buffer.value().starts_with(&[7; 16]) && buffer.value().len() < 24);
    assert_eq!(cache.expires_at(key, NOW), Some(NOW + 20));
    assert!(cache.still_current(&found.place, NOW + 19));
    assert!(matches!(cache.touch_head(key, 0, 5, NOW + 20, WAIT, &mut buffer), Ok(None)));
}

#[test]
fn named_locks_exclude_and_end() {
    let cache = small();
    let token = cache.lock_acquire(b"l", 100, NOW, WAIT).unwrap().unwrap();
    assert_eq!(cache.lock_acquire(b"l", 100, NOW, WAIT), Ok(None));
    assert_eq!(cache.lock_renew(b"l", token, 200, NOW, WAIT), Ok(true));
    assert_eq!(cache.lock_acquire(b"l", 100, NOW + 150, WAIT), Ok(None));
    let next = cache.lock_acquire(b"l", 100, NOW + 200, WAIT).unwrap().unwrap();
    assert!(next > token);
    assert_eq!(cache.lock_release(b"l", token, NOW + 200, WAIT), Ok(false));
    assert_eq!(cache.lock_release(b"l", next, NOW + 200, WAIT), Ok(true));
}

#[test]
fn claims_are_the_owner_s_and_no_locks() {
    let cache = small();
    let locks_held =
        |now| cache.stats(now).iter().find(|(name, _)| *name == "locks_held").unwrap().1;
    assert_eq!(cache.claim(b"k", 7, 100, NOW, WAIT), Ok(true));
    assert_eq!(cache.claim(b"k", 7, 200, NOW, WAIT), Ok(true));
    assert_eq!(cache.claim(b"k", 8, 100, NOW + 199, WAIT), Ok(false));
    assert_eq!(locks_held(NOW), 0);
    let token = cache.lock_acquire(b"k", 1000, NOW, WAIT).unwrap().unwrap();
    assert_eq!(cache.lock_release(b"k", 7, NOW, WAIT), Ok(false));
    cache.unclaim(b"k", token, NOW, WAIT).unwrap();
    assert_eq!(cache.claim(b"k", 8, 100, NOW, WAIT), Ok(false));
    assert_eq!(cache.claim(b"k", 8, 100, NOW + 200, WAIT), Ok(true));
    cache.unclaim(b"k", 8, NOW + 200, WAIT).unwrap();
    assert_eq!(cache.claim(b"k", 7, 100, NOW + 200, WAIT), Ok(true));
    assert_eq!(locks_held(NOW + 200), 1);
}

#[test]
fn claims_leave_room_for_locks() {
    let cache = small();
    let claimed = (0..1024u32)
        .filter(|n| cache.claim(&n.to_le_bytes(), 1, 100, NOW, WAIT) == Ok(true))
        .count();
    assert_eq!(claimed, 768);
    assert!(cache.lock_acquire(b"l", 100, NOW, WAIT).unwrap().is_some());
    assert_eq!(cache.claim(b"later", 1, 100, NOW + 100, WAIT), Ok(true));
}

#[test]
fn a_file_is_warm_for_the_next_store() {
    let directory = private_directory();
    let base = directory.path().join("cache");
    let config = Config::of_size(1 << 20);
    let first = Store::open(&base, &config).unwrap();
    assert!(first.created());
    set(first.cache(NOW).unwrap(), b"k", b"v", 0);
    let second = Store::open(&base, &config).unwrap();
    assert!(!second.created());
    assert_eq!(get(second.cache(NOW).unwrap(), b"k", NOW), Some(b"v".to_vec()));
}
