//! What readers see while a record is written, moved, swapped or deleted.

use crate::shard::read::{Buffer, Want};
use crate::store::models::world::{
    KEY, NOW, OTHER, World, clear, get_the_first, hashed, in_any_order, in_any_order_from,
    set_other,
};

#[test]
fn a_record_that_is_written_over_is_never_read() {
    const CLEAR_AND_WRITE_OVER: fn(&World) = |world| {
        world.clear();
        world.set(OTHER, 9);
    };
    in_any_order(1, &[get_the_first, CLEAR_AND_WRITE_OVER], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn nor_if_the_next_owner_of_the_lock_writes_over_it() {
    in_any_order(1, &[get_the_first, clear, set_other], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_deleted_record_stays_deleted_though_it_is_being_moved() {
    const DELETE: fn(&World) = |world| assert!(world.delete());
    in_any_order(2, &[DELETE, World::pack], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_record_that_is_moved_is_there_all_along() {
    const GET: fn(&World) = |world| assert_eq!(world.get(), Some((1, 0)));
    const MOVE_AND_WRITE_OVER: fn(&World) = |world| {
        world.pack();
        world.set(OTHER, 9);
    };
    in_any_order(2, &[GET, MOVE_AND_WRITE_OVER], |world| {
        assert_eq!(world.get(), Some((1, 0)));
    });
}

#[test]
fn of_two_sets_of_a_key_one_is_the_last() {
    const FIRST: fn(&World) = |world| world.set(KEY, 2);
    const SECOND: fn(&World) = |world| world.set(KEY, 3);
    const GET: fn(&World) = |world| assert!(world.get().is_some());
    in_any_order(2, &[FIRST, SECOND, GET], |world| {
        assert!(matches!(world.get(), Some((2 | 3, 0))));
    });
}

#[test]
fn a_set_and_a_delete_of_a_key_leave_a_whole_value_or_none() {
    const SET: fn(&World) = |world| world.set(KEY, 2);
    const DELETE: fn(&World) = |world| assert!(world.delete());
    in_any_order(2, &[SET, DELETE], |world| {
        assert!(matches!(world.get(), None | Some((2, 0))));
    });
}

#[test]
fn a_swap_never_brings_back_what_was_deleted() {
    const SWAP: fn(&World) = |world| world.swap(2);
    const DELETE: fn(&World) = |world| assert!(world.delete());
    in_any_order(2, &[SWAP, DELETE], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_new_key_is_read_whole_or_missed() {
    const GET: fn(&World) = |world| {
        assert!(matches!(world.get_key(OTHER), None | Some((9, 0))));
    };
    in_any_order(2, &[set_other, GET], |world| {
        assert_eq!(world.get_key(OTHER), Some((9, 0)));
    });
}

#[test]
fn after_a_clear_there_is_nothing() {
    in_any_order(2, &[get_the_first, clear], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_key_behind_a_full_bucket_is_found_while_marks_are_renewed() {
    const GET: fn(&World) = |world| assert_eq!(world.get(), Some((1, 0)));
    in_any_order_from(World::push_on, 2, &[GET, World::sweep_twice], |world| {
        assert_eq!(world.get(), Some((1, 0)));
    });
}

#[test]
fn a_key_behind_a_full_bucket_is_deleted_while_marks_are_renewed() {
    const DELETE: fn(&World) = |world| assert!(world.delete());
    in_any_order_from(World::push_on, 2, &[DELETE, World::sweep_twice], |world| {
        assert_eq!(world.get(), None);
    });
}

#[test]
fn a_touch_is_seen_whole_or_not_at_all() {
    const TOUCH: fn(&World) = |world| {
        let touched = world.locked(|shard| {
            shard.touch_locked(hashed(KEY), 5_000, NOW, &mut Buffer::default(), Want::Nothing)
        });
        assert!(touched.is_some());
    };
    const GET: fn(&World) = |world| {
        assert!(matches!(world.get(), Some((1, 0 | 5_000))));
    };
    in_any_order(2, &[TOUCH, GET], |world| {
        assert_eq!(world.get(), Some((1, 5_000)));
    });
}
