//! `exact` bytes to Python values. The bytes may be hostile.
//!
//! - **D1** every read is bounds-checked by [`Reader`].
//! - **D2** a container of `n` items takes `n` from a budget that starts at the length of the
//!   input. Every item needs a byte, so true input never runs out; a lie cannot make us
//!   allocate more than a few times the input.
//! - **D3** nesting stops at `MAX_DEPTH`.
//! - **D4** what Python code must not see half made is out of the collector's sight: `UUID` is a
//!   Python class, and whatever runs meanwhile may ask the collector for all objects.

use pyo3::ffi;
use pyo3::prelude::*;

use crate::interop::python::{self, Types, types};
use crate::values::exact::format::*;
use crate::values::exact::strings::{ascii_str, key_str, str_from_utf8};

/// What of a decoded value may be kept and handed out again; see `near.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Immutable all through: the object itself.
    Itself,
    /// A dict, list or set of immutables: a shallow copy equals a fresh decode.
    ShallowCopy,
    /// Mutable things inside mutable things: decode every time.
    Nothing,
}

pub struct Decoded<'py> {
    pub value: Bound<'py, PyAny>,
    pub keep: Keep,
}

/// The value, or `None` if the bytes are not one. Raises MemoryError, and what a signal's handler
/// raises meanwhile.
pub fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Option<Decoded<'py>>> {
    let mut decoder = Decoder {
        py,
        types: types(py),
        reader: Reader { rest: bytes },
        budget: bytes.len(),
        mutables: 0,
    };
    let value = decoder.value(0);
    let whole = decoder.reader.rest.is_empty();
    match value {
        Some(value) if whole => {
            let keep = match decoder.mutables {
                0 => Keep::Itself,
                1 if is_mutable(&value) => Keep::ShallowCopy,
                _ => Keep::Nothing,
            };
            Ok(Some(Decoded { value, keep }))
        }
        _ => python::unless_bad_data(py).map(|()| None),
    }
}

fn is_mutable(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached; only the type is read.
    unsafe {
        let kind = ffi::Py_TYPE(value.as_ptr());
        kind == &raw mut ffi::PyDict_Type
            || kind == &raw mut ffi::PyList_Type
            || kind == &raw mut ffi::PySet_Type
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    #[inline]
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    #[inline]
    fn varint(&mut self) -> Option<usize> {
        let mut n: u64 = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return usize::try_from(n).ok();
            }
        }
        None
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let n = self.varint()?;
        self.take(n)
    }
}

pub(super) struct Decoder<'a, 'py> {
    py: Python<'py>,
    pub(super) types: &'a Types,
    pub(super) reader: Reader<'a>,
    budget: usize, // D2
    mutables: u32, // containers met that the caller could change
}

pub(super) type Object<'py> = Option<Bound<'py, PyAny>>;

impl<'py> Decoder<'_, 'py> {
    fn value(&mut self, depth: u32) -> Object<'py> {
        let tag = self.reader.byte()?;
        match tag {
            0..STR => self.int(tag.into()),
            STR..DICT => {
                let text = self.reader.take((tag & 0x3f).into())?;
                ascii_str(self.py, text)
            }
            DICT..TUPLE => self.dict((tag & 0x0f).into(), depth),
            TUPLE..LIST => self.tuple((tag & 0x07).into(), depth),
            LIST..NONE => self.list((tag & 0x07).into(), depth),
            NONE => Some(self.py.None().into_bound(self.py)),
            // SAFETY: attached; the two bools live for ever.
            FALSE => Some(unsafe { Bound::from_borrowed_ptr(self.py, ffi::Py_False()) }),
            // SAFETY: as above.
            TRUE => Some(unsafe { Bound::from_borrowed_ptr(self.py, ffi::Py_True()) }),
            FLOAT => {
                let value = f64::from_le_bytes(self.reader.array()?);
                self.float(value)
            }
            INT16 => {
                let value = i16::from_le_bytes(self.reader.array()?);
                self.int(value.into())
            }
            INT32 => {
                let value = i32::from_le_bytes(self.reader.array()?);
                self.int(value.into())
            }
            INT64 => {
                let value = i64::from_le_bytes(self.reader.array()?);
                self.int(value)
            }
            _ => self.rare(tag, depth),
        }
    }

    #[inline(never)]
    fn rare(&mut self, tag: u8, depth: u32) -> Object<'py> {
        match tag {
            INT_BIG => {
                let bytes = self.reader.counted()?;
                python::or_set(self.py, python::int_from_bytes(self.py, bytes))
            }
            ASCII_N => {
                let text = self.reader.counted()?;
                ascii_str(self.py, text)
            }
            UTF8_N => {
                let text = self.reader.counted()?;
                str_from_utf8(self.py, text)
            }
            BYTES_N => {
                let bytes = self.reader.counted()?;
                // SAFETY: attached; pointer and length are those of a live slice.
                unsafe {
                    let data = bytes.as_ptr().cast();
                    self.owned(ffi::PyBytes_FromStringAndSize(data, bytes.len() as isize))
                }
            }
            LIST_N => {
                let len = self.reader.varint()?;
                self.list(len, depth)
            }
            TUPLE_N => {
                let len = self.reader.varint()?;
                self.tuple(len, depth)
            }
            DICT_N => {
                let len = self.reader.varint()?;
                self.dict(len, depth)
            }
            SET_N => {
                self.mutables += 1;
                // SAFETY: attached; null makes an empty set.
                unsafe {
                    let set = self.owned(ffi::PySet_New(std::ptr::null_mut()))?;
                    self.fill_set(set, depth)
                }
            }
            FROZENSET_N => {
                // SAFETY: attached; `PySet_Add` may fill a frozenset that nobody else has seen.
                unsafe {
                    let set = self.owned(ffi::PyFrozenSet_New(std::ptr::null_mut()))?;
                    self.fill_set(set, depth)
                }
            }
            FLOAT_LIST | FLOAT_TUPLE => self.float_run(tag == FLOAT_LIST),
            INT_LIST | INT_TUPLE => self.int_run(tag == INT_LIST),
            DATETIME => self.datetime(),
            DATE => self.date(),
            TIME => self.time(),
            TIMEDELTA => self.timedelta(),
            DECIMAL => {
                let text = std::str::from_utf8(self.reader.counted()?).ok()?;
                self.types.decimal_from(self.py, text)
            }
            UUID => {
                let bytes = self.reader.array::<16>()?;
                self.types.uuid_from(self.py, bytes)
            }
            _ => None,
        }
    }

    #[inline]
    fn dict(&mut self, len: usize, depth: u32) -> Object<'py> {
        self.enter(len.checked_mul(2)?, depth)?;
        self.mutables += 1;
        // SAFETY: attached.
        let dict = unsafe { self.owned(ffi::PyDict_New()) }?;
        for _ in 0..len {
            let key = self.key(depth)?;
            let value = self.value(depth + 1)?;
            // SAFETY: three live objects; the dict is ours. Unhashable keys fail here.
            let failed =
                unsafe { ffi::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) };
            if failed != 0 {
                return None;
            }
        }
        Some(dict)
    }

    #[inline]
    fn key(&mut self, depth: u32) -> Object<'py> {
        match self.reader.rest.first() {
            Some(&tag @ STR..DICT) => {
                self.reader.byte();
                let text = self.reader.take((tag & 0x3f).into())?;
                key_str(self.py, text)
            }
            _ => self.value(depth + 1),
        }
    }

    fn list(&mut self, len: usize, depth: u32) -> Object<'py> {
        self.enter(len, depth)?;
        self.mutables += 1;
        // SAFETY: a new list, which the collector has.
        let list = unsafe { hidden(self.new_list(len)?) };
        for at in 0..len {
            let item = self.value(depth + 1)?;
            // SAFETY: `at` is below the length, the place is empty, the list is ours.
            unsafe { ffi::PyList_SET_ITEM(list.as_ptr(), at as isize, item.into_ptr()) };
        }
        // SAFETY: hidden above.
        Some(unsafe { shown(list) })
    }

    fn tuple(&mut self, len: usize, depth: u32) -> Object<'py> {
        self.enter(len, depth)?;
        let tuple = self.new_tuple(len)?;
        if len == 0 {
            return Some(tuple); // the one empty tuple, which the collector never has
        }
        // SAFETY: a new tuple of items, which the collector has.
        let tuple = unsafe { hidden(tuple) };
        for at in 0..len {
            let item = self.value(depth + 1)?;
            // SAFETY: `at` is below the length, the place is empty, the tuple is ours.
            unsafe { ffi::PyTuple_SET_ITEM(tuple.as_ptr(), at as isize, item.into_ptr()) };
        }
        // SAFETY: hidden above.
        Some(unsafe { shown(tuple) })
    }

    /// # Safety
    /// A set or frozenset that nobody else has seen.
    unsafe fn fill_set(&mut self, set: Bound<'py, PyAny>, depth: u32) -> Object<'py> {
        let len = self.reader.varint()?;
        self.enter(len, depth)?;
        // SAFETY: a new set, which the collector has.
        let set = unsafe { hidden(set) };
        for _ in 0..len {
            let item = self.value(depth + 1)?;
            // SAFETY: two live objects; the set is ours. Unhashable items fail here.
            if unsafe { ffi::PySet_Add(set.as_ptr(), item.as_ptr()) } != 0 {
                return None;
            }
        }
        // SAFETY: hidden above.
        Some(unsafe { shown(set) })
    }

    fn float_run(&mut self, is_list: bool) -> Object<'py> {
        let len = self.reader.varint()?;
        let bytes = self.reader.take(len.checked_mul(8)?)?;
        let floats = bytes.chunks_exact(8).map(|raw| f64::from_le_bytes(raw.try_into().unwrap()));
        let make = |py, value| {
            // SAFETY: attached.
            unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyFloat_FromDouble(value)) }
        };
        // SAFETY: `len` times 8 bytes.
        unsafe { self.sequence(is_list, len, floats, make) }
    }

    fn int_run(&mut self, is_list: bool) -> Object<'py> {
        let len = self.reader.varint()?;
        let width = self.reader.byte()?;
        if !matches!(width, 1 | 2 | 4 | 8) {
            return None;
        }
        let bytes = self.reader.take(len.checked_mul(width.into())?)?;
        let make = |py, value| {
            // SAFETY: attached.
            unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyLong_FromLongLong(value)) }
        };
        // SAFETY: `len` times `width` bytes.
        unsafe {
            match width {
                1 => self.sequence(is_list, len, bytes.iter().map(|&b| i64::from(b as i8)), make),
                2 => {
                    let int = |raw: &[u8]| i16::from_le_bytes(raw.try_into().unwrap()).into();
                    self.sequence(is_list, len, bytes.chunks_exact(2).map(int), make)
                }
                4 => {
                    let int = |raw: &[u8]| i32::from_le_bytes(raw.try_into().unwrap()).into();
                    self.sequence(is_list, len, bytes.chunks_exact(4).map(int), make)
                }
                _ => {
                    let int = |raw: &[u8]| i64::from_le_bytes(raw.try_into().unwrap());
                    self.sequence(is_list, len, bytes.chunks_exact(8).map(int), make)
                }
            }
        }
    }

    /// A list or tuple of what `numbers` gives.
    ///
    /// # Safety
    /// That is `len` items.
    #[inline(always)]
    unsafe fn sequence<T>(
        &mut self,
        is_list: bool,
        len: usize,
        numbers: impl Iterator<Item = T>,
        make: impl Fn(Python<'py>, T) -> Object<'py>,
    ) -> Object<'py> {
        if is_list {
            self.mutables += 1;
            let list = self.new_list(len)?;
            for (at, number) in numbers.enumerate() {
                let item = make(self.py, number)?.into_ptr();
                // SAFETY: the caller's promise; each place is empty, the list is ours.
                unsafe { ffi::PyList_SET_ITEM(list.as_ptr(), at as isize, item) };
            }
            return Some(list);
        }
        let tuple = self.new_tuple(len)?;
        for (at, number) in numbers.enumerate() {
            let item = make(self.py, number)?.into_ptr();
            // SAFETY: as for the list.
            unsafe { ffi::PyTuple_SET_ITEM(tuple.as_ptr(), at as isize, item) };
        }
        Some(tuple)
    }

    #[inline]
    fn int(&self, value: i64) -> Object<'py> {
        // SAFETY: attached.
        unsafe { self.owned(ffi::PyLong_FromLongLong(value)) }
    }

    #[inline]
    fn float(&self, value: f64) -> Object<'py> {
        // SAFETY: attached.
        unsafe { self.owned(ffi::PyFloat_FromDouble(value)) }
    }

    fn new_list(&self, len: usize) -> Object<'py> {
        // SAFETY: attached. Unfilled places are null, which the list's destructor allows.
        unsafe { self.owned(ffi::PyList_New(isize::try_from(len).ok()?)) }
    }

    fn new_tuple(&self, len: usize) -> Object<'py> {
        // SAFETY: as for the list.
        unsafe { self.owned(ffi::PyTuple_New(isize::try_from(len).ok()?)) }
    }

    /// Takes over a reference; `None` for null.
    ///
    /// # Safety
    /// `object` is a new reference, or null.
    #[inline]
    pub(super) unsafe fn owned(&self, object: *mut ffi::PyObject) -> Object<'py> {
        // SAFETY: attached; the caller's promise.
        unsafe { Bound::from_owned_ptr_or_opt(self.py, object) }
    }

    /// D2 and D3, before a container of `items` values is made.
    #[inline]
    fn enter(&mut self, items: usize, depth: u32) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.budget = self.budget.checked_sub(items)?;
        Some(())
    }
}

/// Takes a container that is being filled out of the collector's sight (D4).
///
/// # Safety
/// It is a list, tuple or set that the collector has: such a one goes away as well hidden as shown.
#[inline]
unsafe fn hidden(container: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    // SAFETY: attached; the caller's promise.
    unsafe { ffi::PyObject_GC_UnTrack(container.as_ptr().cast()) };
    container
}

/// The same, filled: the collector has it again.
///
/// # Safety
/// [`hidden`] took it out.
#[inline]
unsafe fn shown(container: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    // SAFETY: attached; the caller's promise.
    unsafe { ffi::PyObject_GC_Track(container.as_ptr().cast()) };
    container
}
