//! Kept objects: decoded values that this process may hand out again.
//!
//! A kept value is believed only after `Store::still_current(place)`, one load of shared
//! memory, so a `set`, `delete` or `touch` of any process is seen at once. What is handed
//! out is an immutable object itself, or a shallow copy of a private template whose items
//! are all immutable: nobody can change what the next caller gets.
//!
//! Sets of two entries, found by the low bits of the key's hash. `tags` and `doors` hold the
//! high bits, in 16 KB each, so that a read which finds nothing touches little memory: a
//! uniformly random read over many keys must not pay for this table. A key gets in at its
//! second read in a row among the absent keys of its set (`doors` remembers the first).
//!
//! Methods that throw entries out return them: dropping one may run Python code (a weakref's
//! callback), which must not happen while the table is open (gil.rs, G2).

use nearcache_core::Locator;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::values::exact::Keep;

const WAYS: usize = 2;
/// One value may take this part of the bytes.
const LARGEST_PART: usize = 8;

pub struct Entry {
    key: Box<[u8]>,
    place: Locator,
    value: Py<PyAny>,
    keep: Keep,
    cost_bytes: usize,
}

pub struct Near {
    entries: Box<[Option<Entry>]>,
    tags: Box<[u32]>,
    doors: Box<[u32]>,
    last_used: Box<[u8]>, // the way of each set that was hit or filled last
    set_mask: usize,
    bytes: usize,
    bytes_max: usize,
    hand: usize,
    epoch: u64, // of the file whose places these are
}

/// What [`Near::find`] found: revalidate `place`, then hand out [`copy_of`] `value`.
pub struct Kept {
    pub place: Locator,
    pub value: Py<PyAny>,
    pub keep: Keep,
}

impl Near {
    /// A table of about `items` entries; 0 for none at all.
    pub fn new(items: usize, bytes_max: usize) -> Near {
        let sets = if items == 0 { 0 } else { items.div_ceil(WAYS).next_power_of_two() };
        Near {
            entries: (0..sets * WAYS).map(|_| None).collect(),
            tags: vec![0; sets * WAYS].into(),
            doors: vec![0; sets].into(),
            last_used: vec![0; sets].into(),
            set_mask: sets.wrapping_sub(1),
            bytes: 0,
            bytes_max,
            hand: 0,
            epoch: 0,
        }
    }

    #[inline]
    pub fn find(&mut self, py: Python<'_>, hash: u64, key: &[u8]) -> Option<Kept> {
        if self.entries.is_empty() {
            return None;
        }
        let at = self.position(hash, key)?;
        let entry = self.entries[at].as_ref()?;
        self.last_used[at / WAYS] = (at % WAYS) as u8;
        Some(Kept { place: entry.place, value: entry.value.clone_ref(py), keep: entry.keep })
    }

    /// Whether a value just read should be given to [`Near::put`].
    #[inline]
    pub fn wants(&mut self, hash: u64, key: &[u8], cost_bytes: usize) -> bool {
        if self.entries.is_empty() || cost_bytes > self.bytes_max / LARGEST_PART {
            return false;
        }
        let set = hash as usize & self.set_mask;
        let tag = tag_of(hash);
        if self.doors[set] == tag {
            return true;
        }
        if self.position(hash, key).is_some() {
            return true; // kept before, and replaced in the store since
        }
        self.doors[set] = tag;
        false
    }

    /// Keeps an object; returns the entries it pushed out.
    pub fn put(
        &mut self,
        hash: u64,
        key: &[u8],
        kept: Kept,
        cost_bytes: usize,
        epoch: u64,
    ) -> Vec<Entry> {
        let mut out = Vec::new();
        if epoch != self.epoch {
            out = self.clear();
            self.epoch = epoch;
        }
        let at = self.position(hash, key).unwrap_or_else(|| self.victim(hash));
        out.extend(self.remove(at));
        self.tags[at] = tag_of(hash);
        self.last_used[at / WAYS] = (at % WAYS) as u8;
        self.bytes += cost_bytes;
        let Kept { place, value, keep } = kept;
        self.entries[at] = Some(Entry { key: key.into(), place, value, keep, cost_bytes });
        while self.bytes > self.bytes_max {
            self.hand = (self.hand + 1) % self.entries.len();
            if self.hand != at {
                out.extend(self.remove(self.hand));
            }
        }
        out
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> Vec<Entry> {
        self.doors.fill(0);
        (0..self.entries.len()).filter_map(|at| self.remove(at)).collect()
    }

    #[inline]
    fn position(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let first = (hash as usize & self.set_mask) * WAYS;
        let tag = tag_of(hash);
        (first..first + WAYS).find(|&at| {
            self.tags[at] == tag
                && self.entries[at].as_ref().is_some_and(|entry| *entry.key == *key)
        })
    }

    fn victim(&self, hash: u64) -> usize {
        let set = hash as usize & self.set_mask;
        let first = set * WAYS;
        (first..first + WAYS)
            .find(|&at| self.entries[at].is_none())
            .unwrap_or(first + (1 - usize::from(self.last_used[set])))
    }

    fn remove(&mut self, at: usize) -> Option<Entry> {
        self.tags[at] = 0;
        let entry = self.entries[at].take()?;
        self.bytes -= entry.cost_bytes;
        Some(entry)
    }
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1 // 0 marks an empty place
}

/// What a caller may have: the object itself, or a copy of it.
#[inline]
pub fn copy_of<'py>(value: Bound<'py, PyAny>, keep: Keep) -> PyResult<Bound<'py, PyAny>> {
    if keep == Keep::Itself {
        return Ok(value);
    }
    let (py, object) = (value.py(), value.as_ptr());
    // SAFETY: attached; the exact type is checked before each call. A new reference, or null
    // with an error set.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let copy = if kind == &raw mut ffi::PyDict_Type {
            ffi::PyDict_Copy(object)
        } else if kind == &raw mut ffi::PyList_Type {
            ffi::PyList_GetSlice(object, 0, ffi::PyList_GET_SIZE(object))
        } else {
            ffi::PySet_New(object)
        };
        Bound::from_owned_ptr_or_err(py, copy)
    }
}
