//! What every other room uses: clocks, counters, errors, which process and user this is.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod generation;
pub(crate) mod glob;
pub(crate) mod stats;
pub(crate) mod user;
