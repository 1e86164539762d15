//! `FusedCache`: Django's cache methods with key, look-up and decode in one native call.
//!
//! The Python side (`nearcache.backends`) inherits from this class first and from Django's
//! `BaseCache` second. On first use this class asks its Python side for
//!
//! - `self.engine`: the `Store`;
//! - `self.native_codec`: True to write values here (`value.rs`), False to let `self.codec`;
//! - `self.codec`: also reads the values whose header is none of ours;
//! - `self.counters`: `undecodable` and `refused` are counted there;
//! - `self.bounded`: True to call `self._make_room(raw_key)` before each write;
//! - `self._incr_object(key, delta, version)`: incr of what is no 64-bit counter.
//!
//! Every method is Django's to the name of each argument. `docs/caveats.md` has the rest.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use nearcache_core::{Incr, Key, now_ms};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::exact::{Decoded, Keep};
use crate::gil::GilCell;
use crate::keys::{Head, KeyBuffer, Text, Version, made_by_python};
use crate::near::{self, Kept};
use crate::python::{BASE_CACHE, DEFAULT_KEY_FUNC};
use crate::shared::{Deadline, Now, Shared, atomically};
use crate::store::Store;
use crate::timeout::Timeout;
use crate::value::{self, Read, join, split};

type Object<'py> = Bound<'py, PyAny>;

#[pyclass(frozen, subclass, module = "nearcache._core")]
pub struct FusedCache {
    settings: GilCell<Settings>,
    opened: OnceLock<Opened>,
}

/// What `BaseCache.__init__` assigns, and what follows from it.
struct Settings {
    key_prefix: Py<PyAny>,
    version: Py<PyAny>,
    key_func: Py<PyAny>,
    default_timeout: Py<PyAny>,
    head: Head,
    default_keys: bool, // key_func is Django's default_key_func
}

/// What the Python side told us on first use.
struct Opened {
    shared: Arc<Shared>,
    native_codec: bool,
    bounded: bool,
    plain_keys: bool, // none of Django's key methods is overridden
}

#[pymethods]
impl FusedCache {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<FusedCache> {
        let key_prefix = PyString::new(py, "").into_any();
        let version = crate::python::object(py, 1)?;
        let settings = Settings {
            head: Head::new(&key_prefix, &version),
            key_prefix: key_prefix.unbind(),
            version: version.unbind(),
            key_func: DEFAULT_KEY_FUNC.get(py)?.clone().unbind(),
            default_timeout: crate::python::object(py, 300)?.unbind(),
            default_keys: true,
        };
        Ok(FusedCache { settings: GilCell::new(settings), opened: OnceLock::new() })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector runs with the GIL held. It cannot run while the cell is open,
        // because nothing in there allocates (gil.rs, G2).
        let py = unsafe { Python::assume_attached() };
        self.settings.with(py, |settings| {
            visit.call(&settings.key_prefix)?;
            visit.call(&settings.version)?;
            visit.call(&settings.key_func)?;
            visit.call(&settings.default_timeout)
        })
    }

    #[getter]
    fn get_key_prefix(&self, py: Python<'_>) -> Py<PyAny> {
        self.settings.with(py, |settings| settings.key_prefix.clone_ref(py))
    }

    #[setter]
    fn set_key_prefix(&self, prefix: Object<'_>) {
        let head = Head::new(&prefix, self.get_version(prefix.py()).bind(prefix.py()));
        self.assign(prefix, head, |settings| &mut settings.key_prefix);
    }

    #[getter]
    fn get_version(&self, py: Python<'_>) -> Py<PyAny> {
        self.settings.with(py, |settings| settings.version.clone_ref(py))
    }

    #[setter]
    fn set_version(&self, version: Object<'_>) {
        let head = Head::new(self.get_key_prefix(version.py()).bind(version.py()), &version);
        self.assign(version, head, |settings| &mut settings.version);
    }

    #[getter]
    fn get_key_func(&self, py: Python<'_>) -> Py<PyAny> {
        self.settings.with(py, |settings| settings.key_func.clone_ref(py))
    }

    #[setter]
    fn set_key_func(&self, function: Object<'_>) -> PyResult<()> {
        let py = function.py();
        let is_default = function.is(DEFAULT_KEY_FUNC.get(py)?);
        let old = self.settings.with(py, |settings| {
            settings.default_keys = is_default;
            std::mem::replace(&mut settings.key_func, function.unbind())
        });
        drop(old);
        Ok(())
    }

    #[getter]
    fn get_default_timeout(&self, py: Python<'_>) -> Py<PyAny> {
        self.settings.with(py, |settings| settings.default_timeout.clone_ref(py))
    }

    #[setter]
    fn set_default_timeout(&self, timeout: Object<'_>) {
        let py = timeout.py();
        let place = |settings: &mut Settings| {
            std::mem::replace(&mut settings.default_timeout, timeout.unbind())
        };
        let old = self.settings.with(py, place);
        drop(old);
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
        let raw_key = me.raw_key(slf, opened, key, version, &mut buffer)?;
        let now = opened.shared.now();
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
            raw_keys.extend_from_slice(me.raw_key(slf, opened, &key, version, &mut buffer)?);
            asked.push((key, start..raw_keys.len()));
        }
        let now = opened.shared.now();
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
        slf.get().store(slf, key, value, timeout, version).map(|_| ())
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
            if !slf.get().store(slf, &key, &value, timeout, version)? {
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
            let now = opened.shared.now();
            now.key(key).is_some_and(|key| now.add(py, key, tag, payload, deadline))
        })
    }

    #[pyo3(signature = (key, timeout=Timeout::Default, version=None))]
    fn touch<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
    ) -> PyResult<bool> {
        let py = slf.py();
        let deadline = slf.get().deadline(py, timeout)?;
        let touch = |now: Now<'_>, key: Key<'_>| now.touch(py, key, deadline);
        Ok(slf.get().with_key(slf, key, version, touch)?.unwrap_or(false))
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

    /// Through `has_key`, as in Django: a subclass may override that one.
    fn __contains__<'py>(slf: &Bound<'py, Self>, key: &Object<'py>) -> PyResult<bool> {
        slf.call_method1(intern!(slf.py(), "has_key"), (key,))?.is_truthy()
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
            None => crate::python::object(slf.py(), 1)?,
        };
        slf.get().incr_by(slf, key, &delta, version)
    }

    /// Through `incr`, as in Django.
    #[pyo3(signature = (key, delta=None, version=None), text_signature = "($self, key, delta=1, version=None)")]
    fn decr<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        delta: Option<Object<'py>>,
        version: Option<&Object<'py>>,
    ) -> PyResult<Object<'py>> {
        let delta = match delta {
            Some(delta) => delta.neg()?,
            None => crate::python::object(slf.py(), -1)?,
        };
        slf.call_method1(intern!(slf.py(), "incr"), (key, delta, version))
    }

    /// The bytes the store has the key under.
    #[pyo3(signature = (key, version=None))]
    fn _raw_key<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let me = slf.get();
        let mut buffer = KeyBuffer::new();
        let raw_key = me.raw_key(slf, me.opened(slf)?, key, version, &mut buffer)?;
        Ok(PyBytes::new(slf.py(), raw_key))
    }
}

impl FusedCache {
    fn assign(
        &self,
        value: Object<'_>,
        head: Head,
        place: impl FnOnce(&mut Settings) -> &mut Py<PyAny>,
    ) {
        let py = value.py();
        let old = self.settings.with(py, |settings| {
            settings.head = head;
            std::mem::replace(place(settings), value.unbind())
        });
        drop(old);
    }

    #[inline]
    fn opened<'a>(&'a self, slf: &Bound<'_, Self>) -> PyResult<&'a Opened> {
        match self.opened.get() {
            Some(opened) => Ok(opened),
            None => self.open(slf),
        }
    }

    #[cold]
    fn open<'a>(&'a self, slf: &Bound<'_, Self>) -> PyResult<&'a Opened> {
        let py = slf.py();
        let flag = |name: &str, absent: bool| match slf.getattr_opt(name)? {
            Some(value) => value.is_truthy(),
            None => Ok(absent),
        };
        let store = slf.getattr(intern!(py, "engine"))?.cast_into::<Store>()?;
        let opened = Opened {
            shared: store.get().shared.clone(),
            native_codec: flag("native_codec", true)?,
            bounded: flag("bounded", false)?,
            plain_keys: has_plain_keys(slf)?,
        };
        // Another thread may have come first while Python code ran; both opened the same.
        Ok(self.opened.get_or_init(|| opened))
    }

    /// The final key, put together in `buffer`.
    #[inline]
    fn raw_key<'b, 'py>(
        &self,
        slf: &Bound<'py, Self>,
        opened: &Opened,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
        buffer: &'b mut KeyBuffer,
    ) -> PyResult<&'b [u8]> {
        if opened.plain_keys && self.build_key(key, version, buffer)? {
            return Ok(buffer.bytes());
        }
        buffer.replace(made_by_python(slf.as_any(), key, version)?);
        Ok(buffer.bytes())
    }

    #[inline]
    fn build_key<'py>(
        &self,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
        buffer: &mut KeyBuffer,
    ) -> PyResult<bool> {
        let version = Version::of(version);
        let written;
        let text = match key.cast_exact::<PyString>() {
            Ok(text) => text,
            Err(_) => {
                written = key.str()?; // what "%s" does
                &written
            }
        };
        let Some(text) = Text::of(text) else {
            return Ok(false);
        };
        Ok(self.settings.with(key.py(), |settings| {
            settings.default_keys && settings.head.build(version, &text, buffer)
        }))
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
        let raw_key = self.raw_key(slf, opened, key, version, &mut buffer)?;
        let now = opened.shared.now();
        Ok(now.key(raw_key).map(|key| f(now, key)))
    }

    /// True if stored; a refusal is counted.
    #[inline]
    fn store<'py>(
        &self,
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        value: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
    ) -> PyResult<bool> {
        let py = slf.py();
        let stored = self.write(
            slf,
            key,
            value,
            timeout,
            version,
            |opened, key, tag, payload, deadline| {
                let now = opened.shared.now();
                now.key(key).is_some_and(|key| now.set(py, key, tag, payload, deadline))
            },
        )?;
        if !stored {
            count(slf, "refused")?;
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
        f: impl FnOnce(&Opened, &[u8], u8, &[u8], Deadline) -> R,
    ) -> PyResult<R> {
        let py = slf.py();
        let opened = self.opened(slf)?;
        let mut buffer = KeyBuffer::new();
        let raw_key = self.raw_key(slf, opened, key, version, &mut buffer)?;
        let deadline = self.deadline(py, timeout)?;
        if opened.bounded {
            let raw_key = PyBytes::new(py, raw_key);
            slf.call_method1(intern!(py, "_make_room"), (raw_key,))?;
        }
        if !opened.native_codec {
            let codec = slf.getattr(intern!(py, "codec"))?;
            let raw = codec.call_method1(intern!(py, "encode"), (value,))?;
            let (tag, payload) = split(raw.cast::<PyBytes>()?.as_bytes());
            return Ok(f(opened, raw_key, tag, payload.as_slice(), deadline));
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
                Incr::Value(total) => return crate::python::object(py, total),
                Incr::Missing => {
                    let text = format!("Key '{}' not found", key.str()?.to_string_lossy());
                    return Err(PyValueError::new_err(text));
                }
                Incr::NotInteger | Incr::Overflow => {}
            }
        }
        slf.call_method1(intern!(py, "_incr_object"), (key, delta, version))
    }

    #[inline]
    fn deadline(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Deadline> {
        let timeout = match timeout {
            Timeout::Default => Timeout::number(self.get_default_timeout(py).bind(py))?,
            given => given,
        };
        Ok(match timeout {
            Timeout::AfterMs(ms) => Deadline(now_ms() + ms),
            Timeout::Passed => Deadline::PASSED,
            Timeout::Never | Timeout::Default => Deadline::NEVER,
        })
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
        if let Some(kept) = shared.near.with(py, |near| near.find(py, key.hash, key.bytes)) {
            let value = kept.value.into_bound(py);
            if now.cache.still_current(&kept.place, now.now_ms) {
                return near::copy_of(value, kept.keep).map(Some);
            }
        }
        let decode = |found: &nearcache_core::Found, payload: &[u8]| {
            let Decoded { value, keep } = match value::read(py, found.tag, payload)? {
                Read::Value(decoded) => decoded,
                Read::Foreign => return foreign(slf, found.tag, payload),
                Read::Undecodable => return undecodable(slf).map(|()| None),
            };
            if keep != Keep::Nothing {
                self.keep(key, found, &value, keep, payload.len())?;
            }
            Ok(Some(value))
        };
        now.read(py, key, decode).unwrap_or(Ok(None))
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
        if !near.with(py, |near| near.wants(key.hash, key.bytes, cost_bytes)) {
            return Ok(());
        }
        let template = near::copy_of(value.clone(), keep)?.unbind();
        let kept = Kept { place: found.place, value: template, keep };
        let dropped = near.with(py, |near| near.put(key.hash, key.bytes, kept, cost_bytes, epoch));
        drop(dropped);
        Ok(())
    }
}

/// A value that the native codec did not write: for `nearcache.codec`. Cold.
#[cold]
fn foreign<'py>(
    slf: &Bound<'py, FusedCache>,
    tag: u8,
    payload: &[u8],
) -> PyResult<Option<Object<'py>>> {
    let py = slf.py();
    let raw = join(py, tag, payload)?;
    let codec = slf.getattr(intern!(py, "codec"))?;
    match codec.call_method1(intern!(py, "decode"), (raw,)) {
        Ok(value) => Ok(Some(value)),
        // `Undecodable` is a ValueError.
        Err(error) if error.is_instance_of::<PyValueError>(py) => undecodable(slf).map(|()| None),
        Err(error) => Err(error),
    }
}

/// `self.counters.<name> += 1`; what it was before.
#[cold]
fn count(slf: &Bound<'_, FusedCache>, name: &str) -> PyResult<u64> {
    let counters = slf.getattr(intern!(slf.py(), "counters"))?;
    let before: u64 = counters.getattr(name)?.extract()?;
    counters.setattr(name, before + 1)?;
    Ok(before)
}

/// Counts a miss that was a value once; the first of a process is logged.
#[cold]
fn undecodable(slf: &Bound<'_, FusedCache>) -> PyResult<()> {
    if count(slf, "undecodable")? == 0 {
        let text = "%s: a stored value cannot be read and is served as a miss (its class or \
                    codec may be gone); more of them are only counted";
        let logger = slf.py().import("logging")?.call_method1("getLogger", ("nearcache",))?;
        logger.call_method1("warning", (text, slf.get_type().name()?))?;
    }
    Ok(())
}

/// Whether the class uses Django's own key methods.
fn has_plain_keys(slf: &Bound<'_, FusedCache>) -> PyResult<bool> {
    let py = slf.py();
    let django = BASE_CACHE.get(py)?;
    let class = slf.get_type();
    for name in ["make_key", "validate_key", "make_and_validate_key"] {
        if !class.getattr(name)?.is(&django.getattr(name)?) {
            return Ok(false);
        }
    }
    Ok(true)
}
