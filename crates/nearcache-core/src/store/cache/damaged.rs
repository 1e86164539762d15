//! A damaged record in the way of another key: it is passed, and its neighbour is not stored twice.

use crate::format::layout::Config;
use crate::memory::Boxed;
use crate::shard::read::Buffer;
use crate::shard::read::{ring_of, tag_of};
use crate::shard::write::Added;
use crate::store::cache::Cache;
use crate::sync::holder::SLICE;
use crate::sync::lock::Wait;

const NOW_MS: u64 = 1_000;
const SET: Wait = Wait::UpTo(SLICE);
/// A record of one page, so that no other one is in its page.
const PAGE_LONG: [u8; 4056] = [1; 4056];
const NEIGHBOUR: &[u8] = b"neighbour";

fn set(cache: &Cache<Boxed>, key: &[u8], value: &[u8]) {
    cache.set(cache.key(key), 0x80, value, 0, NOW_MS, SET).unwrap();
}

fn is_there(cache: &Cache<Boxed>, key: &[u8]) -> bool {
    cache.get(cache.key(key), NOW_MS, &mut Buffer::default()).is_some()
}

/// A store of two keys with one tag in one bucket. The page of the first one is lost.
fn with_a_lost_page_before_the_neighbour() -> Cache<Boxed> {
    let config = Config { mean_item_bytes: Some(65_536), ..Config::of_size(1 << 20) };
    let cache = Cache::boxed(&config).unwrap();
    let shard = cache.shard(0);
    let place = |key: &[u8]| {
        let hash = cache.key(key).hash;
        (tag_of(hash), shard.bucket(hash, 0))
    };
    let lost = (0_u64..).map(u64::to_le_bytes).find(|key| place(key) == place(NEIGHBOUR)).unwrap();
    set(&cache, &lost, &PAGE_LONG);
    set(&cache, NEIGHBOUR, b"old");
    let found = cache.get(cache.key(&lost), NOW_MS, &mut Buffer::default()).unwrap();
    let (ring, offset) = (ring_of(found.place.word), shard.offset_of(found.place.word));
    shard.set_word(shard.page_table_entry(ring, offset >> shard.geo.page_shift), 0);
    cache
}

#[test]
fn a_key_behind_a_lost_page_is_there_once() {
    let cache = with_a_lost_page_before_the_neighbour();
    set(&cache, NEIGHBOUR, b"new");
    assert!(cache.delete(cache.key(NEIGHBOUR), NOW_MS));
    assert!(!is_there(&cache, NEIGHBOUR));
}

#[test]
fn a_key_behind_a_lost_page_is_not_free() {
    let cache = with_a_lost_page_before_the_neighbour();
    let added = cache.add(cache.key(NEIGHBOUR), 0x80, b"new", 0, NOW_MS, SET);
    assert!(matches!(added, Ok(Added::Exists)));
}
