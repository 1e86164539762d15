//! What a process that may become another user's does not hand down to its children.
//!
//! A worker that root's server forks has what root had mapped, and keeps it when it becomes another
//! user's: it could read root's values, and write pickles that root unpickles. So a fork does not copy
//! such a mapping at all (`MADV_DONTFORK`), and a child that stays root's opens the file again. During
//! the fork, wherever the C library does it, the child also
//!
//! - puts zeros in the place of the memory. An operation may be on the way in the very thread that
//!   forks (unpickling runs Python, and that runs signal handlers). What the operation finds later at
//!   these addresses must be nothing, not whatever came to lie there;
//! - closes the descriptor of the lock file, whose locks the child would share with its parent.
//!
//! A fork that bypasses the C library gets no zeros, and no mapping either.

use std::sync::atomic::{
    AtomicBool, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

use crate::file::lock_file::Presence;
use crate::memory::Mapped;

struct Withheld {
    mapped: Mapped,
    presence: &'static Presence,
    next: *mut Withheld,
}

/// All that this process and those it descends from opened; nothing is ever taken out.
static ALL: AtomicPtr<Withheld> = AtomicPtr::new(std::ptr::null_mut());
static PREPARED: AtomicBool = AtomicBool::new(false);

/// From now on children find zeros and no descriptor.
pub(crate) fn withhold(mapped: Mapped, presence: &'static Presence) {
    if !PREPARED.swap(true, AcqRel) {
        // SAFETY: what it runs in a child is nothing but atomics and system calls. Without memory
        // for it a child has a hole instead of zeros, which nobody should look at.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    let withheld = Withheld { mapped, presence, next: std::ptr::null_mut() };
    let new = Box::into_raw(Box::new(withheld));
    let mut next = ALL.load(Acquire);
    loop {
        // SAFETY: from `into_raw`, and nobody else has it yet.
        unsafe { (*new).next = next };
        match ALL.compare_exchange(next, new, Release, Relaxed) {
            Ok(_) => return,
            Err(of_another_thread) => next = of_another_thread,
        }
    }
}

unsafe extern "C" fn in_child() {
    let mut at = ALL.load(Acquire);
    // SAFETY: null, or from `into_raw` in `withhold` and never freed or changed since.
    while let Some(withheld) = unsafe { at.as_ref() } {
        withheld.mapped.stand_in();
        withheld.presence.close();
        at = withheld.next;
    }
}
