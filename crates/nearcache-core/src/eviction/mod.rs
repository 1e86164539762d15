//! Making room in a shard: S3-FIFO with a border that adapts.

pub(crate) mod border;
pub(crate) mod clean;
pub(crate) mod ghost;
