//! When a value is over.

use std::time::{SystemTime, UNIX_EPOCH};

/// A deadline for the core: milliseconds since the epoch, 0 for never.
#[derive(Clone, Copy)]
pub struct Deadline(pub u64);

impl Deadline {
    pub const NEVER: Deadline = Deadline(0);
    /// 1970: over by any clock.
    pub const PASSED: Deadline = Deadline(1);

    /// As Python says it: `None` for never.
    pub fn as_option(self) -> Option<u64> {
        (self.0 != 0).then_some(self.0)
    }

    /// Asks the exact clock where the core's coarse one, which lags by a tick, cannot tell.
    #[inline]
    pub fn is_over(self, coarse_now_ms: u64) -> bool {
        self.0 != 0 && self.0 <= coarse_now_ms + TICK_MS && self.0 <= exact_now_ms()
    }
}

/// The coarse clock's longest tick.
const TICK_MS: u64 = 10;

fn exact_now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |since| since.as_millis() as u64)
}
