//! `RedisCommands`: what a Redis backend does per call before it sends and after it reads.
//!
//! Commands come out as RESP2 arrays of bulk strings, ready for a socket: the final key, the
//! value and the lifetime are written into one `bytes` object. Replies go in as the parser
//! gives them. The Python side inherits from this class first and from Django's `BaseCache`
//! second; on first use it is asked for
//!
//! - `self.native_codec`: True to write and read values here (`value.rs`), False to let
//!   `self.codec` do both;
//! - `self.codec`: also reads the values whose header is none of ours;
//! - `self.counters`: `undecodable` is counted there, a stale value is not.
//!
//! Not here: sockets, pipelines, what a reply means for Django (`nearcache.backends`).

use std::sync::OnceLock;

use nearcache_core::TAG_INT;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::django::arguments::CacheArguments;
use crate::django::keys::KeyBuffer;
use crate::django::timeout::Timeout;
use crate::interop::python::{self, object};
use crate::redis::resp::{Part, pack, packed, packed_len, whole};
use crate::values::exact::Decoded;
use crate::values::python_codec::{self, flag, undecodable};
use crate::values::value::{self, HEADER, Payload, Read, split};

type Object<'py> = Bound<'py, PyAny>;
type Command<'py> = PyResult<Bound<'py, PyBytes>>;

#[pyclass(extends = CacheArguments, frozen, subclass, module = "nearcache._core")]
pub struct RedisCommands {
    native_codec: OnceLock<bool>,
}

#[pymethods]
impl RedisCommands {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<RedisCommands>> {
        let base = PyClassInitializer::from(CacheArguments::new(py)?);
        Ok(base.add_subclass(RedisCommands { native_codec: OnceLock::new() }))
    }

    #[pyo3(signature = (key, version=None, /))]
    fn _get_command<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> Command<'py> {
        let mut buffer = KeyBuffer::new();
        packed(slf.py(), &[whole(b"GET"), whole(raw_key(slf, key, version, &mut buffer)?)])
    }

    #[pyo3(signature = (name, key, version=None, /, *args))]
    fn _command<'py>(
        slf: &Bound<'py, Self>,
        name: &[u8],
        key: &Object<'py>,
        version: Option<&Object<'py>>,
        args: &Bound<'py, PyTuple>,
    ) -> Command<'py> {
        let mut buffer = KeyBuffer::new();
        let mut parts = vec![whole(name), whole(raw_key(slf, key, version, &mut buffer)?)];
        let args: Vec<Bound<'py, PyBytes>> = args.extract()?;
        parts.extend(args.iter().map(|arg| whole(arg.as_bytes())));
        packed(slf.py(), &parts)
    }

    #[pyo3(signature = (key, value, timeout=Timeout::Default, version=None, nx=false, /))]
    fn _set_command<'py>(
        slf: &Bound<'py, Self>,
        key: &Object<'py>,
        value: &Object<'py>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
        nx: bool,
    ) -> Command<'py> {
        let py = slf.py();
        let mut buffer = KeyBuffer::new();
        let key = raw_key(slf, key, version, &mut buffer)?;
        let life = life(slf, timeout)?;
        with_encoded(slf, value, |value| {
            with_set_parts(key, value, life, nx, |parts| packed(py, parts))
        })
    }

    #[pyo3(signature = (items, timeout=Timeout::Default, version=None, /))]
    fn _set_many_command<'py>(
        slf: &Bound<'py, Self>,
        items: &Bound<'py, PyDict>,
        timeout: Timeout,
        version: Option<&Object<'py>>,
    ) -> PyResult<(Bound<'py, PyBytes>, usize)> {
        let life = life(slf, timeout)?;
        let (mut out, mut commands) = (Vec::new(), 0);
        // A list of them: pickling a value may change the dict.
        for item in items.items() {
            let (key, value): (Object<'py>, Object<'py>) = item.extract()?;
            let mut buffer = KeyBuffer::new();
            let key = raw_key(slf, &key, version, &mut buffer)?;
            with_encoded(slf, &value, |value| {
                with_set_parts(key, value, life, false, |parts| {
                    python::room(&mut out, packed_len(parts))?;
                    pack(parts, |piece| out.extend_from_slice(piece));
                    Ok(())
                })
            })?;
            commands += 1;
        }
        Ok((python::new_bytes(slf.py(), &out)?, commands))
    }

    #[pyo3(signature = (keys, version=None, /))]
    fn _mget_command<'py>(
        slf: &Bound<'py, Self>,
        keys: &Object<'py>,
        version: Option<&Object<'py>>,
    ) -> Command<'py> {
        let (mut raw_keys, mut ends) = (Vec::new(), vec![0]);
        for key in keys.try_iter()? {
            let mut buffer = KeyBuffer::new();
            raw_keys.extend_from_slice(raw_key(slf, &key?, version, &mut buffer)?);
            ends.push(raw_keys.len());
        }
        if ends.len() == 1 {
            return Ok(PyBytes::new(slf.py(), b"")); // a command without keys would be an error
        }
        let keys = ends.windows(2).map(|end| &raw_keys[end[0]..end[1]]);
        let parts: Vec<_> = [&b"MGET"[..]].into_iter().chain(keys).map(whole).collect();
        packed(slf.py(), &parts)
    }

    /// Milliseconds to live: None for ever, 0 for none at all.
    #[pyo3(signature = (timeout=Timeout::Default, /))]
    fn _timeout_ms(slf: &Bound<'_, Self>, timeout: Timeout) -> PyResult<Option<u64>> {
        Ok(match life(slf, timeout)? {
            Life::Ms(ms) => Some(ms),
            Life::Over => Some(0),
            Life::Endless => None,
        })
    }

    #[pyo3(signature = (reply, default=None, /))]
    fn _value<'py>(
        slf: &Bound<'py, Self>,
        reply: &Object<'py>,
        default: Option<Object<'py>>,
    ) -> PyResult<Object<'py>> {
        Ok(match (decoded(slf, reply)?, default) {
            (Some(value), _) | (None, Some(value)) => value,
            (None, None) => slf.py().None().into_bound(slf.py()),
        })
    }

    #[pyo3(signature = (keys, replies, /))]
    fn _values<'py>(
        slf: &Bound<'py, Self>,
        keys: &Object<'py>,
        replies: &Object<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(slf.py());
        if keys.len()? != replies.len()? {
            let text = format!("{} keys and {} replies", keys.len()?, replies.len()?);
            return Err(PyValueError::new_err(text));
        }
        for (key, reply) in keys.try_iter()?.zip(replies.try_iter()?) {
            if let Some(value) = decoded(slf, &reply?)? {
                found.set_item(key?, value)?;
            }
        }
        Ok(found)
    }
}

impl RedisCommands {
    #[inline]
    fn native_codec(slf: &Bound<'_, Self>) -> PyResult<bool> {
        match slf.get().native_codec.get() {
            Some(native) => Ok(*native),
            None => {
                let native = flag(slf.as_any(), "native_codec", true)?;
                Ok(*slf.get().native_codec.get_or_init(|| native))
            }
        }
    }
}

#[inline]
fn raw_key<'b, 'py>(
    slf: &Bound<'py, RedisCommands>,
    key: &Object<'py>,
    version: Option<&Object<'py>>,
    buffer: &'b mut KeyBuffer,
) -> PyResult<&'b [u8]> {
    CacheArguments::raw_key(slf.as_super(), key, version, buffer)
}

// -- lifetimes and values --------------------------------------------------------------------

#[derive(Clone, Copy)]
enum Life {
    Ms(u64),
    Over,
    Endless,
}

fn life(slf: &Bound<'_, RedisCommands>, timeout: Timeout) -> PyResult<Life> {
    Ok(match slf.as_super().get().timeout(slf.py(), timeout)? {
        Timeout::AfterMs(ms) => Life::Ms(ms),
        Timeout::Passed => Life::Over,
        Timeout::Never | Timeout::Default => Life::Endless,
    })
}

/// A value as the native codec or `self.codec` writes it.
fn with_encoded<R>(
    slf: &Bound<'_, RedisCommands>,
    value: &Object<'_>,
    f: impl FnOnce(Part<'_>) -> PyResult<R>,
) -> PyResult<R> {
    if !RedisCommands::native_codec(slf)? {
        let raw = python_codec::encode(slf.as_any(), value)?;
        return f(whole(raw.as_bytes()));
    }
    value::with_written(value, |tag, payload| match (tag, payload.try_into()) {
        (TAG_INT, Ok(int)) => f(whole(i64::from_le_bytes(int).to_string().as_bytes())),
        _ => f([&[tag], payload]),
    })
}

/// The value of a reply; `None` for none, and for one that cannot be read.
#[inline]
fn decoded<'py>(
    slf: &Bound<'py, RedisCommands>,
    reply: &Object<'py>,
) -> PyResult<Option<Object<'py>>> {
    if reply.is_none() {
        return Ok(None);
    }
    let raw = reply.cast::<PyBytes>()?;
    if RedisCommands::native_codec(slf)? {
        let py = slf.py();
        let read = match split(raw.as_bytes()) {
            (TAG_INT, Payload::Int(int)) => return object(py, i64::from_le_bytes(int)).map(Some),
            (tag @ HEADER..=0xfe, Payload::Borrowed(payload)) => value::read(py, tag, payload)?,
            _ => Read::Foreign,
        };
        match read {
            Read::Value(Decoded { value, .. }) => return Ok(Some(value)),
            Read::Undecodable => return undecodable(slf.as_any()).map(|()| None),
            Read::Foreign => {}
        }
    }
    python_codec::decode(slf.as_any(), raw.clone())
}

/// SET with its options, or what stands for it where the value's life would be over.
fn with_set_parts<R>(
    key: &[u8],
    value: Part<'_>,
    life: Life,
    nx: bool,
    f: impl FnOnce(&[Part<'_>]) -> R,
) -> R {
    let (key, set, nx_word) = (whole(key), whole(b"SET"), whole(b"NX"));
    match (life, nx) {
        // What was there goes; but an add only asks whether anything is.
        (Life::Over, false) => f(&[whole(b"DEL"), key]),
        (Life::Over, true) => f(&[whole(b"EXISTS"), key]),
        (Life::Endless, false) => f(&[set, key, value]),
        (Life::Endless, true) => f(&[set, key, value, nx_word]),
        (Life::Ms(ms), nx) => {
            let ms = ms.to_string();
            let parts = [set, key, value, whole(b"PX"), whole(ms.as_bytes()), nx_word];
            f(&parts[..if nx { 6 } else { 5 }])
        }
    }
}
