//! One opened store of this process: the core's, and the objects kept from it.
//!
//! What every face of it needs (`store.rs`, `fused.rs`): waiting without the GIL, refusals,
//! deadlines that have passed, buffers, and what to do after a fork.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nearcache_core::mem::Mapped;
use nearcache_core::{
    Added, Buffer, Busy, Cache, Counter, Found, Key, Stored, TIMEOUT_ATOMIC, TIMEOUT_SET, Wait,
    now_ms,
};
use pyo3::prelude::*;

use crate::gil::GilCell;
use crate::near::Near;
use crate::python::{self, ENGINE_BUSY};

/// What a record's head can say.
const MAX_KEY_BYTES: usize = 65_535;

pub struct Shared {
    pub core: nearcache_core::Store,
    pub near: GilCell<Near>,
}

/// A deadline for the core: milliseconds since the epoch, 0 for never.
#[derive(Clone, Copy)]
pub struct Deadline(pub u64);

impl Deadline {
    pub const NEVER: Deadline = Deadline(0);
    /// 1970: over by any clock.
    pub const PASSED: Deadline = Deadline(1);

    /// Asks the exact clock where the core's coarse one, which lags by a tick, cannot tell.
    #[inline]
    fn is_over(self, coarse_now_ms: u64) -> bool {
        self.0 != 0 && self.0 <= coarse_now_ms + TICK_MS && self.0 <= exact_now_ms()
    }
}

/// The coarse clock's longest tick.
const TICK_MS: u64 = 10;

fn exact_now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |since| since.as_millis() as u64)
}

static OPENED: GilCell<Vec<Weak<Shared>>> = GilCell::new(Vec::new());

impl Shared {
    pub fn new(py: Python<'_>, core: nearcache_core::Store, near: Near) -> Arc<Shared> {
        let shared = Arc::new(Shared { core, near: GilCell::new(near) });
        OPENED.with(py, |opened| {
            opened.retain(|other| other.strong_count() > 0);
            opened.push(Arc::downgrade(&shared));
        });
        shared
    }

    /// The cache as of now, for one operation: the next may find another file.
    #[inline]
    pub fn now(&self) -> Now<'_> {
        let now_ms = now_ms();
        Now { cache: self.core.cache(now_ms), now_ms }
    }

    /// Drops the kept objects, whatever they were.
    pub fn forget(&self, py: Python<'_>) {
        let dropped = self.near.with(py, Near::clear);
        drop(dropped);
    }
}

/// One operation's view of the store. Hashes and versions are of this file only.
#[derive(Clone, Copy)]
pub struct Now<'a> {
    pub cache: &'a Cache<Mapped>,
    pub now_ms: u64,
}

impl<'a> Now<'a> {
    /// A key the core can hold, with its hash.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Option<Key<'k>> {
        let fits = !bytes.is_empty() && bytes.len() <= MAX_KEY_BYTES;
        fits.then(|| self.cache.key(bytes))
    }

    /// True if stored; false if refused, and then the old value is gone.
    pub fn set(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        tag: u8,
        payload: &[u8],
        deadline: Deadline,
    ) -> bool {
        if deadline.is_over(self.now_ms) {
            self.cache.delete(key, self.now_ms);
            return true;
        }
        let set = |wait| self.cache.set(key, tag, payload, deadline.0, self.now_ms, wait);
        match patiently(py, TIMEOUT_SET, set) {
            Ok(Stored::Yes(_)) => true,
            Ok(Stored::TooLarge) => false,
            Err(Busy) => self.refused(key),
        }
    }

    /// True if the key was absent and the value is stored, or its deadline has passed already.
    pub fn add(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        tag: u8,
        payload: &[u8],
        deadline: Deadline,
    ) -> bool {
        if deadline.is_over(self.now_ms) {
            return self.cache.expires_at(key, self.now_ms).is_none();
        }
        let add = |wait| self.cache.add(key, tag, payload, deadline.0, self.now_ms, wait);
        match patiently(py, TIMEOUT_SET, add) {
            Ok(Added::Stored(_)) => true,
            Ok(Added::Exists | Added::TooLarge) => false,
            // Nothing was to be changed, so what is there may stay.
            Err(Busy) => {
                self.cache.count(Counter::DroppedBusy);
                false
            }
        }
    }

    pub fn touch(&self, py: Python<'_>, key: Key<'_>, deadline: Deadline) -> bool {
        if deadline.is_over(self.now_ms) {
            return self.cache.delete(key, self.now_ms);
        }
        let touch = |wait| self.cache.touch(key, deadline.0, self.now_ms, wait);
        patiently(py, TIMEOUT_SET, touch).unwrap_or_else(|Busy| self.refused(key))
    }

    /// [`Now::touch`]; what was touched, and its first `payload_bytes`, go to `f`.
    pub fn touch_head<R>(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        deadline: Deadline,
        payload_bytes: usize,
        f: impl FnOnce(&Found, &[u8]) -> R,
    ) -> Option<R> {
        if deadline.is_over(self.now_ms) {
            let head = self.head(py, key, payload_bytes, f);
            return head.filter(|_| self.cache.delete(key, self.now_ms));
        }
        with_buffer(py, |buffer| {
            let touch = |wait| {
                let (cache, now_ms) = (self.cache, self.now_ms);
                cache.touch_head(key, deadline.0, payload_bytes, now_ms, wait, buffer)
            };
            match patiently(py, TIMEOUT_SET, touch) {
                Ok(found) => found.map(|found| f(&found, buffer.value())),
                Err(Busy) => {
                    self.refused(key);
                    None
                }
            }
        })
    }

    /// What is there, and its first `payload_bytes`, go to `f`.
    pub fn head<R>(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        payload_bytes: usize,
        f: impl FnOnce(&Found, &[u8]) -> R,
    ) -> Option<R> {
        with_buffer(py, |buffer| {
            let found = self.cache.head(key, payload_bytes, self.now_ms, buffer)?;
            Some(f(&found, buffer.value()))
        })
    }

    /// A write that found the shard locked for too long: absent is right, old is not.
    #[cold]
    fn refused(&self, key: Key<'_>) -> bool {
        self.cache.set_refused(key, self.now_ms);
        false
    }

    /// Reads into a pooled buffer, then gives what was found to `f`.
    #[inline]
    pub fn read<R>(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        f: impl FnOnce(&Found, &[u8]) -> R,
    ) -> Option<R> {
        with_buffer(py, |buffer| {
            let found = self.cache.get(key, self.now_ms, buffer)?;
            Some(f(&found, buffer.value()))
        })
    }
}

/// Tries with the GIL held; if the lock is busy, waits without it. No core code runs Python.
#[inline]
pub fn patiently<T: Send>(
    py: Python<'_>,
    timeout: Duration,
    mut attempt: impl FnMut(Wait) -> Result<T, Busy> + Send,
) -> Result<T, Busy> {
    match attempt(Wait::Try) {
        Err(Busy) => py.detach(|| attempt(Wait::UpTo(timeout))),
        done => done,
    }
}

/// [`patiently`], for operations where "not done" would be a wrong answer.
pub fn atomically<T: Send>(
    py: Python<'_>,
    attempt: impl FnMut(Wait) -> Result<T, Busy> + Send,
) -> PyResult<T> {
    patiently(py, TIMEOUT_ATOMIC, attempt).map_err(|Busy| {
        let text = "another process held the lock of this key's shard for 250 ms; it is stopped or starved of CPU";
        python::error(py, &ENGINE_BUSY, text.to_owned())
    })
}

static BUFFERS: GilCell<Vec<Buffer>> = GilCell::new(Vec::new());
const BUFFERS_MAX: usize = 8;
const BUFFER_MAX_BYTES: usize = 1 << 20;

/// Lends a buffer that nobody else uses, the finalizers that decoding may run included.
#[inline]
pub fn with_buffer<R>(py: Python<'_>, f: impl FnOnce(&mut Buffer) -> R) -> R {
    let mut buffer = BUFFERS.with(py, Vec::pop).unwrap_or_default();
    let result = f(&mut buffer);
    if buffer.value().len() <= BUFFER_MAX_BYTES {
        BUFFERS.with(py, |buffers| {
            if buffers.len() < BUFFERS_MAX {
                buffers.push(buffer);
            }
        });
    }
    result
}

/// In the child: a statistics slot of its own, and no objects that the parent kept.
#[pyfunction]
pub fn _after_fork_in_child(py: Python<'_>) {
    let opened: Vec<_> =
        OPENED.with(py, |opened| opened.iter().filter_map(Weak::upgrade).collect());
    for shared in opened {
        shared.core.child_after_fork();
        shared.forget(py);
    }
}
