//! Which process this is: a number that no forked child shares, for one load.
//!
//! A fork may run no hook of anybody (uWSGI, C code), and asking for the process id is a system call.
//! So the number lies in a page of its own that the kernel wipes in every child (`MADV_WIPEONFORK`). A
//! process that finds 0 there has no number yet, and takes the next one. Where the kernel wipes no
//! page, the process id is asked for each time. (An advice that cannot be is given first, as
//! BoringSSL and s2n do: some emulators say yes to everything.)
//!
//! Numbers grow from parent to child. So what was made under a number belongs to this process if that
//! is its number still, and to an ancestor otherwise. Siblings have equal numbers.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst,
};

/// The number of this process; 0 in a child that has none yet.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// Stands in for the page where the kernel wipes none.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);
/// The last number given out, by this process or those it descends from. A child inherits it.
static LAST: AtomicU64 = AtomicU64::new(0);
/// `pid | number`, where there is no page.
static BY_PID: AtomicU64 = AtomicU64::new(0);

/// The number of this process, from 1.
#[inline]
pub fn generation() -> u64 {
    // SAFETY: null, `NO_PAGE`, or a page that stays mapped for ever.
    let page = unsafe { PAGE.load(Acquire).as_ref() };
    match page.map_or(0, |page| page.load(Relaxed)) {
        0 => new_here(),
        known => known,
    }
}

#[cold]
fn new_here() -> u64 {
    let page = page();
    if ptr::eq(page, &raw const NO_PAGE) {
        return by_pid();
    }
    // LAST moves first: who is forked off between the two must not begin with the same number.
    let next = next();
    match page.compare_exchange(0, next, SeqCst, SeqCst) {
        Ok(_) => next,
        Err(of_another_thread) => of_another_thread,
    }
}

fn by_pid() -> u64 {
    let known = BY_PID.load(SeqCst);
    let pid = std::process::id();
    if (known >> 32) as u32 == pid {
        return known & u64::from(u32::MAX);
    }
    let next = next();
    match BY_PID.compare_exchange(known, u64::from(pid) << 32 | next, SeqCst, SeqCst) {
        Ok(_) => next,
        Err(of_another_thread) => of_another_thread & u64::from(u32::MAX),
    }
}

fn next() -> u64 {
    LAST.fetch_add(1, SeqCst) + 1
}

fn page() -> &'static AtomicU64 {
    let mine = match PAGE.load(Acquire) {
        known if known.is_null() => wiped_on_fork().unwrap_or((&raw const NO_PAGE).cast_mut()),
        known => known,
    };
    // Of two threads that come here first, the page of one is left over: once, 4 KB.
    let known = PAGE.compare_exchange(ptr::null_mut(), mine, SeqCst, SeqCst);
    let page = known.map_or_else(|other| other, |_| mine);
    // SAFETY: `NO_PAGE`, or a page that stays mapped for ever.
    unsafe { &*page }
}

#[cfg(target_os = "linux")]
fn wiped_on_fork() -> Option<*mut AtomicU64> {
    const BYTES: usize = 4096;
    const NO_ADVICE: libc::c_int = -1;
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which nobody else knows.
    let page = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping made above.
    let takes = |advice| unsafe { libc::madvise(page, BYTES, advice) } == 0;
    // No kernel takes the first. An emulator does (qemu-user 7.2) that takes all and heeds none.
    if !takes(NO_ADVICE) && takes(libc::MADV_WIPEONFORK) {
        return Some(page.cast());
    }
    // SAFETY: as above; nobody has it.
    unsafe { libc::munmap(page, BYTES) };
    None
}

#[cfg(not(target_os = "linux"))]
fn wiped_on_fork() -> Option<*mut AtomicU64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `number` says here, in a child, in a child of that, and here again.
    fn in_three_processes(number: fn() -> u64) -> [u64; 4] {
        let here = number();
        let child = in_child(|| {
            let child = number();
            let grandchild = in_child(|| [number(), 0]);
            [child, grandchild[0]]
        });
        [here, child[0], child[1], number()]
    }

    /// No more than that: other threads of this test may hold any lock.
    fn in_child(work: impl Fn() -> [u64; 2]) -> [u64; 2] {
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: the child only loads, stores, writes and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let found = work();
            // SAFETY: open, and 16 bytes long.
            unsafe { libc::write(pipe[1], found.as_ptr().cast(), 16) };
            // SAFETY: ends the child, as it must.
            unsafe { libc::_exit(0) };
        }
        let mut found = [0; 2];
        // SAFETY: open, and there are 16 bytes of room.
        let count = unsafe { libc::read(pipe[0], found.as_mut_ptr().cast(), 16) };
        assert_eq!(count, 16);
        // SAFETY: our child, and our descriptors.
        unsafe {
            libc::waitpid(child, ptr::null_mut(), 0);
            pipe.iter().for_each(|end| assert_eq!(libc::close(*end), 0));
        }
        found
    }

    #[test]
    fn a_child_has_another_number_and_so_has_its_child() {
        for number in [generation, by_pid] {
            let [here, child, grandchild, again] = in_three_processes(number);
            assert_eq!(here, again);
            assert!(here < child && child < grandchild);
        }
    }

    #[test]
    fn all_threads_agree_on_one_number() {
        for number in [generation, by_pid] {
            let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(number)).collect();
            let found: Vec<_> = threads.into_iter().map(|each| each.join().unwrap()).collect();
            assert!(found.iter().all(|each| *each == number()));
        }
    }

    /// A child that was not asked for its number has none, and its child's is new all the same.
    #[test]
    fn a_process_that_never_asked_takes_no_number() {
        let here = generation();
        let [grandchild, _] = in_child(|| in_child(|| [generation(), 0]));
        assert!(here < grandchild);
    }
}
