//! Locks with names, for users.

pub(crate) mod lock_queue;
mod name;
pub(crate) mod named_locks;
