//! The operations: over any memory, and over a file that is opened again when it is gone.

pub(crate) mod cache;
pub(crate) mod host_store;
#[cfg(test)]
mod models;
pub(crate) mod reopen;
