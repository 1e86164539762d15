//! SIGKILL before every store, and every wake-up, of waiting for a named lock.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nearcache_core::memory::{Counting, Mem};
use nearcache_core::{Cache, Config, Turn, Wait, Waiting};

use crate::support::{End, NOW, WAIT, data_file, in_child, open, put_file, scratch, stat};

const TTL_MS: u64 = 1_000_000;
const KEEP_MS: u64 = 1_000_000;
/// Of the lock that this process, which lives, holds.
static TOKEN: AtomicU64 = AtomicU64::new(0);

fn held_token() -> u64 {
    TOKEN.load(Relaxed)
}

type Victim = Cache<Counting>;

type Step = (&'static str, fn(&Victim));

const STEPS: &[Step] = &[
    ("join", |cache| {
        wait_in(cache, b"queued", 0);
    }),
    ("join and ask again", |cache| {
        let ticket = wait_in(cache, b"queued", 0);
        assert_eq!(wait_in(cache, b"queued", ticket), ticket);
    }),
    ("join and leave", |cache| {
        let ticket = wait_in(cache, b"queued", 0);
        cache.lock_leave(b"queued", ticket, NOW, WAIT).unwrap();
    }),
    ("hand over, past a place of the dead", |cache| {
        assert_eq!(cache.lock_release(b"queued", held_token(), NOW, WAIT), Ok(true));
    }),
    ("take without a queue", |cache| {
        take(cache, b"free", 0);
    }),
    ("take from the queue", |cache| {
        let token = take(cache, b"free", 0);
        let ticket = wait_in(cache, b"free", 0);
        assert_eq!(cache.lock_release(b"free", token, NOW, WAIT), Ok(true));
        assert!(take(cache, b"free", ticket) > token);
    }),
    ("sleep until nobody comes", |cache| {
        let Turn::Wait(waiting) = ask(cache, b"queued", 0) else { panic!() };
        cache.lock_sleep(&waiting, std::time::Duration::from_millis(1));
        wait_in(cache, b"queued", waiting.ticket);
    }),
];

fn ask<M: Mem>(cache: &Cache<M>, name: &[u8], ticket: u64) -> Turn {
    cache.lock_ask(name, ticket, TTL_MS, KEEP_MS, NOW, WAIT).unwrap()
}

fn wait_in<M: Mem>(cache: &Cache<M>, name: &[u8], ticket: u64) -> u64 {
    match ask(cache, name, ticket) {
        Turn::Wait(Waiting { ticket, .. }) => ticket,
        Turn::Taken(token) => panic!("taken under token {token}"),
    }
}

fn take<M: Mem>(cache: &Cache<M>, name: &[u8], ticket: u64) -> u64 {
    match ask(cache, name, ticket) {
        Turn::Taken(token) => token,
        Turn::Wait(waiting) => panic!("{waiting:?}"),
    }
}

/// The lock "queued" is held by this process; a dead one waits for it, and then this one,
/// whose ticket is returned.
fn prepared(base: &Path, config: &Config) -> u64 {
    let cache = open(base, config);
    let token = cache.lock_acquire(b"queued", TTL_MS, NOW, WAIT).unwrap();
    TOKEN.store(token.expect("a free lock"), Relaxed);
    let end = in_child(|| {
        wait_in(&open(base, config), b"queued", 0);
    });
    assert_eq!(end, End::Finished);
    assert_eq!(stat(&cache, "lock_waiters"), 0, "the dead do not wait");
    wait_in(&cache, b"queued", 0)
}

pub fn before_every_store() -> usize {
    let directory = scratch();
    let config = Config::of_size(1 << 20);
    let ticket = prepared(&directory.path().join("prepared"), &config);
    let file = std::fs::read(data_file(&directory.path().join("prepared"))).unwrap();
    let base = directory.path().join("case");
    let mut cases = 0;
    for (name, step) in STEPS {
        for kill_before in 1.. {
            put_file(&base, &file);
            let end = in_child(|| step(&Cache::counting(&base, &config, kill_before).unwrap()));
            verify(&base, &config, ticket, &format!("{name} before store {kill_before}"));
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

fn verify(base: &Path, config: &Config, ticket: u64, case: &str) {
    let cache = open(base, config);
    assert_eq!(cache.check(WAIT), Vec::<String>::new(), "{case}");
    // This process is first: the victim came later, and who came before is dead.
    assert_eq!(cache.lock_acquire(b"queued", TTL_MS, NOW, Wait::Try), Ok(None), "{case}");
    let taken = match ask(&cache, b"queued", ticket) {
        Turn::Taken(token) => token,
        Turn::Wait(waiting) => {
            assert_eq!(waiting.ticket, ticket, "{case}");
            assert_eq!(cache.lock_release(b"queued", held_token(), NOW, WAIT), Ok(true), "{case}");
            take(&cache, b"queued", ticket)
        }
    };
    assert!(taken > held_token(), "{case}");
    assert_eq!(stat(&cache, "lock_waiters"), 0, "{case}");
    // Whatever the victim held or waited for is free.
    assert_eq!(cache.lock_release(b"queued", taken, NOW, WAIT), Ok(true), "{case}");
    for name in [b"queued".as_slice(), b"free"] {
        let token = cache.lock_acquire(name, TTL_MS, NOW, WAIT).unwrap();
        assert!(token.is_some_and(|token| token > taken), "{case}");
    }
    assert_eq!(stat(&cache, "locks_held"), 2, "{case}");
    assert_eq!(cache.check(WAIT), Vec::<String>::new(), "{case}");
}
