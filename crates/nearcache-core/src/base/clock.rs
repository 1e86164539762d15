//! The clocks: one for deadlines of values, one for locks, one for fencing tokens.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the Unix epoch.
///
/// Deadlines are wall-clock times because that is what Django's timeouts and a
/// warm restart mean; the coarse clock (a tick of 1 to 4 ms) is enough and costs
/// a few nanoseconds.
pub fn now_ms() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::RealtimeCoarse;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Realtime;
    let time = clock_gettime(CLOCK);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since the boot, those in which the machine slept included.
///
/// What named locks count in. Nobody can set this clock, so nobody's lock ends
/// early or late; a file outlives no boot, so neither do its numbers.
pub fn boot_ms() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    // Counts while the machine sleeps on macOS, too.
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Microseconds since the Unix epoch: what fencing tokens start at.
pub(crate) fn epoch_us() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
