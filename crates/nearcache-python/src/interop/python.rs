//! Python objects this module needs by name, looked up once per process.

use nearcache_core::Error;
use pyo3::exceptions::{PyArithmeticError, PyMemoryError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyInt, PyType};
use pyo3::{IntoPyObjectExt, intern};

/// The exact types, beyond the built-in ones, that `exact` writes.
pub struct Types {
    pub date: *mut ffi::PyTypeObject,
    pub datetime: *mut ffi::PyTypeObject,
    pub time: *mut ffi::PyTypeObject,
    pub timedelta: *mut ffi::PyTypeObject,
    pub utc: *mut ffi::PyObject,
    pub decimal: *mut ffi::PyTypeObject,
    pub uuid: *mut ffi::PyTypeObject,
    decimal_type: Py<PyAny>,
    uuid_type: Py<PyAny>,
    uuid_unknown: Py<PyAny>, // SafeUUID.unknown, what a UUID made from an int has
}

// SAFETY: the pointers are to types and objects that live as long as the interpreter
// (`decimal` and `uuid` through the two `Py`), and are only compared or called attached.
unsafe impl Send for Types {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Types {}

static TYPES: PyOnceLock<Types> = PyOnceLock::new();

/// # Panics
/// If [`load`] did not succeed; the module does not import then.
#[inline]
pub fn types(py: Python<'_>) -> &'static Types {
    TYPES.get(py).expect("loaded when the module was made")
}

pub fn load(py: Python<'_>) -> PyResult<()> {
    TYPES.get_or_try_init(py, || Types::load(py)).map(|_| ())
}

impl Types {
    fn load(py: Python<'_>) -> PyResult<Types> {
        // SAFETY: attached. The import sets the API pointer, or an error.
        let api = unsafe {
            ffi::PyDateTime_IMPORT();
            ffi::PyDateTimeAPI().as_ref().ok_or_else(|| PyErr::fetch(py))?
        };
        // `_decimal`, not `decimal`: str() of the C type runs no Python code, which the
        // encoder counts on. Without it Decimals are pickled.
        let decimal = match py.import("_decimal") {
            Ok(module) => module.getattr("Decimal")?,
            Err(_) => py.None().into_bound(py),
        };
        let uuid = py.import("uuid")?;
        let uuid_type = uuid.getattr("UUID")?;
        Ok(Types {
            date: api.DateType,
            datetime: api.DateTimeType,
            time: api.TimeType,
            timedelta: api.DeltaType,
            utc: api.TimeZone_UTC,
            decimal: decimal.as_ptr().cast(),
            uuid: uuid_type.as_ptr().cast(),
            uuid_unknown: uuid.getattr("SafeUUID")?.getattr("unknown")?.unbind(),
            decimal_type: decimal.unbind(),
            uuid_type: uuid_type.unbind(),
        })
    }

    /// The 16 bytes of an exact UUID that has nothing but them.
    pub fn uuid_bytes(&self, uuid: &Bound<'_, PyAny>) -> Option<[u8; 16]> {
        let py = uuid.py();
        let safety = uuid.getattr(intern!(py, "is_safe")).ok()?;
        if !safety.is(&self.uuid_unknown) {
            return None;
        }
        // Whatever can be compared makes a UUID; only of an int no Python code gives the number.
        let int = uuid.getattr(intern!(py, "int")).ok()?.cast_into_exact::<PyInt>().ok()?;
        Some(int.extract::<u128>().ok()?.to_be_bytes())
    }

    pub fn uuid_from<'py>(&self, py: Python<'py>, bytes: [u8; 16]) -> Option<Bound<'py, PyAny>> {
        let arguments = PyDict::new(py);
        or_set(py, arguments.set_item(intern!(py, "int"), u128::from_be_bytes(bytes)))?;
        or_set(py, self.uuid_type.bind(py).call((), Some(&arguments)))
    }

    pub fn decimal_from<'py>(&self, py: Python<'py>, text: &str) -> Option<Bound<'py, PyAny>> {
        or_set(py, self.decimal_type.bind(py).call1((text,)))
    }
}

/// Keeps the cyclic garbage collector from running, and with it finalizers, which are code.
///
/// Python 3.11 may collect whenever a container is allocated; later versions only between
/// bytecodes.
pub struct CollectorOff<'py> {
    was_on: bool,
    _py: Python<'py>,
}

impl<'py> CollectorOff<'py> {
    pub fn new(py: Python<'py>) -> CollectorOff<'py> {
        // SAFETY: attached.
        let was_on = unsafe { ffi::PyGC_Disable() } != 0;
        CollectorOff { was_on, _py: py }
    }
}

impl Drop for CollectorOff<'_> {
    fn drop(&mut self) {
        if self.was_on {
            // SAFETY: attached, as the token says.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}

/// `out.extend_from_slice(bytes)`. Raises MemoryError, where Rust alone would end the process.
#[inline]
pub fn append(out: &mut Vec<u8>, bytes: &[u8]) -> PyResult<()> {
    room(out, bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// `out.reserve(more)`. Raises MemoryError, too.
#[inline]
pub fn room(out: &mut Vec<u8>, more: usize) -> PyResult<()> {
    out.try_reserve(more).map_err(|_| PyMemoryError::new_err(()))
}

/// What the core allocates for a record ends the process if it cannot: this asks before, and gives
/// it back. Raises MemoryError. For a small one there is room among what was used before.
#[inline]
pub fn demand_room(bytes: usize) -> PyResult<()> {
    const SMALL_BYTES: usize = 1 << 15;
    if bytes > SMALL_BYTES { room(&mut Vec::new(), bytes + SMALL_BYTES) } else { Ok(()) }
}

/// `PyBytes::new`, which panics when memory runs out. Raises MemoryError.
#[inline]
pub fn new_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: attached; pointer and length are those of a live slice, which is copied.
    unsafe {
        let data = bytes.as_ptr().cast();
        let object = ffi::PyBytes_FromStringAndSize(data, bytes.len() as ffi::Py_ssize_t);
        Ok(Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked())
    }
}

/// As C says it: `None`, and the error is set.
pub fn or_set<T>(py: Python<'_>, result: PyResult<T>) -> Option<T> {
    result.map_err(|error| error.restore(py)).ok()
}

/// The error that is set, if bad bytes or a bad text cannot be its cause: MemoryError, or what a
/// signal's handler raised while Python code ran. Any other error that is set is forgotten.
#[cold]
pub fn unless_bad_data(py: Python<'_>) -> PyResult<()> {
    match PyErr::take(py) {
        Some(error) if !is_of_bad_data(py, &error) => Err(error),
        _ => Ok(()),
    }
}

fn is_of_bad_data(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyArithmeticError>(py)
}

/// Two's complement, little endian.
pub fn int_to_bytes(int: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = int.py();
    let bits: usize = int.call_method0(intern!(py, "bit_length"))?.extract()?;
    let arguments = (bits / 8 + 1, intern!(py, "little"));
    let bytes = int.call_method(intern!(py, "to_bytes"), arguments, Some(&signed(py)?))?;
    let mut out = Vec::new();
    append(&mut out, bytes.cast::<PyBytes>()?.as_bytes())?;
    Ok(out)
}

pub fn int_from_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let arguments = (new_bytes(py, bytes)?, intern!(py, "little"));
    let int = py.get_type::<pyo3::types::PyInt>();
    int.call_method(intern!(py, "from_bytes"), arguments, Some(&signed(py)?))
}

fn signed(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "signed"), true)?;
    Ok(arguments)
}

/// An attribute of a module, imported at first use and kept.
pub struct Attribute {
    module: &'static str,
    name: &'static str,
    cell: PyOnceLock<Py<PyAny>>,
}

impl Attribute {
    pub const fn new(module: &'static str, name: &'static str) -> Attribute {
        Attribute { module, name, cell: PyOnceLock::new() }
    }

    #[inline]
    pub fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let object = self.cell.get_or_try_init(py, || {
            Ok::<_, PyErr>(py.import(self.module)?.getattr(self.name)?.unbind())
        })?;
        Ok(object.bind(py))
    }
}

pub static PICKLE_DUMPS: Attribute = Attribute::new("pickle", "dumps");
pub static PICKLE_LOADS: Attribute = Attribute::new("pickle", "loads");
pub static DEFAULT_TIMEOUT: Attribute =
    Attribute::new("django.core.cache.backends.base", "DEFAULT_TIMEOUT");
pub static DEFAULT_KEY_FUNC: Attribute =
    Attribute::new("django.core.cache.backends.base", "default_key_func");
pub static BASE_CACHE: Attribute = Attribute::new("django.core.cache.backends.base", "BaseCache");

pub static REGION_ERROR: Attribute = Attribute::new("nearcache.errors", "RegionError");
pub static REGION_FULL: Attribute = Attribute::new("nearcache.errors", "RegionFull");
pub static ENGINE_BUSY: Attribute = Attribute::new("nearcache.errors", "EngineBusy");
pub static DATA_ERROR: Attribute = Attribute::new("nearcache.errors", "DataError");
pub static NGINX_ERROR: Attribute = Attribute::new("nearcache.errors", "NginxError");

pub static STALE: Attribute = Attribute::new("nearcache.codec.envelope", "Stale");
pub static UNDECODABLE: Attribute = Attribute::new("nearcache.codec.errors", "Undecodable");
pub static IS_INTERRUPT: Attribute = Attribute::new("nearcache.base.interrupts", "is_interrupt");

/// An exception of the class in `attribute`, or whatever kept us from finding the class.
pub fn error(py: Python<'_>, attribute: &Attribute, message: String) -> PyErr {
    match attribute.get(py).and_then(|class| Ok(class.cast::<PyType>()?.clone())) {
        Ok(class) => PyErr::from_type(class, message),
        Err(error) => error,
    }
}

/// Why a cache file cannot be opened, as Python's errors have it.
pub fn region_error(py: Python<'_>, failure: &Error) -> PyErr {
    let text = failure.to_string();
    match failure {
        Error::Option(_) => PyValueError::new_err(text),
        Error::Full(_) => error(py, &REGION_FULL, text),
        Error::Refused(_) | Error::Io(_) => error(py, &REGION_ERROR, text),
    }
}

pub fn object<'py, T: IntoPyObjectExt<'py>>(
    py: Python<'py>,
    value: T,
) -> PyResult<Bound<'py, PyAny>> {
    value.into_bound_py_any(py)
}
