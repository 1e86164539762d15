//! `exact`: Python values as bytes, without pickle, where the exact type survives.
//!
//! Only instances of the exact built-in types below are written; the first other
//! thing anywhere inside (a subclass, an enum, a lone surrogate, a shared or
//! self-containing container, too much nesting) makes [`encode`] decline, and the
//! caller pickles the whole value. What comes back is what `pickle.loads(pickle.dumps(v))`
//! gives: same types, same order, same sharing.
//!
//! A value is one tag byte, then what the tag says. Numbers are little endian; `n` is
//! a LEB128 varint.
//!
//! ```text
//!  00..7f  int 0..127
//!  80..bf  ASCII str of 0..63 bytes        e0  None
//!  c0..cf  dict of 0..15 items             e1  False            e2  True
//!  d0..d7  tuple of 0..7                   e3  float      │ f64 │
//!  d8..df  list of 0..7                    e4 e5 e6  int  │ i16 │ i32 │ i64
//!                                          e7  int        │ n │ two's complement, n bytes │
//!  e8  ASCII str  │ n │ bytes │            e9  UTF-8 str  │ n │ bytes │
//!  ea  bytes      │ n │ bytes │
//!  eb  list   ec  tuple   ee  set   ef  frozenset         │ n │ n values │
//!  ed  dict                                               │ n │ n times key, value │
//!  f0  list of float      f1  tuple of float              │ n │ n × f64 │
//!  f2  list of int        f3  tuple of int                │ n │ width 1,2,4,8 │ n × int │
//!  f4  datetime    │ year u16 │ month │ day │ hour │ minute │ second │ µs u24 │ fold + 2·utc │
//!  f5  date        │ year u16 │ month │ day │
//!  f6  time        │ hour │ minute │ second │ µs u24 │ fold + 2·utc │
//!  f7  timedelta   │ days i32 │ seconds i32 │ µs i32 │
//!  f8  Decimal     │ n │ str(d) in ASCII │
//!  f9  UUID        │ 16 bytes, big endian │
//! ```
//!
//! `datetime` and `time` are naive, or aware in the one object `timezone.utc`.
//!
//! Not here: the header byte and top-level ints, str and bytes (`codec.rs`).

mod decode;
mod encode;
mod encode_rare;
mod sharing;
mod strings;

pub use decode::{Decoded, Keep, decode};
pub use encode::encode;
pub use strings::{ascii_str, str_from_utf8};

/// Deeper values are pickled; deeper bytes do not decode. Bounds the native stack.
const MAX_DEPTH: u32 = 64;

const STR: u8 = 0x80;
const STR_MAX: usize = 63;
const DICT: u8 = 0xc0;
const DICT_MAX: usize = 15;
const TUPLE: u8 = 0xd0;
const LIST: u8 = 0xd8;
const SEQUENCE_MAX: usize = 7;
const NONE: u8 = 0xe0;
const FALSE: u8 = 0xe1;
const TRUE: u8 = 0xe2;
const FLOAT: u8 = 0xe3;
const INT16: u8 = 0xe4;
const INT32: u8 = 0xe5;
const INT64: u8 = 0xe6;
const INT_BIG: u8 = 0xe7;
const ASCII_N: u8 = 0xe8;
const UTF8_N: u8 = 0xe9;
const BYTES_N: u8 = 0xea;
const LIST_N: u8 = 0xeb;
const TUPLE_N: u8 = 0xec;
const DICT_N: u8 = 0xed;
const SET_N: u8 = 0xee;
const FROZENSET_N: u8 = 0xef;
const FLOAT_LIST: u8 = 0xf0;
const FLOAT_TUPLE: u8 = 0xf1;
const INT_LIST: u8 = 0xf2;
const INT_TUPLE: u8 = 0xf3;
const DATETIME: u8 = 0xf4;
const DATE: u8 = 0xf5;
const TIME: u8 = 0xf6;
const TIMEDELTA: u8 = 0xf7;
const DECIMAL: u8 = 0xf8;
const UUID: u8 = 0xf9;

/// In the last byte of a datetime: the fold, and "tzinfo is timezone.utc".
const FOLD: u8 = 1;
const UTC: u8 = 2;
