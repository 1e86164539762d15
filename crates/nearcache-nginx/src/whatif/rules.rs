//! The rules that a replay follows: what could be written in nginx's configuration.

use crate::ledger::lengths::Subject;
use crate::whatif::key_rules::KeyRules;
use crate::whatif::store::ZoneRules;

/// How one location caches.
#[derive(Clone, Copy, Debug)]
pub struct PlaceRules {
    /// Position of its zone; `None`: it does not cache.
    pub zone: Option<u16>,
    pub min_uses: u32,
    pub lock: bool,
    pub lock_timeout_us: i64,
    pub lock_age_us: i64,
    /// `use_stale updating`
    pub stale_updating: bool,
    pub background: bool,
    /// `cache_bypass` without `no_cache`.
    pub bypass_stores: bool,
}

#[derive(Clone, Debug)]
pub struct Rules {
    pub zones: Vec<ZoneRules>,
    /// For each location, and for what matches none as the last.
    pub places: Vec<PlaceRules>,
    /// Instead of what responses say; only for those with a good status.
    pub ttl_s: Option<u32>,
    pub key: KeyRules,
    /// Only values of at most so many characters are cached; what has none is as before.
    pub max_length: Option<(Subject, usize)>,
    /// Good responses of which the log does not say how long they live are stored.
    pub assume_stored: bool,
    /// How long they live, if that was learned.
    pub unsaid_s: Option<u32>,
    /// What was never seen in the cache is not stored, see [`crate::whatif::fact::Fact`].
    pub trust_evidence: bool,
    /// Requests from here on count as settled, but those of copies from before the log.
    pub settled_us: i64,
    /// All happens so much later by the clock, whose whole seconds nginx counts by.
    pub later_us: i64,
}
