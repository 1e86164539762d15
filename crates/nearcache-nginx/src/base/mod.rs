//! Text as nginx writes it, and tables over hashes.

pub(crate) mod distinct;
pub(crate) mod hashing;
pub(crate) mod histogram;
pub(crate) mod text;
