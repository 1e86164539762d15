//! A mutex that stays taken by nobody (here: its word was overwritten) must not
//! cost a shard for ever: after five seconds the file is made anew.
#![cfg(target_os = "linux")]

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nearcache_core::memory::Mapped;
use nearcache_core::{Buffer, Cache, Config, SLICE, Store, Wait, now_ms};

/// The first shard's first word, after the header, the statistics and the locks.
const FIRST_MUTEX: u64 = 41 * 4096;
/// A thread id that no thread has.
const NOBODY: u32 = 0x3fff_fff0;

/// As every caller has it: opened again, if need be.
fn cache(store: &Store) -> &Cache<Mapped> {
    loop {
        match store.cache(now_ms()) {
            Ok(cache) => return cache,
            Err(_) => store.open_again(None).map(|_| ()).unwrap(),
        }
    }
}

#[test]
fn a_lock_that_nobody_holds_gets_a_new_file_and_both_processes_meet_in_it() {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let directory = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
    let base = directory.path().join("cache");
    let config = Config::of_size(1 << 20);
    let [one, other] = [(); 2].map(|()| Store::open(&base, &config).unwrap());
    let set = |store: &Store| {
        let cache = cache(store);
        let wait = Wait::UpTo(SLICE);
        cache.set(cache.key(b"k"), 0x80, b"v", 0, now_ms(), wait).is_ok()
    };
    assert!(set(&one));

    let file = std::fs::File::options().write(true).open(one.path()).unwrap();
    file.write_all_at(&NOBODY.to_ne_bytes(), FIRST_MUTEX).unwrap();
    assert!(!set(&one), "the lock is taken");
    let key = cache(&one).key(b"k");
    assert!(cache(&one).delete(key, now_ms()), "a delete needs no lock");

    let end = Instant::now() + Duration::from_secs(120);
    while !set(&one) {
        assert!(Instant::now() < end, "the file was never made anew");
    }
    assert!(one.notice().unwrap().contains("made anew"));
    let seen_by_the_other = || {
        let cache = cache(&other);
        cache.get(cache.key(b"k"), now_ms(), &mut Buffer::default()).is_some()
    };
    while !seen_by_the_other() {
        assert!(Instant::now() < end, "the other process never opened the new file");
    }
}
