//! A second SIGKILL, inside what the next owner does after the first.

use crate::kill::{Case, goes_on_working, killed, stores};
use crate::operations::{OPERATIONS, Operation};
use crate::support::{End, Held, WAIT, in_child, open, put_file, read, scratch};

use nearcache_core::Cache;

/// Deaths of the first process that are followed up: all of a short operation,
/// of a long one about so many.
const FIRST_DEATHS: usize = 12;
const SHORT: usize = 30;
/// The next owner's first stores are its recovery: all of them are tried, and of
/// the operation that follows a share.
const RECOVERY_STORES: u64 = 10;

pub fn before_every_store_of_the_recovery() -> usize {
    OPERATIONS.iter().map(twice).sum()
}

fn twice(operation: &Operation) -> usize {
    let directory = scratch();
    let case = Case::of(operation, directory.path());
    let base = directory.path().join("case");
    let dies_at = |kill_before| {
        put_file(&base, &case.file);
        killed(operation, &base, kill_before)
    };
    let mut all = stores(operation, &base, &case.file);
    // Before this one it had come to its end.
    all.pop();
    let step = if all.len() <= SHORT { 1 } else { all.len() / FIRST_DEATHS };
    let mut cases = 0;
    for first in all.into_iter().step_by(step) {
        assert!(dies_at(first));
        let file = std::fs::read(crate::support::data_file(&base)).unwrap();
        for second in (1..=RECOVERY_STORES).chain((RECOVERY_STORES + 1..).step_by(151)) {
            put_file(&base, &file);
            let end = in_child(|| {
                let cache = Cache::counting(&base, &(operation.config)(), second).unwrap();
                assert_eq!(cache.check(WAIT), Vec::<String>::new());
                (operation.run)(&cache);
            });
            let verified = in_child(|| verify(operation, &case, &base));
            let name = operation.name;
            assert_eq!(verified, End::Finished, "{name} before {first}, then {second}");
            cases += 1;
            match end {
                End::Killed(libc::SIGKILL) => {}
                End::Finished => break,
                other => panic!("{name} before {first}, then {second}: {other:?}"),
            }
        }
    }
    cases
}

fn verify(operation: &Operation, case: &Case, base: &std::path::Path) {
    let cache = open(base, &(operation.config)());
    let found = read(&cache, &case.keys);
    // A version is used up by a write that did not come to its end.
    let seen = |held: Option<&Held>| held.map(|h| (h.tag, h.value.clone(), h.expires_at_ms));
    for key in &case.keys {
        let now = seen(found.get(key));
        let right = [&case.before, &case.after, &case.after_again]
            .iter()
            .any(|contents| now == seen(contents.get(key)));
        let evicted = operation.evicts && now.is_none();
        assert!(right || evicted, "{key:?} holds {now:?}");
    }
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
    assert_eq!(read(&cache, &case.keys), found);
    goes_on_working(operation, &cache);
}

/// One process after another dies at the same place: what each leaves behind must
/// not add up.
pub fn at_the_same_store_again_and_again() -> usize {
    const TIMES: usize = 40;
    let mut cases = 0;
    for name in ["set a new key", "set and evict", "set a value of many pages"] {
        let operation = OPERATIONS.iter().find(|o| o.name == name).unwrap();
        let directory = scratch();
        let case = Case::of(operation, directory.path());
        let base = directory.path().join("case");
        for kill_before in [6, 7, 8, 9, 10, 11, 12, 40] {
            put_file(&base, &case.file);
            for _ in 0..TIMES {
                killed(operation, &base, kill_before);
            }
            let end = in_child(|| goes_on_working(operation, &open(&base, &(operation.config)())));
            assert_eq!(end, End::Finished, "{name} before {kill_before}");
            cases += 1;
        }
    }
    cases
}
