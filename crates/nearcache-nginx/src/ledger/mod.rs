//! The sums of one pass over a log.

pub(crate) mod lengths;
pub(crate) mod pass;
pub(crate) mod prices;
pub(crate) mod recent;
pub(crate) mod sums;
pub(crate) mod top;
