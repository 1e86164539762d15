//! The bytes of `exact`.
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

/// The value, or something inside it, is not for `exact`: pickle it.
#[derive(Debug)]
pub struct Declined;

pub type Encoded = Result<(), Declined>;

/// Deeper values are pickled; deeper bytes do not decode. Bounds the native stack.
pub const MAX_DEPTH: u32 = 64;

pub const STR: u8 = 0x80;
pub const STR_MAX: usize = 63;
pub const DICT: u8 = 0xc0;
pub const DICT_MAX: usize = 15;
pub const TUPLE: u8 = 0xd0;
pub const LIST: u8 = 0xd8;
pub const SEQUENCE_MAX: usize = 7;
pub const NONE: u8 = 0xe0;
pub const FALSE: u8 = 0xe1;
pub const TRUE: u8 = 0xe2;
pub const FLOAT: u8 = 0xe3;
pub const INT16: u8 = 0xe4;
pub const INT32: u8 = 0xe5;
pub const INT64: u8 = 0xe6;
pub const INT_BIG: u8 = 0xe7;
pub const ASCII_N: u8 = 0xe8;
pub const UTF8_N: u8 = 0xe9;
pub const BYTES_N: u8 = 0xea;
pub const LIST_N: u8 = 0xeb;
pub const TUPLE_N: u8 = 0xec;
pub const DICT_N: u8 = 0xed;
pub const SET_N: u8 = 0xee;
pub const FROZENSET_N: u8 = 0xef;
pub const FLOAT_LIST: u8 = 0xf0;
pub const FLOAT_TUPLE: u8 = 0xf1;
pub const INT_LIST: u8 = 0xf2;
pub const INT_TUPLE: u8 = 0xf3;
pub const DATETIME: u8 = 0xf4;
pub const DATE: u8 = 0xf5;
pub const TIME: u8 = 0xf6;
pub const TIMEDELTA: u8 = 0xf7;
pub const DECIMAL: u8 = 0xf8;
pub const UUID: u8 = 0xf9;

/// In the last byte of a datetime: the fold, and "tzinfo is timezone.utc".
pub const FOLD: u8 = 1;
pub const UTC: u8 = 2;
