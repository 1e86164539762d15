//! What happens when somebody truncates a file that is mapped here: nothing but misses.
//!
//! The kernel answers an access beyond the new end with SIGBUS, which ends a process. (It answers an
//! access to a page that the disk cannot read in the same way.) No right, seal or check prevents that.
//! So there is a handler, as systemd's journal has one: it puts a private page of zeros where one is
//! missing, and the access goes on. Zeros are what a damaged file may hold: they are misses. The next
//! look of [`crate::Store`] sees the short file, and leaves it for a new one.
//!
//! A SIGBUS that is not about one of our mappings goes to whoever had the signal before. A program
//! that installs a handler of its own later has the signal for itself: then a truncated file ends the
//! process, as it does everywhere else.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

const PAGE_BYTES: usize = 4096;
const RANGES: usize = 256;

/// A mapping, for ever.
struct Range {
    base: AtomicUsize,
    end: AtomicUsize,
}

impl Range {
    const fn free() -> Self {
        Self { base: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }
}

/// Mappings, and where there are more of them: a list that only grows, so that the handler may
/// walk it at any time.
struct Ranges {
    ranges: [Range; RANGES],
    more: AtomicPtr<Ranges>,
}

static FIRST: Ranges = Ranges::new();

impl Ranges {
    const fn new() -> Self {
        Self { ranges: [const { Range::free() }; RANGES], more: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: null, or from `Box::into_raw` in `more` and never freed.
        unsafe { self.more.load(Acquire).as_ref() }
    }

    /// The next ones, made if there are none.
    fn more(&self) -> &'static Self {
        if let Some(next) = self.next() {
            return next;
        }
        let fresh = Box::into_raw(Box::new(Self::new()));
        let placed = self.more.compare_exchange(ptr::null_mut(), fresh, AcqRel, Acquire);
        // SAFETY: whichever is in place is never freed; this thread alone has one that is not.
        unsafe {
            match placed {
                Ok(_) => &*fresh,
                Err(there) => {
                    drop(Box::from_raw(fresh));
                    &*there
                }
            }
        }
    }
}

static INSTALLED: AtomicBool = AtomicBool::new(false);
/// What had the signal before, once `INSTALLED`.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// Looks after a mapping, for the life of the process.
///
/// # Safety
///
/// `base` is the start of a mapping of `bytes` bytes, which is never undone. Whoever reads there
/// takes it that any page may be zeros from one moment to the next.
pub(crate) unsafe fn look_after(base: *mut u8, bytes: usize) {
    install();
    let (base, mut at) = (base as usize, &FIRST);
    loop {
        // The end first: whoever sees the base sees the end.
        let takes =
            |range: &&Range| range.end.compare_exchange(0, base + bytes, AcqRel, Relaxed).is_ok();
        if let Some(range) = at.ranges.iter().find(takes) {
            return range.base.store(base, Release);
        }
        at = at.more();
    }
}

fn install() {
    if INSTALLED.swap(true, AcqRel) {
        return;
    }
    // SAFETY: only the first caller comes here, and the handler, which reads BEFORE, is installed
    // after it is written. All-zero bytes are a valid sigaction.
    unsafe {
        let before = (&raw mut BEFORE).cast::<libc::sigaction>();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), before) != 0 {
            return;
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_sigbus as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut());
    }
}

/// Runs in the middle of anything: nothing but atomics and system calls.
extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a valid siginfo; errno is this thread's.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        let is_fault = (*info).si_code > 0;
        if !(is_fault && mend((*info).si_addr() as usize)) {
            pass_on(signal, info, context, is_fault);
        }
        *errno = kept;
    }
}

/// Puts a page where one is missing; false if the address is not ours.
fn mend(address: usize) -> bool {
    let is_in = |range: &Range| {
        let base = range.base.load(Acquire);
        base != 0 && base <= address && address < range.end.load(Relaxed)
    };
    let mut all = std::iter::successors(Some(&FIRST), |ranges| ranges.next());
    if !all.any(|ranges| ranges.ranges.iter().any(is_in)) {
        return false;
    }
    let page = (address & !(PAGE_BYTES - 1)) as *mut c_void;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: a page of a mapping that `look_after` was given: it stays readable and writable, and
    // may be zeros.
    let mapped = unsafe { libc::mmap(page, PAGE_BYTES, access, kind, -1, 0) };
    mapped == page
}

/// # Safety
///
/// The arguments are those of a signal handler, which this is called by.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    // SAFETY: BEFORE was written before the handler was installed, and never since; what it
    // holds is a handler of the kind that its flags say.
    unsafe {
        let before = &*(&raw const BEFORE).cast::<libc::sigaction>();
        match before.sa_sigaction {
            libc::SIG_IGN if !is_fault => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // A fault comes again when this returns, and then ends the process.
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, ptr::null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, extern "C" fn(i32)>(handler)(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_mappings_there_are_a_truncation_of_any_is_survived() {
        let directory = tempfile::tempdir().unwrap();
        let mapped = |number: usize| {
            let path = directory.path().join(number.to_string());
            let mut options = std::fs::File::options();
            let file = options.read(true).write(true).create_new(true).open(path).unwrap();
            file.set_len(PAGE_BYTES as u64).unwrap();
            let map = memmap2::MmapOptions::new().len(PAGE_BYTES).map_raw(&file).unwrap();
            let base = map.as_mut_ptr();
            std::mem::forget(map);
            // SAFETY: mapped, and of this test alone.
            unsafe {
                look_after(base, PAGE_BYTES);
                base.write_volatile(1);
            }
            (file, base)
        };
        let all: Vec<_> = (0..2 * RANGES + 1).map(mapped).collect();
        for (file, base) in all {
            // SAFETY: mapped for ever.
            assert_eq!(unsafe { base.read_volatile() }, 1);
            file.set_len(0).unwrap();
            // SAFETY: as above; the handler puts a page there.
            assert_eq!(unsafe { base.read_volatile() }, 0);
        }
    }
}
