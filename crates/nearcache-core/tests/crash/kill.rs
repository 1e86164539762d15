//! SIGKILL before every single store into shared memory, of every operation.
//!
//! SIGKILL is precise: stores before it are visible to all, later ones never
//! happen. So killing a process before its k-th store, for every k, leaves every
//! state that a death can leave. After each: every key holds its old or its new
//! value, nothing hangs, the file is sound, and the next owner carries on.

use std::collections::BTreeSet;
use std::path::Path;

use nearcache_core::Cache;

use crate::operations::{OPERATIONS, Operation, set};
use crate::support::{
    Contents, End, NOW, WAIT, data_file, get, in_child, keys, open, put_file, read, scratch, stat,
};

/// What an operation makes of its prepared file.
pub struct Case {
    pub file: Vec<u8>,
    pub keys: BTreeSet<Vec<u8>>,
    pub before: Contents,
    pub after: Contents,
    pub after_again: Contents,
    pub owner_deaths: u64,
}

impl Case {
    pub fn of(operation: &Operation, directory: &Path) -> Self {
        let config = (operation.config)();
        let file = operation.prepared(&directory.join("prepared"));
        let base = directory.join("undisturbed");
        put_file(&base, &file);
        let cache = open(&base, &config);
        let mut keys: BTreeSet<_> = keys(&cache).into_iter().collect();
        keys.extend(operation.new_keys.iter().map(|key| key.to_vec()));
        let before = read(&cache, &keys);
        let owner_deaths = stat(&cache, "owner_deaths");
        // Reading counts uses, which the cleaner looks at: begin again.
        put_file(&base, &file);
        let cache = open(&base, &config);
        (operation.run)(&cache);
        let after = read(&cache, &keys);
        (operation.run)(&cache);
        let after_again = read(&cache, &keys);
        assert_eq!(cache.check(WAIT), Vec::<String>::new());
        Self { file, keys, before, after, after_again, owner_deaths }
    }
}

/// Runs an operation on the file at `base`, killed before its k-th store. False
/// when it came to its end before that.
pub fn killed(operation: &Operation, base: &Path, kill_before: u64) -> bool {
    let end = in_child(|| {
        let cache = Cache::counting(base, &(operation.config)(), kill_before).unwrap();
        (operation.run)(&cache);
    });
    match end {
        End::Finished => false,
        End::Killed(libc::SIGKILL) => true,
        other => panic!("{} before store {kill_before}: {other:?}", operation.name),
    }
}

/// The stores to be killed before: all, up to a number that only the copying of
/// long records reaches; then the first, the last and every so many.
pub fn stores(operation: &Operation, base: &Path, file: &[u8]) -> Vec<u64> {
    const ALL: u64 = 320;
    let finishes_before = |store: u64| {
        put_file(base, file);
        !killed(operation, base, store)
    };
    let mut end = 1;
    while !finishes_before(end) {
        end *= 2;
    }
    let mut begin = end / 2;
    while begin + 1 < end {
        let middle = begin.midpoint(end);
        match finishes_before(middle) {
            true => end = middle,
            false => begin = middle,
        }
    }
    // Some step that no page or record has a multiple of.
    let step = (end / (ALL / 2)) | 1;
    let tried = |store: &u64| {
        end <= ALL || *store < ALL / 4 || *store + ALL / 4 > end || store.is_multiple_of(step)
    };
    (1..=end).filter(tried).collect()
}

pub fn before_every_store() -> usize {
    OPERATIONS.iter().map(all_stores_of).sum()
}

fn all_stores_of(operation: &Operation) -> usize {
    let directory = scratch();
    let case = Case::of(operation, directory.path());
    let base = directory.path().join("case");
    let stores = stores(operation, &base, &case.file);
    let mut held = false;
    for kill_before in &stores {
        put_file(&base, &case.file);
        killed(operation, &base, *kill_before);
        let owner_died = owner_died_in_the_lock(&base);
        held |= owner_died;
        let end = in_child(|| verify(operation, &case, &base, owner_died));
        let name = operation.name;
        assert_eq!(end, End::Finished, "{name} before store {kill_before}");
    }
    let lock_free =
        ["delete", "get", "take a slot of counters", "refuse a value that is too large"];
    assert_eq!(held, !lock_free.contains(&operation.name), "{}", operation.name);
    stores.len()
}

/// What the kernel has written into the mutex of the first shard.
fn owner_died_in_the_lock(base: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    const FIRST_SHARD: u64 = 41 * 4096;
    // Of <linux/futex.h>.
    const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
    let mut word = [0; 4];
    let file = std::fs::File::open(data_file(base)).unwrap();
    file.read_exact_at(&mut word, FIRST_SHARD).unwrap();
    u32::from_ne_bytes(word) & FUTEX_OWNER_DIED != 0
}

fn verify(operation: &Operation, case: &Case, base: &Path, owner_died: bool) {
    let cache = open(base, &(operation.config)());
    let found = read(&cache, &case.keys);
    for key in &case.keys {
        let [old, new, now] = [&case.before, &case.after, &found].map(|all| all.get(key));
        // Evicted to make room for its own new value.
        let made_room = operation.evicts && now.is_none();
        assert!(
            now == old || now == new || made_room,
            "{key:?} holds {now:?}, not {old:?} or {new:?}"
        );
    }
    // The next owner's recovery changes nothing that can be seen, and counts anew.
    assert_eq!(cache.touch(cache.key(b"not there"), 0, NOW, WAIT), Ok(false));
    let deaths = stat(&cache, "owner_deaths") - case.owner_deaths;
    assert_eq!(deaths, u64::from(owner_died));
    let drift = cache.len().abs_diff(keys(&cache).len() as u64);
    // A death outside the lock is told to nobody.
    assert!(drift <= u64::from(!owner_died), "{drift} items too many or too few");
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
    assert_eq!(read(&cache, &case.keys), found);
    assert_eq!(stat(&cache, "shard_resets"), 0);
    goes_on_working(operation, &cache);
}

/// The cache is as good as new.
pub fn goes_on_working(operation: &Operation, cache: &Cache<nearcache_core::memory::Counting>) {
    (operation.run)(cache);
    for n in 0..100_u8 {
        let value = vec![n; 500 + usize::from(n)];
        set(cache, &[b'l', n], &value);
        let held = get(cache, &[b'l', n]);
        assert_eq!(held.map(|held| held.value), Some(value), "set {n} afterwards");
    }
    assert_eq!(stat(cache, "no_room"), 0);
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}
