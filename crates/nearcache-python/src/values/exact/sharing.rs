//! What pickle would write once, and `exact` would write twice.
//!
//! Pickle writes an object that is reachable twice once, and loads it as one object.
//! `exact` writes trees, so it declines where the difference could be seen (a shared
//! mutable container) or would blow up the bytes (a shared big object, nested sharing).
//! An object held by one reference is held by the container being walked and cannot be
//! shared: only the others cost an entry here.
//!
//! Every object is alive during the walk: E1 in `encode.rs`, which is for each caller to keep.

use std::collections::HashSet;

use pyo3::ffi;

use crate::values::exact::format::{Declined, Encoded};

/// Smaller objects may be written again at each place they are shared.
const SHARED_MAX_BYTES: usize = 64;
/// Below this a linear scan beats hashing.
const SEEN_LINEAR: usize = 24;

/// The shared objects met so far.
pub struct Sharing {
    root: *mut ffi::PyObject, // if a container: what refers back to it makes a cycle
    seen: Vec<usize>,
    seen_many: Option<HashSet<usize>>,
}

impl Sharing {
    /// # Safety
    /// E1 holds for `root`.
    pub unsafe fn new(root: *mut ffi::PyObject) -> Sharing {
        // SAFETY: the caller's promise.
        let is_container = unsafe { is_container(root) };
        Sharing {
            root: if is_container { root } else { std::ptr::null_mut() },
            seen: Vec::new(),
            seen_many: None,
        }
    }

    /// Declines a mutable container met for the second time. The root is in `seen` already.
    ///
    /// # Safety
    /// E1 holds for `object`.
    #[inline]
    pub unsafe fn mutable_once(&mut self, object: *mut ffi::PyObject, depth: u32) -> Encoded {
        // SAFETY: the caller's promise.
        if depth == 0 || !unsafe { is_shared(object) } || self.first_time(object) {
            Ok(())
        } else {
            Err(Declined)
        }
    }

    /// A short tuple of leaves may be written again; another one is as telling as a list.
    ///
    /// # Safety
    /// E1 holds for `object` and its `items`.
    #[inline]
    pub unsafe fn immutable_once(
        &mut self,
        object: *mut ffi::PyObject,
        items: &[*mut ffi::PyObject],
        depth: u32,
    ) -> Encoded {
        // SAFETY: the caller's promise.
        let is_leaf = |&item: &*mut ffi::PyObject| !unsafe { is_container(item) };
        let repeatable = || items.len() * 8 <= SHARED_MAX_BYTES && items.iter().all(is_leaf);
        // SAFETY: the caller's promise.
        if depth == 0 || !unsafe { is_shared(object) } || repeatable() || self.first_time(object) {
            Ok(())
        } else {
            Err(Declined)
        }
    }

    /// Declines a big leaf met for the second time: pickle writes it once.
    ///
    /// # Safety
    /// E1 holds for `object`.
    #[inline]
    pub unsafe fn once(&mut self, object: *mut ffi::PyObject, len: usize) -> Encoded {
        // SAFETY: the caller's promise.
        if len <= SHARED_MAX_BYTES || !unsafe { is_shared(object) } || self.first_time(object) {
            Ok(())
        } else {
            Err(Declined)
        }
    }

    fn first_time(&mut self, object: *mut ffi::PyObject) -> bool {
        let address = object as usize;
        if object == self.root || self.seen.contains(&address) {
            return false;
        }
        if self.seen.len() < SEEN_LINEAR {
            self.seen.push(address);
            return true;
        }
        self.seen_many.get_or_insert_default().insert(address)
    }
}

/// Whether anybody but the container being walked holds the object.
///
/// # Safety
/// E1 holds for `object`.
#[inline]
unsafe fn is_shared(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ffi::Py_REFCNT(object) != 1 }
}

/// # Safety
/// E1 holds for `object`.
unsafe fn is_container(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise.
    let kind = unsafe { ffi::Py_TYPE(object) };
    kind == &raw mut ffi::PyDict_Type
        || kind == &raw mut ffi::PyList_Type
        || kind == &raw mut ffi::PyTuple_Type
        || kind == &raw mut ffi::PySet_Type
        || kind == &raw mut ffi::PyFrozenSet_Type
}
