//! Reads nginx's access logs at the speed of memory.
//!
//! ```text
//!  log_format ──compile──> Plan                     (all of these in log/)
//!  bytes ──> Lines ──> Plan or JSON ──> Record ──> a Consumer of the caller:
//!                                                  LogPass (ledger/), or
//!                                                  a Trace to replay (whatif/)
//! ```
//!
//! Each folder uses only those named before it: `base/`, `log/`, `urls/` (groups, spellings of one
//! key, locations), `misses/` (why a request was not a hit), `ledger/` (the sums of a pass), `whatif/`.
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

mod base;
mod ledger;
mod log;
mod misses;
mod urls;
pub mod whatif;

pub use base::histogram::{Bucket, Histogram};
pub use ledger::lengths::{LONGEST, Lengths, OfLength, Subject};
pub use ledger::pass::{LogPass, Options, RankedBy};
pub use ledger::prices::{Fetches, Fitted, Prices, Saved, Url};
pub use ledger::recent::Recent;
pub use ledger::sums::{ANY_GROUP, Count, Hour, Ledger, STATUS_NAMES, Sum, Tally};
pub use ledger::top::{Entry, Top};
pub use log::filter::Filter;
pub use log::format::{COMBINED, Format, FormatError, Plan};
pub use log::lines::{Bad, Consumer, LONGEST_LINE, Reader};
pub use log::numbers::Upstream;
pub use log::record::{CacheStatus, Field, Record};
pub use log::request::{KeyParts, KeyText, Request};
pub use misses::freshness::{ByStatus, CacheValid, Verdict};
pub use misses::judge::{Judgement, Misses, Rules};
pub use misses::why::{WHY_NAMES, Why};
pub use urls::groups::{Group, Groups, shape};
pub use urls::keys::Keys;
pub use urls::locations::{Kind, Locations, PatternError};
pub use urls::spelling::NAMES as SPELLING_NAMES;
