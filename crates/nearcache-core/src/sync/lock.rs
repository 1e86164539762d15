//! The lock of a shard: a mutex that the kernel releases when its owner dies.
//!
//! On Linux a process-shared robust pthread mutex (one atomic operation when
//! nobody else wants it). After an owner's death the next one is told and
//! carries on; what it finds is valid by construction, so there is nothing to
//! repair. Elsewhere, `flock` on a file per shard, which any kernel releases.
//!
//! Every wait has an end, and says who had the lock then (`holder.rs`). What a caller does
//! then is not here.

use std::time::Duration;

use crate::sync::holder::Busy;

/// Attempts before a caller with [`Wait::Try`] is told that the lock is busy: a
/// critical section is shorter than giving up the GIL and taking it again.
const SPINS: u32 = 200;

/// How long a lock must stay taken before anybody asks whether it is hopeless.
pub(crate) const PATIENCE_MS: u64 = 5000;

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// About a microsecond.
    Try,
    /// At most this long.
    UpTo(Duration),
}

/// What the new owner of a lock must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inherited {
    Clean,
    OwnerDied,
}

/// The locks of one file: one a shard, and one for the table of named locks.
pub(crate) enum Locks {
    /// Mutexes inside the mapping.
    #[cfg(target_os = "linux")]
    Robust(robust::Mutexes),
    /// One lock file each.
    #[cfg(any(not(target_os = "linux"), test))]
    Files(files::FileLocks),
    /// Of this process alone, for private memory.
    Private(Vec<std::sync::Mutex<()>>),
}

impl Locks {
    /// Runs `work` while holding lock `number`.
    pub fn with<R>(
        &self,
        number: usize,
        wait: Wait,
        work: impl FnOnce(Inherited) -> R,
    ) -> Result<R, Busy> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Robust(mutexes) => mutexes.with(number, wait, work),
            #[cfg(any(not(target_os = "linux"), test))]
            Self::Files(files) => files.with(number, wait, work),
            Self::Private(mutexes) => {
                let guard = mutexes[number].lock();
                let result = work(Inherited::Clean);
                drop(guard);
                Ok(result)
            }
        }
    }

    /// Lets nobody of this process in any more; true once nobody is inside.
    pub fn close(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Robust(mutexes) => mutexes.gate.close(),
            _ => false,
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) mod robust {
    use std::ffi::c_void;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use super::{Busy, Inherited, SPINS, Wait};
    use crate::memory::Mapped;
    use crate::sync::gate::Gate;
    use libc::pthread_mutex_t;

    /// How often a mutex is tried where libc cannot wait for it by a clock that is never set.
    const ASK_EVERY: Duration = Duration::from_micros(100);
    /// The words by which both libcs link a mutex to the others that its thread holds.
    const LINKS: [usize; 2] = [3, 4];

    /// Mutexes at some words of a mapping, until the gate is closed.
    pub(crate) struct Mutexes {
        mapped: Mapped,
        places: Vec<usize>,
        pub(super) gate: Gate,
    }

    impl Mutexes {
        /// # Safety
        ///
        /// At each of these words is a mutex that [`initialise`] made, and nothing but the
        /// functions here changes it. (Another process may: a damaged mutex answers nonsense, but
        /// every wait is bounded.)
        pub unsafe fn new(mapped: Mapped, places: Vec<usize>) -> Self {
            Self { mapped, places, gate: Gate::default() }
        }

        /// Runs `work` while holding mutex `number`.
        pub fn with<R>(
            &self,
            number: usize,
            wait: Wait,
            work: impl FnOnce(Inherited) -> R,
        ) -> Result<R, Busy> {
            let Some(_entered) = self.gate.enter() else {
                return Err(never_free(wait));
            };
            // SAFETY: `new` was promised that there is a mutex, and a mapping is never undone.
            unsafe { with(self.mapped.address(self.places[number]), wait, work) }
        }
    }

    /// As if somebody held the lock: who asks again finds another file by then.
    #[cold]
    fn never_free(wait: Wait) -> Busy {
        if let Wait::UpTo(bound) = wait {
            std::thread::sleep(bound);
        }
        Busy::UNKNOWN
    }

    /// A mutex that this thread has. Libc unlinks it by the two pointers that are in it, and would
    /// write wherever they lead. Other processes can write to the pointers, so they are kept here as
    /// libc left them.
    struct Guard {
        mutex: *mut pthread_mutex_t,
        links: [u64; 2],
    }

    impl Guard {
        /// # Safety
        ///
        /// This thread took the mutex just now, and it is mapped for ever.
        unsafe fn of(mutex: *mut pthread_mutex_t) -> Self {
            // SAFETY: the caller's promise.
            let links = LINKS.map(|at| unsafe { link(mutex, at) }.load(Relaxed));
            Self { mutex, links }
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            // SAFETY: `of` was promised that this thread has the mutex, and that it is mapped.
            let status = unsafe {
                for (at, value) in LINKS.into_iter().zip(self.links) {
                    link(self.mutex, at).store(value, Relaxed);
                }
                libc::pthread_mutex_unlock(self.mutex)
            };
            debug_assert_eq!(status, 0);
        }
    }

    /// # Safety
    ///
    /// The mutex is mapped for as long as the word is used.
    unsafe fn link<'a>(mutex: *mut pthread_mutex_t, at: usize) -> &'a AtomicU64 {
        // SAFETY: within the 128 bytes that a mutex has in the file, and aligned as it is; others
        // access it by whole words.
        unsafe { AtomicU64::from_ptr(mutex.cast::<u64>().add(at)) }
    }

    /// Runs `work` while holding the mutex at `at`.
    ///
    /// # Safety
    ///
    /// [`initialise`] made it, and it is mapped for ever.
    unsafe fn with<R>(
        at: *mut u8,
        wait: Wait,
        work: impl FnOnce(Inherited) -> R,
    ) -> Result<R, Busy> {
        let mutex = at.cast();
        // SAFETY: the caller's promise; `of` has what `lock` took.
        let (inherited, _guard) = unsafe { (lock(mutex, wait)?, Guard::of(mutex)) };
        Ok(work(inherited))
    }

    /// Makes a mutex in shared memory.
    ///
    /// # Safety
    ///
    /// `at` is aligned, mapped for ever, and nobody uses a mutex there.
    pub unsafe fn initialise(at: *mut u8) {
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: `attributes` is initialised by the first call and destroyed by
        // the last; `at` is the caller's promise.
        unsafe {
            let attributes = attributes.as_mut_ptr();
            assert_eq!(libc::pthread_mutexattr_init(attributes), 0);
            let shared = libc::PTHREAD_PROCESS_SHARED;
            assert_eq!(libc::pthread_mutexattr_setpshared(attributes, shared), 0);
            let robust = libc::PTHREAD_MUTEX_ROBUST;
            assert_eq!(libc::pthread_mutexattr_setrobust(attributes, robust), 0);
            assert_eq!(libc::pthread_mutex_init(at.cast(), attributes), 0);
            libc::pthread_mutexattr_destroy(attributes);
        }
    }

    /// The part of a mutex that says what kind it is, given its words. It never changes. No
    /// interface of libc promises it, but it is as frozen as the size: programs have it compiled in.
    pub fn kind(word: impl Fn(usize) -> u64) -> u64 {
        match () {
            () if cfg!(target_env = "gnu") && cfg!(target_pointer_width = "64") => {
                word(2) & 0xffff_ffff
            }
            () if cfg!(target_env = "musl") => word(0) & 0xffff_ffff,
            () => 0,
        }
    }

    /// The id of the thread that has the mutex, given its first word; 0 if no thread has it. The
    /// kernel frees robust mutexes by that id, so neither libc could put it elsewhere.
    fn owner(word: u64) -> u32 {
        const THREAD: u64 = 0x3fff_ffff; // <linux/futex.h>: FUTEX_TID_MASK
        let lock = if cfg!(target_env = "musl") { word >> 32 } else { word };
        (lock & THREAD) as u32
    }

    /// The kind of a mutex made by [`initialise`].
    pub fn kind_made_here() -> u64 {
        let mut fresh = [0_u64; 16];
        const { assert!(size_of::<pthread_mutex_t>() <= size_of::<[u64; 16]>()) };
        // SAFETY: aligned, large enough, and nobody else has it. It is dropped
        // without being destroyed, which on Linux frees nothing.
        unsafe { initialise(fresh.as_mut_ptr().cast()) };
        kind(|word| fresh[word])
    }

    /// # Safety
    ///
    /// `mutex` holds a mutex made by [`initialise`] and is mapped for ever.
    #[inline]
    unsafe fn lock(mutex: *mut pthread_mutex_t, wait: Wait) -> Result<Inherited, Busy> {
        // SAFETY: the caller's promise.
        let status = unsafe {
            match wait {
                Wait::Try => spin(mutex),
                Wait::UpTo(bound) => within(mutex, bound),
            }
        };
        match status {
            0 => Ok(Inherited::Clean),
            libc::EOWNERDEAD => {
                // SAFETY: this thread owns it. Now, not after the work: whatever
                // happens next, the lock stays usable.
                unsafe { libc::pthread_mutex_consistent(mutex) };
                Ok(Inherited::OwnerDied)
            }
            _ if wait == Wait::Try => Err(Busy::UNKNOWN),
            _ => {
                // SAFETY: mapped, and aligned as a mutex is; an atomic load, as libc's are.
                let word = unsafe { AtomicU64::from_ptr(mutex.cast()) }.load(Relaxed);
                Err(Busy::held_by(owner(word)))
            }
        }
    }

    /// # Safety
    ///
    /// As for [`lock`].
    unsafe fn spin(mutex: *mut pthread_mutex_t) -> i32 {
        let mut status = libc::EBUSY;
        for _ in 0..SPINS {
            // SAFETY: the caller's promise.
            status = unsafe { libc::pthread_mutex_trylock(mutex) };
            if status != libc::EBUSY {
                break;
            }
            std::hint::spin_loop();
        }
        status
    }

    /// Locks within `bound`, by a clock that nobody can set: `pthread_mutex_timedlock` counts on
    /// the wall clock, and would wait an hour longer when that is set back by an hour.
    ///
    /// # Safety
    ///
    /// As for [`lock`].
    unsafe fn within(mutex: *mut pthread_mutex_t, bound: Duration) -> i32 {
        match clocklock() {
            // SAFETY: the caller's promise.
            Some(lock) => unsafe { lock(mutex, libc::CLOCK_MONOTONIC, &deadline(bound)) },
            // SAFETY: the caller's promise.
            None => unsafe { ask_within(mutex, bound) },
        }
    }

    type ClockLock =
        unsafe extern "C" fn(*mut pthread_mutex_t, libc::clockid_t, *const libc::timespec) -> i32;

    /// `pthread_mutex_clocklock`, if this libc has it (glibc 2.30). Looked up, since a program
    /// that is linked to it does not start with an older one.
    fn clocklock() -> Option<ClockLock> {
        static FOUND: OnceLock<Option<ClockLock>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            // SAFETY: a valid string; a symbol of that name is that function.
            unsafe {
                let found = libc::dlsym(libc::RTLD_DEFAULT, c"pthread_mutex_clocklock".as_ptr());
                (!found.is_null()).then(|| std::mem::transmute::<*mut c_void, ClockLock>(found))
            }
        })
    }

    /// For a libc that waits by the wall clock alone.
    ///
    /// # Safety
    ///
    /// As for [`lock`].
    unsafe fn ask_within(mutex: *mut pthread_mutex_t, bound: Duration) -> i32 {
        let end = Instant::now() + bound;
        loop {
            // SAFETY: the caller's promise.
            let status = unsafe { libc::pthread_mutex_trylock(mutex) };
            if status != libc::EBUSY || Instant::now() >= end {
                return status;
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// So much later on the clock that `within` names.
    fn deadline(bound: Duration) -> libc::timespec {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid place and an existing clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        let nanos = now.tv_nsec as u64 + u64::from(bound.subsec_nanos());
        libc::timespec {
            tv_sec: now.tv_sec + bound.as_secs() as i64 + (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as _,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_others_write_into_a_held_mutex_leads_libc_nowhere() {
            let mut words = [0_u64; 16];
            let mut elsewhere = [0_u64; 16];
            let at = words.as_mut_ptr().cast::<u8>();
            let [start, middle] = [0, 8].map(|word| (&raw mut elsewhere[word]) as u64);
            // SAFETY: aligned, large enough, and it outlives its users. The words are written as
            // another process that has the file mapped could.
            unsafe {
                initialise(at);
                let write = |_| {
                    for (word, value) in LINKS.into_iter().zip([middle, start]) {
                        link(at.cast(), word).store(value, Relaxed);
                    }
                };
                with(at, Wait::Try, write).unwrap();
                assert_eq!(elsewhere, [0; 16]);
                assert_eq!(with(at, Wait::Try, |inherited| inherited), Ok(Inherited::Clean));
            }
        }

        #[test]
        fn without_clocklock_a_wait_has_an_end_as_well() {
            let mut words = [0_u64; 16];
            let mutex = words.as_mut_ptr().cast::<pthread_mutex_t>();
            // SAFETY: aligned, large enough, and it outlives the threads that use it.
            unsafe { initialise(mutex.cast()) };
            let place = mutex as usize;
            std::thread::scope(|scope| {
                let ask = |bound| {
                    // SAFETY: as above.
                    move || unsafe { ask_within(place as *mut _, bound) }
                };
                assert_eq!(ask(Duration::ZERO)(), 0);
                let busy = scope.spawn(ask(Duration::from_millis(5)));
                assert_eq!(busy.join().unwrap(), libc::EBUSY);
                let patient = scope.spawn(ask(Duration::from_secs(300)));
                // SAFETY: this thread has it.
                unsafe { libc::pthread_mutex_unlock(place as *mut _) };
                assert_eq!(patient.join().unwrap(), 0);
            });
        }
    }
}

/// Where there are no robust mutexes: `flock`, and a mutex for the threads of
/// one process, who share its descriptors.
#[cfg(any(not(target_os = "linux"), test))]
pub(crate) mod files {
    use super::{Busy, Inherited, Wait};
    use std::fs::File;
    use std::path::PathBuf;
    use std::sync::{Mutex, TryLockError};
    use std::time::{Duration, Instant};

    use rustix::fs::{FlockOperation, flock};

    /// One lock: the descriptor of its file, and the process that opened it. A
    /// child would share its parent's lock, so it opens the file itself.
    type Opened = Option<(u32, File)>;

    pub(crate) struct FileLocks {
        base: PathBuf,
        opened: Vec<Mutex<Opened>>,
    }

    impl FileLocks {
        pub fn new(base: PathBuf, locks: usize) -> Self {
            Self { base, opened: (0..locks).map(|_| Mutex::new(None)).collect() }
        }

        pub fn with<R>(
            &self,
            number: usize,
            wait: Wait,
            work: impl FnOnce(Inherited) -> R,
        ) -> Result<R, Busy> {
            let bound = match wait {
                Wait::Try => Duration::from_micros(2),
                Wait::UpTo(bound) => bound,
            };
            let end = Instant::now() + bound;
            let mut opened = poll(end, || match self.opened[number].try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            })?;
            let file = self.file(number, &mut opened)?;
            poll(end, || flock(file, FlockOperation::NonBlockingLockExclusive).ok())?;
            let result = work(Inherited::Clean);
            let _ = flock(file, FlockOperation::Unlock);
            Ok(result)
        }

        fn file<'a>(&self, number: usize, opened: &'a mut Opened) -> Result<&'a File, Busy> {
            let pid = std::process::id();
            if opened.as_ref().is_none_or(|(owner, _)| *owner != pid) {
                let mut name = self.base.clone().into_os_string();
                name.push(format!(".lock{number}"));
                let mut options = File::options();
                options.read(true).write(true).create(true).truncate(false);
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                *opened = Some((pid, options.open(name).map_err(|_| Busy::UNKNOWN)?));
            }
            opened.as_ref().map(|(_, file)| file).ok_or(Busy::UNKNOWN)
        }
    }

    fn poll<T>(end: Instant, mut attempt: impl FnMut() -> Option<T>) -> Result<T, Busy> {
        loop {
            if let Some(result) = attempt() {
                return Ok(result);
            }
            if Instant::now() >= end {
                return Err(Busy::UNKNOWN);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Locks, Wait, files::FileLocks};
    use crate::sync::holder::SLICE;

    #[test]
    fn a_file_lock_excludes_threads_and_is_free_again_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let locks = Locks::Files(FileLocks::new(directory.path().join("base"), 2));
        let (mut inside, rounds) = (0, 200);
        let counter = std::sync::Mutex::new(&mut inside);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let work = |_| **counter.try_lock().expect("nobody else is inside") += 1;
                        while locks.with(1, Wait::UpTo(SLICE), work).is_err() {}
                    }
                });
            }
        });
        assert_eq!(inside, 4 * rounds);
    }
}
