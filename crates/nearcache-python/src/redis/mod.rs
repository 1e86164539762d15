//! Packed commands and decoded replies.

pub(crate) mod commands;
pub(crate) mod resp;
