//! Making room in a shard: S3-FIFO.

pub(crate) mod clean;
pub(crate) mod ghost;
