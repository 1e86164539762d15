//! `CacheArguments`: the arguments of Django's cache methods, keys and timeouts.
//!
//! What `BaseCache.__init__` assigns, held where native methods reach it without asking
//! Python: classes that stand before `BaseCache` (`shared_memory/fused.rs`,
//! `redis/commands.rs`) inherit from here.
//! A class that overrides Django's key methods has them called (`keys.rs`).

use std::sync::OnceLock;

use nearcache_core::now_ms;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use pyo3::{PyTraverseError, PyVisit};

use crate::django::deadline::Deadline;
use crate::django::keys::{Head, KeyBuffer, Text, Version, made_by_python};
use crate::django::timeout::Timeout;
use crate::interop::gil::GilCell;
use crate::interop::python::{BASE_CACHE, DEFAULT_KEY_FUNC, object};

type Object<'py> = Bound<'py, PyAny>;

#[pyclass(frozen, subclass, module = "nearcache._core")]
pub struct CacheArguments {
    settings: GilCell<Settings>,
    plain_keys: OnceLock<bool>, // none of Django's key methods is overridden
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

#[pymethods]
impl CacheArguments {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector runs with the GIL held. It cannot run while the cell is open,
        // because nothing in there allocates (gil.rs, G2).
        let py = unsafe { Python::assume_attached() };
        let visit_all = |settings: &mut Settings| {
            visit.call(&settings.key_prefix)?;
            visit.call(&settings.version)?;
            visit.call(&settings.key_func)?;
            visit.call(&settings.default_timeout)
        };
        // SAFETY: G2: what the collector does at each object is no Python code.
        unsafe { self.settings.with(py, visit_all) }
    }

    #[getter]
    fn get_key_prefix(&self, py: Python<'_>) -> Py<PyAny> {
        // SAFETY: G2: a reference is counted.
        unsafe { self.settings.with(py, |settings| settings.key_prefix.clone_ref(py)) }
    }

    #[setter]
    fn set_key_prefix(&self, prefix: Object<'_>) {
        let head = Head::new(&prefix, self.get_version(prefix.py()).bind(prefix.py()));
        self.assign(prefix, head, |settings| &mut settings.key_prefix);
    }

    #[getter]
    fn get_version(&self, py: Python<'_>) -> Py<PyAny> {
        // SAFETY: G2: a reference is counted.
        unsafe { self.settings.with(py, |settings| settings.version.clone_ref(py)) }
    }

    #[setter]
    fn set_version(&self, version: Object<'_>) {
        let head = Head::new(self.get_key_prefix(version.py()).bind(version.py()), &version);
        self.assign(version, head, |settings| &mut settings.version);
    }

    #[getter]
    fn get_key_func(&self, py: Python<'_>) -> Py<PyAny> {
        // SAFETY: G2: a reference is counted.
        unsafe { self.settings.with(py, |settings| settings.key_func.clone_ref(py)) }
    }

    #[setter]
    fn set_key_func(&self, function: Object<'_>) -> PyResult<()> {
        let py = function.py();
        let is_default = function.is(DEFAULT_KEY_FUNC.get(py)?);
        let place = |settings: &mut Settings| {
            settings.default_keys = is_default;
            std::mem::replace(&mut settings.key_func, function.unbind())
        };
        // SAFETY: G2: what was there before is dropped here.
        let old = unsafe { self.settings.with(py, place) };
        drop(old);
        Ok(())
    }

    #[getter]
    fn get_default_timeout(&self, py: Python<'_>) -> Py<PyAny> {
        // SAFETY: G2: a reference is counted.
        unsafe { self.settings.with(py, |settings| settings.default_timeout.clone_ref(py)) }
    }

    #[setter]
    fn set_default_timeout(&self, timeout: Object<'_>) {
        let py = timeout.py();
        let place = |settings: &mut Settings| {
            std::mem::replace(&mut settings.default_timeout, timeout.unbind())
        };
        // SAFETY: G2: what was there before is dropped here.
        let old = unsafe { self.settings.with(py, place) };
        drop(old);
    }

    /// The bytes the store has the key under.
    #[pyo3(signature = (key, version=None))]
    fn _raw_key<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut buffer = KeyBuffer::new();
        Ok(PyBytes::new(slf.py(), Self::raw_key(slf, key, version, &mut buffer)?))
    }
}

impl CacheArguments {
    /// With Django's own defaults, until `BaseCache.__init__` assigns others.
    pub fn new(py: Python<'_>) -> PyResult<CacheArguments> {
        let key_prefix = PyString::new(py, "").into_any();
        let version = object(py, 1)?;
        let settings = Settings {
            head: Head::new(&key_prefix, &version),
            key_prefix: key_prefix.unbind(),
            version: version.unbind(),
            key_func: DEFAULT_KEY_FUNC.get(py)?.clone().unbind(),
            default_timeout: object(py, 300)?.unbind(),
            default_keys: true,
        };
        Ok(CacheArguments { settings: GilCell::new(settings), plain_keys: OnceLock::new() })
    }

    /// The final key, put together in `buffer`.
    #[inline]
    pub fn raw_key<'b, 'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
        buffer: &'b mut KeyBuffer,
    ) -> PyResult<&'b [u8]> {
        let me = slf.get();
        let plain = match me.plain_keys.get() {
            Some(plain) => *plain,
            None => me.find_out_about_keys(slf)?,
        };
        if !(plain && me.build_key(key, version, buffer)?) {
            buffer.replace(made_by_python(slf.as_any(), key, version)?);
        }
        Ok(buffer.bytes())
    }

    /// Seconds from now, from the argument or else from `default_timeout`.
    #[inline]
    pub fn timeout(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Timeout> {
        match timeout {
            Timeout::Default => Timeout::number(self.get_default_timeout(py).bind(py)),
            given => Ok(given),
        }
    }

    #[inline]
    pub fn deadline(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Deadline> {
        Ok(match self.timeout(py, timeout)? {
            Timeout::AfterMs(ms) => Deadline(now_ms() + ms),
            Timeout::Passed => Deadline::PASSED,
            Timeout::Never | Timeout::Default => Deadline::NEVER,
        })
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
        let build = |settings: &mut Settings| {
            settings.default_keys && settings.head.build(version, &text, buffer)
        };
        // SAFETY: G2: bytes are copied.
        Ok(unsafe { self.settings.with(key.py(), build) })
    }

    #[cold]
    fn find_out_about_keys(&self, slf: &Bound<'_, Self>) -> PyResult<bool> {
        let plain = has_plain_keys(slf)?;
        Ok(*self.plain_keys.get_or_init(|| plain))
    }

    fn assign(
        &self,
        value: Object<'_>,
        head: Head,
        place: impl FnOnce(&mut Settings) -> &mut Py<PyAny>,
    ) {
        let py = value.py();
        let exchange = |settings: &mut Settings| {
            settings.head = head;
            std::mem::replace(place(settings), value.unbind())
        };
        // SAFETY: G2: what was there before is dropped here; a head is bytes.
        let old = unsafe { self.settings.with(py, exchange) };
        drop(old);
    }
}

/// Whether the class uses Django's own key methods.
fn has_plain_keys(slf: &Bound<'_, CacheArguments>) -> PyResult<bool> {
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
