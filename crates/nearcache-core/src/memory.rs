//! All shared bytes are read and written here, as atomic words.
//!
//! Another process may write any of these bytes at any time, so no reference or slice to plain bytes is
//! ever formed. Other processes are treated as threads that do atomic accesses. Racing accesses must
//! have one size: all are whole words.
//!
//! Back ends: [`Mapped`] (the real one), [`Boxed`] (private memory, for Miri and for tests),
//! `Counting` (kills its process before the k-th write), and loom's in the tests.

#[cfg(target_os = "linux")]
use std::ffi::c_void;
#[cfg(target_os = "linux")]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::thread::futex;

/// How long a wait lasts where nobody can be woken.
const WITHOUT_WAKE_UPS: Duration = Duration::from_millis(5);

/// Memory made of 64-bit words, addressed by word number.
pub trait Mem {
    /// How many words there are.
    fn words(&self) -> usize;
    /// Reads a word.
    fn load(&self, at: usize, order: Ordering) -> u64;
    /// Writes a word.
    fn store(&self, at: usize, value: u64, order: Ordering);
    /// Swaps a word if it is `old`; `Err` holds what it is instead.
    fn cas(&self, at: usize, old: u64, new: u64) -> Result<(), u64>;
    /// Adds to a word that is only a hint (wrapping).
    fn add(&self, at: usize, delta: u64);
    /// A fence between atomic accesses.
    fn fence(&self, order: Ordering);

    /// Reads consecutive words, relaxed.
    fn copy_out(&self, at: usize, into: &mut [u64]) {
        for (step, word) in into.iter_mut().enumerate() {
            *word = self.load(at + step, Ordering::Relaxed);
        }
    }

    /// Writes consecutive words, relaxed.
    fn copy_in(&self, at: usize, from: &[u64]) {
        for (step, word) in from.iter().enumerate() {
            self.store(at + step, *word, Ordering::Relaxed);
        }
    }

    /// Asks for a cache line that will be read soon.
    fn prefetch(&self, _at: usize) {}

    /// Makes words present that will be written for the first time, many at once: a fault for
    /// each page would cost half as much again. False if that cannot be had.
    fn prepare(&self, _at: usize, _words: usize) -> bool {
        true
    }

    /// Sleeps for `at_most`, or until [`Mem::wake`] of this word; not at all if the low half
    /// of the word is another than that of `seen`. May end early; where there are no
    /// wake-ups, after a moment.
    fn wait(&self, _at: usize, _seen: u64, at_most: Duration) {
        std::thread::sleep(at_most.min(WITHOUT_WAKE_UPS));
    }

    /// Wakes all who wait for this word, in whatever process.
    fn wake(&self, _at: usize) {}
}

/// A mapped file, or any other memory that outlives its user.
///
/// Invariants: **M1** `base` is aligned to 8 bytes and `words * 8` bytes from it
/// stay mapped, readable and writable for ever (a mapping is never undone; what is in it may
/// be exchanged at once, see [`Mapped::release`]; a forked child may find zeros, see `file/withheld.rs`);
/// **M2** all access goes through [`Mem`], here and in every other process.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    base: *mut u8,
    words: usize,
    withheld: bool,
}

// SAFETY: all access is atomic (M2) and the memory never goes away (M1).
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// # Safety
    ///
    /// The caller promises M1 and M2.
    pub unsafe fn new(base: *mut u8, words: usize) -> Self {
        assert_eq!(base as usize % 8, 0);
        Self { base, words, withheld: false }
    }

    /// Where a word is, for the pthread mutex that lives there.
    pub(crate) fn address(&self, at: usize) -> *mut u8 {
        assert!(at < self.words);
        // SAFETY: in bounds, just checked (M1).
        unsafe { self.base.add(at * 8) }
    }

    /// The same, which children that are forked from now on do not get.
    ///
    /// # Safety
    ///
    /// A child calls [`Mapped::stand_in`] before it does anything else with this memory.
    #[cfg(target_os = "linux")]
    pub(crate) unsafe fn withheld(self) -> std::io::Result<Self> {
        // SAFETY: whole pages of this mapping, of which nothing changes here.
        match unsafe { libc::madvise(self.base.cast(), self.words * 8, libc::MADV_DONTFORK) } {
            0 => Ok(Self { withheld: true, ..self }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn is_withheld(&self) -> bool {
        self.withheld
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn is_withheld(&self) -> bool {
        false
    }

    /// In a child, before anybody else runs there: zeros where memory was withheld, for M1.
    /// Nothing but system calls.
    #[cfg(target_os = "linux")]
    pub(crate) fn stand_in(&self) {
        let bytes = self.words * 8;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let kind = kind | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing, or fails; an older kernel may put it elsewhere, and then
        // nobody has it.
        unsafe {
            let found = libc::mmap(self.base.cast(), bytes, access, kind, -1, 0);
            if found != libc::MAP_FAILED && found != self.base.cast() {
                libc::munmap(found, bytes);
            }
        }
    }

    /// Gives the file behind this memory back: from now on it is private, and zero but for the
    /// words in `kept`. The addresses stay taken (M1), as somebody may still have them. False if the
    /// file could not be given back.
    ///
    /// The kernel drops all old pages before it shows any new one, so a reader that sees a new
    /// word sees new words from then on.
    ///
    /// # Safety
    ///
    /// No thread of this process is inside a mutex in this memory, nor will be: the kernel and
    /// libc would find it gone.
    #[cfg(target_os = "linux")]
    pub(crate) unsafe fn release(&self, kept: &[(usize, u64)]) -> bool {
        let bytes = self.words * 8;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, wherever there is room.
        let fresh = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if fresh == libc::MAP_FAILED {
            return false;
        }
        // SAFETY: just mapped, of that size, and nobody else has it.
        let memory = unsafe { Self::new(fresh.cast(), self.words) };
        for (at, value) in kept {
            memory.store(*at, *value, Ordering::Relaxed);
        }
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: what is replaced is this mapping, whole, and what replaces it is as large:
        // M1 holds. Words are atomics of nobody's invariants but the file's, which is left.
        let moved = unsafe { libc::mremap(fresh, bytes, bytes, how, self.base.cast::<c_void>()) };
        if moved == libc::MAP_FAILED {
            // SAFETY: mapped above, and not moved.
            unsafe { libc::munmap(fresh, bytes) };
        }
        moved != libc::MAP_FAILED
    }

    /// What the kernel knows a word by: its first half, which nobody here reads or writes by
    /// itself. Not private: the waker may be another process.
    #[cfg(target_os = "linux")]
    fn bell(&self, at: usize) -> &AtomicU32 {
        // SAFETY: four bytes in bounds (`address`), mapped for ever (M1); the kernel reads them
        // atomically (M2).
        unsafe { AtomicU32::from_ptr(self.address(at).cast()) }
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        // A release build checks too: offsets come from a file that may be
        // damaged, and the branch is never taken.
        assert!(at < self.words, "word {at} of {}", self.words);
        // SAFETY: in bounds (just checked), aligned (M1), only atomic access (M2).
        unsafe { AtomicU64::from_ptr(self.base.add(at * 8).cast()) }
    }
}

impl Mem for Mapped {
    fn words(&self) -> usize {
        self.words
    }
    #[inline(always)]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.word(at).load(order)
    }
    #[inline(always)]
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.word(at).store(value, order);
    }
    #[inline(always)]
    fn cas(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.word(at).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }
    #[inline(always)]
    fn add(&self, at: usize, delta: u64) {
        self.word(at).fetch_add(delta, Ordering::Relaxed);
    }
    #[inline(always)]
    fn fence(&self, order: Ordering) {
        fence(order);
    }

    #[inline]
    fn copy_out(&self, at: usize, into: &mut [u64]) {
        assert!(at <= self.words && into.len() <= self.words - at);
        for (step, word) in into.iter_mut().enumerate() {
            // SAFETY: in bounds (checked for the whole run), aligned, atomic (M1, M2).
            let from = unsafe { AtomicU64::from_ptr(self.base.add((at + step) * 8).cast()) };
            *word = from.load(Ordering::Relaxed);
        }
    }

    #[inline]
    fn copy_in(&self, at: usize, from: &[u64]) {
        assert!(at <= self.words && from.len() <= self.words - at);
        for (step, word) in from.iter().enumerate() {
            // SAFETY: in bounds (checked for the whole run), aligned, atomic (M1, M2).
            let into = unsafe { AtomicU64::from_ptr(self.base.add((at + step) * 8).cast()) };
            into.store(*word, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        if at < self.words {
            // SAFETY: a hint that never faults; the address is in bounds anyway.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    self.base.add(at * 8).cast(),
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Of the pages that begin before the end, so that the next words are not touched twice.
    #[cfg(target_os = "linux")]
    fn prepare(&self, at: usize, words: usize) -> bool {
        assert!(at <= self.words && words <= self.words - at);
        let page = rustix::param::page_size();
        let start = at * 8 / page * page;
        let bytes = ((at + words) * 8).next_multiple_of(page).min(self.words * 8) - start;
        // SAFETY: whole pages of this mapping (M1; it begins on one). What is in them stays. The
        // kernel answers EINVAL before Linux 5.14, and an error where a write would be SIGBUS.
        let status = unsafe {
            let from = self.base.add(start).cast();
            libc::madvise(from, bytes, libc::MADV_POPULATE_WRITE)
        };
        status == 0
    }

    #[cfg(target_os = "linux")]
    fn wait(&self, at: usize, seen: u64, at_most: Duration) {
        let timeout = futex::Timespec {
            tv_sec: at_most.as_secs().min(i32::MAX as u64) as _,
            tv_nsec: at_most.subsec_nanos() as _,
        };
        // Whatever it returns (woken, too late, changed already, a signal): the caller looks.
        let _ = futex::wait(self.bell(at), futex::Flags::empty(), seen as u32, Some(&timeout));
    }

    #[cfg(target_os = "linux")]
    fn wake(&self, at: usize) {
        let _ = futex::wake(self.bell(at), futex::Flags::empty(), i32::MAX as u32);
    }
}

/// Memory of this process alone.
pub struct Boxed {
    mapped: Mapped,
    layout: std::alloc::Layout,
}

impl Boxed {
    /// Zeroed memory of `words` words, freed on drop.
    pub fn new(words: usize) -> Self {
        let layout = std::alloc::Layout::from_size_align(words * 8, 4096).expect("a sane size");
        // SAFETY: the layout has a size above zero.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!base.is_null(), "out of memory");
        // SAFETY: M1 holds until drop, and `mapped` does not outlive `self`.
        let mapped = unsafe { Mapped::new(base, words) };
        Self { mapped, layout }
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.mapped.base, self.layout) };
    }
}

/// Forwards every access to another back end.
macro_rules! forward {
    ($inner:ident, before_write: $before:ident) => {
        fn words(&self) -> usize {
            self.$inner.words()
        }
        fn load(&self, at: usize, order: Ordering) -> u64 {
            self.$inner.load(at, order)
        }
        fn store(&self, at: usize, value: u64, order: Ordering) {
            self.$before();
            self.$inner.store(at, value, order);
        }
        fn cas(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
            self.$before();
            self.$inner.cas(at, old, new)
        }
        fn add(&self, at: usize, delta: u64) {
            self.$before();
            self.$inner.add(at, delta);
        }
        fn fence(&self, order: Ordering) {
            self.$inner.fence(order);
        }
        fn prepare(&self, at: usize, words: usize) -> bool {
            self.$inner.prepare(at, words)
        }
        fn wait(&self, at: usize, seen: u64, at_most: Duration) {
            self.$inner.wait(at, seen, at_most);
        }
        fn wake(&self, at: usize) {
            self.$before();
            self.$inner.wake(at);
        }
    };
}

impl Boxed {
    fn nothing(&self) {}
}

impl Mem for Boxed {
    forward!(mapped, before_write: nothing);
}

/// Kills this process before the k-th write (or wake-up): crash injection.
#[cfg(feature = "crash-injection")]
#[derive(Clone, Debug)]
pub struct Counting {
    inner: Mapped,
    left: std::rc::Rc<std::cell::Cell<u64>>,
}

#[cfg(feature = "crash-injection")]
impl Counting {
    /// Dies before write number `kill_before` (1 is the first); 0 never dies.
    pub fn new(inner: Mapped, kill_before: u64) -> Self {
        Self { inner, left: std::rc::Rc::new(std::cell::Cell::new(kill_before)) }
    }

    fn tick(&self) {
        use rustix::process::{Signal, getpid};
        match self.left.get() {
            0 => {}
            1 => {
                let _ = rustix::process::kill_process(getpid(), Signal::KILL);
                unreachable!("SIGKILL does not return");
            }
            left => self.left.set(left - 1),
        }
    }
}

#[cfg(feature = "crash-injection")]
impl Mem for Counting {
    forward!(inner, before_write: tick);
}
