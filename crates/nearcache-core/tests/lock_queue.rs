//! Queues of named locks: order, places that are given up or not asked for, and wake-ups.
//!
//! Not here: processes that die (`crash/lock_queue.rs`).

use std::time::{Duration, Instant};

use nearcache_core::memory::Boxed;
use nearcache_core::{Cache, Config, Turn, Wait, Waiting};

const NOW: u64 = 1_000_000;
/// Threads that are not run for a while may hold the mutex.
const WAIT: Wait = Wait::UpTo(MINUTE);
const TTL_MS: u64 = 60_000;
const KEEP_MS: u64 = 2_000;
const PLACES: usize = 1024;
const MINUTE: Duration = Duration::from_secs(60);

fn small() -> Cache<Boxed> {
    Cache::boxed(&Config::of_size(1 << 20)).unwrap()
}

fn hold(cache: &Cache<Boxed>) -> u64 {
    cache.lock_acquire(b"l", TTL_MS, NOW, WAIT).unwrap().expect("a free lock")
}

fn ask(cache: &Cache<Boxed>, ticket: u64, now_ms: u64) -> Turn {
    cache.lock_ask(b"l", ticket, TTL_MS, KEEP_MS, now_ms, WAIT).unwrap()
}

fn wait_in(cache: &Cache<Boxed>, ticket: u64, now_ms: u64) -> Waiting {
    match ask(cache, ticket, now_ms) {
        Turn::Wait(waiting) => waiting,
        Turn::Taken(token) => panic!("taken under token {token}"),
    }
}

fn take(cache: &Cache<Boxed>, ticket: u64, now_ms: u64) -> u64 {
    match ask(cache, ticket, now_ms) {
        Turn::Taken(token) => token,
        Turn::Wait(waiting) => panic!("{waiting:?}"),
    }
}

/// As if the waiter looked only when it is woken.
fn patient(mut waiting: Waiting) -> Waiting {
    waiting.pause = MINUTE;
    waiting
}

fn release(cache: &Cache<Boxed>, token: u64) {
    assert_eq!(cache.lock_release(b"l", token, NOW, WAIT), Ok(true));
}

fn is_sound(cache: &Cache<Boxed>) {
    assert_eq!(cache.check(WAIT), Vec::<String>::new());
}

#[test]
fn the_lock_goes_to_waiters_in_the_order_in_which_they_came() {
    let cache = small();
    let mut token = hold(&cache);
    let tickets: Vec<u64> = (0..5).map(|_| wait_in(&cache, 0, NOW).ticket).collect();
    for (served, ticket) in tickets.iter().enumerate() {
        for waiting in tickets[served..].iter().rev() {
            assert_eq!(wait_in(&cache, *waiting, NOW).ticket, *waiting, "its place is kept");
        }
        release(&cache, token);
        for waiting in tickets[served + 1..].iter().rev() {
            assert_eq!(wait_in(&cache, *waiting, NOW).ticket, *waiting, "not its turn");
        }
        let next = take(&cache, *ticket, NOW);
        assert!(next > token);
        token = next;
        is_sound(&cache);
    }
    release(&cache, token);
    hold(&cache);
}

#[test]
fn who_does_not_wait_takes_nothing_from_who_does() {
    let cache = small();
    let token = hold(&cache);
    let waiting = wait_in(&cache, 0, NOW);
    release(&cache, token);
    assert_eq!(cache.lock_acquire(b"l", TTL_MS, NOW, WAIT), Ok(None));
    assert_ne!(wait_in(&cache, 0, NOW).ticket, waiting.ticket);
    take(&cache, waiting.ticket, NOW);
}

#[test]
fn other_locks_have_queues_of_their_own() {
    let cache = small();
    hold(&cache);
    wait_in(&cache, 0, NOW);
    let token = cache.lock_acquire(b"other", TTL_MS, NOW, WAIT).unwrap();
    assert!(token.is_some());
    let asked = cache.lock_ask(b"third", 0, TTL_MS, KEEP_MS, NOW, WAIT).unwrap();
    assert!(matches!(asked, Turn::Taken(_)));
}

#[test]
fn a_place_that_nobody_asks_for_is_passed_over_and_not_lost() {
    let cache = small();
    let token = hold(&cache);
    let late = wait_in(&cache, 0, NOW).ticket;
    let next = wait_in(&cache, 0, NOW + 100).ticket;
    release(&cache, token);
    wait_in(&cache, next, NOW + KEEP_MS - 1);
    let token = take(&cache, next, NOW + KEEP_MS);
    let last = wait_in(&cache, 0, NOW + KEEP_MS).ticket;
    wait_in(&cache, late, NOW + KEEP_MS);
    assert_eq!(cache.lock_release(b"l", token, NOW + KEEP_MS, WAIT), Ok(true));
    wait_in(&cache, last, NOW + KEEP_MS);
    take(&cache, late, NOW + KEEP_MS);
}

#[test]
fn a_place_given_up_is_the_next_one_s() {
    let cache = small();
    let token = hold(&cache);
    let tickets: Vec<u64> = (0..3).map(|_| wait_in(&cache, 0, NOW).ticket).collect();
    release(&cache, token);
    cache.lock_leave(b"l", tickets[0], NOW, WAIT).unwrap();
    cache.lock_leave(b"l", tickets[0], NOW, WAIT).unwrap();
    cache.lock_leave(b"other", tickets[1], NOW, WAIT).unwrap();
    wait_in(&cache, tickets[2], NOW);
    take(&cache, tickets[1], NOW);
    is_sound(&cache);
}

#[test]
fn a_ticket_that_is_no_more_is_a_new_arrival() {
    let cache = small();
    let token = hold(&cache);
    let first = wait_in(&cache, 12_345_678, NOW).ticket;
    let second = wait_in(&cache, 0, NOW).ticket;
    cache.lock_leave(b"l", first, NOW, WAIT).unwrap();
    let again = wait_in(&cache, first, NOW).ticket;
    assert!(again > second);
    release(&cache, token);
    take(&cache, second, NOW);
}

#[test]
fn a_waiter_looks_again_when_the_holder_s_time_is_over() {
    let cache = small();
    cache.lock_acquire(b"l", 30, NOW, WAIT).unwrap();
    let first = wait_in(&cache, 0, NOW);
    assert_eq!(first.pause, Duration::from_millis(30));
    assert_eq!(wait_in(&cache, 0, NOW).pause, Duration::from_millis(100), "it is not first");
    take(&cache, first.ticket, NOW + 30);
}

#[test]
fn beyond_the_last_place_there_is_no_order_but_a_lock() {
    let cache = small();
    let token = hold(&cache);
    let tickets: Vec<u64> = (0..PLACES).map(|_| wait_in(&cache, 0, NOW).ticket).collect();
    let polls = |cache: &Cache<Boxed>| {
        cache.stats(NOW).iter().find(|(name, _)| *name == "lock_polls").unwrap().1
    };
    assert_eq!(polls(&cache), 0);
    let without = wait_in(&cache, 0, NOW);
    assert_eq!((without.ticket, polls(&cache)), (0, 1));
    cache.lock_leave(b"l", tickets[7], NOW, WAIT).unwrap();
    let ticket = wait_in(&cache, without.ticket, NOW).ticket;
    assert_eq!(ticket % PLACES as u64, tickets[7] % PLACES as u64, "the place that was free");
    is_sound(&cache);
    // Places of nobody who asks are given away in the end.
    let much_later = NOW + KEEP_MS + 10_000;
    assert_ne!(wait_in(&cache, 0, much_later).ticket, 0);
    release(&cache, token);
}

#[test]
fn a_release_wakes_the_first_waiter() {
    let cache = small();
    let token = hold(&cache);
    let waiting = wait_in(&cache, 0, NOW);
    std::thread::scope(|scope| {
        let woken_after = scope.spawn(|| {
            let start = Instant::now();
            cache.lock_sleep(&patient(waiting), MINUTE);
            start.elapsed()
        });
        release(&cache, token);
        assert!(woken_after.join().unwrap() < Duration::from_secs(10));
    });
    take(&cache, waiting.ticket, NOW);
}

#[test]
fn a_bell_that_rang_before_the_sleep_is_not_lost() {
    let cache = small();
    let token = hold(&cache);
    let waiting = wait_in(&cache, 0, NOW);
    release(&cache, token);
    let start = Instant::now();
    cache.lock_sleep(&patient(waiting), MINUTE);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn leaving_wakes_the_next_waiter() {
    let cache = small();
    hold(&cache);
    let (first, next) = (wait_in(&cache, 0, NOW), wait_in(&cache, 0, NOW));
    cache.lock_leave(b"l", first.ticket, NOW, WAIT).unwrap();
    let start = Instant::now();
    cache.lock_sleep(&patient(next), MINUTE);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn many_threads_take_turns() {
    const THREADS: usize = 8;
    const TURNS: usize = 200;
    let cache = small();
    let inside = std::sync::Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let mut ticket = 0;
                    let token = loop {
                        match ask(&cache, ticket, nearcache_core::now_ms()) {
                            Turn::Taken(token) => break token,
                            Turn::Wait(waiting) => {
                                ticket = waiting.ticket;
                                cache.lock_sleep(&waiting, MINUTE);
                            }
                        }
                    };
                    *inside.try_lock().expect("nobody else is inside") += 1;
                    let now_ms = nearcache_core::now_ms();
                    assert_eq!(cache.lock_release(b"l", token, now_ms, WAIT), Ok(true));
                }
            });
        }
    });
    assert_eq!(*inside.lock().unwrap(), THREADS * TURNS);
    is_sound(&cache);
}
