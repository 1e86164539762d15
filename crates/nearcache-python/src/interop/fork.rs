//! Which process this is, as Python asks for it (`base/generation.rs` of the core).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The generation that Python was told of last.
static TOLD: AtomicU64 = AtomicU64::new(0);
static WHEN_FORKED: PyOnceLock<(i64, Py<PyAny>)> = PyOnceLock::new();

/// The number of this process: one load, and another number in every forked child.
#[pyfunction]
pub fn generation(py: Python<'_>) -> u64 {
    let now = nearcache_core::generation();
    if TOLD.load(Relaxed) != now {
        tell(py, now);
    }
    now
}

/// `call` is called in a forked child, by the first who asks there for its generation.
///
/// Every interpreter that imports nearcache comes here, and all but the first are turned away:
/// the types and objects that this module keeps are the first one's. PyO3 would say so itself,
/// but Python gives a second interpreter a copy of the module without asking.
#[pyfunction]
pub fn _when_forked(py: Python<'_>, call: Py<PyAny>) -> PyResult<()> {
    // SAFETY: attached, so there is an interpreter.
    let interpreter = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if WHEN_FORKED.get_or_init(py, || (interpreter, call)).0 != interpreter {
        return Err(PyImportError::new_err(ONE_INTERPRETER));
    }
    TOLD.store(nearcache_core::generation(), Relaxed);
    Ok(())
}

const ONE_INTERPRETER: &str = "nearcache is used in another Python interpreter of this process \
    already, and cannot be used in two: give each application processes of its own, or run them in \
    one interpreter (uWSGI: single-interpreter = true, or one instance per application; mod_wsgi: \
    WSGIApplicationGroup %{GLOBAL})";

#[cold]
fn tell(py: Python<'_>, now: u64) {
    // First of all: what is called asks as well, and so may any other thread meanwhile.
    TOLD.store(now, Relaxed);
    let Some((_, call)) = WHEN_FORKED.get(py) else { return };
    if let Err(error) = call.call0(py) {
        error.write_unraisable(py, None);
    }
}
