//! One shard: its index and its records, read without a lock and written under one.

pub(crate) mod bucket;
pub(crate) mod check;
pub(crate) mod read;
pub(crate) mod write;
