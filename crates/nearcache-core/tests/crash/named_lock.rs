//! SIGKILL before every store of taking, renewing and releasing a named lock.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nearcache_core::{Cache, Config};

use crate::support::{End, NOW, WAIT, data_file, in_child, open, put_file, scratch, stat};

const TTL_MS: u64 = 1_000_000;
/// Of the lock that this process, which lives, holds.
static TOKEN: AtomicU64 = AtomicU64::new(0);

fn held_token() -> u64 {
    TOKEN.load(Relaxed)
}

type Victim = Cache<nearcache_core::memory::Counting>;

type Step = (&'static str, fn(&Victim));

const STEPS: &[Step] = &[
    ("acquire", |cache| {
        let token = cache.lock_acquire(b"new", TTL_MS, NOW, WAIT).unwrap();
        assert!(token.is_some_and(|token| token > held_token()));
    }),
    ("renew", |cache| {
        assert_eq!(cache.lock_renew(b"held", held_token(), 2 * TTL_MS, NOW, WAIT), Ok(true));
    }),
    ("release", |cache| {
        assert_eq!(cache.lock_release(b"held", held_token(), NOW, WAIT), Ok(true));
    }),
];

pub fn before_every_store() -> usize {
    let directory = scratch();
    let config = Config::of_size(1 << 20);
    let cache = open(&directory.path().join("prepared"), &config);
    let take = |name: &[u8]| cache.lock_acquire(name, TTL_MS, NOW, WAIT).unwrap().unwrap();
    let free = take(b"free");
    TOKEN.store(take(b"held"), Relaxed);
    assert_eq!(cache.lock_release(b"free", free, NOW, WAIT), Ok(true));
    let file = std::fs::read(data_file(&directory.path().join("prepared"))).unwrap();
    let base = directory.path().join("case");
    let mut cases = 0;
    for (name, step) in STEPS {
        for kill_before in 1.. {
            put_file(&base, &file);
            let end = in_child(|| step(&Cache::counting(&base, &config, kill_before).unwrap()));
            let verified = in_child(|| verify(&base, &config, name));
            assert_eq!(verified, End::Finished, "{name} before store {kill_before}");
            cases += 1;
            match end {
                End::Killed(libc::SIGKILL) => {}
                End::Finished => break,
                other => panic!("{name} before store {kill_before}: {other:?}"),
            }
        }
    }
    cases
}

fn verify(base: &Path, config: &Config, step: &str) {
    let cache = open(base, config);
    // The holder is gone, or never was.
    let token = cache.lock_acquire(b"new", TTL_MS, NOW, WAIT).unwrap();
    assert!(token.is_some_and(|token| token > held_token()), "{token:?}");
    assert_eq!(cache.lock_acquire(b"new", TTL_MS, NOW, WAIT), Ok(None));
    let held = cache.lock_acquire(b"held", TTL_MS, NOW, WAIT).unwrap();
    assert!(held.is_none() || step == "release", "held by a living process");
    assert_eq!(stat(&cache, "locks_held"), 2);
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}
