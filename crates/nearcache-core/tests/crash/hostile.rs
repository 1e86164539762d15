//! Damaged files: bits flipped, words and pages of noise, control words that
//! cannot be true. After any of it: one clear error, or misses. Never a value
//! that is not the key's, never a panic, a signal or a hang.
//!
//! Every case has a seed; a failure names it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use nearcache_core::memory::Mapped;
use nearcache_core::{Added, Buffer, Cache, Config, Store, Stored, TAG_INT, Wait};

use crate::support::{End, NOW, Random, data_file, in_child, put_file, scratch};

const CASES: u64 = 800;
/// Cases one child runs: it never unmaps a file.
const BATCH: u64 = 50;
/// Longest time for one case, on a machine that may stop for a while. A damaged lock makes every
/// write wait.
const LIMIT: Duration = Duration::from_secs(30);
const WORD: usize = 8;
const PAGE: usize = 4096;
const FIRST_SHARD: usize = 41 * PAGE;
/// Control words, page table, descriptors and index: where a shard's few words
/// that matter most are.
const SHARD_FRONT: usize = 64 * 1024;

/// `None`: deleted, evicted or never there.
type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

pub fn flipped_bits() -> usize {
    fuzz(|file, random| {
        for _ in 0..=random.below(3) {
            let byte = somewhere(file.len(), random);
            file[byte] ^= 1 << random.below(8);
        }
    })
}

pub fn noise() -> usize {
    fuzz(|file, random| match random.below(4) {
        0 => {
            for _ in 0..=random.below(64) {
                let at = somewhere(file.len(), random) / WORD * WORD;
                file[at..at + WORD].copy_from_slice(&random.next().to_le_bytes());
            }
        }
        1 => {
            // Words that were right elsewhere.
            for _ in 0..=random.below(16) {
                let [from, to] = [(); 2].map(|()| somewhere(file.len(), random) / WORD * WORD);
                file.copy_within(from..from + WORD, to);
            }
        }
        2 => {
            let at = somewhere(file.len(), random) / PAGE * PAGE;
            let fill = [0, 0xff, random.next() as u8][random.below(3)];
            file[at..at + PAGE].fill(fill);
        }
        _ => {
            let [from, to] = [(); 2].map(|()| somewhere(file.len(), random) / PAGE * PAGE);
            file.copy_within(from..from + PAGE, to);
        }
    })
}

pub fn noise_in_control_words() -> usize {
    fuzz(|file, random| {
        for _ in 0..=random.below(4) {
            let control = 16 + random.below(48);
            let at = FIRST_SHARD + control * WORD;
            let old = u64::from_le_bytes(file[at..at + WORD].try_into().unwrap());
            let new = match random.below(6) {
                0 => random.next(),
                1 => 1 << random.below(64),
                2 => u64::MAX - random.below(3) as u64,
                3 => old.wrapping_add(random.next() % 5000),
                4 => old.wrapping_sub(random.next() % 5000),
                _ => random.next() >> random.below(64),
            };
            file[at..at + WORD].copy_from_slice(&new.to_le_bytes());
        }
    })
}

/// A byte of the file, the parts that say where things are more often than others.
fn somewhere(len: usize, random: &mut Random) -> usize {
    match random.below(5) {
        0 => random.below(PAGE),
        1 => random.below(FIRST_SHARD),
        2 => FIRST_SHARD + random.below(64 * WORD),
        3 => FIRST_SHARD + random.below(SHARD_FRONT),
        _ => random.below(len),
    }
}

/// A file and what a reader of it may see.
struct Known {
    config: Config,
    file: Vec<u8>,
    model: Model,
}

fn known_files(directory: &Path) -> Vec<Known> {
    let dense = Config { mean_item_bytes: Some(64), ..Config::of_size((2 << 20) + PAGE as u64) };
    let sparse = Config { mean_item_bytes: Some(65536), ..Config::of_size(1 << 20) };
    vec![
        known_file(&directory.join("little"), Config::of_size(1 << 20), 300),
        known_file(&directory.join("full"), Config::of_size(1 << 20), 4000),
        known_file(&directory.join("dense"), dense, 9000),
        known_file(&directory.join("sparse"), sparse, 200),
    ]
}

/// Values set, overwritten, deleted and evicted.
fn known_file(base: &Path, config: Config, sets: u64) -> Known {
    let store = Store::open(base, &config).unwrap();
    let cache = store.cache(NOW).unwrap();
    let mut random = Random(sets);
    let mut keys = Model::new();
    for _ in 0..sets {
        let key = format!("key {}", random.below(sets as usize / 2)).into_bytes();
        let value = vec![random.next() as u8; random.below(700)];
        if random.below(10) == 0 {
            cache.delete(cache.key(&key), NOW);
        } else {
            set(cache, &key, &value);
        }
        keys.insert(key, None);
    }
    let file = std::fs::read(data_file(base)).unwrap();
    let model = keys.into_keys().map(|key| {
        let value = get(cache, &key);
        (key, value)
    });
    Known { model: model.collect(), config, file }
}

fn fuzz(damage: impl Fn(&mut Vec<u8>, &mut Random)) -> usize {
    let directory = scratch();
    let base = directory.path().join("case");
    let known = known_files(directory.path());
    let run = |seed: u64| {
        let mut random = Random(seed);
        let known = &known[random.below(known.len())];
        let mut file = known.file.clone();
        damage(&mut file, &mut random);
        put_file(&base, &file);
        let start = Instant::now();
        use_it(&base, known, &mut random);
        let took = start.elapsed();
        assert!(took < LIMIT, "took {took:?}");
    };
    for first in (0..CASES).step_by(BATCH as usize) {
        let seeds = first..first + BATCH;
        if in_child(|| seeds.clone().for_each(&run)) == End::Finished {
            continue;
        }
        for seed in seeds {
            let end = in_child(|| run(seed));
            assert_eq!(end, End::Finished, "seed {seed}");
        }
        panic!("one of the {BATCH} cases from seed {first} on failed, none alone");
    }
    CASES as usize
}

fn get(cache: &Cache<Mapped>, key: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = Buffer::default();
    let found = cache.get(cache.key(key), NOW, &mut buffer);
    found.map(|_| buffer.value().to_vec())
}

/// As a caller does it: what cannot be written must not stay.
fn set(cache: &Cache<Mapped>, key: &[u8], value: &[u8]) -> bool {
    let key = cache.key(key);
    match cache.set(key, 0x80, value, 0, NOW, Wait::Try) {
        Ok(Stored::Yes(_)) => true,
        Ok(Stored::TooLarge) => false,
        Err(_) => {
            cache.set_refused(key, NOW);
            false
        }
    }
}

/// Does everything a user may do with a file that may be damaged.
fn use_it(base: &Path, known: &Known, random: &mut Random) {
    let Ok(store) = Store::open(base, &known.config) else {
        return;
    };
    let cache = store.cache(NOW).unwrap();
    let mut model = known.model.clone();
    right_or_missing(cache, &model);
    for _ in 0..60 {
        let number = random.below(model.len());
        let key = model.keys().nth(number).unwrap().clone();
        operate(cache, &key, &mut model, random);
        right_or_missing_key(cache, &key, &model[&key]);
    }
    right_or_missing(cache, &model);
    cache.scan(0, usize::MAX, NOW, &mut |item| {
        assert!(model.contains_key(item.key), "a key that never was: {:?}", item.key);
    });
    cache.check(Wait::Try);
    cache.stats(NOW);
    let _ = cache.cull(3, Wait::Try);
    let token = cache.lock_acquire(b"name", 1000, NOW, Wait::Try);
    if let Ok(Some(token)) = token {
        let _ = cache.lock_release(b"name", token, NOW, Wait::Try);
    }
    right_or_missing(cache, &model);
    if cache.clear(Wait::Try).is_ok() {
        for key in model.keys() {
            assert_eq!(get(cache, key), None, "after clear");
        }
    }
    // Far enough to go round the rings.
    for n in 0..1500_u32 {
        let value = vec![n as u8; random.below(1500)];
        set(cache, &n.to_le_bytes(), &value);
        right_or_missing_key(cache, &n.to_le_bytes(), &Some(value));
    }
    cache.check(Wait::Try);
}

fn operate(cache: &Cache<Mapped>, key: &[u8], model: &mut Model, random: &mut Random) {
    let value = vec![random.next() as u8; random.below(3000)];
    let hashed = cache.key(key);
    match random.below(7) {
        0 => {
            cache.delete(hashed, NOW);
            model.insert(key.into(), None);
        }
        1 => {
            if let Ok(Added::Stored(_)) = cache.add(hashed, 0x80, &value, 0, NOW, Wait::Try) {
                model.insert(key.into(), Some(value));
            }
        }
        2 => {
            let number = 5_i64.to_le_bytes();
            let stored = cache.set(hashed, TAG_INT, &number, 0, NOW, Wait::Try);
            if stored.is_err() {
                cache.set_refused(hashed, NOW);
            }
            let after = match cache.incr(hashed, 2, NOW, Wait::Try) {
                Ok(nearcache_core::Incr::Value(sum)) => {
                    assert_eq!(sum, 7);
                    7_i64
                }
                _ => 5,
            };
            model.insert(key.into(), Some(after.to_le_bytes().to_vec()));
        }
        3 => {
            let _ = cache.touch(hashed, NOW + 1000, NOW, Wait::Try);
            let (size, mut buffer) = (random.below(100), Buffer::default());
            if cache.head(hashed, size, NOW, &mut buffer).is_some() {
                assert!(buffer.value().len() < size + 8, "no more than was copied");
            }
            let _ = cache.touch_head(hashed, NOW + 1000, size, NOW, Wait::Try, &mut buffer);
        }
        4 => {
            if let Some(found) = cache.get(hashed, NOW, &mut Buffer::default())
                && cache.cas(hashed, 0x80, &value, found.version, 0, NOW, Wait::Try) == Ok(true)
            {
                model.insert(key.into(), Some(value));
            }
        }
        _ => {
            let stored = set(cache, key, &value);
            model.insert(key.into(), stored.then_some(value));
        }
    }
}

fn right_or_missing(cache: &Cache<Mapped>, model: &Model) {
    for (key, right) in model {
        right_or_missing_key(cache, key, right);
    }
}

fn right_or_missing_key(cache: &Cache<Mapped>, key: &[u8], right: &Option<Vec<u8>>) {
    if let Some(value) = get(cache, key) {
        assert_eq!(Some(&value), right.as_ref(), "{}", String::from_utf8_lossy(key));
    }
}
