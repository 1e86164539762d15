//! `Store`: the core as a `nearcache.engines.contract.Engine`. Converts, waits, maps errors.

use std::path::Path;
use std::sync::Arc;

use nearcache_core::{
    BEFORE_ANY_DEADLINE_MS, Config, Found, Incr, Item, LockTableError, TIMEOUT_STILL, Wait,
    boot_ms, glob_match,
};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict};

use crate::django::deadline::Deadline;
use crate::interop::python::{self, DATA_ERROR, region_error};
use crate::shared_memory::lock_wait::{Answer, LockWait, table_full};
use crate::shared_memory::near::Near;
use crate::shared_memory::shared::{IfBusy, Now, Shared, atomically, with_buffer};
use crate::values::value::{join, outside_len, split};

const ABSENT: i64 = -1;
/// How many items one call of the core's scan is asked for, when all are wanted.
const SCAN_ITEMS: usize = 1000;

#[pyclass(frozen, module = "nearcache._core")]
pub struct Store {
    pub shared: Arc<Shared>,
}

type ScanItem<'py> = (Bound<'py, PyBytes>, usize, Option<u64>, u64);

#[pymethods]
impl Store {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    #[pyo3(signature = (base_path, *, size_bytes, or_less=false, max_item_bytes=None, mean_item_bytes=None, near_items=4096, near_bytes=16 << 20, home=None))]
    fn new(
        py: Python<'_>,
        base_path: &str,
        size_bytes: u64,
        or_less: bool,
        max_item_bytes: Option<u64>,
        mean_item_bytes: Option<u64>,
        near_items: usize,
        near_bytes: usize,
        home: Option<Py<PyAny>>,
    ) -> PyResult<Store> {
        let config = Config { size_bytes, or_less, max_item_bytes, mean_item_bytes };
        // Making the file may take long: memory is reserved page by page.
        let opened = py.detach(|| nearcache_core::Store::open(Path::new(base_path), &config));
        let core = opened.map_err(|error| region_error(py, &error))?;
        Ok(Store { shared: Shared::new(core, Near::new(near_items, near_bytes), config, home) })
    }

    /// The store at that path as it is, with whatever settings it was made.
    #[staticmethod]
    fn existing(py: Python<'_>, base_path: &str) -> PyResult<Store> {
        let core = nearcache_core::Store::existing(Path::new(base_path))
            .map_err(|error| region_error(py, &error))?;
        let config = Config::of_size(core.size_bytes());
        Ok(Store { shared: Shared::new(core, Near::new(0, 0), config, None) })
    }

    #[getter]
    fn path(&self) -> String {
        self.shared.core.path().display().to_string()
    }

    #[getter]
    fn created(&self) -> bool {
        self.shared.core.created()
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.shared.core.size_bytes()
    }

    #[getter]
    fn max_item_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared.now(py)?.cache.max_item_bytes())
    }

    #[getter]
    fn lock_epoch(&self, py: Python<'_>) -> u64 {
        // What it cannot open has no lock of this process: 0.
        let _ = self.shared.now(py);
        self.shared.core.lock_epoch()
    }

    #[getter]
    fn notice(&self) -> Option<String> {
        self.shared.core.notice().map(|text| text.to_string())
    }

    fn get<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.read(py, self.shared.now(py)?, key)
    }

    fn gets<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u64)>> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(None);
        };
        now.read(py, key, |found, payload| Ok((join(py, found.tag, payload)?, found.version)))?
            .transpose()
    }

    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyBytes>>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let now = self.shared.now(py)?;
        keys.into_iter().map(|key| self.read(py, now, key.as_bytes())).collect()
    }

    fn set(
        &self,
        py: Python<'_>,
        key: &[u8],
        value: &[u8],
        expires_at_ms: Option<i64>,
    ) -> PyResult<bool> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(false);
        };
        let (tag, payload) = split(value);
        now.set(py, key, tag, payload.as_slice(), deadline(expires_at_ms), IfBusy::Drop)
    }

    fn set_many<'py>(
        &self,
        py: Python<'py>,
        items: Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
        expires_at_ms: Option<i64>,
    ) -> PyResult<Vec<usize>> {
        let mut refused = Vec::new();
        for (at, (key, value)) in items.iter().enumerate() {
            if !self.set(py, key.as_bytes(), value.as_bytes(), expires_at_ms)? {
                refused.push(at);
            }
        }
        Ok(refused)
    }

    fn add(
        &self,
        py: Python<'_>,
        key: &[u8],
        value: &[u8],
        expires_at_ms: Option<i64>,
    ) -> PyResult<bool> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(false);
        };
        let (tag, payload) = split(value);
        now.add(py, key, tag, payload.as_slice(), deadline(expires_at_ms), IfBusy::Drop)
    }

    fn cas(
        &self,
        py: Python<'_>,
        key: &[u8],
        value: &[u8],
        version: u64,
        expires_at_ms: Option<i64>,
    ) -> PyResult<bool> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(false);
        };
        let (tag, payload) = split(value);
        let deadline = deadline(expires_at_ms);
        python::demand_room(payload.as_slice().len())?;
        atomically(py, |wait| {
            now.cache.cas(key, tag, payload.as_slice(), version, deadline.0, now.now_ms, wait)
        })
    }

    fn get_and_set<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        value: &[u8],
        expires_at_ms: Option<i64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(None);
        };
        let (tag, payload) = split(value);
        let deadline = deadline(expires_at_ms);
        python::demand_room(payload.as_slice().len())?;
        with_buffer(py, |buffer| {
            let found = atomically(py, |wait: Wait| {
                let payload = payload.as_slice();
                now.cache.get_and_set(key, tag, payload, deadline.0, now.now_ms, wait, buffer)
            })?;
            found.map(|found| join(py, found.tag, buffer.value())).transpose()
        })
    }

    fn incr(&self, py: Python<'_>, key: &[u8], delta: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(None);
        };
        let Ok(delta) = delta.extract::<i64>() else {
            return Err(data_error(py, "the sum does not fit 64 bits"));
        };
        match atomically(py, |wait| now.cache.incr(key, delta, now.now_ms, wait))? {
            Incr::Value(total) => Ok(Some(total)),
            Incr::Missing => Ok(None),
            Incr::NotInteger => Err(data_error(py, "the value is no counter")),
            Incr::Overflow => Err(data_error(py, "the sum does not fit 64 bits")),
        }
    }

    fn touch(&self, py: Python<'_>, key: &[u8], expires_at_ms: Option<i64>) -> PyResult<bool> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(false);
        };
        now.touch(py, key, deadline(expires_at_ms), IfBusy::Drop)
    }

    fn touch_head<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        expires_at_ms: Option<i64>,
        size: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(None);
        };
        let (deadline, payload_bytes) = (deadline(expires_at_ms), head_payload_bytes(size));
        let cut = |found: &Found, payload: &[u8]| head(py, found.tag, payload, size);
        now.touch_head(py, key, deadline, payload_bytes, IfBusy::Raise, cut)?.transpose()
    }

    fn head<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        size: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let now = self.shared.now(py)?;
        let Some(key) = now.key(key) else {
            return Ok(None);
        };
        let cut = |found: &Found, payload: &[u8]| head(py, found.tag, payload, size);
        now.head(py, key, head_payload_bytes(size), cut)?.transpose()
    }

    fn expires_at(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<i64>> {
        let now = self.shared.now(py)?;
        Ok(match now.key(key).and_then(|key| now.cache.expires_at(key, now.now_ms)) {
            None => Some(ABSENT),
            Some(0) => None,
            Some(at) => Some(at as i64),
        })
    }

    fn contains(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let now = self.shared.now(py)?;
        Ok(now.key(key).is_some_and(|key| now.cache.contains(key, now.now_ms)))
    }

    fn delete(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let now = self.shared.now(py)?;
        Ok(now.key(key).is_some_and(|key| now.cache.delete(key, now.now_ms)))
    }

    fn delete_many(&self, py: Python<'_>, keys: Vec<Bound<'_, PyBytes>>) -> PyResult<usize> {
        let mut deleted = 0;
        for key in &keys {
            deleted += usize::from(self.delete(py, key.as_bytes())?);
        }
        Ok(deleted)
    }

    #[pyo3(signature = (cursor, limit, *, prefix=b"".as_slice(), glob=None))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        cursor: u64,
        limit: usize,
        prefix: &[u8],
        glob: Option<&[u8]>,
    ) -> PyResult<(u64, Vec<ScanItem<'py>>)> {
        let mut items: Vec<ScanItem<'py>> = Vec::new();
        let now = self.shared.now(py)?;
        let next = now.cache.scan(cursor, limit, now.now_ms, &mut |item: Item<'_>| {
            if matches(item.key, prefix, glob) {
                let expires_at_ms = (item.expires_at_ms != 0).then_some(item.expires_at_ms);
                let size = outside_len(item.tag, item.value_len);
                items.push((PyBytes::new(py, item.key), size, expires_at_ms, item.version));
            }
        });
        Ok((next, items))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.shared.now(py)?.cache;
        atomically(py, |wait| cache.clear(wait))?;
        self.shared.forget(py);
        Ok(())
    }

    #[pyo3(signature = (*, prefix=b"".as_slice(), glob=None))]
    fn clear_matching(&self, py: Python<'_>, prefix: &[u8], glob: Option<&[u8]>) -> PyResult<u64> {
        let now = self.shared.now(py)?;
        Ok(py.detach(|| clear_matching(now, prefix, glob)))
    }

    fn cull(&self, py: Python<'_>, items: u64) -> PyResult<u64> {
        let cache = self.shared.now(py)?.cache;
        atomically(py, |wait| cache.cull(items, wait))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared.now(py)?.cache.len() as usize)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = self.shared.now(py)?;
        now.cache.stats(boot_ms()).into_py_dict(py)
    }

    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let cache = self.shared.now(py)?.cache;
        Ok(py.detach(|| cache.check(Wait::UpTo(TIMEOUT_STILL))))
    }

    fn lock_acquire(&self, py: Python<'_>, name: &[u8], ttl_ms: u64) -> PyResult<Option<u64>> {
        self.shared.now(py)?;
        let acquire = |wait| {
            let now = self.shared.now_within(wait)?;
            match now.cache.lock_acquire(name, ttl_ms, boot_ms(), wait) {
                Ok(token) => Ok(Ok(token)),
                Err(LockTableError::Busy(busy)) => Err(busy),
                Err(LockTableError::Full) => Ok(Err(())),
            }
        };
        atomically(py, acquire)?.map_err(|()| table_full(py))
    }

    fn lock_wait(
        &self,
        py: Python<'_>,
        name: &[u8],
        ticket: Option<u64>,
        ttl_ms: u64,
        wait_ms: u64,
    ) -> PyResult<Answer> {
        let ticket = ticket.unwrap_or(0);
        LockWait { shared: &self.shared, name, ttl_ms, ticket }.run(py, wait_ms)
    }

    fn lock_leave(&self, py: Python<'_>, name: &[u8], ticket: u64) -> PyResult<()> {
        let now = self.shared.now(py)?;
        atomically(py, |wait| now.cache.lock_leave(name, ticket, boot_ms(), wait))
    }

    fn lock_renew(&self, py: Python<'_>, name: &[u8], token: u64, ttl_ms: u64) -> PyResult<bool> {
        self.shared.now(py)?;
        atomically(py, |wait| {
            let now = self.shared.now_within(wait)?;
            now.cache.lock_renew(name, token, ttl_ms, boot_ms(), wait)
        })
    }

    fn lock_release(&self, py: Python<'_>, name: &[u8], token: u64) -> PyResult<bool> {
        let now = self.shared.now(py)?;
        atomically(py, |wait| now.cache.lock_release(name, token, boot_ms(), wait))
    }

    fn claim(&self, py: Python<'_>, key: &[u8], owner: u64, ttl_ms: u64) -> PyResult<bool> {
        self.shared.now(py)?;
        let claim = |wait| {
            let now = self.shared.now_within(wait)?;
            match now.cache.claim(key, owner, ttl_ms, boot_ms(), wait) {
                Ok(mine) => Ok(Ok(mine)),
                Err(LockTableError::Busy(busy)) => Err(busy),
                Err(LockTableError::Full) => Ok(Err(())),
            }
        };
        atomically(py, claim)?.map_err(|()| table_full(py))
    }

    fn unclaim(&self, py: Python<'_>, key: &[u8], owner: u64) -> PyResult<()> {
        let now = self.shared.now(py)?;
        atomically(py, |wait| now.cache.unclaim(key, owner, boot_ms(), wait))
    }
}

impl Store {
    fn read<'py>(
        &self,
        py: Python<'py>,
        now: Now<'_>,
        key: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Some(key) = now.key(key) else {
            return Ok(None);
        };
        now.read(py, key, |found, payload| join(py, found.tag, payload))?.transpose()
    }
}

/// How much of a payload gives the first `size` bytes outside: a counter's takes all of it.
fn head_payload_bytes(size: usize) -> usize {
    size.max(size_of::<i64>())
}

/// The first `size` bytes of what [`join`] makes.
fn head<'py>(
    py: Python<'py>,
    tag: u8,
    payload: &[u8],
    size: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let raw = join(py, tag, payload)?;
    let bytes = raw.as_bytes();
    if bytes.len() <= size { Ok(raw) } else { python::new_bytes(py, &bytes[..size]) }
}

/// A deadline before 1970 has passed like any other.
fn deadline(expires_at_ms: Option<i64>) -> Deadline {
    match expires_at_ms {
        None => Deadline::NEVER,
        Some(at) => u64::try_from(at).map_or(Deadline::PASSED, |at| Deadline(at.max(1))),
    }
}

fn matches(key: &[u8], prefix: &[u8], glob: Option<&[u8]>) -> bool {
    key.starts_with(prefix) && glob.is_none_or(|glob| glob_match(glob, key))
}

fn clear_matching(now: Now<'_>, prefix: &[u8], glob: Option<&[u8]>) -> u64 {
    let (mut cursor, mut deleted) = (0, 0);
    loop {
        // Collected first: the scan's items are borrowed from the store. What is over goes as
        // well, though it does not count: see `Shard::delete`.
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let every = BEFORE_ANY_DEADLINE_MS;
        cursor = now.cache.scan(cursor, SCAN_ITEMS, every, &mut |item: Item<'_>| {
            if matches(item.key, prefix, glob) {
                keys.push(item.key.to_vec());
            }
        });
        for key in &keys {
            deleted += u64::from(now.cache.delete(now.cache.key(key), now.now_ms));
        }
        if cursor == 0 {
            return deleted;
        }
    }
}

fn data_error(py: Python<'_>, text: &str) -> PyErr {
    python::error(py, &DATA_ERROR, text.to_owned())
}
