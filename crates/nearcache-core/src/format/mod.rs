//! Every shared byte: where it is and what it means.

pub(crate) mod layout;
pub(crate) mod record;
