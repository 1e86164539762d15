//! The store and Django's methods over it.

pub(crate) mod fused;
pub(crate) mod lock_wait;
pub(crate) mod near;
pub(crate) mod shared;
pub(crate) mod store;
