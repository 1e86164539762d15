//! What pickle would write once, and `exact` would write twice.
//!
//! Pickle writes an object that is reachable twice once, and loads it as one object.
//! `exact` writes trees, so it declines where the difference could be seen (a shared
//! mutable container) or would blow up the bytes (a shared big object, nested sharing).
//! An object held by one reference is held by the container being walked and cannot be
//! shared: only the others cost an entry here.
//!
//! Every pointer is to an object that is alive during the walk (E1, in `encode.rs`).

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
    pub fn new(root: *mut ffi::PyObject) -> Sharing {
        Sharing {
            root: if is_container(root) { root } else { std::ptr::null_mut() },
            seen: Vec::new(),
            seen_many: None,
        }
    }

    /// Declines a mutable container met for the second time. The root is in `seen` already.
    #[inline]
    pub fn mutable_once(&mut self, object: *mut ffi::PyObject, depth: u32) -> Encoded {
        if depth == 0 || !is_shared(object) || self.first_time(object) {
            Ok(())
        } else {
            Err(Declined)
        }
    }

    /// A short tuple of leaves may be written again; another one is as telling as a list.
    #[inline]
    pub fn immutable_once(
        &mut self,
        object: *mut ffi::PyObject,
        items: &[*mut ffi::PyObject],
        depth: u32,
    ) -> Encoded {
        let repeatable =
            || items.len() * 8 <= SHARED_MAX_BYTES && items.iter().all(|&item| !is_container(item));
        if depth == 0 || !is_shared(object) || repeatable() || self.first_time(object) {
            Ok(())
        } else {
            Err(Declined)
        }
    }

    /// Declines a big leaf met for the second time: pickle writes it once.
    #[inline]
    pub fn once(&mut self, object: *mut ffi::PyObject, len: usize) -> Encoded {
        if len <= SHARED_MAX_BYTES || !is_shared(object) || self.first_time(object) {
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
#[inline]
fn is_shared(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the object is alive (E1).
    unsafe { ffi::Py_REFCNT(object) != 1 }
}

fn is_container(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the object is alive (E1).
    let kind = unsafe { ffi::Py_TYPE(object) };
    kind == &raw mut ffi::PyDict_Type
        || kind == &raw mut ffi::PyList_Type
        || kind == &raw mut ffi::PyTuple_Type
        || kind == &raw mut ffi::PySet_Type
        || kind == &raw mut ffi::PyFrozenSet_Type
}
