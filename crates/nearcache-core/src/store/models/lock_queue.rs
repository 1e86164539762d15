//! The queue of a named lock: no waiter's bell is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::Mutex;

use crate::format::layout::{LOCK_PLACE_TABLE, LOCK_PLACE_WORDS};
use crate::locks::lock_queue::BELL;
use crate::locks::named_locks::{NamedLocks, Turn};
use crate::memory::Mem;
use crate::store::models::memory::Memory;
use crate::store::models::world::NOW;
use crate::sync::process::Liveness;

/// The table of named locks and its mutex. The bells are loom's: they alone are looked at
/// without the mutex.
struct LockWorld {
    memory: Memory,
    mutex: Mutex<()>,
}

impl LockWorld {
    const WAITERS: usize = 2;
    const LOCK: &[u8] = b"l";

    fn new() -> Self {
        let places = LOCK_PLACE_TABLE..LOCK_PLACE_TABLE + Self::WAITERS * LOCK_PLACE_WORDS;
        let bell = |at: &usize| places.contains(at) && at % LOCK_PLACE_WORDS == BELL;
        Self { memory: Memory::of(places.end, bell), mutex: Mutex::new(()) }
    }

    fn locked<R>(&self, work: impl FnOnce(NamedLocks<Memory>) -> R) -> R {
        const ME: u64 = 1;
        let _guard = self.mutex.lock().unwrap();
        work(NamedLocks { mem: &self.memory, me: ME, now_ms: NOW, liveness: Liveness::new(ME) })
    }

    fn ask(&self, ticket: u64) -> Turn {
        self.locked(|locks| locks.ask(Self::LOCK, ticket, NOW, NOW)).unwrap()
    }

    fn release(&self, token: u64) {
        self.locked(|locks| assert!(locks.release(Self::LOCK, token).is_some()));
    }

    /// Sleeps without an end until its bell rings, as a futex does.
    fn take(&self) -> u64 {
        let mut ticket = 0;
        loop {
            match self.ask(ticket) {
                Turn::Taken(token) => return token,
                Turn::Wait(waiting) => {
                    ticket = waiting.ticket;
                    let (at, seen) = waiting.bell.expect("places are free");
                    while self.memory.load(at, Ordering::Relaxed) == seen {
                        loom::thread::yield_now();
                    }
                }
            }
        }
    }
}

/// With waiters that look at nothing but their bells, so a lost one would hang the model.
#[test]
fn every_waiter_is_called_in_its_turn() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(|| {
        let world = Arc::new(LockWorld::new());
        let token = world.take();
        let waiters: Vec<_> = (0..LockWorld::WAITERS)
            .map(|_| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.release(world.take()))
            })
            .collect();
        world.release(token);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert!(world.locked(|locks| locks.held()) == 0);
    });
}
