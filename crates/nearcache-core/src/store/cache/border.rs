//! The border of the two rings, as traffic moves it.

use crate::eviction::border::LEAST;
use crate::format::layout::{Config, control};
use crate::memory::Boxed;
use crate::shard::read::Buffer;
use crate::store::cache::Cache;
use crate::sync::lock::Wait;

const NOW_MS: u64 = 1;

fn ask(cache: &Cache<Boxed>, key: u64) {
    let name = key.to_le_bytes();
    if cache.get(cache.key(&name), NOW_MS, &mut Buffer::default()).is_none() {
        cache.set(cache.key(&name), 0, &[7; 300], 0, NOW_MS, Wait::Try).unwrap();
    }
}

fn share(cache: &Cache<Boxed>) -> f64 {
    cache.shards().next().unwrap().small_share()
}

#[test]
fn the_border_moves_for_visitors_and_back_for_steady_traffic_with_a_crawler() {
    let cache = Cache::boxed(&Config::of_size(1 << 20)).unwrap();
    assert_eq!(share(&cache), LEAST);
    // Half as many visitors as fit, of whom one in ten requests is the first of another.
    let mut random = 1_u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % n
    };
    let (mut here, mut next) = ((0..1_000_u64).collect::<Vec<_>>(), 1_000);
    for _ in 0..100_000 {
        let place = below(1_000) as usize;
        ask(&cache, here[place]);
        if below(10) == 0 {
            here[place] = next;
            next += 1;
        }
    }
    let moved = share(&cache);
    assert!(moved > 1.5 * LEAST, "{moved}");
    for request in 0..200_000 {
        // The smaller of three: the first of 8,000 keys are asked for most.
        let page = (0..3).map(|_| below(8_000)).min().unwrap();
        ask(&cache, if request % 5 == 0 { 1 << 40 | request } else { 1 << 32 | page });
    }
    assert!(share(&cache) < moved, "{} after {moved}", share(&cache));
    cache.clear(Wait::Try).unwrap();
    assert_eq!(share(&cache), LEAST);
}

#[test]
fn any_word_is_a_share() {
    let cache = Cache::boxed(&Config::of_size(1 << 20)).unwrap();
    for noise in [0, 1, 1 << 15, 1 << 16, 1 << 40, u64::MAX] {
        for at in control::SMALL_SHARE..control::WORDS {
            cache.shards().next().unwrap().set_word(at, noise);
        }
        let part = cache.shards().next().unwrap().small_part(1_000);
        assert!((100..=800).contains(&part), "{noise}: {part}");
        (0..20_000).for_each(|key| ask(&cache, key));
        let part = cache.shards().next().unwrap().small_part(1_000);
        assert!((100..=800).contains(&part), "{noise}: {part}");
        assert_eq!(cache.check(Wait::Try), Vec::<String>::new());
    }
}
