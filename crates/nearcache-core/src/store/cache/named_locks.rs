//! The operations on named locks and claims: under the mutex of their table, and the wake-ups after it.

use std::time::Duration;

use crate::base::stats::Counter;
use crate::format::layout::NAMED_LOCKS;
use crate::locks::lock_queue::Waiting;
use crate::locks::named_locks::{NamedLocks, TableFull, Turn};
use crate::memory::Mem;
use crate::store::cache::Cache;
use crate::sync::holder::Busy;
use crate::sync::lock::Wait;
use crate::sync::process::Liveness;

/// Why a named lock could not be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockTableError {
    /// The table's mutex was not free in time.
    Busy(Busy),
    /// All 1,024 locks are held.
    Full,
}

impl From<Busy> for LockTableError {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

impl From<TableFull> for LockTableError {
    fn from(_: TableFull) -> Self {
        Self::Full
    }
}

const _: () = assert!(NAMED_LOCKS == 1024);

impl<M: Mem> Cache<M> {
    /// Takes a named lock for at most `ttl_ms` from now (`boot_ms`) on: its fencing
    /// token, or `None` if somebody else has it or waits for it. Free at once when its holder's
    /// process is gone.
    pub fn lock_acquire(
        &self,
        name: &[u8],
        ttl_ms: u64,
        boot_ms: u64,
        wait: Wait,
    ) -> Result<Option<u64>, LockTableError> {
        let acquired = self.named(boot_ms, wait, |locks| locks.acquire(name, ttl_ms))?;
        Ok(acquired?)
    }

    /// Takes a named lock if it is the caller's turn; else keeps its place in the queue for
    /// `keep_ms`. `ticket` is that of the [`Waiting`] before, 0 at first.
    pub fn lock_ask(
        &self,
        name: &[u8],
        ticket: u64,
        ttl_ms: u64,
        keep_ms: u64,
        boot_ms: u64,
        wait: Wait,
    ) -> Result<Turn, LockTableError> {
        let turn =
            self.named(boot_ms, wait, |locks| locks.ask(name, ticket, ttl_ms, keep_ms))??;
        if matches!(turn, Turn::Wait(Waiting { ticket: 0, .. })) {
            self.count(Counter::LockPolls);
        }
        Ok(turn)
    }

    /// Sleeps until it is worth to ask again: at most as long as `waiting` says.
    pub fn lock_sleep(&self, waiting: &Waiting, at_most: Duration) {
        waiting.sleep(&self.mem, at_most);
    }

    /// Gives a place in a queue up.
    pub fn lock_leave(
        &self,
        name: &[u8],
        ticket: u64,
        boot_ms: u64,
        wait: Wait,
    ) -> Result<(), Busy> {
        let next = self.named(boot_ms, wait, |locks| locks.leave(name, ticket))?;
        self.wake(next);
        Ok(())
    }

    /// Moves the deadline of a lock; false if it is no longer held with `token`.
    pub fn lock_renew(
        &self,
        name: &[u8],
        token: u64,
        ttl_ms: u64,
        boot_ms: u64,
        wait: Wait,
    ) -> Result<bool, Busy> {
        self.named(boot_ms, wait, |locks| locks.renew(name, token, ttl_ms))
    }

    /// Lets go of a lock; false if it is no longer held with `token`.
    pub fn lock_release(
        &self,
        name: &[u8],
        token: u64,
        boot_ms: u64,
        wait: Wait,
    ) -> Result<bool, Busy> {
        let released = self.named(boot_ms, wait, |locks| locks.release(name, token))?;
        self.wake(released.flatten());
        Ok(released.is_some())
    }

    /// Claims a name for `ttl_ms`, or prolongs this owner's claim; false if another has it.
    pub fn claim(
        &self,
        name: &[u8],
        owner: u64,
        ttl_ms: u64,
        boot_ms: u64,
        wait: Wait,
    ) -> Result<bool, LockTableError> {
        let claimed = self.named(boot_ms, wait, |locks| locks.claim(name, owner, ttl_ms))?;
        Ok(claimed?)
    }

    /// Gives a claim up, if this owner still has it.
    pub fn unclaim(&self, name: &[u8], owner: u64, boot_ms: u64, wait: Wait) -> Result<(), Busy> {
        self.named(boot_ms, wait, |locks| locks.unclaim(name, owner))
    }

    pub(super) fn named<R>(
        &self,
        boot_ms: u64,
        wait: Wait,
        work: impl FnOnce(NamedLocks<M>) -> R,
    ) -> Result<R, Busy> {
        let (number, locks) = (self.geometry.shards, self.named_locks(boot_ms));
        self.locks.with(number, wait, |_| work(locks))
    }

    pub(super) fn named_locks(&self, boot_ms: u64) -> NamedLocks<'_, M> {
        let me = self.identity();
        NamedLocks { mem: &self.mem, me, now_ms: boot_ms, liveness: Liveness::new(me) }
    }

    /// Wakes a waiter whose bell was rung; not under the mutex, which it would only wait for.
    fn wake(&self, bell: Option<usize>) {
        if let Some(at) = bell {
            self.mem.wake(at);
        }
    }
}
