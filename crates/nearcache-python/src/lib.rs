//! `nearcache._core`: the shared-memory store as Python sees it.
//!
//! ```text
//!  interop/        the GIL, objects, which process this is
//!  values/         values as bytes; exact/: typed values without pickle
//!  django/         what Django's methods are given: arguments, keys, timeouts
//!  shared_memory/  fused.rs: Django's methods; store.rs: bytes in, bytes out, an engine
//!  redis/          commands.rs: packed commands, decoded replies; resp.rs: their form
//!  nginx/          passes over access logs, replays of them, rules for keys
//! ```
//!
//! Not here: anything about the memory itself (`nearcache-core`), or what Python can do as
//! fast (`nearcache.django_cache.extra_methods`).

mod django;
mod interop;
mod nginx;
mod redis;
mod shared_memory;
mod values;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The `exact` bytes of a value, or None if it is not for that format (then pickle it).
#[pyfunction]
fn encode<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let mut payload = Vec::new();
    match values::exact::encode(value, &mut payload) {
        Ok(()) => interop::python::new_bytes(value.py(), &payload).map(Some),
        Err(_) => Ok(None),
    }
}

/// The value of `exact` bytes. Raises ValueError if they are not a value.
#[pyfunction]
fn decode<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match values::exact::decode(py, payload)? {
        Some(decoded) => Ok(decoded.value),
        None => Err(PyValueError::new_err("these bytes are no exact value")),
    }
}

// The GIL guards our process-wide tables (interop/gil.rs), so a free-threaded build must keep it.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    interop::python::load(py)?;
    module.add("LAYOUT_VERSION", nearcache_core::LAYOUT_VERSION)?;
    module.add_class::<shared_memory::store::Store>()?;
    module.add_class::<django::arguments::CacheArguments>()?;
    module.add_class::<shared_memory::fused::FusedCache>()?;
    module.add_class::<redis::commands::RedisCommands>()?;
    module.add_class::<nginx::log::NginxLog>()?;
    module.add_class::<nginx::trace::NginxTrace>()?;
    module.add_class::<nginx::keys::NginxKeyRules>()?;
    module.add_function(wrap_pyfunction!(nginx::keys::nginx_group, module)?)?;
    module.add_function(wrap_pyfunction!(encode, module)?)?;
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(redis::resp::pack_words, module)?)?;
    module.add_function(wrap_pyfunction!(interop::fork::generation, module)?)?;
    module.add_function(wrap_pyfunction!(interop::fork::_when_forked, module)?)?;
    Ok(())
}
