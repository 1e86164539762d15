//! Django's `timeout` arguments: seconds, a fraction allowed, None for ever, 0 or less for gone.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};

use crate::interop::python::DEFAULT_TIMEOUT;

/// A `timeout` argument.
#[derive(Clone, Copy)]
pub enum Timeout {
    Default,
    AfterMs(u64),
    Passed,
    Never,
}

/// Longer ones mean "never", infinity included: three thousand years, in seconds.
const ENDLESS_S: f64 = 1e11;

impl Timeout {
    #[inline]
    pub fn number(timeout: &Bound<'_, PyAny>) -> PyResult<Timeout> {
        if timeout.is_none() {
            return Ok(Timeout::Never);
        }
        let seconds = match timeout.cast_exact::<PyInt>() {
            Ok(int) => match int.extract::<i64>() {
                Ok(seconds) => seconds as f64,
                Err(_) if int.lt(0)? => return Ok(Timeout::Passed),
                Err(_) => return Ok(Timeout::Never),
            },
            Err(_) => real(timeout)?,
        };
        if seconds > ENDLESS_S {
            Ok(Timeout::Never)
        } else if seconds <= 0.0 {
            Ok(Timeout::Passed)
        } else {
            // Rounded up: a timeout above 0 lets the value live, if not for long.
            Ok(Timeout::AfterMs((seconds * 1000.0).ceil() as u64))
        }
    }
}

fn real(timeout: &Bound<'_, PyAny>) -> PyResult<f64> {
    let seconds: f64 = match timeout.cast_exact::<PyFloat>() {
        Ok(float) => float.extract()?,
        Err(_) if timeout.is_instance_of::<PyBool>() => f64::from(u8::from(timeout.is_truthy()?)),
        Err(_) => timeout.extract().map_err(|_| {
            let kind = timeout.get_type().name().map(|name| name.to_string());
            let kind = kind.unwrap_or_default();
            PyTypeError::new_err(format!("timeout must be None or a number of seconds, not {kind}"))
        })?,
    };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("timeout must not be NaN"));
    }
    Ok(seconds)
}

impl<'a, 'py> FromPyObject<'a, 'py> for Timeout {
    type Error = PyErr;

    #[inline]
    fn extract(timeout: Borrowed<'a, 'py, PyAny>) -> PyResult<Timeout> {
        if timeout.is(DEFAULT_TIMEOUT.get(timeout.py())?) {
            return Ok(Timeout::Default);
        }
        Timeout::number(&timeout)
    }
}
