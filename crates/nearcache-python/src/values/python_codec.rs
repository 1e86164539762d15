//! What the native codec leaves to `self.codec`, and what is forgiven on the way.
//!
//! For classes whose Python side has `codec` (a `nearcache.codec.Codec`) and `counters`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interop::python::{STALE, UNDECODABLE};

/// The bytes that `self.codec` makes of a value.
pub fn encode<'py>(
    cache: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = cache.py();
    let raw = cache.getattr(intern!(py, "codec"))?.call_method1(intern!(py, "encode"), (value,))?;
    Ok(raw.cast_into::<PyBytes>()?)
}

/// The value that `self.codec` reads from bytes. One that is stale is `None`; one it cannot read
/// as well, and counted.
pub fn decode<'py>(
    cache: &Bound<'py, PyAny>,
    raw: Bound<'py, PyBytes>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = cache.py();
    let codec = cache.getattr(intern!(py, "codec"))?;
    match codec.call_method1(intern!(py, "decode"), (raw,)) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance(py, UNDECODABLE.get(py)?) => missed(cache, &error),
        Err(error) => Err(error),
    }
}

/// `Stale` is an `Undecodable` too, but nobody's fault.
#[cold]
fn missed<'py>(cache: &Bound<'py, PyAny>, error: &PyErr) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = cache.py();
    if !error.is_instance(py, STALE.get(py)?) {
        undecodable(cache)?;
    }
    Ok(None)
}

/// `self.counters.<name> += 1`; what it was before.
#[cold]
pub fn count(cache: &Bound<'_, PyAny>, name: &str) -> PyResult<u64> {
    let counters = cache.getattr(intern!(cache.py(), "counters"))?;
    let before: u64 = counters.getattr(name)?.extract()?;
    counters.setattr(name, before + 1)?;
    Ok(before)
}

/// A write that was not done: the Python side counts it, and logs the first of a process.
#[cold]
pub fn refused(cache: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = cache.py();
    let counters = cache.getattr(intern!(py, "counters"))?;
    counters.call_method1(intern!(py, "refuse"), (cache.get_type().name()?,))?;
    Ok(())
}

/// Counts a miss that was a value once; the first of a process is logged.
#[cold]
pub fn undecodable(cache: &Bound<'_, PyAny>) -> PyResult<()> {
    if count(cache, "undecodable")? == 0 {
        let text = "%s: a stored value cannot be read and is served as a miss (its class or \
                    codec may be gone); more of them are only counted";
        let logger = cache.py().import("logging")?.call_method1("getLogger", ("nearcache",))?;
        logger.call_method1("warning", (text, cache.get_type().name()?))?;
    }
    Ok(())
}

/// A yes or no that the Python side may leave out.
pub fn flag(cache: &Bound<'_, PyAny>, name: &str, absent: bool) -> PyResult<bool> {
    match cache.getattr_opt(name)? {
        Some(value) => value.is_truthy(),
        None => Ok(absent),
    }
}
