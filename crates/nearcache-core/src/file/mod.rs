//! The file: found or made, checked against this machine, mapped.

pub(crate) mod files;
pub(crate) mod machine;
pub(crate) mod opened;
pub(crate) mod region;
#[cfg(target_os = "linux")]
pub(crate) mod truncated;
#[cfg(target_os = "linux")]
pub(crate) mod withheld;
