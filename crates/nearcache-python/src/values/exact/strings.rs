//! Makes `str` objects from bytes, and keeps the short ones that recur as dict keys.
//!
//! The keys of cached dicts repeat from value to value. `KEYS` is a direct-mapped table of
//! those decoded last: a hit saves the allocation, and the hash that the dict needs is
//! already computed inside the object.
//!
//! They are not interned. Some Pythons (3.12) never free an interned string, so dicts whose keys are
//! ids would take more memory with every id.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::interop::gil::GilCell;

const SLOTS: usize = 1024;
const KEY_MAX_BYTES: usize = 64;

/// A new `str` of these bytes, or `None` if they are not ASCII (or memory ran out).
pub fn ascii_str<'py>(py: Python<'py>, bytes: &[u8]) -> Option<Bound<'py, PyAny>> {
    if !bytes.is_ascii() {
        return None;
    }
    // SAFETY: attached. The object is new and of `bytes.len()` one-byte characters, all
    // below 128 as its maxchar promises; nobody else sees it before it is filled.
    unsafe {
        let object = ffi::PyUnicode_New(bytes.len() as ffi::Py_ssize_t, 127);
        let object = Bound::from_owned_ptr_or_opt(py, object)?;
        if !bytes.is_empty() {
            let data = ffi::PyUnicode_DATA(object.as_ptr()).cast::<u8>();
            ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
        }
        Some(object)
    }
}

/// A new `str`, or `None`, with Python's error set, if the bytes are not strict UTF-8.
pub fn str_from_utf8<'py>(py: Python<'py>, bytes: &[u8]) -> Option<Bound<'py, PyAny>> {
    if bytes.is_ascii() {
        return ascii_str(py, bytes);
    }
    // SAFETY: attached; pointer and length are those of a live slice.
    unsafe {
        let object = ffi::PyUnicode_DecodeUTF8(
            bytes.as_ptr().cast(),
            bytes.len() as ffi::Py_ssize_t,
            ptr::null(),
        );
        Bound::from_owned_ptr_or_opt(py, object)
    }
}

static KEYS: GilCell<[Option<Py<PyAny>>; SLOTS]> = GilCell::new([const { None }; SLOTS]);

/// The `str` of an ASCII dict key, shared with earlier decodes if it can be.
pub fn key_str<'py>(py: Python<'py>, bytes: &[u8]) -> Option<Bound<'py, PyAny>> {
    if bytes.is_empty() || bytes.len() > KEY_MAX_BYTES {
        return ascii_str(py, bytes);
    }
    let slot = slot_of(bytes);
    // SAFETY: G2: bytes are compared, and a reference is counted. Whatever is in the table was
    // made by `ascii_str`.
    let hit = unsafe {
        KEYS.with(py, |keys| match &keys[slot] {
            Some(key) if ascii_bytes(key.bind(py)) == bytes => Some(key.clone_ref(py)),
            _ => None,
        })
    };
    if let Some(key) = hit {
        return Some(key.into_bound(py));
    }
    let key = ascii_str(py, bytes)?;
    // SAFETY: G2: what was there before is dropped after the table is closed.
    let old = unsafe { KEYS.with(py, |keys| keys[slot].replace(key.clone().unbind())) };
    drop(old);
    Some(key)
}

/// The characters of a `str`.
///
/// # Safety
///
/// It is an exact `str`, and compact ASCII.
unsafe fn ascii_bytes<'a>(object: &'a Bound<'_, PyAny>) -> &'a [u8] {
    // SAFETY: the caller's promise; characters never change, and are there as long as `object`.
    unsafe {
        let data = ffi::PyUnicode_DATA(object.as_ptr()).cast::<u8>();
        let len = ffi::PyUnicode_GET_LENGTH(object.as_ptr()) as usize;
        std::slice::from_raw_parts(data, len)
    }
}

/// From the first and last bytes and the length: enough to spread field names.
#[inline]
fn slot_of(bytes: &[u8]) -> usize {
    const MIX: u64 = 0x9fb2_1c65_1e98_df25;
    let (first, last) = ends(bytes);
    let mixed = (first ^ last.rotate_left(23) ^ bytes.len() as u64).wrapping_mul(MIX);
    (mixed >> 54) as usize
}

/// The first and last eight bytes, or four, or one. Whole loads: putting the bytes together
/// one by one would cost more than the table saves.
#[inline]
fn ends(bytes: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
    } else {
        let middle = bytes.get(1).copied().unwrap_or(0);
        let first = bytes.first().copied().unwrap_or(0);
        let last = bytes.last().copied().unwrap_or(0);
        (u64::from(first) | u64::from(middle) << 8, last.into())
    }
}

const _: () = assert!(SLOTS == 1 << 10, "slot_of keeps the top ten bits");
