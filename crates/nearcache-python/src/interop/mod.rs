//! Python from Rust: the GIL, objects, which process this is.

pub(crate) mod fork;
pub(crate) mod gil;
pub(crate) mod python;
