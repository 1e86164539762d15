//! Which threads of this process are inside a lock of a file: while any is, the memory of the file
//! is not given back.
//!
//! ```text
//!  63           32   31    30          0
//!  ┌──────────────┬────────┬────────────┐
//!  │ process      │ closed │ inside     │
//!  └──────────────┴────────┴────────────┘
//! ```
//!
//! A child has none of its parent's other threads, and would wait for ever for those that were
//! inside when it was forked. So the word says which process counted (`base/generation.rs`), and in
//! another process the count begins anew. (No thread forks while it is inside: what runs there is
//! this crate.)
//!
//! Count and mark are one word, so a thread that enters either is counted before the gate closes, or
//! sees that the gate is closed.

use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::base::generation::generation;

const PROCESS: u64 = !0 << 32;
const CLOSED: u64 = 1 << 31;
const INSIDE: u64 = CLOSED - 1;

/// Counts the threads of this process that are inside a lock, or on the way in or out.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU64);

/// One thread, until it is dropped.
pub(crate) struct Entered<'a>(&'a Gate);

impl Gate {
    /// `None` once it is closed.
    #[inline]
    pub fn enter(&self) -> Option<Entered<'_>> {
        let here = generation() << 32;
        loop {
            let there = self.0.fetch_add(1, Acquire) & !INSIDE;
            if there == here {
                return Some(Entered(self));
            }
            if there == here | CLOSED {
                self.0.fetch_sub(1, Relaxed);
                return None;
            }
            self.begin_anew(here);
        }
    }

    /// Lets nobody in any more; true once nobody is inside.
    pub fn close(&self) -> bool {
        self.begin_anew(generation() << 32);
        self.0.fetch_or(CLOSED, AcqRel) & INSIDE == 0
    }

    /// Forgets what was counted in another process. Whoever was counted there by mistake, in
    /// this process, comes again.
    #[cold]
    fn begin_anew(&self, here: u64) {
        let anew = |there| (there & PROCESS != here).then_some(here | there & CLOSED);
        let _ = self.0.fetch_update(AcqRel, Acquire, anew);
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shut_once_the_last_has_left_and_nobody_comes_in_meanwhile() {
        let gate = Gate::default();
        let (first, second) = (gate.enter(), gate.enter());
        assert!(first.is_some() && second.is_some());
        drop(first);
        assert!(!gate.close());
        assert!(gate.enter().is_none());
        drop(second);
        assert!(gate.close());
        assert!(gate.enter().is_none());
    }

    /// What the only thread of a child finds while another one of its parent's is inside.
    fn in_child(of: impl Fn() -> bool) -> bool {
        // SAFETY: the child only loads, stores and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child, as it must.
            unsafe { libc::_exit(of().into()) };
        }
        let mut status = 0;
        // SAFETY: our child, and a valid place.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn a_child_does_not_wait_for_threads_of_its_parent_s() {
        let gate = Gate::default();
        let inside = gate.enter();
        assert!(in_child(|| gate.close()));
        let enters_and_leaves = || gate.enter().map(drop).is_some();
        assert!(in_child(|| enters_and_leaves() && gate.close()));
        assert!(in_child(|| gate.enter().is_some_and(|_inside| !gate.close())));
        assert!(!gate.close());
        assert!(in_child(|| gate.enter().is_none()));
        drop(inside);
        assert!(gate.close());
    }

    #[test]
    fn of_many_threads_that_come_first_each_is_counted() {
        for _ in 0..200 {
            let gate = Gate::default();
            std::thread::scope(|scope| {
                (0..3).for_each(|_| {
                    scope.spawn(|| assert!(gate.enter().is_some()));
                });
            });
            assert_eq!(gate.0.load(Relaxed) & !PROCESS, 0);
        }
    }
}
