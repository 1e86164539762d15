//! Reads nginx's access logs at the speed of memory.
//!
//! ```text
//!  log_format ──compile──> Plan          (format.rs)
//!  bytes ──> Lines ──> Plan or JSON ──> Record ──> a Consumer of the caller
//!           (lines.rs)  (format.rs, json.rs)  (record.rs)
//! ```
//!
//! # Goals
//!
//! - No allocation per line: a [`Record`] borrows from the bytes it was read from.
//! - Memory does not grow with the number of lines.
//! - A line that does not fit is counted, and the first few are kept to be shown.
//!   No input panics or hangs.
//!
//! # Non-goals
//!
//! Opening files, unpacking them, and telling people about it: that is Python's.

mod format;
mod json;
mod lines;
mod numbers;
mod record;
mod time;

pub use format::{COMBINED, Format, FormatError, Plan};
pub use lines::{Bad, Consumer, LONGEST_LINE, Reader};
pub use record::{CacheStatus, Field, Record, Upstream};
