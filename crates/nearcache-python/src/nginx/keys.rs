//! What keys are called and how rules spell them, for who has keys and no log: the same words
//! as in reports of logs. Not here: the words themselves (nearcache-nginx).

use nearcache_nginx::whatif::KeyRules;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interop::python::{NGINX_ERROR, error};

#[pyclass(frozen, module = "nearcache._core")]
pub struct NginxKeyRules {
    rules: KeyRules,
}

#[pymethods]
impl NginxKeyRules {
    #[new]
    fn new(py: Python<'_>, rules: &str) -> PyResult<NginxKeyRules> {
        let rules =
            KeyRules::parse(rules).map_err(|bad| error(py, &NGINX_ERROR, bad.to_string()))?;
        Ok(NginxKeyRules { rules })
    }

    fn apply<'py>(&self, py: Python<'py>, key: &[u8]) -> Bound<'py, PyBytes> {
        let mut made = Vec::new();
        self.rules.apply(key, &mut made);
        PyBytes::new(py, &made)
    }
}

/// The URL group of a target.
#[pyfunction]
pub fn nginx_group<'py>(py: Python<'py>, target: &[u8]) -> Bound<'py, PyBytes> {
    let mut name = Vec::new();
    nearcache_nginx::shape(target, &mut name);
    PyBytes::new(py, &name)
}
