//! RESP2 commands: arrays of bulk strings, written once into an object of the right size.
//!
//! ```text
//!  *3\r\n  $3\r\nSET\r\n  $4\r\n:1:k\r\n  $2\r\n42\r\n
//! ```

use std::borrow::Cow;
use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyTuple};

/// One string of a command, in two pieces: a value is a header and a payload.
pub type Part<'a> = [&'a [u8]; 2];

pub fn whole(bytes: &[u8]) -> Part<'_> {
    [bytes, b""]
}

pub fn packed_len(parts: &[Part<'_>]) -> usize {
    let line = |number: usize| 1 + digits_of(number) + 2; // "*" or "$", digits, end of line
    let bulk = |part: &Part<'_>| line(part_len(part)) + part_len(part) + 2;
    line(parts.len()) + parts.iter().map(bulk).sum::<usize>()
}

/// Hands the command to `put`, piece by piece.
#[inline]
pub fn pack(parts: &[Part<'_>], mut put: impl FnMut(&[u8])) {
    let mut digits = [0; 20];
    put(b"*");
    put(decimal(parts.len(), &mut digits));
    put(b"\r\n");
    for part in parts {
        put(b"$");
        put(decimal(part_len(part), &mut digits));
        put(b"\r\n");
        put(part[0]);
        put(part[1]);
        put(b"\r\n");
    }
}

/// The command as one `bytes` object.
pub fn packed<'py>(py: Python<'py>, parts: &[Part<'_>]) -> PyResult<Bound<'py, PyBytes>> {
    let len = packed_len(parts);
    // SAFETY: attached. Without data the bytes are ours to write, until anybody else has the
    // object; memory is refused long before `len` would be cut off.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), len as ffi::Py_ssize_t);
        let bytes = Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>();
        let data = ffi::PyBytes_AsString(bytes.as_ptr()).cast::<MaybeUninit<u8>>();
        let mut room = std::slice::from_raw_parts_mut(data, len);
        pack(parts, |piece| {
            let (now, later) = std::mem::take(&mut room).split_at_mut(piece.len());
            std::ptr::copy_nonoverlapping(piece.as_ptr(), now.as_mut_ptr().cast(), piece.len());
            room = later;
        });
        assert!(room.is_empty(), "every byte was written");
        Ok(bytes)
    }
}

/// One command of these words: bytes as they are, and the text of anything else.
#[pyfunction(name = "pack")]
#[pyo3(signature = (*words))]
pub fn pack_words<'py>(words: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyBytes>> {
    let texts = words.as_slice().iter().map(text_of).collect::<PyResult<Vec<_>>>()?;
    let parts: Vec<_> = texts.iter().map(|text| whole(text)).collect();
    packed(words.py(), &parts)
}

fn text_of<'a>(word: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = word.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    let number = word.cast_exact::<PyInt>().ok().and_then(|int| int.extract::<i64>().ok());
    let text = match number {
        Some(number) => number.to_string(),
        None => word.str()?.to_str()?.to_owned(),
    };
    Ok(Cow::Owned(text.into_bytes()))
}

fn part_len(part: &Part<'_>) -> usize {
    part[0].len() + part[1].len()
}

fn digits_of(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}
