//! `nearcache._core`: the shared-memory store as Python sees it.
//!
//! ```text
//!  store.rs  Store: bytes in, bytes out; an Engine    lock_wait.rs  its waits for named locks
//!  fused.rs  FusedCache: Django's methods    near.rs  kept objects
//!  redis.rs  RedisCommands: packed commands, decoded replies    resp.rs  their form
//!  nginx.rs  NginxLog: the pass over access logs (nearcache-nginx)    nginx_trace.rs  replays of them
//!  nginx_keys.rs  URL groups and rules for keys, without a log
//!  arguments.rs  keys.rs  timeout.rs  what Django's methods are given
//!  shared.rs  one opened store of the process: waits, refusals, buffers, fork
//!  value.rs   tag and payload of a value     exact/   typed values without pickle
//!  python_codec.rs  what is left to nearcache.codec
//!  fork.rs    which process this is
//!  gil.rs  python.rs  small parts
//! ```
//!
//! Not here: anything about the memory itself (`nearcache-core`), or what Python can do as
//! fast (`nearcache.django_cache.extra_methods`).

mod arguments;
mod exact;
mod fork;
mod fused;
mod gil;
mod keys;
mod lock_wait;
mod near;
mod nginx;
mod nginx_keys;
mod nginx_trace;
mod python;
mod python_codec;
mod redis;
mod resp;
mod shared;
mod store;
mod timeout;
mod value;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The `exact` bytes of a value, or None if it is not for that format (then pickle it).
#[pyfunction]
fn encode<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let mut payload = Vec::new();
    match exact::encode(value, &mut payload) {
        Ok(()) => python::new_bytes(value.py(), &payload).map(Some),
        Err(_) => Ok(None),
    }
}

/// The value of `exact` bytes. Raises ValueError if they are not a value.
#[pyfunction]
fn decode<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match exact::decode(py, payload)? {
        Some(decoded) => Ok(decoded.value),
        None => Err(PyValueError::new_err("these bytes are no exact value")),
    }
}

// The GIL guards our process-wide tables (gil.rs), so a free-threaded build must keep it.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    python::load(py)?;
    module.add("LAYOUT_VERSION", nearcache_core::LAYOUT_VERSION)?;
    module.add_class::<store::Store>()?;
    module.add_class::<arguments::CacheArguments>()?;
    module.add_class::<fused::FusedCache>()?;
    module.add_class::<redis::RedisCommands>()?;
    module.add_class::<nginx::NginxLog>()?;
    module.add_class::<nginx_trace::NginxTrace>()?;
    module.add_class::<nginx_keys::NginxKeyRules>()?;
    module.add_function(wrap_pyfunction!(nginx_keys::nginx_group, module)?)?;
    module.add_function(wrap_pyfunction!(encode, module)?)?;
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(resp::pack_words, module)?)?;
    module.add_function(wrap_pyfunction!(fork::generation, module)?)?;
    module.add_function(wrap_pyfunction!(fork::_when_forked, module)?)?;
    Ok(())
}
