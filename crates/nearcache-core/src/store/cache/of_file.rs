//! What only a cache in a file has: another file may replace it, and its memory is given back.

use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::file::machine::Kernel;
#[cfg(target_os = "linux")]
use crate::format::layout::control;
use crate::format::layout::header;
use crate::memory::{Mapped, Mem};
#[cfg(target_os = "linux")]
use crate::shard::rings::{MAIN, SMALL};
use crate::store::cache::Cache;

impl Cache<Mapped> {
    /// Whether another file has the name of this one, or is about to.
    #[inline]
    pub(crate) fn is_replaced(&self) -> bool {
        self.mem.load(header::REPLACED, Acquire) != 0
    }

    /// Tells all who use this file.
    pub(crate) fn mark_replaced(&self) {
        self.mem.store(header::REPLACED, 1, Release);
    }

    /// The last fencing token given out; what is made after this file goes on from it.
    pub(crate) fn last_token(&self) -> u64 {
        self.mem.load(header::TOKEN, Relaxed)
    }

    /// Whether this process is where processes and clocks are numbered as in the file.
    pub(crate) fn is_of_these_namespaces(&self) -> bool {
        let [pid, time] = [header::PID_NAMESPACE, header::TIME_NAMESPACE];
        Kernel::is_in(self.mem.load(pid, Relaxed), self.mem.load(time, Relaxed))
    }
}

#[cfg(target_os = "linux")]
impl Cache<Mapped> {
    /// Gives the memory of a file back that nobody uses any more; false if a thread is inside a
    /// lock of it. Who still reads finds nothing. `whole`: the file was not truncated.
    pub(crate) fn release(&self, whole: bool) -> bool {
        // SAFETY: whoever takes a mutex comes through the gate, which is closed now.
        self.locks.close() && unsafe { self.mem.release(&self.past_all_records(whole)) }
    }

    /// Tails beyond every record, so that a reader whose copy is part old and part new sees
    /// that it cannot be trusted.
    fn past_all_records(&self, whole: bool) -> Vec<(usize, u64)> {
        const FAR: u64 = 1 << 40;
        let shards = (0..self.geometry.shards).map(|number| self.geometry.shard_at(number));
        let tails = shards.flat_map(|at| [SMALL, MAIN].map(|ring| at + control::SAFE_TAIL + ring));
        let old = |at| if whole { self.mem.load(at, Relaxed) } else { 0 };
        tails.map(|at| (at, old(at).wrapping_add(FAR))).collect()
    }
}
