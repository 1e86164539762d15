//! State that the GIL protects: a cell that opens only with a `Python` token.
//!
//! - **G1** the module declares `gil_used = true`, so only one thread holds a token at a time.
//! - **G2** while a cell is open no Python code runs, no Python object is dropped whose
//!   destructor could run some, and no object is allocated that the garbage collector tracks:
//!   each of those may hand the GIL to another thread, or open the same cell again.

use std::cell::UnsafeCell;

use pyo3::Python;

pub struct GilCell<T>(UnsafeCell<T>);

// SAFETY: G1: every access goes through `with`, which needs the token.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub const fn new(value: T) -> GilCell<T> {
        GilCell(UnsafeCell::new(value))
    }

    /// Opens the cell.
    ///
    /// # Safety
    ///
    /// `f` keeps G2.
    #[inline(always)]
    pub unsafe fn with<R>(&self, _py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: G1 excludes other threads. G2, the caller's promise, excludes this one a second time.
        f(unsafe { &mut *self.0.get() })
    }
}
