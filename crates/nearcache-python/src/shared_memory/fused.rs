//! `FusedCache`: Django's cache methods with key, look-up and decode in one native call.
//!
//! The Python side (`nearcache.backends`) inherits from this class first and from Django's
//! `BaseCache` second. On first use this class asks its Python side for
//!
//! - `self.engine`: the `Store`;
//! - `self.native_codec`: True to write values and to unpickle here (`value.rs`), False to let
//!   `self.codec`;
//! - `self.codec`: also reads the values whose header is none of ours;
//! - `self.counters`: `undecodable` is counted there and `refuse(name)` called, a stale value is
//!   neither;
//! - `self.bounded`: True to call `self._make_room(raw_key)` before each write;
//! - `self._forgives`: True to drop a write whose shard stays locked, with the old value; False
//!   to raise EngineBusy, and then nothing has changed;
//! - `self._touched_envelope(raw_key, expires_at_ms, head)`: the rest of a touch, if what was
//!   touched is an envelope that begins so;
//! - `self._incr_object(key, delta, version)`: incr of what is no 64-bit counter.
//!
//! Every method is Django's to the name of each argument; those that Django makes of others
//! (`decr`, `__contains__`) are Django's own. `docs/caveats.md` has the rest.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use nearcache_core::{Found, Incr, Key};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyTuple};

use crate::django::arguments::CacheArguments;
use crate::django::deadline::Deadline;
use crate::django::keys::KeyBuffer;
use crate::django::timeout::Timeout;
use crate::interop::python;
use crate::shared_memory::near::{self, Kept, Near};
use crate::shared_memory::shared::{IfBusy, Now, Shared, atomically};
use crate::shared_memory::store::Store;
use crate::values::exact::{Decoded, Keep};
use crate::values::python_codec::{self, flag, refused, undecodable};
use crate::values::value::{self, ENVELOPE, ENVELOPE_HEAD_BYTES, Read, join, split};

type Object<'py> = Bound<'py, PyAny>;

#[pyclass(extends = CacheArguments, frozen, subclass, module = "nearcache._core")]
pub struct FusedCache {
    /// One after the other: a call may be using the one before.
    opened: [OnceLock<Opened>; PLACES],
    place: AtomicUsize,
}

/// How many stores an object may use in its life: a test run takes it to another.
const PLACES: usize = 4;

/// What the Python side told us on first use.
struct Opened {
    shared: Arc<Shared>,
    native_codec: bool,
    bounded: bool,
    if_busy: IfBusy,
}

#[pymethods]
impl FusedCache {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<FusedCache>> {
        let base = PyClassInitializer::from(CacheArguments::new(py)?);
        Ok(base.add_subclass(FusedCache { opened: Default::default(), place: AtomicUsize::new(0) }))
    }

    /// Asks the Python side for everything anew at the next use; false if there was too much of it.
    fn _reopen(&self) -> bool {
        let place = self.place.load(Relaxed);
        let unused = self.opened[place].get().is_none();
        let next = if unused { place } else { place + 1 };
        self.place.store(next.min(PLACES - 1), Relaxed);
        next < PLACES
    }

    #[pyo3(signature = (key, default=None, version=None))]
    fn get<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        default: Option<Object<'py>>,
        version: Option<&Object<'py>>,
    ) -> PyResult<Object<'py>> {
        let me = slf.get();
        let opened = me.opened(slf)?;
        let mut buffer = KeyBuffer::new();
        let raw_key = raw_key(slf, key, version, &mut buffer)?;
        let now = opened.shared.now(slf.py())?;
        let found = now.key(raw_key).map(|key| opened.get(slf, now, key)).transpose()?;
        match found.flatten() {
            Some(value) => Ok(value),
            None => Ok(default.unwrap_or_else(|| slf.py().None().into_bound(slf.py()))),
        }
    }

    #[pyo3(signature = (keys, version=None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let me = slf.get();
        let opened = me.opened(slf)?;
        let mut asked: Vec<(Object<'py>, Range<usize>)> = Vec::new();
        let mut raw_keys = Vec::new();
        for key in keys.try_iter()? {
            let key = key?;
            let mut buffer = KeyBuffer::new();
            let start = raw_keys.len();
            raw_keys.extend_from_slice(raw_key(slf, &key, version, &mut buffer)?);
            asked.push((key, start..raw_keys.len()));
        }
        let now = opened.shared.now(slf.py())?;
        let hashed: Vec<_> = asked.iter().map(|(_, at)| now.key(&raw_keys[at.clone()])).collect();
        // The memory of all is asked for before the first is waited for.
        hashed.iter().flatten().for_each(|&key| now.cache.prefetch(key));
        let found = PyDict::new(slf.py());
        for ((key, _), hashed) in asked.into_iter().zip(hashed) {
            if let Some(value) = hashed.map(|key| opened.get(slf, now, key)).transpose()?.flatten()
            {
                found.set_item(key, value)?;
            }
        }
        Ok(found)
    }

    #[pyo3(signature = (key, value, timeout=Timeout::Default, version=None))]
    fn set<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        value: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
    ) -> PyResult<()> {
        slf.get().store(slf, key, value, timeout, version, None).map(|_| ())
    }

    #[pyo3(signature = (data, timeout=Timeout::Default, version=None))]
    fn set_many<'py>(
        slf: &Bound<'py, Self>,
        data: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let refused = PyList::empty(py);
        for item in data.call_method0(intern!(py, "items"))?.try_iter()? {
            let (key, value): (Object<'py>, Object<'py>) = item?.extract()?;
            // Its answer says what was not stored: no error is needed.
            if !slf.get().store(slf, &key, &value, timeout, version, Some(IfBusy::Drop))? {
                refused.append(key)?;
            }
        }
        Ok(refused)
    }

    #[pyo3(signature = (key, value, timeout=Timeout::Default, version=None))]
    fn add<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        value: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
    ) -> PyResult<bool> {
        let py = slf.py();
        slf.get().write(slf, key, value, timeout, version, |opened, key, tag, payload, deadline| {
            let now = opened.shared.now(py)?;
            let add = |key| now.add(py, key, tag, payload, deadline, opened.if_busy);
            now.key(key).map_or(Ok(false), add)
        })
    }

    #[pyo3(signature = (key, timeout=Timeout::Default, version=None))]
    fn touch<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
    ) -> PyResult<bool> {
        let (py, me) = (slf.py(), slf.get());
        let deadline = slf.as_super().get().deadline(py, timeout)?;
        let opened = me.opened(slf)?;
        let mut buffer = KeyBuffer::new();
        let raw_key = raw_key(slf, key, version, &mut buffer)?;
        let now = opened.shared.now(py)?;
        let Some(hashed) = now.key(raw_key) else {
            return Ok(false);
        };
        let envelope = |found: &Found, payload: &[u8]| {
            (found.tag == ENVELOPE).then(|| join(py, ENVELOPE, payload)).transpose()
        };
        let if_busy = opened.if_busy;
        match now.touch_head(py, hashed, deadline, ENVELOPE_HEAD_BYTES, if_busy, envelope)? {
            None => Ok(false),
            Some(touched) => match touched? {
                None => Ok(true),
                // It has a deadline of its own inside, and a grace behind that.
                Some(head) => {
                    let raw_key = python::new_bytes(py, raw_key)?;
                    let told = (raw_key, deadline.as_option(), head);
                    slf.call_method1(intern!(py, "_touched_envelope"), told)?.is_truthy()
                }
            },
        }
    }

    #[pyo3(signature = (key, version=None))]
    fn delete<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> PyResult<bool> {
        let delete = |now: Now<'_>, key: Key<'_>| now.cache.delete(key, now.now_ms);
        Ok(slf.get().with_key(slf, key, version, delete)?.unwrap_or(false))
    }

    #[pyo3(signature = (keys, version=None))]
    fn delete_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> PyResult<()> {
        for key in keys.try_iter()? {
            Self::delete(slf, &key?, version)?;
        }
        Ok(())
    }

    #[pyo3(signature = (key, version=None))]
    fn has_key<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> PyResult<bool> {
        let contains = |now: Now<'_>, key: Key<'_>| now.cache.contains(key, now.now_ms);
        Ok(slf.get().with_key(slf, key, version, contains)?.unwrap_or(false))
    }

    #[pyo3(signature = (key, delta=None, version=None), text_signature = "($self, key, delta=1, version=None)")]
    fn incr<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        delta: Option<Object<'py>>,
        version: Option<&Object<'py>>,
    ) -> PyResult<Object<'py>> {
        let delta = match delta {
            Some(delta) => delta,
            None => python::object(slf.py(), 1)?,
        };
        slf.get().incr_by(slf, key, &delta, version)
    }
}

impl FusedCache {
    #[inline]
    fn opened<'a>(&'a self, slf: &Bound<'_, Self>) -> PyResult<&'a Opened> {
        match self.opened[self.place.load(Relaxed)].get() {
            Some(opened) => Ok(opened),
            None => self.open(slf),
        }
    }

    #[cold]
    fn open<'a>(&'a self, slf: &Bound<'_, Self>) -> PyResult<&'a Opened> {
        let (py, place) = (slf.py(), self.place.load(Relaxed));
        let store = slf.getattr(intern!(py, "engine"))?.cast_into::<Store>()?;
        let opened = Opened {
            shared: store.get().shared.clone(),
            native_codec: flag(slf.as_any(), "native_codec", true)?,
            bounded: flag(slf.as_any(), "bounded", false)?,
            if_busy: match flag(slf.as_any(), "_forgives", false)? {
                true => IfBusy::Drop,
                false => IfBusy::Raise,
            },
        };
        // Another thread may have come first while Python code ran; both opened the same.
        Ok(self.opened[place].get_or_init(|| opened))
    }

    #[inline]
    fn with_key<'py, R>(
        &self,
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
        f: impl FnOnce(Now<'_>, Key<'_>) -> R,
    ) -> PyResult<Option<R>> {
        let opened = self.opened(slf)?;
        let mut buffer = KeyBuffer::new();
        let raw_key = raw_key(slf, key, version, &mut buffer)?;
        let now = opened.shared.now(slf.py())?;
        Ok(now.key(raw_key).map(|key| f(now, key)))
    }

    /// True if stored; a refusal is counted. `if_busy`: the settings' if not given.
    #[inline]
    fn store<'py>(
        &self,
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        value: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
        if_busy: Option<IfBusy>,
    ) -> PyResult<bool> {
        let py = slf.py();
        let stored = self.write(
            slf,
            key,
            value,
            timeout,
            version,
            |opened, key, tag, payload, deadline| {
                let now = opened.shared.now(py)?;
                let if_busy = if_busy.unwrap_or(opened.if_busy);
                let set = |key| now.set(py, key, tag, payload, deadline, if_busy);
                now.key(key).map_or(Ok(false), set)
            },
        )?;
        if !stored {
            refused(slf.as_any())?;
        }
        Ok(stored)
    }

    /// Key, deadline, bytes of the value, room: what comes before a write.
    #[inline]
    fn write<'py, R>(
        &self,
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        value: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
        f: impl FnOnce(&Opened, &[u8], u8, &[u8], Deadline) -> PyResult<R>,
    ) -> PyResult<R> {
        let py = slf.py();
        let opened = self.opened(slf)?;
        let mut buffer = KeyBuffer::new();
        let raw_key = raw_key(slf, key, version, &mut buffer)?;
        let deadline = slf.as_super().get().deadline(py, timeout)?;
        if opened.bounded {
            let raw_key = PyBytes::new(py, raw_key);
            slf.call_method1(intern!(py, "_make_room"), (raw_key,))?;
        }
        if !opened.native_codec {
            let raw = python_codec::encode(slf.as_any(), value)?;
            let (tag, payload) = split(raw.as_bytes());
            return f(opened, raw_key, tag, payload.as_slice(), deadline);
        }
        value::with_written(value, |tag, payload| f(opened, raw_key, tag, payload, deadline))
    }

    fn incr_by<'py>(
        &self,
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        delta: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> PyResult<Object<'py>> {
        let py = slf.py();
        let small = delta.cast_exact::<PyInt>().ok().and_then(|delta| delta.extract::<i64>().ok());
        if let Some(small) = small {
            let incr = |now: Now<'_>, key: Key<'_>| {
                atomically(py, |wait| now.cache.incr(key, small, now.now_ms, wait))
            };
            match self.with_key(slf, key, version, incr)?.unwrap_or(Ok(Incr::Missing))? {
                Incr::Value(total) => return python::object(py, total),
                Incr::Missing => {
                    let text = format!("Key '{}' not found", key.str()?.to_string_lossy());
                    return Err(PyValueError::new_err(text));
                }
                Incr::NotInteger | Incr::Overflow => {}
            }
        }
        slf.call_method1(intern!(py, "_incr_object"), (key, delta, version))
    }
}

impl Opened {
    /// The value of a key, kept or fresh.
    #[inline]
    fn get<'py>(
        &self,
        slf: &Bound<'py, FusedCache>,
        now: Now<'_>,
        key: Key<'_>,
    ) -> PyResult<Option<Object<'py>>> {
        let py = slf.py();
        let shared = &*self.shared;
        // SAFETY: G2: `find` compares bytes and counts a reference.
        let kept = unsafe { shared.near.with(py, |near| near.find(py, key.hash, key.bytes)) };
        if let Some(kept) = kept {
            let value = kept.value.into_bound(py);
            if now.cache.still_current(&kept.place, now.now_ms) {
                return near::copy_of(value, kept.keep).map(Some);
            }
        }
        let decode = |found: &nearcache_core::Found, payload: &[u8]| {
            // Pickles run code: only where this module also writes them, else `codec` decides.
            let read = match found.tag {
                value::PICKLE if !self.native_codec => Read::Foreign,
                tag => value::read(py, tag, payload)?,
            };
            let Decoded { value, keep } = match read {
                Read::Value(decoded) => decoded,
                Read::Foreign => {
                    return python_codec::decode(slf.as_any(), join(py, found.tag, payload)?);
                }
                Read::Undecodable => return undecodable(slf.as_any()).map(|()| None),
            };
            if keep != Keep::Nothing {
                self.keep(key, found, &value, keep, payload.len())?;
            }
            Ok(Some(value))
        };
        now.read(py, key, decode)?.unwrap_or(Ok(None))
    }

    /// Keeps a value that was read, if the key is read often enough.
    #[inline]
    fn keep(
        &self,
        key: Key<'_>,
        found: &nearcache_core::Found,
        value: &Object<'_>,
        keep: Keep,
        payload_bytes: usize,
    ) -> PyResult<()> {
        // An estimate: objects take about four times the bytes they are encoded in.
        let cost_bytes = payload_bytes * 4 + key.bytes.len() + 200;
        let py = value.py();
        let (near, epoch) = (&self.shared.near, self.shared.core.epoch());
        // SAFETY: G2: `wants` compares bytes.
        if !unsafe { near.with(py, |near| near.wants(key.hash, key.bytes, cost_bytes)) } {
            return Ok(());
        }
        let template = near::copy_of(value.clone(), keep)?.unbind();
        let kept = Kept { place: found.place, value: template, keep };
        let put = |near: &mut Near| near.put(key.hash, key.bytes, kept, cost_bytes, epoch);
        // SAFETY: G2: `put` moves entries, and those that it throws out are dropped here.
        let dropped = unsafe { near.with(py, put) };
        drop(dropped);
        Ok(())
    }
}

#[inline]
fn raw_key<'b, 'py>(
    slf: &Bound<'py, FusedCache>,
    key: &Object<'py>,
    version: Option<&Object<'py>>,
    buffer: &'b mut KeyBuffer,
) -> PyResult<&'b [u8]> {
    CacheArguments::raw_key(slf.as_super(), key, version, buffer)
}
