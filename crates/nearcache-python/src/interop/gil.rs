//! State that the GIL protects: a cell that opens only with a `Python` token.
//!
//! - **G1** the module declares `gil_used = true`, so only one thread holds a token at a time.
//! - **G2** the closure given to [`GilCell::with`] runs no Python code, drops no Python
//!   object whose destructor could, and allocates no object the garbage collector tracks:
//!   each of those may hand the GIL to another thread, or come back here.

use std::cell::UnsafeCell;

use pyo3::Python;

pub struct GilCell<T>(UnsafeCell<T>);

// SAFETY: G1: every access goes through `with`, which needs the token.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub const fn new(value: T) -> GilCell<T> {
        GilCell(UnsafeCell::new(value))
    }

    /// Opens the cell. The closure must keep G2.
    #[inline(always)]
    pub fn with<R>(&self, _py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: G1 excludes other threads and G2 excludes this one a second time.
        f(unsafe { &mut *self.0.get() })
    }
}
