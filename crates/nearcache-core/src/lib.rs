//! A cache in shared memory that survives anything that happens to its users.
//!
//! One mapped file holds a number of shards. Each shard is a log in two rings
//! (`small` and `main`, after S3-FIFO) and an index of 64-bit words that say
//! where in the log each key's record is.
//!
//! ```text
//!  key ──hash──> shard ──> bucket ──> slot word ──> ring offset ──> page ──> record
//! ```
//!
//! # Goals
//!
//! - Any process may be SIGKILLed or SIGSTOPped at any instruction: the others
//!   neither hang nor read a torn, foreign or resurrected value.
//! - A read takes no lock and writes nothing shared but, rarely, a frequency.
//! - Memory is bounded by the size of the file, which never changes.
//! - A damaged or foreign file gives misses or one clear error.
//!
//! # Non-goals
//!
//! Durability (a reboot empties the cache), transactions over several keys,
//! sharing between users who do not trust each other.
//!
//! # Invariants
//!
//! Comments name the ones they lean on. Per ring, once its owner has looked (`shard/normalise.rs`):
//!
//! - **I1** `safe_tail <= tail <= head`, all in words of 8 bytes, never repeating.
//! - **I2** `[tail, head)` is a sequence of whole records.
//! - **I3** a non-zero slot word points at a record that was whole before the
//!   word was published, or fails the window test `safe_tail <= offset`.
//! - **I4** at most one live slot word per key: only the lock holder turns an
//!   empty slot into a full one; anyone may turn a full one into an empty one.
//! - **I5** the bytes of `[safe_tail, head)` never change, but for the expiry
//!   word of a record, which is one word.
//! - **I6** a page belongs to the ring and page number in its descriptor while
//!   that page number is inside the ring's window, and is free otherwise.
//! - **I7** every bucket on a live item's path before its own holds the item's mark.
//!
//! Every prefix of a writer's stores leaves a state in which these hold, so
//! there is no recovery to speak of: see `docs/memory-format.md`.
//!
//! # Rooms
//!
//! Each uses only those named before it: `base/`, `memory.rs` (shared bytes), `format/` (where each
//! byte is and what it means), `sync/` (locks and the processes that take them), `file/` (found,
//! checked, mapped), `shard/` (one index and its records), `eviction/`, `locks/` (named ones, for
//! users), `store/` (the operations).
//!
//! # Sources
//!
//! MICA (NSDI 2014) for the circular log with a lossy index and validated reads;
//! FASTER (SIGMOD 2018) for index words with monotonic log addresses; S3-FIFO
//! (SOSP 2023) for eviction; robust futexes for the lock.

mod base;
mod eviction;
mod file;
mod format;
mod locks;
pub mod memory;
mod shard;
mod store;
mod sync;

pub use base::clock::{boot_ms, now_ms};
pub use base::error::Error;
pub use base::generation::generation;
pub use base::glob::glob_match;
pub use base::stats::Counter;
pub use format::layout::{Config, DEFAULT_MEAN_ITEM_BYTES, LAYOUT_VERSION, MIN_SIZE_BYTES};
pub use format::record::{TAG_DIGITS, TAG_INT};
pub use locks::lock_queue::Waiting;
pub use locks::named_locks::Turn;
pub use shard::read::{BEFORE_ANY_DEADLINE_MS, Buffer, Found, Key, Locator};
pub use shard::scan::Item;
pub use shard::write::{Added, Incr, Stored};
pub use store::cache::Cache;
pub use store::cache::named_locks::LockTableError;
pub use store::host_store::{NotOurs, Store};
pub use sync::holder::{Busy, Patience, SLICE, TIMEOUT, TIMEOUT_STILL};
pub use sync::lock::Wait;
