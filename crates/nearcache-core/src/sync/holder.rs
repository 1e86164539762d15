//! Who holds a lock that stays taken, and how long it is worth waiting for it.
//!
//! With more busy processes than processors an owner loses its processor inside now and then,
//! until all the others have had their turn. The owner will go on. So a waiter waits in slices, and
//! looks at the owner after each slice: as long as the owner runs, or would if it were let, waiting
//! is right. Inside a critical section nobody sleeps. So an owner that is found asleep at every
//! look was stopped or frozen, and may never go on.
//!
//! Not here: what becomes of a lock that nobody will ever let go of (`Cache::note_busy`).

use std::time::{Duration, Instant};

/// One wait; then the owner is looked at, and a caller may look for signals.
pub const SLICE: Duration = Duration::from_millis(20);
/// Longest wait for an owner that does not run, from the first look on.
pub const TIMEOUT_STILL: Duration = Duration::from_millis(250);
/// Longest wait at all.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The lock was not free in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    holder: Holder,
}

/// The owner of a lock, when a wait for it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// It runs or will; or nobody can tell.
    Awake,
    /// This thread has it and is stopped, frozen or gone.
    Still(u32),
}

impl Busy {
    /// Nobody looked.
    pub(crate) const UNKNOWN: Busy = Busy { holder: Holder::Awake };

    /// The lock is held by this thread; 0 if it was let go just now.
    #[cfg(target_os = "linux")]
    pub(crate) fn held_by(thread: u32) -> Self {
        // proc(5) lists processes only, but opens threads as well.
        let stat = || std::fs::read_to_string(format!("/proc/{thread}/stat"));
        let awake = thread == 0 || is_awake(stat());
        Self { holder: if awake { Holder::Awake } else { Holder::Still(thread) } }
    }
}

/// Without a descriptor or a /proc nobody can tell: then the long wait is the right one.
#[cfg(target_os = "linux")]
fn is_awake(stat: std::io::Result<String>) -> bool {
    match stat {
        // The state follows the last bracket: the name before it may hold anything. A page of
        // the store that has to be made or read back takes an owner to D.
        Ok(stat) => {
            stat.rfind(") ").is_none_or(|at| matches!(stat.as_bytes()[at + 2], b'R' | b'D'))
        }
        Err(error) => !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    }
}

/// One caller's wait for a lock, slice by slice.
#[derive(Debug)]
pub struct Patience {
    began: Instant,
    /// The owner that was found still at the last looks, and since when.
    still: Option<(u32, Instant)>,
}

impl Patience {
    /// At the start of the first slice.
    #[must_use]
    pub fn begin() -> Self {
        Self { began: Instant::now(), still: None }
    }

    /// Whether to wait for another slice.
    pub fn goes_on(&mut self, busy: Busy) -> bool {
        self.goes_on_at(Instant::now(), busy)
    }

    fn goes_on_at(&mut self, now: Instant, busy: Busy) -> bool {
        let Holder::Still(thread) = busy.holder else {
            self.still = None;
            return now < self.began + TIMEOUT;
        };
        let known = self.still.filter(|(known, _)| *known == thread);
        let (_, since) = *self.still.insert(known.unwrap_or((thread, now)));
        now < (since + TIMEOUT_STILL).min(self.began + TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAKE: Busy = Busy::UNKNOWN;
    const STILL: Busy = Busy { holder: Holder::Still(7) };
    const OTHER: Busy = Busy { holder: Holder::Still(8) };

    /// When a waiter gives up who finds this at each of its looks.
    fn gives_up_after_ms(found: impl Fn(u64) -> Busy) -> u64 {
        let mut patience = Patience::begin();
        let looks = (20..).step_by(20);
        let mut waited = looks.skip_while(|ms| {
            let now = patience.began + Duration::from_millis(*ms);
            patience.goes_on_at(now, found(*ms))
        });
        waited.next().unwrap()
    }

    #[test]
    fn an_owner_that_lives_is_waited_for_for_seconds_and_one_that_is_still_is_not() {
        assert_eq!(gives_up_after_ms(|_| AWAKE), 5_000);
        assert_eq!(gives_up_after_ms(|_| STILL), 280);
    }

    #[test]
    fn owners_that_take_turns_and_one_that_sleeps_between_are_no_still_owner() {
        assert_eq!(gives_up_after_ms(|ms| if ms % 40 == 0 { STILL } else { OTHER }), 5_000);
        assert_eq!(gives_up_after_ms(|ms| if ms % 200 == 0 { AWAKE } else { STILL }), 5_000);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_a_thread_that_is_known_not_to_run_is_still() {
        let of = |state: &str| is_awake(Ok(format!("12 (a) b) {state} 1 2 3")));
        assert!(of("R") && of("D"));
        assert!(!(of("T") || of("t") || of("S") || of("Z")));
        let failed = |code| is_awake(Err(std::io::Error::from_raw_os_error(code)));
        assert!(failed(libc::EMFILE) && failed(libc::EACCES));
        assert!(!(failed(libc::ENOENT) || failed(libc::ESRCH)));
        assert_eq!(Busy::held_by(0), Busy::UNKNOWN);
    }
}
