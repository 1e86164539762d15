//! Who uses the file: one slot of counters for each process.
//!
//! A slot is `identity | counters`. Only its process writes the counters, with plain loads and stores.
//! They are exact as long as the callers of one process take turns (Python's GIL), and no two
//! processes fight for a line of memory. When the slot of a process that is gone is needed, its
//! counters are added to the totals in the header.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::base::error::Error;
use crate::base::stats::{COUNTER_NAMES, Counter};
use crate::format::layout::{PROCESS_SLOTS, PROCESS_WORDS, PROCESSES, header};
use crate::memory::Mem;

/// The last slot is everybody's who found no other: counted with atomic adds.
const SHARED_SLOT: usize = PROCESS_SLOTS - 1;
const _: () = assert!(COUNTER_NAMES.len() < PROCESS_WORDS);

/// Process id and start time: both name a process for ever, unlike its id alone. The start time is
/// 0 if it cannot be read (no descriptor is left): then any process with that id counts as this one.
pub(crate) fn identity_of_this_process() -> u64 {
    let start = start_time_of_this_process().map_or(0, |start| start.max(1));
    u64::from(std::process::id()) << 32 | u64::from(start)
}

/// An error if this process could not tell others apart by their start times: `/proc` is
/// missing, or shows other processes than those that this one can name.
pub(crate) fn can_name_processes() -> Result<(), Error> {
    start_time_of_this_process().map(|_| ()).map_err(|error| {
        Error::Io(format!(
            "/proc/self/stat: cannot be read ({error}), by which the holder of a lock is known from \
             a later process with its number; mount the /proc of this PID namespace, or raise the \
             limit of open files"
        ))
    })
}

/// Whether two identities may be of one process.
pub(crate) fn may_be_one(one: u64, other: u64) -> bool {
    let unread = one as u32 == 0 || other as u32 == 0;
    one == other || (unread && one >> 32 == other >> 32)
}

/// Whether the process with this identity may still run. False only on proof: what the process
/// holds is given to others then.
///
/// Proof is the kernel's word that nobody has that id, or the start time of another process. A
/// `/proc` that is not there, hides others' processes (`hidepid`) or cannot be opened for want
/// of a descriptor is no proof.
pub(crate) fn is_alive(identity: u64) -> bool {
    let (pid, start) = ((identity >> 32) as u32, identity as u32);
    exists(pid)
        && match life(pid) {
            Ok(Life::Runs { since }) => start == 0 || since.max(1) == start,
            Ok(Life::Ended) => false,
            // It may have ended just now.
            Err(_) => exists(pid),
        }
}

/// Who is alive, asked once: the answer costs microseconds, and one process may hold many
/// locks and places. Good for one operation.
pub(crate) struct Liveness(RefCell<Vec<(u64, bool)>>);

impl Liveness {
    /// `me` needs not be asked.
    pub fn new(me: u64) -> Self {
        Self(RefCell::new(vec![(me, true)]))
    }

    pub fn is_alive(&self, identity: u64) -> bool {
        let mut known = self.0.borrow_mut();
        if let Some((_, alive)) = known.iter().find(|(other, _)| *other == identity) {
            return *alive;
        }
        let alive = is_alive(identity);
        known.push((identity, alive));
        alive
    }
}

fn exists(pid: u32) -> bool {
    // Neither 0 nor a negative number: they would ask for groups of processes.
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// What `/proc` knows of a process.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    /// Since so many clock ticks after the boot (the low 32 bits).
    Runs { since: u32 },
    /// A zombie, which can hold nothing any more.
    Ended,
}

#[cfg(target_os = "linux")]
fn start_time_of_this_process() -> io::Result<u32> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let shown = stat.split(' ').next().and_then(|pid| pid.parse().ok());
    if shown != Some(std::process::id()) {
        return Err(io::Error::other("it belongs to another PID namespace"));
    }
    match life_in(&stat)? {
        Life::Runs { since } => Ok(since),
        Life::Ended => Err(io::Error::other("it says that this process has ended")),
    }
}

#[cfg(target_os = "linux")]
fn life(pid: u32) -> io::Result<Life> {
    life_in(&std::fs::read_to_string(format!("/proc/{pid}/stat"))?)
}

/// What a line of `/proc/<pid>/stat` says: proc(5).
#[cfg(target_os = "linux")]
fn life_in(stat: &str) -> io::Result<Life> {
    // Field 2 may hold spaces and brackets, so count from the last ')'.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let number = |field: usize| fields.get(field - 2).and_then(|text| text.parse::<u64>().ok());
    let state = fields.get(1).copied().unwrap_or_default();
    let (Some(threads), Some(since)) = (number(20), number(22)) else {
        return Err(io::Error::other(format!("is not as proc(5) has it: {stat:?}")));
    };
    // The first thread of a process may end before the others.
    if matches!(state, "Z" | "X") && threads <= 1 {
        return Ok(Life::Ended);
    }
    Ok(Life::Runs { since: since as u32 })
}

#[cfg(not(target_os = "linux"))]
fn start_time_of_this_process() -> io::Result<u32> {
    Ok(0)
}

#[cfg(not(target_os = "linux"))]
fn life(_: u32) -> io::Result<Life> {
    Ok(Life::Runs { since: 0 })
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{Life, life_in};

    fn stat(name: &str, state: &str, threads: u32) -> String {
        let zeros = "0 ".repeat(16);
        format!("17 ({name}) {state} {zeros}{threads} 0 4711 0 0")
    }

    #[test]
    fn a_zombie_has_ended_and_a_first_thread_that_ended_before_the_others_has_not() {
        let lines = [("S", 1), ("Z", 1), ("Z", 3), ("X", 1)];
        let lives = lines.map(|(state, threads)| life_in(&stat("a) Z (b", state, threads)).ok());
        let runs = Some(Life::Runs { since: 4711 });
        assert_eq!(
            lives,
            [runs, Some(Life::Ended), Some(Life::Runs { since: 4711 }), Some(Life::Ended)]
        );
    }

    #[test]
    fn a_line_that_is_cut_off_says_nothing() {
        let line = stat("name", "Z", 1);
        let cuts = (0..line.len() - "4711 0 0".len()).map(|end| life_in(&line[..end]));
        assert!(cuts.into_iter().all(|life| life.is_err()));
    }
}
