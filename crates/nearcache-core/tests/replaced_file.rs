//! The file is replaced, or removed, under those who use it: never two files at once.
//!
//! Here the stores are one process's, which is no less: each has a mapping and looks by itself.
//! Their clocks stand still unless a test moves them, so that nobody looks by the way.

use std::path::Path;

use nearcache_core::memory::Mapped;
use nearcache_core::{Buffer, Cache, Config, SLICE, Store, Wait};

const SIZE_BYTES: u64 = 1 << 20;
const WAIT: Wait = Wait::UpTo(SLICE);
/// Any operation so much later than the last look looks again.
const LOOKS_AFTER_MS: u64 = 1000;
/// The header's word that says that the file was replaced.
const REPLACED: u64 = 20 * 8;

struct Base {
    directory: tempfile::TempDir,
    now_ms: u64,
}

impl Base {
    fn new() -> Self {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
        Self { directory, now_ms: nearcache_core::now_ms() }
    }

    fn open(&self) -> Store {
        let base = self.directory.path().join("cache");
        let store = Store::open(&base, &Config::of_size(SIZE_BYTES)).unwrap();
        cache(&store, self.now_ms);
        store
    }

    fn remove_all(&self) {
        for each in std::fs::read_dir(self.directory.path()).unwrap() {
            std::fs::remove_file(each.unwrap().path()).unwrap();
        }
    }
}

/// As every caller has it: opened again, if need be.
fn cache(store: &Store, now_ms: u64) -> &Cache<Mapped> {
    loop {
        match store.cache(now_ms) {
            Ok(cache) => return cache,
            Err(_) => store.open_again(None).map(|_| ()).unwrap(),
        }
    }
}

fn set(store: &Store, value: &[u8], now_ms: u64) -> bool {
    let cache = cache(store, now_ms);
    cache.set(cache.key(b"k"), 0x80, value, 0, now_ms, WAIT).is_ok()
}

fn get(store: &Store, now_ms: u64) -> Option<Vec<u8>> {
    let (cache, mut buffer) = (cache(store, now_ms), Buffer::default());
    cache.get(cache.key(b"k"), now_ms, &mut buffer).map(|_| buffer.value().to_vec())
}

/// Asks until the store has gone over to another file.
fn until_gone_over(store: &Store, mut now_ms: u64) {
    let before = store.epoch();
    while store.epoch() == before {
        now_ms += LOOKS_AFTER_MS;
        cache(store, now_ms);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn check_empty(path: &Path) {
    let left: Vec<_> = std::fs::read_dir(path).unwrap().map(|each| each.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn who_makes_the_new_file_is_answered_from_it_only_after_nobody_is_from_the_old_one() {
    let base = Base::new();
    let [one, other] = [base.open(), base.open()];
    assert!(set(&one, b"old", base.now_ms));
    assert_eq!(get(&other, base.now_ms).as_deref(), Some(b"old".as_slice()));
    base.remove_all();
    assert_eq!(get(&other, base.now_ms).as_deref(), Some(b"old".as_slice()), "nobody looked yet");

    until_gone_over(&one, base.now_ms);
    let before = other.epoch();
    assert_eq!(get(&other, base.now_ms), None);
    assert!(other.epoch() > before);
    assert!(set(&one, b"new", base.now_ms));
    assert_eq!(get(&other, base.now_ms).as_deref(), Some(b"new".as_slice()));
    assert!(set(&other, b"newer", base.now_ms));
    assert_eq!(get(&one, base.now_ms).as_deref(), Some(b"newer".as_slice()));
    check_empty(base.directory.path());
}

#[test]
fn the_old_file_answers_until_the_new_one_is_whole() {
    let base = Base::new();
    let [one, other] = [base.open(), base.open()];
    assert!(set(&one, b"old", base.now_ms));
    base.remove_all();
    // Where the directory should be there is a file: nothing can be made.
    let [at, aside] =
        [base.directory.path().to_owned(), base.directory.path().with_extension("aside")];
    std::fs::rename(&at, &aside).unwrap();
    std::fs::write(&at, b"").unwrap();
    for step in 1..5 {
        cache(&one, base.now_ms + step * LOOKS_AFTER_MS);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(get(&one, base.now_ms).as_deref(), Some(b"old".as_slice()));
        assert_eq!(get(&other, base.now_ms).as_deref(), Some(b"old".as_slice()));
    }
    std::fs::remove_file(&at).unwrap();
    std::fs::rename(&aside, &at).unwrap();
    until_gone_over(&one, base.now_ms + 10 * LOOKS_AFTER_MS);
    assert_eq!(get(&other, base.now_ms), None);
}

#[test]
fn a_file_made_by_somebody_who_cannot_reach_the_old_one_is_found_at_the_next_look_of_anybody() {
    let base = Base::new();
    let [one, other, third] = [base.open(), base.open(), base.open()];
    assert!(set(&one, b"old", base.now_ms));
    base.remove_all();
    let fresh = base.open();
    assert!(set(&fresh, b"new", base.now_ms));
    assert_eq!(get(&one, base.now_ms + LOOKS_AFTER_MS - 1).as_deref(), Some(b"old".as_slice()));
    for store in [&one, &other, &third] {
        let looks_at = if std::ptr::eq(store, &one) { LOOKS_AFTER_MS } else { 0 };
        assert_eq!(get(store, base.now_ms + looks_at).as_deref(), Some(b"new".as_slice()));
    }
}

#[test]
fn a_replaced_file_that_still_has_the_name_is_left_by_all() {
    let base = Base::new();
    let [one, other] = [base.open(), base.open()];
    assert!(set(&one, b"old", base.now_ms));
    // As by one that ended between the mark and the new name.
    let file = std::fs::File::options().write(true).open(one.path()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &1_u64.to_ne_bytes(), REPLACED).unwrap();
    assert!(set(&one, b"new", base.now_ms));
    for store in [&one, &other, &base.open()] {
        assert_eq!(get(store, base.now_ms).as_deref(), Some(b"new".as_slice()));
    }
}

/// Who has read a value for seconds and then swaps it may find another file.
#[test]
fn a_version_of_one_file_is_none_of_the_next() {
    let base = Base::new();
    let version = |store: &Store| {
        let (cache, mut buffer) = (cache(store, base.now_ms), Buffer::default());
        cache.get(cache.key(b"k"), base.now_ms, &mut buffer).unwrap().version
    };
    let versions = [(); 2].map(|()| {
        let store = base.open();
        assert!(set(&store, b"v", base.now_ms));
        let version = version(&store);
        base.remove_all();
        version
    });
    assert_ne!(versions[0], versions[1]);
}

#[test]
fn a_file_under_the_name_that_is_no_cache_makes_nobody_leave() {
    let base = Base::new();
    let [one, other] = [base.open(), base.open()];
    assert!(set(&one, b"old", base.now_ms));
    std::fs::remove_file(one.path()).unwrap();
    let private: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::write(one.path(), b"something else").unwrap();
    std::fs::set_permissions(one.path(), private).unwrap();
    for step in 1..4 {
        let now_ms = base.now_ms + step * LOOKS_AFTER_MS;
        assert_eq!(get(&one, now_ms).as_deref(), Some(b"old".as_slice()));
        assert_eq!(get(&other, now_ms).as_deref(), Some(b"old".as_slice()));
    }
}
