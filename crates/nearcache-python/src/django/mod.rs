//! What Django's methods are given: arguments, keys, timeouts; and when a value is over.

pub(crate) mod arguments;
pub(crate) mod deadline;
pub(crate) mod keys;
pub(crate) mod timeout;
