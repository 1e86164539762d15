//! Who is at work in a file: locks that a dead owner leaves, and the processes that take them.

#[cfg(target_os = "linux")]
pub(crate) mod gate;
pub(crate) mod holder;
pub(crate) mod lock;
pub(crate) mod process;
