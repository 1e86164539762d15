//! What URLs have in common: spellings of one key, groups, locations.

pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod locations;
pub(crate) mod spelling;
