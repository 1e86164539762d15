//! Threads on one store, for a moment: no value is torn or another key's, and no
//! increment is lost. The values say what they are. Longer, and with processes
//! that die: the torture tests of the Python package.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nearcache_core::{Buffer, Cache, Config, Incr, Store, TAG_INT, Wait, memory::Mapped};

const NOW: u64 = 1_000_000;
const WAIT: Wait = Wait::UpTo(MINUTE);
const KEYS: u64 = 400;
const RUN: Duration = Duration::from_millis(1200);
const MINUTE: Duration = Duration::from_secs(60);
/// At least, however slow the machine is.
const HITS: u64 = 1000;

/// `key | sequence | length | filler | sum`, all little endian words.
fn describe(key: u64, sequence: u64) -> Vec<u8> {
    let fillers = (sequence.wrapping_mul(31) ^ key) % 300;
    let mut words = vec![key, sequence, fillers];
    words.extend((0..fillers).map(|n| n.wrapping_mul(key) ^ sequence));
    words.push(words.iter().fold(0, |sum: u64, word| sum.rotate_left(5) ^ word));
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The sequence of a value, which must be whole and its key's.
fn sequence_of(key: u64, value: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(value[at * 8..][..8].try_into().unwrap());
    let sequence = word(1);
    assert_eq!(value, describe(key, sequence), "key {key}");
    sequence
}

fn store() -> (tempfile::TempDir, Store) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let directory = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
    // Small, so that everything is evicted, packed and written over all the time.
    let store = Store::open(&directory.path().join("cache"), &Config::of_size(1 << 20)).unwrap();
    (directory, store)
}

fn set(cache: &Cache<Mapped>, key: u64, sequence: u64) {
    let value = describe(key, sequence);
    let bytes = key.to_le_bytes();
    cache.set(cache.key(&bytes), 0x80, &value, 0, NOW, WAIT).unwrap();
}

#[test]
fn readers_see_whole_values_of_their_key_and_never_an_older_one() {
    let (_directory, store) = store();
    let cache = store.cache(NOW).unwrap();
    let (over, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            let over = &over;
            scope.spawn(move || {
                // One writer a key, so that its sequence only grows.
                for sequence in 1_u64.. {
                    let key = sequence.wrapping_mul(0x9e37_79b9) % (KEYS / 2) * 2 + writer;
                    match sequence % 17 {
                        0 => drop(cache.delete(cache.key(&key.to_le_bytes()), NOW)),
                        _ => set(cache, key, sequence),
                    }
                    if sequence % 5000 == 0 {
                        cache.clear(WAIT).unwrap();
                    }
                    if over.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut buffer = Buffer::default();
                let mut newest = vec![0; KEYS as usize];
                for turn in 0_u64.. {
                    let key = turn % KEYS;
                    if cache.get(cache.key(&key.to_le_bytes()), NOW, &mut buffer).is_some() {
                        let sequence = sequence_of(key, buffer.value());
                        assert!(sequence >= newest[key as usize], "an older value came back");
                        newest[key as usize] = sequence;
                        hits.fetch_add(1, Relaxed);
                    }
                    if over.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        let start = Instant::now();
        let enough = || start.elapsed() >= RUN && hits.load(Relaxed) > HITS;
        while !enough() && start.elapsed() < MINUTE {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        over.store(true, Relaxed);
    });
    assert!(hits.load(Relaxed) > HITS);
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}

#[test]
fn no_increment_is_lost() {
    const THREADS: i64 = 4;
    const EACH: i64 = 20_000;
    let (_directory, store) = store();
    let cache = store.cache(NOW).unwrap();
    let key = cache.key(b"counter");
    cache.set(key, TAG_INT, &0_i64.to_le_bytes(), 0, NOW, WAIT).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    assert!(matches!(cache.incr(key, 1, NOW, WAIT), Ok(Incr::Value(_))));
                }
            });
        }
    });
    assert_eq!(cache.incr(key, 0, NOW, WAIT), Ok(Incr::Value(THREADS * EACH)));
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}
