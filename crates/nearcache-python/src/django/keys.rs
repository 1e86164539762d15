//! The final key, `prefix:version:key`, as Django's default key function makes it.
//!
//! Built here, on the stack, when nothing unusual is about: the default key function, no
//! override of Django's key methods, and a key that `validate_key` has nothing to say about.
//! Everything else goes through `self.make_and_validate_key`, which makes the same key, and
//! warns. So no key function, prefix or warning can come out differently.

use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};

/// Django's MEMCACHE_MAX_KEY_LENGTH, in characters.
const MAX_CHARS: usize = 250;
/// UTF-8 takes four bytes a character at most.
const MAX_BYTES: usize = MAX_CHARS * 4;

/// Where a final key is put together: on the stack, or in `heap` if Python made it.
pub struct KeyBuffer {
    stack: [MaybeUninit<u8>; MAX_BYTES],
    len: usize,
    heap: Option<Vec<u8>>,
}

impl KeyBuffer {
    #[inline(always)]
    pub fn new() -> KeyBuffer {
        KeyBuffer { stack: [const { MaybeUninit::uninit() }; MAX_BYTES], len: 0, heap: None }
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.heap {
            Some(heap) => heap,
            // SAFETY: `push` has written the first `len` bytes.
            None => unsafe { std::slice::from_raw_parts(self.stack.as_ptr().cast(), self.len) },
        }
    }

    /// Takes a key that was made elsewhere.
    pub fn replace(&mut self, bytes: Vec<u8>) {
        self.heap = Some(bytes);
    }

    /// False if there is no room; the key is too long for the fast way then.
    #[inline]
    fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.stack.get_mut(self.len..self.len + bytes.len()) else {
            return false;
        };
        // SAFETY: `room` is exactly as long, ours alone, and bytes need no alignment.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.as_mut_ptr().cast(), bytes.len());
        }
        self.len += bytes.len();
        true
    }
}

/// `prefix:` and `prefix:version:`, for as long as neither is assigned anew.
#[derive(Default)]
pub struct Head {
    prefix: Option<Vec<u8>>,
    whole: Option<Vec<u8>>,
    prefix_chars: usize,
    whole_chars: usize,
}

impl Head {
    /// Unusual prefixes and versions have no head: their keys are made in Python.
    pub fn new(prefix: &Bound<'_, PyAny>, version: &Bound<'_, PyAny>) -> Head {
        let mut head = Head::default();
        let Some((mut bytes, chars)) = plain_text(prefix) else {
            return head;
        };
        bytes.push(b':');
        head.prefix_chars = chars + 1;
        head.prefix = Some(bytes.clone());
        if let Some((version, chars)) = plain_text(version) {
            bytes.extend_from_slice(&version);
            bytes.push(b':');
            head.whole_chars = head.prefix_chars + chars + 1;
            head.whole = Some(bytes);
        }
        head
    }

    /// Puts the final key in `out`; false: make it in Python.
    #[inline]
    pub fn build(&self, version: Version, key: &Text<'_>, out: &mut KeyBuffer) -> bool {
        let (head, mut chars) = match version {
            Version::Own => (&self.whole, self.whole_chars),
            Version::Int(_) => (&self.prefix, self.prefix_chars),
            Version::Odd => return false,
        };
        let Some(head) = head else { return false };
        let mut room = out.push(head);
        if let Version::Int(version) = version {
            let digits = version.to_string();
            chars += digits.len() + 1;
            room = room && out.push(digits.as_bytes()) && out.push(b":");
        }
        chars += key.chars;
        room && out.push(key.bytes) && chars <= MAX_CHARS && !has_awkward(key.bytes)
    }
}

#[derive(Clone, Copy)]
pub enum Version {
    Own,
    Int(i64),
    Odd,
}

impl Version {
    #[inline]
    pub fn of(version: Option<&Bound<'_, PyAny>>) -> Version {
        match version {
            None => Version::Own,
            Some(version) => match version.cast_exact::<PyInt>() {
                Ok(int) => int.extract().map_or(Version::Odd, Version::Int),
                Err(_) => Version::Odd,
            },
        }
    }
}

/// The characters of a key, borrowed from a Python object.
pub struct Text<'a> {
    bytes: &'a [u8],
    chars: usize,
}

impl<'a> Text<'a> {
    /// `None` for lone surrogates.
    #[inline]
    pub fn of(text: &'a Bound<'_, PyString>) -> Option<Text<'a>> {
        // SAFETY: a str, alive as long as `text`; so is its UTF-8, which it keeps.
        unsafe {
            let mut len = 0;
            let data = ffi::PyUnicode_AsUTF8AndSize(text.as_ptr(), &mut len);
            if data.is_null() {
                ffi::PyErr_Clear();
                return None;
            }
            Some(Text {
                bytes: std::slice::from_raw_parts(data.cast(), len as usize),
                chars: ffi::PyUnicode_GET_LENGTH(text.as_ptr()) as usize,
            })
        }
    }
}

/// The text of an exact str or int without awkward characters. Other types are asked for
/// their `str()` each time, by Python.
fn plain_text(value: &Bound<'_, PyAny>) -> Option<(Vec<u8>, usize)> {
    if let Ok(text) = value.cast_exact::<PyString>() {
        let text = Text::of(text)?;
        return (!has_awkward(text.bytes)).then(|| (text.bytes.to_vec(), text.chars));
    }
    let digits = value.cast_exact::<PyInt>().ok()?.extract::<i64>().ok()?.to_string();
    let chars = digits.len();
    Some((digits.into_bytes(), chars))
}

/// What Django's `memcached_error_chars_re` finds: `[\x00-\x20\x7f]`.
#[inline]
fn has_awkward(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, &byte| found | (byte < 0x21) | (byte == 0x7f))
}

/// The final key by Django's own code, as bytes.
#[cold]
pub fn made_by_python(
    cache: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    version: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<u8>> {
    let py = cache.py();
    let made = cache.call_method1(intern!(py, "make_and_validate_key"), (key, version))?;
    let arguments = (intern!(py, "utf-8"), intern!(py, "surrogatepass"));
    let raw = made.call_method1(intern!(py, "encode"), arguments)?;
    Ok(raw.cast::<PyBytes>()?.as_bytes().to_vec())
}
