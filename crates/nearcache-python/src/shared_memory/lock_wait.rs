//! Waiting for a named lock: without the GIL, in slices, so that signals get through.
//!
//! The core says whose turn it is and how long to sleep at most (`locks/lock_queue.rs` there).

use std::time::{Duration, Instant};

use nearcache_core::{Busy, LockTableError, TIMEOUT_STILL, Turn, Wait, boot_ms};
use pyo3::prelude::*;

use crate::interop::python::{self, ENGINE_BUSY};
use crate::shared_memory::shared::{Shared, patiently};

/// How long a place counts while its owner sleeps and says every 100 ms that it is there: a
/// process that was stopped does not hold the others up for longer.
const KEEP_ASLEEP_MS: u64 = 1000;
/// How long it counts when the call is over.
const KEEP_BETWEEN_CALLS_MS: u64 = 2000;
/// Longer waits are cut: an `Instant` has an end.
const LONGEST_WAIT_MS: u64 = 366 * 86_400_000;

/// A fencing token; or the ticket of a place in the queue.
pub type Answer = (Option<u64>, Option<u64>);

/// One caller's wait.
pub struct LockWait<'a> {
    pub shared: &'a Shared,
    pub name: &'a [u8],
    pub ttl_ms: u64,
    /// 0: not in the queue.
    pub ticket: u64,
}

/// `None`: the table's mutex was busy. `Some(None)`: all named locks are held.
type Asked = Option<Option<Turn>>;

impl LockWait<'_> {
    pub fn run(mut self, py: Python<'_>, wait_ms: u64) -> PyResult<Answer> {
        let end = Instant::now() + Duration::from_millis(wait_ms.min(LONGEST_WAIT_MS));
        let mut last = wait_ms == 0;
        self.shared.now(py)?;
        let mut asked = patiently(py, |wait| self.ask(wait, last))?;
        loop {
            match asked {
                Some(Some(Turn::Taken(token))) => return Ok((Some(token), None)),
                Some(Some(Turn::Wait(waiting))) => self.ticket = waiting.ticket,
                Some(None) => return Err(table_full(py)),
                None if last && self.ticket == 0 => return Err(table_busy(py)),
                None => {}
            }
            if last {
                return Ok((None, Some(self.ticket)));
            }
            self.shared.now(py)?;
            (asked, last) = py.detach(|| {
                self.sleep(asked, end);
                // Known before asking: the last place kept is kept for longer.
                let last = Instant::now() >= end;
                (self.ask(Wait::UpTo(TIMEOUT_STILL), last).ok(), last)
            });
            py.check_signals().inspect_err(|_| self.give_up(py, asked))?;
        }
    }

    fn ask(&self, wait: Wait, last: bool) -> Result<Option<Turn>, Busy> {
        let now = self.shared.now_within(wait)?;
        let keep_ms = if last { KEEP_BETWEEN_CALLS_MS } else { KEEP_ASLEEP_MS };
        let (ticket, ttl_ms) = (self.ticket, self.ttl_ms);
        match now.cache.lock_ask(self.name, ticket, ttl_ms, keep_ms, boot_ms(), wait) {
            Ok(turn) => Ok(Some(turn)),
            Err(LockTableError::Full) => Ok(None),
            Err(LockTableError::Busy(busy)) => Err(busy),
        }
    }

    /// If the mutex was busy there is nothing to wait for but the mutex.
    fn sleep(&self, asked: Asked, end: Instant) {
        if let Some(Some(Turn::Wait(waiting))) = asked
            && let Ok(now) = self.shared.now_within(Wait::Try)
        {
            now.cache.lock_sleep(&waiting, end.saturating_duration_since(Instant::now()));
        }
    }

    /// Nobody will come back for the lock or the place: the next may have it now.
    fn give_up(&self, py: Python<'_>, asked: Asked) {
        let Ok(now) = self.shared.now(py) else { return };
        let _ = patiently(py, |wait| match asked {
            Some(Some(Turn::Taken(token))) => {
                now.cache.lock_release(self.name, token, boot_ms(), wait).map(|_| ())
            }
            _ => now.cache.lock_leave(self.name, self.ticket, boot_ms(), wait),
        });
    }
}

pub fn table_full(py: Python<'_>) -> PyErr {
    let text = "all 1,024 named locks are held; release some or give them shorter times";
    python::error(py, &ENGINE_BUSY, text.to_owned())
}

fn table_busy(py: Python<'_>) -> PyErr {
    let text = "another process held the table of named locks for the whole wait; it is stopped \
                or starved of CPU";
    python::error(py, &ENGINE_BUSY, text.to_owned())
}
