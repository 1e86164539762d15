//! Reads nginx's access logs at the speed of memory.
//!
//! ```text
//!  log_format ──compile──> Plan          (format.rs)
//!  bytes ──> Lines ──> Plan or JSON ──> Record ──> a Consumer of the caller
//!           (lines.rs)  (format.rs, json.rs)  (record.rs)     LogPass (pass.rs),
//!                                                         or a Trace to replay (whatif/)
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

mod distinct;
mod filter;
mod format;
mod freshness;
mod groups;
mod hashing;
mod histogram;
mod json;
mod keys;
mod ledger;
mod lengths;
mod lines;
mod locations;
mod misses;
mod numbers;
mod pass;
mod prices;
mod recent;
mod record;
mod request;
mod spelling;
mod text;
mod time;
mod top;
pub mod whatif;

pub use filter::Filter;
pub use format::{COMBINED, Format, FormatError, Plan};
pub use freshness::{ByStatus, CacheValid, Verdict};
pub use groups::{Group, Groups, shape};
pub use histogram::{Bucket, Histogram};
pub use keys::Keys;
pub use ledger::{ANY_GROUP, Count, Hour, Ledger, STATUS_NAMES, Sum, Tally};
pub use lengths::{LONGEST, Lengths, OfLength, Subject};
pub use lines::{Bad, Consumer, LONGEST_LINE, Reader};
pub use locations::{Kind, Locations, PatternError};
pub use misses::{Judgement, Misses, Rules, WHY_NAMES, Why};
pub use pass::{LogPass, Options, RankedBy};
pub use prices::{Fetches, Fitted, Prices, Saved, Url};
pub use recent::Recent;
pub use record::{CacheStatus, Field, Record, Upstream};
pub use request::{KeyParts, KeyText, Request};
pub use spelling::NAMES as SPELLING_NAMES;
pub use top::{Entry, Top};
