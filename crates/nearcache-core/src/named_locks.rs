//! Locks with names, for users: one table a file, apart from the values, so that
//! no amount of values evicts a lock.
//!
//! ```text
//! slot  owner | name low | name high | deadline_ms | token      owner 0 = free
//! ```
//!
//! A lock is free when its owner's process is gone, or its time is over, or it
//! was released. The table is changed under one mutex, the owner's word last
//! when a lock is taken and first when it is let go, so a crash in between
//! leaves the lock free.

use std::sync::atomic::Ordering::Relaxed;

use xxhash_rust::xxh3::xxh3_128;

use crate::layout::{NAMED_LOCK_TABLE, NAMED_LOCK_WORDS, NAMED_LOCKS, header};
use crate::mem::Mem;
use crate::process;

const OWNER: usize = 0;
const NAME: usize = 1; // and 2
const DEADLINE: usize = 3;
const TOKEN: usize = 4;

/// The table of named locks; every method wants its mutex held.
pub(crate) struct NamedLocks<'a, M: Mem> {
    pub mem: &'a M,
}

impl<M: Mem> NamedLocks<'_, M> {
    /// Takes a lock: its fencing token, `Ok(None)` if somebody else has it,
    /// `Err` if all slots are taken by living holders.
    pub fn acquire(&self, name: &[u8], ttl_ms: u64, now_ms: u64) -> Result<Option<u64>, ()> {
        let name = words_of(name);
        let mut free = None;
        for at in slots() {
            let held = self.is_held(at, now_ms);
            if held && self.name_of(at) == name {
                return Ok(None);
            }
            if !held && free.is_none() {
                free = Some(at);
            }
        }
        let at = free.ok_or(())?;
        let token = self.load(header::TOKEN).wrapping_add(1);
        self.store(header::TOKEN, token);
        self.store(at + OWNER, 0);
        self.store(at + NAME, name[0]);
        self.store(at + NAME + 1, name[1]);
        self.store(at + DEADLINE, now_ms.saturating_add(ttl_ms));
        self.store(at + TOKEN, token);
        self.store(at + OWNER, process::identity_of_this_process());
        Ok(Some(token))
    }

    /// Moves the deadline of a lock that is still held with this token.
    pub fn renew(&self, name: &[u8], token: u64, ttl_ms: u64, now_ms: u64) -> bool {
        let found = self.find(name, token, now_ms);
        if let Some(at) = found {
            self.store(at + DEADLINE, now_ms.saturating_add(ttl_ms));
        }
        found.is_some()
    }

    /// Lets go of a lock that is still held with this token.
    pub fn release(&self, name: &[u8], token: u64, now_ms: u64) -> bool {
        let found = self.find(name, token, now_ms);
        if let Some(at) = found {
            self.store(at + OWNER, 0);
        }
        found.is_some()
    }

    /// How many locks are held.
    pub fn held(&self, now_ms: u64) -> u64 {
        slots().filter(|at| self.is_held(*at, now_ms)).count() as u64
    }

    fn find(&self, name: &[u8], token: u64, now_ms: u64) -> Option<usize> {
        let name = words_of(name);
        slots().find(|at| {
            self.load(at + TOKEN) == token
                && self.name_of(*at) == name
                && self.load(at + OWNER) != 0
                && self.load(at + DEADLINE) > now_ms
        })
    }

    fn is_held(&self, at: usize, now_ms: u64) -> bool {
        let owner = self.load(at + OWNER);
        owner != 0 && self.load(at + DEADLINE) > now_ms && process::is_alive(owner)
    }

    fn name_of(&self, at: usize) -> [u64; 2] {
        [self.load(at + NAME), self.load(at + NAME + 1)]
    }

    fn load(&self, at: usize) -> u64 {
        self.mem.load(at, Relaxed)
    }

    fn store(&self, at: usize, value: u64) {
        self.mem.store(at, value, std::sync::atomic::Ordering::Release);
    }
}

fn slots() -> impl Iterator<Item = usize> {
    (0..NAMED_LOCKS).map(|slot| NAMED_LOCK_TABLE + slot * NAMED_LOCK_WORDS)
}

/// A name as 128 bits: two names never share a lock in practice.
fn words_of(name: &[u8]) -> [u64; 2] {
    let hash = xxh3_128(name);
    [hash as u64, (hash >> 64) as u64]
}
