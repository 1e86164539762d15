//! Each fence and order of the protocol between readers and writers, and the model
//! that fails without it.
//!
//! A model runs over a [`View`], which leaves one [`Rule`] out: it drops a fence, or
//! makes an order relaxed, in the accesses that [`Shard`](crate::shard::read::Shard) itself
//! makes. The test passes if the model then gets a wrong answer (and not if loom gives
//! up for another reason). So a model that is too weak to notice shows here.
//!
//! A fence is told by its order and the access before it. Records begin on a page, of
//! eight words: four of the header, one with the key, three of the value.
//!
//! | rule | where | fails without it |
//! |---|---|---|
//! | `FenceBeforeBytes` | `append_locked` | a reader copies half of each of two records |
//! | `FenceAfterCopy` | `read` | the same |
//! | `FenceAfterCopy` | `scan_word` | a scan misses a record that was moved |
//! | `FenceAfterHeader` | `read`, another key's | a look misses a record that was moved |
//! | `FenceAfterTable` | `read`, no such page | a whole file is called damaged |
//! | `FenceAfterExpiry` | `still_current` | what is over is called current |
//! | `FenceAfterTail` | `is_stale` | a look misses a record that was moved |
//! | `TailRelease` | `publish_tail_locked` | the same |
//! | `SlotRelease`, `SlotAcquire` | `publish_locked`, `look_at` | a new record is read half |
//! | `SwapRelease` | `replace_locked`, `move_locked` | a record is missed or read half |
//!
//! `FenceBehindTail` (`publish_tail_locked`, `abandon_ring_locked`) has no model that fails
//! without it: bytes and page table change in `append_locked` alone, whose fence comes
//! between in any case.
//!
//! Not here: that a fence stands where it does is shown by leaving it out, but not that the
//! stores around it are in this order; `models.rs` checks the order there is. Words are
//! copied whole, as `Mem` copies them: half a word does not occur. `head` and hints are plain
//! words here, as only the lock holder decides by them; so their orders are not checked.

use crate::store::models::memory::Rule;
use crate::store::models::world::{
    KEY, NOW, OTHER, World, clear, explore, get_the_first, set_other,
};

type Model = fn(Option<Rule>);

fn without(broken: Option<Rule>, steps: &'static [fn(&World)]) {
    explore(move || World::new(broken), 2, steps, |_| {});
}

/// A record is written over by who dropped it, and below by the next owner of the lock.
const WRITTEN_OVER: Model = |broken| {
    const CLEAR_AND_WRITE_OVER: fn(&World) = |world| {
        world.clear();
        world.set(OTHER, 9);
    };
    without(broken, &[get_the_first, CLEAR_AND_WRITE_OVER]);
};

const WRITTEN_OVER_BY_THE_NEXT_OWNER: Model = |broken| {
    without(broken, &[get_the_first, clear, set_other]);
};

fn move_and_write_over(world: &World) {
    world.pack();
    world.set(OTHER, 9);
}

const MOVED: Model = |broken| {
    const GET: fn(&World) = |world| assert_eq!(world.get(), Some((1, 0)), "wrong answer");
    without(broken, &[GET, move_and_write_over]);
};

const MOVED_DURING_A_SCAN: Model = |broken| {
    const SCAN: fn(&World) = |world| {
        let mut seen = 0;
        world.shard(|shard| {
            shard.scan_bucket(0, NOW, &mut |item| seen += usize::from(item.key == KEY));
        });
        assert_eq!(seen, 1, "wrong answer");
    };
    without(broken, &[SCAN, move_and_write_over]);
};

/// Page numbers that share an entry of the page table are two rings' lengths apart.
const ENTRY_USED_AGAIN: Model = |broken| {
    const CLEAR_TWICE_AND_WRITE: fn(&World) = |world| {
        world.clear();
        world.clear();
        world.set(OTHER, 9);
    };
    without(broken, &[get_the_first, CLEAR_TWICE_AND_WRITE]);
};

/// The record that was kept is over. What takes its page is of the same key, and is not.
const KEPT_AND_OVER: Model = |broken| {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let world = World::new(broken);
        world.clear();
        let place = world.set_until(KEY, 1, NOW / 2);
        let writer = {
            let world = std::sync::Arc::clone(&world);
            loom::thread::spawn(move || {
                world.clear();
                world.set(KEY, 2);
            })
        };
        let current = world.shard(|shard| shard.still_current(&place, NOW));
        assert!(!current, "wrong answer");
        writer.join().unwrap();
    });
};

const NEW: Model = |broken| {
    const GET: fn(&World) = |world| {
        assert!(matches!(world.get_key(OTHER), None | Some((9, 0))), "wrong answer");
    };
    without(broken, &[set_other, GET]);
};

#[test]
fn a_record_that_is_moved_is_scanned_all_along() {
    MOVED_DURING_A_SCAN(None);
}

#[test]
fn an_entry_of_the_page_table_that_is_used_again_is_no_damage() {
    ENTRY_USED_AGAIN(None);
}

#[test]
fn what_is_kept_and_over_is_never_current() {
    KEPT_AND_OVER(None);
}

#[test]
fn the_fence_behind_the_tail_is_spare() {
    WRITTEN_OVER(Some(Rule::FenceBehindTail));
}

macro_rules! is_needed {
    ($($name:ident: $rule:ident, $model:ident;)*) => {$(
        #[test]
        #[should_panic(expected = "wrong answer")]
        fn $name() {
            $model(Some(Rule::$rule));
        }
    )*};
}

is_needed! {
    the_writers_fence_is_needed: FenceBeforeBytes, WRITTEN_OVER_BY_THE_NEXT_OWNER;
    the_readers_fence_is_needed: FenceAfterCopy, WRITTEN_OVER;
    a_scans_fence_is_needed: FenceAfterCopy, MOVED_DURING_A_SCAN;
    the_fence_before_another_key_is_needed: FenceAfterHeader, MOVED;
    the_fence_before_damage_is_needed: FenceAfterTable, ENTRY_USED_AGAIN;
    the_fence_of_a_kept_object_is_needed: FenceAfterExpiry, KEPT_AND_OVER;
    the_fence_before_a_stale_slot_is_needed: FenceAfterTail, MOVED;
    the_release_of_the_tail_is_needed: TailRelease, MOVED;
    the_release_of_a_slot_is_needed: SlotRelease, NEW;
    the_acquire_of_a_slot_is_needed: SlotAcquire, NEW;
    the_release_of_a_swap_is_needed: SwapRelease, MOVED;
}
