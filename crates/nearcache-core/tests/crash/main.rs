//! What must hold when processes die and files are damaged.
//!
//! Every case runs in a child made by `fork`, so that a SIGKILL, a SIGSEGV, a
//! panic or a hang is that child's alone and is seen for what it is. A child of a
//! process with several threads may do next to nothing (another thread may have
//! held the allocator's lock), so this program has one thread and no test harness.
//!
//! Not here: what happens while processes run side by side (`../smoke.rs`, and the
//! torture tests of the Python package).

mod creation;
mod hostile;
mod kill;
mod kill_twice;
mod lock_queue;
mod named_lock;
mod operations;
mod strangers;
mod support;

/// A test says how many cases it ran.
type Test = (&'static str, fn() -> usize);

const TESTS: &[Test] = &[
    (
        "killed_before_any_store_of_any_operation_every_key_holds_its_old_or_new_value",
        kill::before_every_store,
    ),
    (
        "killed_again_inside_the_next_owner_s_recovery_nothing_is_lost_or_torn",
        kill_twice::before_every_store_of_the_recovery,
    ),
    (
        "pages_that_killed_owners_had_claimed_are_found_again",
        kill_twice::at_the_same_store_again_and_again,
    ),
    (
        "killed_around_a_named_lock_it_is_held_by_a_living_process_or_free",
        named_lock::before_every_store,
    ),
    (
        "killed_in_a_lock_s_queue_those_who_live_are_served_in_their_order",
        lock_queue::before_every_store,
    ),
    ("killed_while_the_file_is_made_the_next_process_makes_it", creation::killed_at_any_time),
    ("what_a_killed_maker_left_behind_is_no_obstacle", creation::leftovers_are_no_obstacle),
    ("a_file_that_is_foreign_gives_one_clear_error", strangers::are_refused),
    ("a_file_of_any_other_length_is_refused_or_misses", strangers::truncated_files),
    ("a_flipped_bit_anywhere_gives_misses_never_a_wrong_value", hostile::flipped_bits),
    ("words_and_pages_of_noise_give_misses_never_a_wrong_value", hostile::noise),
    ("control_words_of_noise_end_in_bounded_time", hostile::noise_in_control_words),
];

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let chosen = TESTS.iter().filter(|(name, _)| {
        wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
    });
    let (mut passed, mut failed) = (0, 0);
    println!();
    for (name, test) in chosen {
        let start = std::time::Instant::now();
        let result = std::panic::catch_unwind(test);
        let seconds = start.elapsed().as_secs_f32();
        match result {
            Ok(cases) => {
                passed += 1;
                println!("test {name} ... ok ({cases} cases, {seconds:.1} s)");
            }
            Err(_) => {
                failed += 1;
                println!("test {name} ... FAILED ({seconds:.1} s)");
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed\n");
    std::process::exit(if failed == 0 { 0 } else { 101 });
}
