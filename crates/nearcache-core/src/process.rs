//! Who uses the file: one slot of counters for each process.
//!
//! A slot is `identity | counters`. Only its process writes the counters, with
//! plain loads and stores: exact as long as the callers of one process take
//! turns (Python's GIL), and never a line that two processes fight for. The
//! counters of a process that is gone are added to the header's totals when
//! its slot is needed.

use std::sync::atomic::Ordering::Relaxed;

use crate::layout::{PROCESS_SLOTS, PROCESS_WORDS, PROCESSES, header};
use crate::mem::Mem;
use crate::stats::{COUNTER_NAMES, Counter};

/// The last slot is everybody's who found no other: counted with atomic adds.
const SHARED_SLOT: usize = PROCESS_SLOTS - 1;
const _: () = assert!(COUNTER_NAMES.len() < PROCESS_WORDS);

/// Process id and start time: names a process for ever, unlike its id alone.
pub(crate) fn identity_of_this_process() -> u64 {
    let pid = std::process::id();
    u64::from(pid) << 32 | u64::from(start_time(pid).unwrap_or(0))
}

/// Whether the process with this identity still runs.
pub(crate) fn is_alive(identity: u64) -> bool {
    let pid = (identity >> 32) as u32;
    start_time(pid) == Some(identity as u32)
}

/// Start time in clock ticks since boot (its low 32 bits); `None` if it is gone
/// or is a zombie, which can hold nothing any more.
#[cfg(target_os = "linux")]
fn start_time(pid: u32) -> Option<u32> {
    // proc(5): field 2 may hold spaces and brackets, so count from the last ')'.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
    let state = fields.next()?;
    let start = fields.nth(18)?.parse::<u64>().ok()?;
    (state != "Z" && state != "X").then_some(start as u32)
}

#[cfg(not(target_os = "linux"))]
fn start_time(pid: u32) -> Option<u32> {
    // SAFETY: signal 0 only asks whether the process exists.
    (unsafe { libc::kill(pid as libc::pid_t, 0) } == 0).then_some(0)
}

/// The counters of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessSlot {
    at: usize,
    shared: bool,
}

impl ProcessSlot {
    /// Finds a slot: a free one, else one of a process that is gone.
    pub fn claim<M: Mem>(mem: &M) -> Self {
        let me = identity_of_this_process();
        let own = (0..SHARED_SLOT).map(slot_at);
        let free = own.clone().find(|at| mem.cas(*at, 0, me).is_ok());
        let found = free.or_else(|| own.clone().find(|at| take_over(mem, *at, me)));
        match found {
            Some(at) => Self { at, shared: false },
            None => Self { at: slot_at(SHARED_SLOT), shared: true },
        }
    }

    /// As two numbers, to keep in atomics.
    pub fn into_parts(self) -> [usize; 2] {
        [self.at, usize::from(self.shared)]
    }

    #[inline]
    pub fn from_parts([at, shared]: [usize; 2]) -> Self {
        Self { at, shared: shared != 0 }
    }

    #[inline]
    pub fn count<M: Mem>(&self, mem: &M, counter: Counter) {
        let at = self.at + 1 + counter as usize;
        if self.shared {
            mem.add(at, 1);
        } else {
            mem.store(at, mem.load(at, Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

/// Sum of a counter over all processes, those gone included.
pub(crate) fn total<M: Mem>(mem: &M, counter: usize) -> u64 {
    let slots = (0..PROCESS_SLOTS).map(|slot| mem.load(slot_at(slot) + 1 + counter, Relaxed));
    slots.fold(mem.load(header::RETIRED + counter, Relaxed), u64::wrapping_add)
}

/// Processes that have the file open now.
pub(crate) fn alive<M: Mem>(mem: &M) -> u64 {
    let slots = (0..SHARED_SLOT).map(|slot| mem.load(slot_at(slot), Relaxed));
    slots.filter(|identity| *identity != 0 && is_alive(*identity)).count() as u64
}

fn slot_at(slot: usize) -> usize {
    PROCESSES + slot * PROCESS_WORDS
}

/// Takes the slot of a process that is gone. A crash in between counts twice or
/// not at all: it is only statistics.
fn take_over<M: Mem>(mem: &M, at: usize, me: u64) -> bool {
    let identity = mem.load(at, Relaxed);
    if is_alive(identity) || mem.cas(at, identity, me).is_err() {
        return false;
    }
    for counter in 0..COUNTER_NAMES.len() {
        mem.add(header::RETIRED + counter, mem.load(at + 1 + counter, Relaxed));
        mem.store(at + 1 + counter, 0, Relaxed);
    }
    true
}
