//! What happens when somebody truncates a file that is mapped here: nothing but misses.
//!
//! The kernel answers an access beyond the new end with SIGBUS, which ends a process. (So it
//! does for a page of a disk that cannot be read.) No right, seal or check prevents that, so
//! there is a handler, as systemd's journal has one: it puts a private page of zeros where one
//! is missing, and the access goes on. Zeros are what a damaged file may hold: they are misses.
//! The next look of [`crate::Store`] sees the short file, and leaves it for a new one.
//!
//! A SIGBUS that is not about one of our mappings goes to whoever had the signal before, and a
//! program that installs a handler of its own later has it for itself: then a truncated file
//! ends the process, as it does everywhere else.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{
    AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

const PAGE_BYTES: usize = 4096;
/// More mappings than that (of stores and of their files that were left) are not looked after.
const MOST: usize = 256;

struct Range {
    base: AtomicUsize,
    end: AtomicUsize,
}

static RANGES: [Range; MOST] =
    [const { Range { base: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; MOST];

static INSTALLED: AtomicBool = AtomicBool::new(false);
/// What had the signal before, once `INSTALLED`.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// Looks after a mapping, for the life of the process.
pub(crate) fn look_after(base: *mut u8, bytes: usize) {
    install();
    let base = base as usize;
    // The end first: whoever sees the base sees the end.
    for range in &RANGES {
        if range.end.compare_exchange(0, base + bytes, AcqRel, Relaxed).is_ok() {
            range.base.store(base, Release);
            return;
        }
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
        libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut());
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
    if !RANGES.iter().any(is_in) {
        return false;
    }
    let page = (address & !(PAGE_BYTES - 1)) as *mut c_void;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: a page of a mapping of ours, which stays readable and writable.
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
                libc::sigaction(signal, &default, std::ptr::null_mut());
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
