//! One request as the model wants it: 32 bytes.
//!
//! ```text
//!  start_us           8   when it began: nginx looks into its cache then
//!  key                4   its position in Keys
//!  variant            4   hash of the request headers that Vary selects; 0: no Vary
//!  bytes              4   sent to the client
//!  upstream_us        4   of its own fetch, or NOT_ASKED
//!  life               4   seconds that its response lives, or why not
//!  place              2   its location
//!  logged             1   what nginx did: CacheStatus
//!  flags              1
//! ```

use crate::log::record::CacheStatus;

/// Nobody upstream was asked for this request.
pub const NOT_ASKED: u32 = u32::MAX;

/// `Asked::life` is a number of seconds up to here, or one of those below.
pub const LONGEST_LIFE: u32 = u32::MAX - 4;
/// The response forbids storing it.
pub const FORBIDDEN: u32 = u32::MAX - 3;
/// Nothing gives it a time to live.
pub const NO_TTL: u32 = u32::MAX - 2;
/// The line does not tell, as for a 304; what the key's last response said holds.
pub const AS_BEFORE: u32 = u32::MAX - 1;
/// The log does not say.
pub const UNSAID: u32 = u32::MAX;

/// Method GET or HEAD.
pub const GET: u8 = 1;
/// Its fetch brought something else than the key's fetch before.
pub const CHANGED: u8 = 2;
/// 200, 301 or 302: what a time to live that is given for everything applies to.
pub const GOOD: u8 = 4;
/// The upstream failed, and an old copy was sent.
pub const FAILED: u8 = 8;

/// The key's first request, and there was a copy: from before the log.
pub const BEFORE: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Asked {
    pub start_us: i64,
    pub key: u32,
    pub variant: u32,
    pub bytes: u32,
    pub upstream_us: u32,
    pub life: u32,
    pub place: u16,
    pub logged: CacheStatus,
    pub flags: u8,
}

const _: () = assert!(size_of::<Asked>() == 32);

impl Asked {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
