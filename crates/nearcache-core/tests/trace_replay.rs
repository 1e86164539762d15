//! Replays a real trace and prints the miss ratio beside published policies'.
//!
//! The trace (113,872 block requests of a virtual machine) is read from the
//! directory `NEARCACHE_SHARED`, or `../shared` beside the repository. Without it
//! the test says so and passes, unless CI is set.

use std::io::Write;
use std::path::PathBuf;

use nearcache_core::{Buffer, Cache, Config, Wait};

const WORKING_SET_BYTES: f64 = 3.6e9;
/// libCacheSim 0.3.5 on this trace at 0.1, 1 and 10 % of the working set.
const PUBLISHED: [(&str, [f64; 3]); 6] = [
    ("LRU", [0.846, 0.831, 0.751]),
    ("Clock", [0.843, 0.830, 0.750]),
    ("SIEVE", [0.830, 0.821, 0.712]),
    ("W-TinyLFU", [0.831, 0.821, 0.702]),
    ("S3-FIFO", [0.829, 0.820, 0.671]),
    ("Belady", [0.822, 0.783, 0.591]),
];

fn trace() -> Option<Vec<u8>> {
    let shared = std::env::var_os("NEARCACHE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    std::fs::read(shared.join("data/cloudphysics.oracleGeneral.bin")).ok()
}

/// Misses by requests; every miss is filled.
fn miss_ratio(trace: &[u8], size_bytes: u64) -> f64 {
    let cache = Cache::boxed(&Config::of_size(size_bytes)).unwrap();
    let mut buffer = Buffer::default();
    let value = vec![0; 16 << 20];
    let (mut requests, mut misses) = (0_u64, 0_u64);
    // u32 time, u64 object, u32 size, i64 next access; little endian.
    for record in trace.chunks_exact(24) {
        let key = cache.key(&record[4..12]);
        let size = u32::from_le_bytes(record[12..16].try_into().unwrap()) as usize;
        requests += 1;
        if cache.get(key, 1, &mut buffer).is_none() {
            misses += 1;
            cache.set(key, 0x80, &value[..size], 0, 1, Wait::Try).unwrap();
        }
    }
    assert_eq!(cache.check(Wait::Try), Vec::<String>::new());
    misses as f64 / requests as f64
}

#[test]
fn the_miss_ratio_is_that_of_s3_fifo() {
    let Some(trace) = trace() else {
        assert!(std::env::var_os("CI").is_none(), "the trace is missing: set NEARCACHE_SHARED");
        eprintln!("SKIPPED: no trace; set NEARCACHE_SHARED to the directory that has data/");
        return;
    };
    let ours =
        [0.001, 0.01, 0.1].map(|share| miss_ratio(&trace, (WORKING_SET_BYTES * share) as u64));
    // Past the test runner's capture: the table is what the test is for.
    let mut out = std::io::stderr();
    writeln!(out, "request miss ratio at      0.1 %     1 %    10 % of 3.6 GB").unwrap();
    for (name, ratios) in PUBLISHED.iter().chain([&("nearcache", ours)]) {
        let [low, middle, high] = ratios;
        writeln!(out, "{name:<25} {low:>6.3}  {middle:>6.3}  {high:>6.3}").unwrap();
    }
    let published = PUBLISHED[4].1;
    // 0.01 until the border adapted: docs/design-decisions.md has what that cost here, and gained.
    assert!((ours[2] - published[2]).abs() <= 0.0125, "S3-FIFO has {}", published[2]);
    assert!(ours[0] <= PUBLISHED[0].1[0] && ours[1] <= PUBLISHED[0].1[1], "worse than LRU");
}
