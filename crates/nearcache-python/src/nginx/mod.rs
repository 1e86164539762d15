//! The passes over access logs (`nearcache-nginx`).

pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod trace;
