//! Every operation that writes, and a file prepared for each to work on.

use nearcache_core::memory::Counting;
use nearcache_core::{Buffer, Cache, Config, TAG_INT};
use std::path::Path;

use crate::support::{NOW, WAIT, data_file, open, put_file, stat};

type Victim = Cache<Counting>;

/// An operation to be killed in.
pub struct Operation {
    pub name: &'static str,
    pub config: fn() -> Config,
    pub prepare: Prepare,
    pub run: fn(&Victim),
    /// Keys it may write, beside those the prepared file has.
    pub new_keys: &'static [&'static [u8]],
    /// Whether it makes room, so that a second run may evict something else.
    pub evicts: bool,
}

/// How the file is made.
pub enum Prepare {
    /// By running this.
    By(fn(&Victim)),
    /// By setting numbered keys until this counter moves; what was there before
    /// that last step is the file. So the next set of a value of this length
    /// moves the counter.
    Until { step: fn(&Victim, u32), moves: &'static str },
}

pub fn set(cache: &Victim, key: &[u8], value: &[u8]) {
    cache.set(cache.key(key), 0x80, value, 0, NOW, WAIT).unwrap();
}

fn small() -> Config {
    Config::of_size(1 << 20)
}

/// Two buckets, so that fifteen keys do not fit.
fn two_buckets() -> Config {
    Config { mean_item_bytes: Some(65536), ..small() }
}

fn some_keys(cache: &Victim) {
    for n in 0..20_u8 {
        set(cache, &[b'o', n], &[n; 60]);
    }
    cache.set(cache.key(b"k"), 0x81, b"the old value", NOW + 1000, NOW, WAIT).unwrap();
    let number = 41_i64.to_le_bytes();
    cache.set(cache.key(b"n"), TAG_INT, &number, NOW + 1000, NOW, WAIT).unwrap();
    // Its time is over, its record is there.
    cache.set(cache.key(b"x"), 0x80, b"over", NOW, NOW - 1, WAIT).unwrap();
}

fn many_keys(cache: &Victim) {
    some_keys(cache);
    for n in 0..200_u32 {
        set(cache, &n.to_le_bytes(), &[n as u8; 300]);
    }
}

/// Records of a few to a page.
fn fill_step(cache: &Victim, n: u32) {
    set(cache, &n.to_be_bytes(), &[n as u8; 900]);
}

/// Some of it is used, so the cleaner keeps that.
fn fill_and_use_step(cache: &Victim, n: u32) {
    fill_step(cache, n);
    let uses = if n.is_multiple_of(3) { 3 } else { 0 };
    for _ in 0..uses {
        let _ = cache.get(cache.key(&n.to_be_bytes()), NOW, &mut Buffer::default());
    }
}

/// Few live records among much garbage, so the cleaner packs.
fn garbage_step(cache: &Victim, n: u32) {
    let key = if n < 300 { n } else { 1 };
    set(cache, &key.to_be_bytes(), &[n as u8; 900]);
}

fn large_step(cache: &Victim, n: u32) {
    set(cache, &n.to_be_bytes(), &[n as u8; 40_000]);
}

const FRESH: &[&[u8]] = &[b"fresh"];

pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "set a new key",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| set(cache, b"fresh", b"a new value"),
        new_keys: FRESH,
        evicts: false,
    },
    Operation {
        name: "set over a value",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| set(cache, b"k", b"another value, and a longer one"),
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "set over an expired value",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| set(cache, b"x", b"alive"),
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "set and evict",
        config: small,
        prepare: Prepare::Until { step: fill_step, moves: "evicted_small" },
        run: |cache| set(cache, b"fresh", &[7; 900]),
        new_keys: FRESH,
        evicts: true,
    },
    Operation {
        name: "set and promote",
        config: small,
        prepare: Prepare::Until { step: fill_and_use_step, moves: "promoted" },
        run: |cache| set(cache, b"fresh", &[7; 900]),
        new_keys: FRESH,
        evicts: true,
    },
    Operation {
        name: "set and pack garbage",
        config: small,
        prepare: Prepare::Until { step: garbage_step, moves: "copied_words" },
        run: |cache| set(cache, &1_u32.to_be_bytes(), &[7; 900]),
        new_keys: &[],
        evicts: true,
    },
    Operation {
        name: "set a value of many pages",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| set(cache, b"fresh", &[9; 40_000]),
        new_keys: FRESH,
        evicts: false,
    },
    Operation {
        name: "set a value of many pages and make room",
        config: small,
        prepare: Prepare::Until { step: large_step, moves: "evicted_small" },
        run: |cache| set(cache, b"fresh", &[9; 40_000]),
        new_keys: FRESH,
        evicts: true,
    },
    Operation {
        name: "set into a full index",
        config: two_buckets,
        prepare: Prepare::Until {
            step: |cache, n| set(cache, &n.to_be_bytes(), b"small"),
            moves: "evicted_index",
        },
        run: |cache| set(cache, b"fresh", b"small"),
        new_keys: FRESH,
        evicts: true,
    },
    Operation {
        name: "refuse a value that is too large",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| set(cache, b"k", &vec![1; cache.max_item_bytes() as usize + 1]),
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "add a key",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| {
            let _ = cache.add(cache.key(b"fresh"), 0x80, b"added", 0, NOW, WAIT);
            let _ = cache.add(cache.key(b"k"), 0x80, b"not added", 0, NOW, WAIT);
        },
        new_keys: FRESH,
        evicts: false,
    },
    Operation {
        name: "delete",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| {
            cache.delete(cache.key(b"k"), NOW);
        },
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "touch",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| {
            let _ = cache.touch(cache.key(b"k"), NOW + 5000, NOW, WAIT);
        },
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "incr",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| {
            let _ = cache.incr(cache.key(b"n"), 1, NOW, WAIT);
        },
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "cas",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| {
            let key = cache.key(b"k");
            if let Some(found) = cache.get(key, NOW, &mut Buffer::default()) {
                let _ = cache.cas(key, 0x80, b"swapped", found.version, 0, NOW, WAIT);
            }
        },
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "get and set",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| {
            let mut buffer = Buffer::default();
            let key = cache.key(b"k");
            let _ = cache.get_and_set(key, 0x80, b"swapped", 0, NOW, WAIT, &mut buffer);
        },
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "get",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| {
            let _ = cache.get(cache.key(b"k"), NOW, &mut Buffer::default());
        },
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "clear",
        config: small,
        prepare: Prepare::By(many_keys),
        run: |cache| {
            let _ = cache.clear(WAIT);
        },
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "cull",
        config: small,
        prepare: Prepare::By(many_keys),
        run: |cache| {
            let _ = cache.cull(5, WAIT);
        },
        new_keys: &[],
        evicts: true,
    },
    Operation {
        name: "check",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| {
            let _ = cache.check(WAIT);
        },
        new_keys: &[],
        evicts: false,
    },
    Operation {
        name: "take a slot of counters",
        config: small,
        prepare: Prepare::By(some_keys),
        run: |cache| cache.enter_process(),
        new_keys: &[],
        evicts: false,
    },
];

impl Operation {
    /// The bytes of the prepared file.
    pub fn prepared(&self, base: &Path) -> Vec<u8> {
        let config = (self.config)();
        let cache = open(base, &config);
        let bytes = |base| std::fs::read(data_file(base)).unwrap();
        let (step, moves) = match &self.prepare {
            Prepare::By(prepare) => {
                prepare(&cache);
                return bytes(base);
            }
            Prepare::Until { step, moves } => (step, moves),
        };
        // Once to count the steps, and once, with the same seed, to do all but one.
        let empty = bytes(base);
        let still = stat(&cache, moves);
        let steps = (0..100_000).take_while(|n| {
            step(&cache, *n);
            stat(&cache, moves) == still
        });
        let steps = steps.count() as u32;
        assert_ne!(steps, 100_000, "{}: {moves} never moved", self.name);
        let again = base.with_extension("again");
        put_file(&again, &empty);
        let cache = open(&again, &config);
        (0..steps).for_each(|n| step(&cache, n));
        assert_eq!(stat(&cache, moves), still);
        bytes(&again)
    }
}
