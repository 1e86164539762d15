//! One opened store of this process: the core's, and the objects kept from it.
//!
//! What every face of it needs (`store.rs`, `fused.rs`): waiting without the GIL, refusals,
//! deadlines that have passed, and buffers. What a fork changes is the core's business; that the
//! process is another user's now is ours as well: where that user's file is, Python knows.

use std::path::Path;
use std::sync::Arc;

use nearcache_core::memory::Mapped;
use nearcache_core::{
    Added, Buffer, Busy, Cache, Config, Counter, Found, Key, Patience, SLICE, Stored, Wait, now_ms,
};
use pyo3::exceptions::PyMemoryError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::django::deadline::Deadline;
use crate::interop::gil::GilCell;
use crate::interop::python::{self, ENGINE_BUSY, region_error};
use crate::shared_memory::near::Near;

/// What a record's head can say.
const MAX_KEY_BYTES: usize = 65_535;

pub struct Shared {
    pub core: nearcache_core::Store,
    pub near: GilCell<Near>,
    config: Config,
    /// Knows where another user's file is: `Home` in `_core.pyi`.
    home: Option<Py<PyAny>>,
}

impl Shared {
    pub fn new(
        core: nearcache_core::Store,
        near: Near,
        config: Config,
        home: Option<Py<PyAny>>,
    ) -> Arc<Shared> {
        Arc::new(Shared { core, near: GilCell::new(near), config, home })
    }

    /// The cache as of now, for one operation: the next may find another file.
    #[inline]
    pub fn now(&self, py: Python<'_>) -> PyResult<Now<'_>> {
        let now_ms = now_ms();
        match self.core.cache(now_ms) {
            Ok(cache) => Ok(Now { cache, now_ms }),
            Err(_) => self.opened_again(py),
        }
    }

    /// The same for one of several attempts, without the GIL, after a [`Shared::now`].
    pub fn now_within(&self, wait: Wait) -> Result<Now<'_>, Busy> {
        let now_ms = now_ms();
        let found = self.core.cache(now_ms).map(|cache| Now { cache, now_ms });
        found.map_err(|not_ours| {
            if let Wait::UpTo(bound) = wait {
                std::thread::sleep(bound);
            }
            not_ours.into()
        })
    }

    #[cold]
    fn opened_again(&self, py: Python<'_>) -> PyResult<Now<'_>> {
        let epoch = self.core.epoch();
        let opened = match &self.home {
            Some(home) if !self.core.is_of_this_user() => self.move_to(py, home.bind(py)),
            _ => {
                let opened = py.detach(|| self.core.open_again(None));
                opened.map(|_| ()).map_err(|error| region_error(py, &error))
            }
        };
        opened?;
        if self.core.epoch() != epoch {
            self.forget(py);
        }
        let now_ms = now_ms();
        let found = self.core.cache(now_ms).map(|cache| Now { cache, now_ms });
        found.map_err(|_| python::error(py, &python::REGION_ERROR, RESTLESS.to_owned()))
    }

    /// To the file of the user that this process belongs to now.
    fn move_to(&self, py: Python<'_>, home: &Bound<'_, PyAny>) -> PyResult<()> {
        let base: String = home.call_method0(intern!(py, "find"))?.extract()?;
        let moved = py.detach(|| self.core.open_again(Some((Path::new(&base), &self.config))));
        // Not if another thread came first.
        if moved.map_err(|error| region_error(py, &error))? {
            let path = self.core.path().display().to_string();
            let told = (base, path, self.core.created(), self.core.notice());
            home.call_method1(intern!(py, "opened"), told)?;
        }
        Ok(())
    }

    /// Drops the kept objects, whatever they were.
    pub fn forget(&self, py: Python<'_>) {
        // SAFETY: G2: `clear` moves the entries out, and they are dropped here.
        let dropped = unsafe { self.near.with(py, Near::clear) };
        drop(dropped);
    }
}

const RESTLESS: &str = "the user of this process changed again while the cache was opened for it; \
    use a cache as one user";

/// One operation's view of the store. Hashes and versions are of this file only.
#[derive(Clone, Copy)]
pub struct Now<'a> {
    pub cache: &'a Cache<Mapped>,
    pub now_ms: u64,
}

impl<'a> Now<'a> {
    /// A key the core can hold, with its hash.
    #[inline(always)]
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
        if_busy: IfBusy,
    ) -> PyResult<bool> {
        if deadline.is_over(self.now_ms) {
            self.cache.delete(key, self.now_ms);
            return Ok(true);
        }
        python::demand_room(payload.len())?;
        let set = |wait| {
            let stored = self.cache.set(key, tag, payload, deadline.0, self.now_ms, wait)?;
            Ok(matches!(stored, Stored::Yes(_)))
        };
        match patiently(py, set)? {
            Some(stored) => Ok(stored),
            None => self.given_up(py, if_busy, Some(key)),
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
        if_busy: IfBusy,
    ) -> PyResult<bool> {
        if deadline.is_over(self.now_ms) {
            return Ok(self.cache.expires_at(key, self.now_ms).is_none());
        }
        python::demand_room(payload.len())?;
        let add = |wait| {
            let added = self.cache.add(key, tag, payload, deadline.0, self.now_ms, wait)?;
            Ok(matches!(added, Added::Stored(_)))
        };
        match patiently(py, add)? {
            Some(stored) => Ok(stored),
            // Nothing was to be changed, so what is there may stay.
            None => self.given_up(py, if_busy, None),
        }
    }

    pub fn touch(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        deadline: Deadline,
        if_busy: IfBusy,
    ) -> PyResult<bool> {
        if deadline.is_over(self.now_ms) {
            return Ok(self.cache.delete(key, self.now_ms));
        }
        let touch = |wait| self.cache.touch(key, deadline.0, self.now_ms, wait);
        match patiently(py, touch)? {
            Some(touched) => Ok(touched),
            None => self.given_up(py, if_busy, Some(key)),
        }
    }

    /// [`Now::touch`]; what was touched, and its first `payload_bytes`, go to `f`.
    pub fn touch_head<R>(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        deadline: Deadline,
        payload_bytes: usize,
        if_busy: IfBusy,
        f: impl FnOnce(&Found, &[u8]) -> R,
    ) -> PyResult<Option<R>> {
        if deadline.is_over(self.now_ms) {
            let head = self.head(py, key, payload_bytes, f)?;
            return Ok(head.filter(|_| self.cache.delete(key, self.now_ms)));
        }
        with_buffer(py, |buffer| {
            let touch = |wait| {
                let (cache, now_ms) = (self.cache, self.now_ms);
                cache.touch_head(key, deadline.0, payload_bytes, now_ms, wait, buffer)
            };
            match patiently(py, touch)? {
                Some(found) => Ok(found.map(|found| f(&found, buffer.value()))),
                None => self.given_up(py, if_busy, Some(key)).map(|_| None),
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
    ) -> PyResult<Option<R>> {
        with_buffer(py, |buffer| match self.cache.head(key, payload_bytes, self.now_ms, buffer) {
            Some(found) => Ok(Some(f(&found, buffer.value()))),
            None => missed(buffer),
        })
    }

    /// A write whose shard stayed locked. Whoever is told of it by an error keeps what was
    /// there; nobody else may find it: absent is right, old is not.
    #[cold]
    fn given_up(&self, py: Python<'_>, if_busy: IfBusy, old: Option<Key<'_>>) -> PyResult<bool> {
        match old {
            Some(key) if if_busy == IfBusy::Drop => self.cache.set_refused(key, self.now_ms),
            _ => self.cache.count(Counter::DroppedBusy),
        }
        match if_busy {
            IfBusy::Drop => Ok(false),
            IfBusy::Raise => Err(busy_error(py)),
        }
    }

    /// Reads into a pooled buffer, then gives what was found to `f`. Raises MemoryError.
    #[inline]
    pub fn read<R>(
        &self,
        py: Python<'_>,
        key: Key<'_>,
        f: impl FnOnce(&Found, &[u8]) -> R,
    ) -> PyResult<Option<R>> {
        with_buffer(py, |buffer| match self.cache.get(key, self.now_ms, buffer) {
            Some(found) => Ok(Some(f(&found, buffer.value()))),
            None => missed(buffer),
        })
    }
}

/// Nothing was found, or there was no memory for it.
#[inline]
fn missed<R>(buffer: &Buffer) -> PyResult<Option<R>> {
    if buffer.starved() { Err(PyMemoryError::new_err(())) } else { Ok(None) }
}

/// What becomes of a plain write whose shard stayed locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum IfBusy {
    Drop,
    Raise,
}

/// Tries with the GIL held; if the lock is busy, waits without it. `None` if it stayed busy.
/// No core code runs Python.
#[inline]
pub fn patiently<T: Send>(
    py: Python<'_>,
    mut attempt: impl FnMut(Wait) -> Result<T, Busy> + Send,
) -> PyResult<Option<T>> {
    match attempt(Wait::Try) {
        Ok(done) => Ok(Some(done)),
        Err(_) => in_slices(py, attempt),
    }
}

/// A signal whose handler raises ends the wait: nothing was done.
#[cold]
fn in_slices<T: Send>(
    py: Python<'_>,
    mut attempt: impl FnMut(Wait) -> Result<T, Busy> + Send,
) -> PyResult<Option<T>> {
    let mut patience = Patience::begin();
    loop {
        match py.detach(|| attempt(Wait::UpTo(SLICE))) {
            Ok(done) => return Ok(Some(done)),
            Err(busy) if patience.goes_on(busy) => py.check_signals()?,
            Err(_) => return Ok(None),
        }
    }
}

/// [`patiently`], for operations where "not done" would be a wrong answer.
pub fn atomically<T: Send>(
    py: Python<'_>,
    attempt: impl FnMut(Wait) -> Result<T, Busy> + Send,
) -> PyResult<T> {
    patiently(py, attempt)?.ok_or_else(|| busy_error(py))
}

fn busy_error(py: Python<'_>) -> PyErr {
    let text = "another process holds the lock of this key's shard, and was stopped or frozen (or \
                starved of CPU for 5 s); nothing was changed: let it go on or end it, and try again";
    python::error(py, &ENGINE_BUSY, text.to_owned())
}

static BUFFERS: GilCell<Vec<Buffer>> = GilCell::new(Vec::new());
const BUFFERS_MAX: usize = 8;
const BUFFER_MAX_BYTES: usize = 1 << 20;

/// Lends a buffer that nobody else uses, the finalizers that decoding may run included.
#[inline]
pub fn with_buffer<R>(py: Python<'_>, f: impl FnOnce(&mut Buffer) -> R) -> R {
    // SAFETY: G2: a buffer of bytes is moved.
    let mut buffer = unsafe { BUFFERS.with(py, Vec::pop) }.unwrap_or_default();
    let result = f(&mut buffer);
    if buffer.value().len() <= BUFFER_MAX_BYTES && !buffer.starved() {
        // SAFETY: G2: a buffer of bytes is moved, or dropped.
        unsafe {
            BUFFERS.with(py, |buffers| {
                if buffers.len() < BUFFERS_MAX {
                    buffers.push(buffer);
                }
            });
        }
    }
    result
}
