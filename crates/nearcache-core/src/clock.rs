//! The wall clock, to the millisecond.

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
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write a timespec; the clock exists.
    let status = unsafe { libc::clock_gettime(CLOCK, &mut time) };
    debug_assert_eq!(status, 0);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}
