//! From bytes to requests: the format, numbers, times, records, and which of them count.

pub(crate) mod filter;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod numbers;
pub(crate) mod record;
pub(crate) mod request;
pub(crate) mod time;
