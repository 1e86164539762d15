//! Why a request was not served from the cache, and whether its response may be kept.

pub(crate) mod freshness;
pub(crate) mod judge;
pub(crate) mod why;
