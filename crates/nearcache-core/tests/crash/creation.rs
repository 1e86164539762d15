//! Deaths while the file is being made.
//!
//! Its stores are not counted: nobody sees the file before it is renamed, whole,
//! to its name. What can be left is a file under the other name, and a lock that
//! the kernel gives back.

use std::path::Path;
use std::time::{Duration, Instant};

use nearcache_core::{Config, LAYOUT_VERSION, Store};

use crate::support::{Child, End, NOW, Random, in_child, scratch};

fn config() -> Config {
    Config::of_size(8 << 20)
}

fn works(base: &Path) {
    let store = Store::open(base, &config()).unwrap();
    let cache = store.cache(NOW).unwrap();
    let key = cache.key(b"k");
    cache.set(key, 0x80, b"v", 0, NOW, crate::support::WAIT).unwrap();
    assert!(cache.contains(key, NOW));
    assert_eq!(cache.check(crate::support::WAIT), Vec::<String>::new());
}

pub fn killed_at_any_time() -> usize {
    const ROUNDS: usize = 150;
    let directory = scratch();
    // How long making it takes here, to kill within that.
    let start = Instant::now();
    assert_eq!(in_child(|| works(&directory.path().join("first"))), End::Finished);
    let whole = start.elapsed().as_nanos() as usize;
    let mut random = Random(1);
    for round in 0..ROUNDS {
        let base = directory.path().join(round.to_string());
        let start = Instant::now();
        let life = Duration::from_nanos(random.below(whole * 3 / 2) as u64);
        // Two at once: one makes it, one waits.
        let makers = [(); 2].map(|()| Child::start(|| works(&base)));
        while start.elapsed() < life {
            std::hint::spin_loop();
        }
        makers[0].kill();
        for maker in makers {
            let end = maker.wait();
            assert!(matches!(end, End::Finished | End::Killed(libc::SIGKILL)), "{end:?}");
        }
        assert_eq!(in_child(|| works(&base)), End::Finished, "round {round}");
        for suffix in ["lock", &format!("v{LAYOUT_VERSION}.seg")] {
            std::fs::remove_file(base.with_extension(suffix)).unwrap();
        }
    }
    ROUNDS
}

pub fn leftovers_are_no_obstacle() -> usize {
    let leftovers: [&[u8]; 3] = [b"", b"half a file", &[0; 1 << 20]];
    for (round, left) in leftovers.iter().enumerate() {
        let directory = scratch();
        let base = directory.path().join("cache");
        let fresh = base.with_extension(format!("v{LAYOUT_VERSION}.new"));
        std::fs::write(&fresh, left).unwrap();
        assert_eq!(in_child(|| works(&base)), End::Finished, "leftover {round}");
        assert!(!fresh.exists());
    }
    leftovers.len()
}
