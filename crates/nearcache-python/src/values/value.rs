//! A cache value as a tag and a payload, the way the native codec writes it.
//!
//! ```text
//!  bit  7     6 5 4          3 2 1 0
//!     │ 1 │ compressor │   serializer   │    the tag; nearcache.codec calls it the header
//! ```
//!
//! Serializers: 1 str, 9 bytes, 2 exact, 3 pickle; the first that takes the value writes it.
//! Never 0: with it the tag would be the first byte of other programs' pickles.
//! An exact int of 64 bits is `TAG_INT`, outside as decimal digits: the core can add to it.
//! Compressed values and the other serializers are for `nearcache.codec`, in Python.

use nearcache_core::{TAG_DIGITS, TAG_INT};
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interop::gil::GilCell;
use crate::interop::python::{self, IS_INTERRUPT, PICKLE_DUMPS, PICKLE_LOADS};
use crate::values::exact::{self, Decoded, Keep};

pub const HEADER: u8 = 0x80;
const STR: u8 = HEADER | 1;
const EXACT: u8 = HEADER | 2;
pub const PICKLE: u8 = HEADER | 3;
/// Written and read by `nearcache.codec.envelope`.
pub const ENVELOPE: u8 = HEADER | 7;
/// No less than an envelope's head has.
pub const ENVELOPE_HEAD_BYTES: usize = 64;
const BYTES: u8 = HEADER | 9;
const PICKLE_PROTOCOL: i32 = 5; // HIGHEST_PROTOCOL of every Python since 3.8

/// Writes the payload over `out` and returns its tag. Only pickle's own errors come out, and
/// MemoryError.
pub fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<u8> {
    out.clear();
    if let Some(int) = small_int(value) {
        out.extend_from_slice(&int.to_le_bytes());
        return Ok(TAG_INT);
    }
    if write_utf8(value, out)? {
        return Ok(STR);
    }
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        python::append(out, bytes.as_bytes())?;
        return Ok(BYTES);
    }
    if exact::encode(value, out).is_ok() {
        return Ok(EXACT);
    }
    let pickled = PICKLE_DUMPS.get(value.py())?.call1((value, PICKLE_PROTOCOL))?;
    out.clear();
    python::append(out, pickled.cast::<PyBytes>()?.as_bytes())?;
    Ok(PICKLE)
}

static SCRATCH: GilCell<Vec<u8>> = GilCell::new(Vec::new());
const SCRATCH_MAX_BYTES: usize = 1 << 20;

/// [`write()`] into a buffer that is used again, then `f` on tag and payload.
#[inline]
pub fn with_written<R>(
    value: &Bound<'_, PyAny>,
    f: impl FnOnce(u8, &[u8]) -> PyResult<R>,
) -> PyResult<R> {
    let py = value.py();
    // Taken out, not borrowed: pickling runs code that may come back here.
    // SAFETY: G2: bytes are moved.
    let mut out = unsafe { SCRATCH.with(py, std::mem::take) };
    let result = write(value, &mut out).and_then(|tag| f(tag, &out));
    if out.capacity() <= SCRATCH_MAX_BYTES {
        // SAFETY: G2: bytes are moved, and dropped.
        unsafe { SCRATCH.with(py, |scratch| *scratch = out) };
    }
    result
}

/// The int, if its type is exactly `int` and it fits. A bool or an IntEnum is another type.
#[inline]
fn small_int(value: &Bound<'_, PyAny>) -> Option<i64> {
    let mut overflow = 0;
    // SAFETY: attached; an exact int neither fails nor runs code.
    unsafe {
        if ffi::PyLong_CheckExact(value.as_ptr()) == 0 {
            return None;
        }
        let int = ffi::PyLong_AsLongLongAndOverflow(value.as_ptr(), &mut overflow);
        (overflow == 0).then_some(int)
    }
}

/// Writes an exact str, unless it has lone surrogates; true if it did.
#[inline]
fn write_utf8(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<bool> {
    let (py, object) = (value.py(), value.as_ptr());
    // SAFETY: attached; the type is checked. A compact ASCII str is its own UTF-8. Of others
    // we make a bytes object that goes away again: `AsUTF8AndSize` would leave a second copy
    // of the text in the caller's string.
    unsafe {
        if ffi::PyUnicode_CheckExact(object) == 0 {
            return Ok(false);
        }
        if ffi::PyUnicode_IS_COMPACT_ASCII(object) != 0 {
            let len = ffi::PyUnicode_GET_LENGTH(object) as usize;
            let data = ffi::PyUnicode_DATA(object).cast::<u8>();
            python::append(out, std::slice::from_raw_parts(data, len))?;
            return Ok(true);
        }
        match Bound::from_owned_ptr_or_opt(py, ffi::PyUnicode_AsUTF8String(object)) {
            Some(utf8) => {
                python::append(out, utf8.cast_unchecked::<PyBytes>().as_bytes())?;
                Ok(true)
            }
            None => python::unless_bad_data(py).map(|()| false),
        }
    }
}

pub enum Read<'py> {
    Value(Decoded<'py>),
    /// Another serializer or a compressor: ask `nearcache.codec`.
    Foreign,
    /// Bytes that our own serializers cannot have written, or a pickle that does not load.
    Undecodable,
}

/// The value of a payload. Raises MemoryError, and what a signal's handler raises meanwhile.
/// Pickles run code: `payload` must not be a buffer that others use.
#[inline]
pub fn read<'py>(py: Python<'py>, tag: u8, payload: &[u8]) -> PyResult<Read<'py>> {
    let value = match tag {
        EXACT => return Ok(exact::decode(py, payload)?.map_or(Read::Undecodable, Read::Value)),
        STR => exact::str_from_utf8(py, payload),
        BYTES => Some(python::new_bytes(py, payload)?.into_any()),
        TAG_INT => return int(py, payload),
        PICKLE => return unpickle(py, payload),
        _ => return Ok(Read::Foreign),
    };
    match value {
        Some(value) => Ok(Read::Value(Decoded { value, keep: Keep::Itself })),
        None => python::unless_bad_data(py).map(|()| Read::Undecodable),
    }
}

fn int<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Read<'py>> {
    let Ok(raw) = payload.try_into() else {
        return Ok(Read::Undecodable);
    };
    let value = python::object(py, i64::from_le_bytes(raw))?;
    // The core adds in place: the place of an int may be the same and its value another.
    Ok(Read::Value(Decoded { value, keep: Keep::Nothing }))
}

#[inline(never)] // it is large, and what it calls takes longer than the call
fn unpickle<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Read<'py>> {
    match PICKLE_LOADS.get(py)?.call1((python::new_bytes(py, payload)?,)) {
        Ok(value) => Ok(Read::Value(Decoded { value, keep: Keep::Nothing })),
        // Anything: unpickling runs the code of classes that may have changed or gone. But a
        // KeyboardInterrupt is not the value's fault, nor is want of memory.
        Err(error) if error.is_instance_of::<PyMemoryError>(py) => Err(error),
        Err(error) if error.is_instance_of::<PyException>(py) && !is_interrupt(py, &error)? => {
            Ok(Read::Undecodable)
        }
        Err(error) => Err(error),
    }
}

/// Whether a signal's handler raised it, inside the code of a class.
#[cold]
fn is_interrupt(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    let value = error.value(py);
    value.setattr(intern!(py, "__traceback__"), error.traceback(py))?;
    IS_INTERRUPT.get(py)?.call1((value,))?.extract()
}

/// Bytes from outside that have no header and are no counter: the payload is all of them.
const RAW: u8 = 0xff;

/// The tag and payload of a value as the outside knows it: header and payload, or digits.
pub fn split(raw: &[u8]) -> (u8, Payload<'_>) {
    match raw.split_first() {
        Some((&first @ HEADER..=0xfe, rest)) => (first, Payload::Borrowed(rest)),
        _ if is_counter(raw) => counter(raw),
        _ => (RAW, Payload::Borrowed(raw)),
    }
}

fn counter(digits: &[u8]) -> (u8, Payload<'_>) {
    // Digits only, so parsing fails for want of bits alone.
    match std::str::from_utf8(digits).ok().and_then(|text| text.parse::<i64>().ok()) {
        Some(int) => (TAG_INT, Payload::Int(int.to_le_bytes())),
        None => (TAG_DIGITS, Payload::Borrowed(digits)),
    }
}

pub enum Payload<'a> {
    Borrowed(&'a [u8]),
    Int([u8; 8]),
}

impl Payload<'_> {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Payload::Borrowed(bytes) => bytes,
            Payload::Int(bytes) => bytes,
        }
    }
}

/// The inverse of [`split`].
pub fn join<'py>(py: Python<'py>, tag: u8, payload: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    match tag {
        TAG_INT => {
            let raw = payload.try_into().unwrap_or_default();
            Ok(PyBytes::new(py, i64::from_le_bytes(raw).to_string().as_bytes()))
        }
        TAG_DIGITS | RAW => python::new_bytes(py, payload),
        _ => PyBytes::new_with(py, payload.len() + 1, |raw| {
            raw[0] = tag;
            raw[1..].copy_from_slice(payload);
            Ok(())
        }),
    }
}

/// The length of what [`join`] makes, but for a counter: 8, whatever its digits.
pub fn outside_len(tag: u8, payload_len: usize) -> usize {
    payload_len + usize::from((HEADER..RAW).contains(&tag))
}

/// As Python and Redis write integers: no plus, no spaces, no leading zeros, no `-0`.
fn is_counter(raw: &[u8]) -> bool {
    let digits = raw.strip_prefix(b"-").unwrap_or(raw);
    match digits {
        [b'0'] => raw.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}
