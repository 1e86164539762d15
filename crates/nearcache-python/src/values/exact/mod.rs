//! `exact`: Python values as bytes, without pickle, where the exact type survives.
//!
//! Only instances of the exact built-in types below are written; the first other
//! thing anywhere inside (a subclass, an enum, a lone surrogate, a shared or
//! self-containing container, too much nesting) makes [`encode`] decline, and the
//! caller pickles the whole value. What comes back is what `pickle.loads(pickle.dumps(v))`
//! gives: same types, same order, same sharing. `format.rs` has the bytes.
//!
//! Not here: the header byte and top-level ints, str and bytes (`values/value.rs`).

mod decode;
mod decode_rare;
mod encode;
mod encode_rare;
mod format;
mod sharing;
mod strings;

pub use decode::{Decoded, Keep, decode};
pub use encode::encode;
pub use strings::str_from_utf8;
