//! The reasons for which a request is not served from the cache.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    Compulsory,
    Expired,
    Inactive,
    Evicted,
    Dropped,
    Fragmented,
    Variant,
    Duplicate,
    MinUses,
    NeverStored,
    SetCookie,
    Private,
    NoStore,
    NoCache,
    Vary,
    Status,
    NoTtl,
    Method,
    Bypass,
    Authorization,
    NoCacheHere,
    Unknown,
}

/// In the order of the classes.
pub const WHY_NAMES: [&str; Why::Unknown as usize + 1] = [
    "compulsory",
    "expired",
    "inactive",
    "evicted",
    "dropped",
    "fragmented",
    "variant",
    "duplicate",
    "min_uses",
    "never_stored",
    "set_cookie",
    "private",
    "no_store",
    "no_cache",
    "vary",
    "status",
    "no_ttl",
    "method",
    "bypass",
    "authorization",
    "no_cache_here",
    "unknown",
];

impl Why {
    /// Does the response itself forbid storing it?
    pub fn is_uncacheable(self) -> bool {
        (Why::SetCookie as u8..=Why::NoTtl as u8).contains(&(self as u8))
    }
}
