//! The file: found or made, checked against this machine, mapped.

pub(crate) mod files;
pub(crate) mod lock_file;
pub(crate) mod machine;
pub(crate) mod opened;
pub(crate) mod region;
mod room;
#[cfg(target_os = "linux")]
pub(crate) mod truncated;
#[cfg(target_os = "linux")]
pub(crate) mod withheld;
