//! Values as bytes: what is read natively, and what is left to `nearcache.codec`.

pub(crate) mod exact;
pub(crate) mod python_codec;
pub(crate) mod value;
