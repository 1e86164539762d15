//! One shard: its index and its records, read without a lock and written under one.

pub(crate) mod bucket;
mod check;
mod normalise;
pub(crate) mod read;
pub(crate) mod rings;
pub(crate) mod scan;
pub(crate) mod sweeper;
pub(crate) mod write;
