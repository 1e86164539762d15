//! Pages claimed by owners who died at the worst place, between the page's
//! descriptor and the page table, so often that no page is left.

use crate::format::layout::Config;
use crate::memory::Boxed;
use crate::shard::read::Buffer;
use crate::shard::rings::{MAIN, SMALL};
use crate::shard::write::Stored;
use crate::store::cache::Cache;
use crate::sync::holder::SLICE;
use crate::sync::lock::Wait;

const NOW_MS: u64 = 1_000;
const SET: Wait = Wait::UpTo(SLICE);
/// A record of one page, so that heads are at the edge of one.
const PAGE_LONG: [u8; 4060] = [1; 4060];

fn set(cache: &Cache<Boxed>, key: u32) -> bool {
    let bytes = key.to_le_bytes();
    let stored = cache.set(cache.key(&bytes), 0x80, &PAGE_LONG, 0, NOW_MS, SET);
    matches!(stored, Ok(Stored::Yes(_)))
}

/// Every free page claims the number that one of the rings needs next.
fn with_every_free_page_claimed() -> Cache<Boxed> {
    let cache = Cache::boxed(&Config::of_size(1 << 20)).unwrap();
    assert!((0..60).all(|key| set(&cache, key)));
    let shard = cache.shard(0);
    let windows = [SMALL, MAIN].map(|ring| shard.window_pages(ring));
    for page in 0..shard.geo.pages {
        let at = shard.geo.descriptors + page;
        let number = (shard.word(at) >> 1).wrapping_sub(1);
        if !windows[(shard.word(at) & 1) as usize].contains(&number) {
            let ring = page % 2;
            // The last of a window is the one being written: none yet.
            shard.set_word(at, windows[ring].end << 1 | ring as u64);
        }
    }
    cache
}

fn no_room(cache: &Cache<Boxed>) -> u64 {
    let stats = cache.stats(NOW_MS);
    stats.iter().find(|(name, _)| *name == "no_room").unwrap().1
}

#[test]
fn after_an_owner_s_death_claimed_pages_are_free_again() {
    let cache = with_every_free_page_claimed();
    cache.shard(0).recount_locked();
    assert!((60..100).all(|key| set(&cache, key)));
    assert_eq!(no_room(&cache), 0);
    assert_eq!(cache.check(SET), Vec::<String>::new());
}

/// `flock` tells nobody about the death of an owner.
#[test]
fn where_deaths_are_not_told_the_first_write_without_room_frees_them() {
    let cache = with_every_free_page_claimed();
    assert!(!set(&cache, 60));
    assert!((61..100).all(|key| set(&cache, key)));
    assert_eq!(no_room(&cache), 1);
    let first = cache.key(&[0; 4]);
    assert!(cache.get(first, NOW_MS, &mut Buffer::default()).is_some());
    assert_eq!(cache.check(SET), Vec::<String>::new());
}
