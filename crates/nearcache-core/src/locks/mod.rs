//! Locks with names, for users.

pub(crate) mod lock_queue;
pub(crate) mod named_locks;
