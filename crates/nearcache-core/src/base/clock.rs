//! The clocks: one for deadlines of values, one for locks, one for fencing tokens.

/// Milliseconds since the Unix epoch.
///
/// Deadlines are wall-clock times because that is what Django's timeouts and a
/// warm restart mean; the coarse clock (a tick of 1 to 4 ms) is enough and costs
/// a few nanoseconds.
pub fn now_ms() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_REALTIME_COARSE;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_REALTIME;
    let time = read(CLOCK);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since the boot, those in which the machine slept included.
///
/// What named locks count in. Nobody can set this clock, so nobody's lock ends
/// early or late; a file outlives no boot, so neither do its numbers.
pub fn boot_ms() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
    // Counts while the machine sleeps on macOS, too.
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let time = read(CLOCK);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Microseconds since the Unix epoch: what fencing tokens start at.
pub(crate) fn epoch_us() -> u64 {
    let time = read(libc::CLOCK_REALTIME);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write a timespec; the clock exists.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    debug_assert_eq!(status, 0);
    time
}
