//! Who waits for a named lock, in the order in which they came.
//!
//! ```text
//! place  owner | name low | name high | ticket | asked_until_ms | bell     owner 0 = free
//! ticket  number of the arrival | number of the place:10
//! ```
//!
//! Of the places of a name the one with the lowest ticket is first. Only its owner may take the
//! lock when the lock is free. If there is no place, anybody may. The places of processes that are
//! gone do not count, and are freed. A place whose owner has stopped asking is passed over from
//! `asked_until_ms` on, but stays: an owner that was stopped and goes on is where it was.
//!
//! Whoever lets a lock go rings the bell of the first place. A bell is a futex word: it is changed
//! under the mutex, and waited for outside, with the value that was seen under the mutex. So a bell
//! that rings between looking and sleeping is not lost. A bell that is never rung (the holder was
//! killed first) costs the time until the waiter looks by itself.
//!
//! Places are changed under the mutex of the named locks. The owner of a place is stored last when
//! the place is taken, and first when it is given up, so every prefix of these stores is a queue.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use crate::format::layout::{LOCK_PLACE_TABLE, LOCK_PLACE_WORDS, LOCK_PLACES, header};
use crate::locks::name::Name;
use crate::memory::Mem;
use crate::sync::process::{Liveness, may_be_one};

const OWNER: usize = 0;
const NAME: usize = 1; // and 2
const TICKET: usize = 3;
const ASKED_UNTIL: usize = 4;
pub(crate) const BELL: usize = 5;

/// A place passed over for so long may be given to somebody else.
const FORGOTTEN_AFTER_MS: u64 = 10_000;

/// How to wait for a lock until asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The place in the queue; 0 if the queue was full: then there is no order.
    pub ticket: u64,
    /// Ask again after so long, woken or not.
    pub pause: Duration,
    pub(crate) bell: Option<(usize, u64)>,
}

impl Waiting {
    pub(crate) fn without_place(pause: Duration) -> Self {
        Self { ticket: 0, pause, bell: None }
    }

    /// Sleeps until the bell rings, or for `at_most`; may end early. The table's mutex must
    /// not be held.
    pub(crate) fn sleep<M: Mem>(&self, mem: &M, at_most: Duration) {
        let at_most = at_most.min(self.pause);
        match self.bell {
            Some((at, seen)) => mem.wait(at, seen, at_most),
            None => std::thread::sleep(at_most),
        }
    }
}

/// The places of all queues; every method wants the mutex of the named locks held.
pub(crate) struct LockQueue<'a, M: Mem> {
    pub mem: &'a M,
    /// Who asks.
    pub me: u64,
    pub now_ms: u64,
    pub liveness: &'a Liveness,
}

impl<M: Mem> LockQueue<'_, M> {
    /// The place of who is first, if anybody waits.
    pub fn first(&self, name: Name) -> Option<usize> {
        loop {
            let asking = self.places().filter(|at| self.is_of(*at, name) && self.is_asked_for(*at));
            let first = asking.min_by_key(|at| self.load(at + TICKET))?;
            if self.liveness.is_alive(self.load(first + OWNER)) {
                return Some(first);
            }
            self.free(first);
        }
    }

    /// The place of a ticket of this process.
    pub fn find(&self, name: Name, ticket: u64) -> Option<usize> {
        let at = place(ticket as usize % LOCK_PLACES);
        let is_mine =
            may_be_one(self.load(at + OWNER), self.me) && self.load(at + TICKET) == ticket;
        (ticket != 0 && is_mine && self.is_of(at, name)).then_some(at)
    }

    /// Takes the last place; `None` if all places of all queues are taken.
    pub fn join(&self, name: Name, keep_ms: u64) -> Option<usize> {
        let number = self.free_place()?;
        let at = place(number);
        let arrival = self.load(header::TICKET).wrapping_add(1);
        self.store(header::TICKET, arrival);
        self.store(at + OWNER, 0);
        self.store(at + NAME, name.0[0]);
        self.store(at + NAME + 1, name.0[1]);
        self.store(at + TICKET, arrival.wrapping_mul(LOCK_PLACES as u64) + number as u64);
        self.keep(at, keep_ms);
        self.store(at + OWNER, self.me);
        Some(at)
    }

    /// Lets a place count for `keep_ms` from now.
    pub fn keep(&self, at: usize, keep_ms: u64) {
        self.store(at + ASKED_UNTIL, self.now_ms.saturating_add(keep_ms));
    }

    pub fn free(&self, at: usize) {
        self.store(at + OWNER, 0);
        let used = self.used();
        let last = (0..used).rev().find(|number| self.load(place(*number) + OWNER) != 0);
        let needed = last.map_or(0, |last| last + 1);
        if needed < used {
            self.store(header::PLACES_USED, needed as u64);
        }
    }

    /// Rings the bell of who is first: the word to wake, once the mutex is free.
    pub fn call_first(&self, name: Name) -> Option<usize> {
        let at = self.first(name)? + BELL;
        // Both halves are the same, so the kernel's 32 bits are right on any machine.
        let rung = (self.load(at) as u32).wrapping_add(1);
        self.store(at, u64::from(rung) << 32 | u64::from(rung));
        Some(at)
    }

    pub fn waiting(&self, at: usize, pause: Duration) -> Waiting {
        let bell = Some((at + BELL, self.load(at + BELL)));
        Waiting { ticket: self.load(at + TICKET), pause, bell }
    }

    /// How many wait, for any lock.
    pub fn waiters(&self) -> u64 {
        let alive = |at: &usize| {
            let owner = self.load(at + OWNER);
            owner != 0 && self.is_asked_for(*at) && self.liveness.is_alive(owner)
        };
        self.places().filter(alive).count() as u64
    }

    /// Adds a line for every broken invariant.
    pub fn check(&self, faults: &mut Vec<String>) {
        for number in 0..LOCK_PLACES {
            let at = place(number);
            if self.load(at + OWNER) == 0 {
                continue;
            }
            if number >= self.used() {
                faults.push(format!("named locks: place {number} is beyond the mark"));
            }
            if self.load(at + TICKET) % LOCK_PLACES as u64 != number as u64 {
                faults.push(format!("named locks: place {number} has the ticket of another"));
            }
        }
    }

    fn free_place(&self) -> Option<usize> {
        let used = self.used();
        if let Some(free) = (0..used).find(|number| self.load(place(*number) + OWNER) == 0) {
            return Some(free);
        }
        if used < LOCK_PLACES {
            self.store(header::PLACES_USED, used as u64 + 1);
            return Some(used);
        }
        let forgotten_ms = self.now_ms.saturating_sub(FORGOTTEN_AFTER_MS);
        (0..used).find(|number| {
            let at = place(*number);
            self.load(at + ASKED_UNTIL) <= forgotten_ms
                || !self.liveness.is_alive(self.load(at + OWNER))
        })
    }

    fn is_of(&self, at: usize, name: Name) -> bool {
        self.load(at + OWNER) != 0 && Name([self.load(at + NAME), self.load(at + NAME + 1)]) == name
    }

    fn is_asked_for(&self, at: usize) -> bool {
        self.load(at + ASKED_UNTIL) > self.now_ms
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        (0..self.used()).map(place)
    }

    /// How many places are below the mark.
    fn used(&self) -> usize {
        self.load(header::PLACES_USED).min(LOCK_PLACES as u64) as usize
    }

    fn load(&self, at: usize) -> u64 {
        self.mem.load(at, Relaxed)
    }

    fn store(&self, at: usize, value: u64) {
        self.mem.store(at, value, Release);
    }
}

fn place(number: usize) -> usize {
    LOCK_PLACE_TABLE + number * LOCK_PLACE_WORDS
}
