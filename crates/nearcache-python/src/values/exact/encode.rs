//! Python values to `exact` bytes; `format.rs` has the format.
//!
//! Where an object is reachable twice, see `sharing.rs`.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::interop::python::{CollectorOff, Types, types};
use crate::values::exact::format::*;
use crate::values::exact::sharing::Sharing;

const RUN_MIN: usize = 4;
/// What has a tag and no more than this needs no room asked for: `value` has asked.
const PIECE_MAX: usize = STR_MAX + 1;
/// Of a tag and a length.
const HEAD_MAX: usize = 11;

/// Appends the value to `out`; on `Declined`, what was appended is garbage.
///
/// Declines as well when memory runs out: a failed allocation of Rust's would end the process,
/// while pickle raises MemoryError.
///
/// Runs no Python code, not even a finalizer: no container changes during the walk.
pub fn encode(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Encoded {
    let py = value.py();
    // SAFETY: the caller keeps `value` alive, and it keeps alive what it contains (E1).
    unsafe {
        let mut encoder =
            Encoder { py, out, types: types(py), sharing: Sharing::new(value.as_ptr()) };
        encoder.value(value.as_ptr(), 0)
    }
}

/// - **E1** every `*mut PyObject` below is borrowed from a live container that nobody can
///   change meanwhile, because the GIL is held and no Python code runs. What allocates
///   objects while the walk goes on does so under [`CollectorOff`].
pub(super) struct Encoder<'a, 'py> {
    pub(super) py: Python<'py>,
    pub(super) out: &'a mut Vec<u8>,
    pub(super) types: &'a Types,
    pub(super) sharing: Sharing,
}

impl Encoder<'_, '_> {
    /// # Safety
    /// E1 holds for `object`.
    #[inline]
    unsafe fn value(&mut self, object: *mut ffi::PyObject, depth: u32) -> Encoded {
        if self.out.capacity() - self.out.len() < PIECE_MAX {
            self.room(PIECE_MAX)?;
        }
        // SAFETY: E1; each branch has checked the exact type that its macros and casts assume.
        unsafe {
            let kind = ffi::Py_TYPE(object);
            if kind == &raw mut ffi::PyUnicode_Type {
                return self.string(object);
            }
            if kind == &raw mut ffi::PyLong_Type {
                return self.int(object);
            }
            if kind == &raw mut ffi::PyFloat_Type {
                self.put(&[FLOAT]);
                self.put(&ffi::PyFloat_AS_DOUBLE(object).to_le_bytes());
                return Ok(());
            }
            if object == ffi::Py_None() {
                self.put(&[NONE]);
                return Ok(());
            }
            if kind == &raw mut ffi::PyBool_Type {
                self.put(&[if object == ffi::Py_True() { TRUE } else { FALSE }]);
                return Ok(());
            }
            if depth > MAX_DEPTH {
                return Err(Declined);
            }
            if kind == &raw mut ffi::PyDict_Type {
                return self.dict(object, depth);
            }
            if kind == &raw mut ffi::PyList_Type {
                return self.list(object, depth);
            }
            if kind == &raw mut ffi::PyTuple_Type {
                return self.tuple(object, depth);
            }
            self.rare(object, kind, depth)
        }
    }

    /// # Safety
    /// E1 holds for `object`, and `kind` is its type.
    #[inline(never)]
    unsafe fn rare(
        &mut self,
        object: *mut ffi::PyObject,
        kind: *mut ffi::PyTypeObject,
        depth: u32,
    ) -> Encoded {
        let _guard = CollectorOff::new(self.py);
        // SAFETY: E1; the exact type is checked before each use.
        unsafe {
            if kind == &raw mut ffi::PyBytes_Type {
                let len = ffi::Py_SIZE(object) as usize;
                self.sharing.once(object, len)?;
                let data = ffi::PyBytes_AS_STRING(object).cast::<u8>();
                return self.counted(BYTES_N, std::slice::from_raw_parts(data, len));
            }
            if kind == &raw mut ffi::PySet_Type {
                return self.set(SET_N, object, depth);
            }
            if kind == &raw mut ffi::PyFrozenSet_Type {
                return self.set(FROZENSET_N, object, depth);
            }
            if kind == self.types.datetime {
                return self.datetime(object);
            }
            if kind == self.types.date {
                return self.date(object);
            }
            if kind == self.types.time {
                return self.time(object);
            }
            if kind == self.types.timedelta {
                return self.timedelta(object);
            }
            if kind == self.types.decimal {
                return self.decimal(object);
            }
            if kind == self.types.uuid {
                return self.uuid(object);
            }
        }
        Err(Declined)
    }

    /// # Safety
    /// E1, and the object is an exact str; there is room for a piece.
    #[inline]
    unsafe fn string(&mut self, object: *mut ffi::PyObject) -> Encoded {
        // SAFETY: E1; an exact str. A compact ASCII one is `length` bytes at its data.
        unsafe {
            if ffi::PyUnicode_IS_COMPACT_ASCII(object) == 0 {
                return self.wide_string(object);
            }
            let len = ffi::PyUnicode_GET_LENGTH(object) as usize;
            let data = ffi::PyUnicode_DATA(object).cast::<u8>();
            let bytes = std::slice::from_raw_parts(data, len);
            if len <= STR_MAX {
                self.put(&[STR | len as u8]);
                self.put(bytes);
                return Ok(());
            }
            self.sharing.once(object, len)?;
            self.counted(ASCII_N, bytes)
        }
    }

    /// # Safety
    /// E1, and the object is an exact str.
    #[inline(never)]
    unsafe fn wide_string(&mut self, object: *mut ffi::PyObject) -> Encoded {
        // SAFETY: E1; an exact str. `AsUTF8String` makes a bytes object of our own, and
        // leaves no UTF-8 copy behind in the caller's string, as `AsUTF8AndSize` would.
        unsafe {
            let utf8 = ffi::PyUnicode_AsUTF8String(object);
            if utf8.is_null() {
                ffi::PyErr_Clear(); // a lone surrogate; pickle can write it
                return Err(Declined);
            }
            let utf8 = Bound::from_owned_ptr(self.py, utf8);
            let len = ffi::Py_SIZE(utf8.as_ptr()) as usize;
            self.sharing.once(object, len)?;
            let data = ffi::PyBytes_AS_STRING(utf8.as_ptr()).cast::<u8>();
            self.counted(UTF8_N, std::slice::from_raw_parts(data, len))
        }
    }

    /// # Safety
    /// E1, and the object is an exact int; there is room for a piece.
    #[inline]
    unsafe fn int(&mut self, object: *mut ffi::PyObject) -> Encoded {
        let mut overflow: c_int = 0;
        // SAFETY: E1; an exact int, so this neither fails nor calls `__index__`.
        let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(object, &mut overflow) };
        // SAFETY: the caller's promise; a tag and 8 bytes are less than a piece.
        unsafe {
            if overflow != 0 {
                return self.big_int(object);
            }
            if (0..128).contains(&value) {
                self.put(&[value as u8]);
            } else if let Ok(value) = i16::try_from(value) {
                self.put(&[INT16]);
                self.put(&value.to_le_bytes());
            } else if let Ok(value) = i32::try_from(value) {
                self.put(&[INT32]);
                self.put(&value.to_le_bytes());
            } else {
                self.put(&[INT64]);
                self.put(&value.to_le_bytes());
            }
        }
        Ok(())
    }

    /// # Safety
    /// E1, and the object is an exact dict.
    unsafe fn dict(&mut self, object: *mut ffi::PyObject, depth: u32) -> Encoded {
        // SAFETY: E1; an exact dict, which `PyDict_Next` walks without running code.
        unsafe {
            self.sharing.mutable_once(object, depth)?;
            let len = ffi::PyDict_Size(object) as usize;
            self.head(DICT, DICT_MAX, DICT_N, len);
            let mut at: ffi::Py_ssize_t = 0;
            let mut key = std::ptr::null_mut();
            let mut value = std::ptr::null_mut();
            while ffi::PyDict_Next(object, &mut at, &mut key, &mut value) != 0 {
                self.value(key, depth + 1)?;
                self.value(value, depth + 1)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// E1, and the object is an exact list.
    unsafe fn list(&mut self, object: *mut ffi::PyObject, depth: u32) -> Encoded {
        // SAFETY: E1, and so for the items; an exact list, whose items do not move while no code
        // runs.
        unsafe {
            self.sharing.mutable_once(object, depth)?;
            let items = list_items(object);
            if self.run(items, FLOAT_LIST, INT_LIST)? {
                return Ok(());
            }
            self.head(LIST, SEQUENCE_MAX, LIST_N, items.len());
            for &item in items {
                self.value(item, depth + 1)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// E1, and the object is an exact tuple.
    unsafe fn tuple(&mut self, object: *mut ffi::PyObject, depth: u32) -> Encoded {
        // SAFETY: E1, and so for the items; an exact tuple.
        unsafe {
            let items = tuple_items(object);
            self.sharing.immutable_once(object, items, depth)?;
            if self.run(items, FLOAT_TUPLE, INT_TUPLE)? {
                return Ok(());
            }
            self.head(TUPLE, SEQUENCE_MAX, TUPLE_N, items.len());
            for &item in items {
                self.value(item, depth + 1)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// E1, and the object is an exact set or frozenset.
    unsafe fn set(&mut self, tag: u8, object: *mut ffi::PyObject, depth: u32) -> Encoded {
        // SAFETY: E1; the iterator of an exact set runs no code, and the set keeps each
        // item alive after our reference to it is dropped.
        unsafe {
            // A frozenset is seldom shared: treat both alike.
            self.sharing.mutable_once(object, depth)?;
            self.out.push(tag);
            varint(self.out, ffi::PySet_Size(object) as usize);
            let iterator = Bound::from_owned_ptr_or_opt(self.py, ffi::PyObject_GetIter(object))
                .ok_or(Declined)?;
            loop {
                let item = ffi::PyIter_Next(iterator.as_ptr());
                if item.is_null() {
                    return Ok(());
                }
                ffi::Py_DECREF(item);
                self.value(item, depth + 1)?;
            }
        }
    }

    /// Writes four or more floats, or four or more ints of 64 bits, without a tag each.
    ///
    /// # Safety
    /// E1 holds for the items.
    #[inline]
    unsafe fn run(
        &mut self,
        items: &[*mut ffi::PyObject],
        floats: u8,
        ints: u8,
    ) -> Result<bool, Declined> {
        if items.len() < RUN_MIN {
            return Ok(false);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let first = ffi::Py_TYPE(items[0]);
            if first == &raw mut ffi::PyFloat_Type {
                self.float_run(floats, items)
            } else if first == &raw mut ffi::PyLong_Type {
                self.int_run(ints, items)
            } else {
                Ok(false)
            }
        }
    }

    /// # Safety
    /// E1 holds for the items.
    unsafe fn float_run(
        &mut self,
        tag: u8,
        items: &[*mut ffi::PyObject],
    ) -> Result<bool, Declined> {
        let start = self.out.len();
        self.room(HEAD_MAX + items.len() * 8)?;
        self.out.push(tag);
        varint(self.out, items.len());
        for &item in items {
            // SAFETY: E1; the type is checked before the value is read.
            unsafe {
                if ffi::Py_TYPE(item) != &raw mut ffi::PyFloat_Type {
                    self.out.truncate(start);
                    return Ok(false);
                }
                self.out.extend_from_slice(&ffi::PyFloat_AS_DOUBLE(item).to_le_bytes());
            }
        }
        Ok(true)
    }

    /// # Safety
    /// E1 holds for the items.
    unsafe fn int_run(&mut self, tag: u8, items: &[*mut ffi::PyObject]) -> Result<bool, Declined> {
        let mut values = Vec::new();
        values.try_reserve_exact(items.len()).map_err(|_| Declined)?;
        let mut overflow: c_int = 0;
        for &item in items {
            // SAFETY: E1; an exact int cannot fail here but by overflow.
            unsafe {
                if ffi::Py_TYPE(item) != &raw mut ffi::PyLong_Type {
                    return Ok(false);
                }
                values.push(ffi::PyLong_AsLongLongAndOverflow(item, &mut overflow));
            }
            if overflow != 0 {
                return Ok(false);
            }
        }
        let (low, high) = values.iter().fold((0, 0), |(low, high), &v| (v.min(low), v.max(high)));
        let fits = |min: i64, max: i64| low >= min && high <= max;
        let width: u8 = if fits(i8::MIN.into(), i8::MAX.into()) {
            1
        } else if fits(i16::MIN.into(), i16::MAX.into()) {
            2
        } else if fits(i32::MIN.into(), i32::MAX.into()) {
            4
        } else {
            8
        };
        self.room(HEAD_MAX + 1 + values.len() * width as usize)?;
        self.out.push(tag);
        varint(self.out, values.len());
        self.out.push(width);
        for value in values {
            self.out.extend_from_slice(&value.to_le_bytes()[..width as usize]);
        }
        Ok(true)
    }

    #[inline]
    fn head(&mut self, short: u8, short_max: usize, long: u8, len: usize) {
        if len <= short_max {
            self.out.push(short | len as u8);
        } else {
            self.out.push(long);
            varint(self.out, len);
        }
    }

    pub(super) fn counted(&mut self, tag: u8, bytes: &[u8]) -> Encoded {
        self.room(HEAD_MAX + bytes.len())?;
        self.out.push(tag);
        varint(self.out, bytes.len());
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends what there is room for. The compiler cannot know that there is, and would ask again
    /// at each byte.
    ///
    /// # Safety
    /// `value` asked for the room of a piece, and these bytes belong to it.
    #[inline]
    unsafe fn put(&mut self, bytes: &[u8]) {
        let len = self.out.len();
        debug_assert!(bytes.len() <= self.out.capacity() - len);
        // SAFETY: the caller's promise; nobody else refers to the room at the end.
        unsafe {
            let end = self.out.as_mut_ptr().add(len);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
            self.out.set_len(len + bytes.len());
        }
    }

    #[inline]
    fn room(&mut self, bytes: usize) -> Encoded {
        self.out.try_reserve(bytes).map_err(|_| Declined)
    }
}

/// # Safety
/// An exact list, alive and unchanged for as long as the slice is used.
unsafe fn list_items<'a>(object: *mut ffi::PyObject) -> &'a [*mut ffi::PyObject] {
    // SAFETY: the caller's promise; a list of no items may have no array.
    unsafe {
        let list = object.cast::<ffi::PyListObject>();
        match ffi::PyList_GET_SIZE(object) as usize {
            0 => &[],
            len => std::slice::from_raw_parts((*list).ob_item, len),
        }
    }
}

/// # Safety
/// An exact tuple, alive for as long as the slice is used.
unsafe fn tuple_items<'a>(object: *mut ffi::PyObject) -> &'a [*mut ffi::PyObject] {
    // SAFETY: the caller's promise; the items follow the head.
    unsafe {
        let tuple = object.cast::<ffi::PyTupleObject>();
        let len = ffi::PyTuple_GET_SIZE(object) as usize;
        std::slice::from_raw_parts((&raw const (*tuple).ob_item).cast(), len)
    }
}

fn varint(out: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
