//! The lock of a shard: a mutex that the kernel releases when its owner dies.
//!
//! On Linux a process-shared robust pthread mutex (one atomic operation when
//! nobody else wants it). After an owner's death the next one is told and
//! carries on; what it finds is valid by construction, so there is nothing to
//! repair. Elsewhere, `flock` on a file per shard, which any kernel releases.
//!
//! Every wait has an end. What a caller does then is in `store.rs`.

use std::time::Duration;

/// Longest wait of a plain write: then it is dropped and the old value deleted.
pub const TIMEOUT_SET: Duration = Duration::from_millis(20);
/// Longest wait of a write that must not be dropped: then it is an error.
pub const TIMEOUT_ATOMIC: Duration = Duration::from_millis(250);

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

/// The lock was not free in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

/// What the new owner of a lock must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inherited {
    Clean,
    OwnerDied,
}

/// The locks of one file: one a shard, and one for the table of named locks.
pub(crate) enum Locks {
    /// Mutexes inside the mapping, at these words.
    #[cfg(target_os = "linux")]
    Robust(crate::mem::Mapped, Vec<usize>),
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
            Self::Robust(mapped, places) => {
                robust::with(mapped.address(places[number]), wait, work)
            }
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
}

#[cfg(target_os = "linux")]
pub(crate) mod robust {
    use super::{Busy, Inherited, SPINS, Wait};
    use libc::pthread_mutex_t;

    struct Guard(*mut pthread_mutex_t);

    impl Drop for Guard {
        fn drop(&mut self) {
            // SAFETY: made in `with` right after this thread took the mutex.
            let status = unsafe { libc::pthread_mutex_unlock(self.0) };
            debug_assert_eq!(status, 0);
        }
    }

    /// Runs `work` while holding the mutex at `at`, which [`initialise`] made.
    pub fn with<R>(at: *mut u8, wait: Wait, work: impl FnOnce(Inherited) -> R) -> Result<R, Busy> {
        let mutex = at.cast();
        // SAFETY: `Locks::Robust` is only made of places that `region.rs` has
        // initialised, in a mapping that is never undone. A damaged mutex may
        // answer nonsense, but every wait is bounded.
        let inherited = unsafe { lock(mutex, wait) }?;
        let _guard = Guard(mutex);
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

    /// The part of a mutex that says what kind it is and never changes, given its
    /// words. Not an interface, but as frozen as the size: programs have it compiled in.
    pub fn kind(word: impl Fn(usize) -> u64) -> u64 {
        match () {
            () if cfg!(target_env = "gnu") && cfg!(target_pointer_width = "64") => {
                word(2) & 0xffff_ffff
            }
            () if cfg!(target_env = "musl") => word(0) & 0xffff_ffff,
            () => 0,
        }
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
    unsafe fn lock(mutex: *mut pthread_mutex_t, wait: Wait) -> Result<Inherited, Busy> {
        // SAFETY: the caller's promise.
        let status = unsafe {
            match wait {
                Wait::Try => spin(mutex),
                Wait::UpTo(bound) => libc::pthread_mutex_timedlock(mutex, &deadline(bound)),
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
            _ => Err(Busy),
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

    /// An absolute time, as `pthread_mutex_timedlock` wants it.
    fn deadline(bound: std::time::Duration) -> libc::timespec {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid place and an existing clock.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
        let nanos = now.tv_nsec as u64 + u64::from(bound.subsec_nanos());
        libc::timespec {
            tv_sec: now.tv_sec + bound.as_secs() as i64 + (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as _,
        }
    }
}

/// Where there are no robust mutexes: `flock`, and a mutex for the threads of
/// one process, who share its descriptors.
#[cfg(any(not(target_os = "linux"), test))]
pub(crate) mod files {
    use super::{Busy, Inherited, Wait};
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::sync::{Mutex, TryLockError};
    use std::time::{Duration, Instant};

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
            let fd = self.descriptor(number, &mut opened)?;
            poll(end, || {
                // SAFETY: `fd` is open as long as `opened` is borrowed.
                let status = unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) };
                (status == 0).then_some(())
            })?;
            let result = work(Inherited::Clean);
            // SAFETY: as above.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
            Ok(result)
        }

        fn descriptor(&self, number: usize, opened: &mut Opened) -> Result<i32, Busy> {
            let pid = std::process::id();
            if opened.as_ref().is_none_or(|(owner, _)| *owner != pid) {
                let mut name = self.base.clone().into_os_string();
                name.push(format!(".lock{number}"));
                let mut options = File::options();
                options.read(true).write(true).create(true).truncate(false);
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                *opened = Some((pid, options.open(name).map_err(|_| Busy)?));
            }
            opened.as_ref().map(|(_, file)| file.as_raw_fd()).ok_or(Busy)
        }
    }

    fn poll<T>(end: Instant, mut attempt: impl FnMut() -> Option<T>) -> Result<T, Busy> {
        loop {
            if let Some(result) = attempt() {
                return Ok(result);
            }
            if Instant::now() >= end {
                return Err(Busy);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Locks, TIMEOUT_SET, Wait, files::FileLocks};

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
                        while locks.with(1, Wait::UpTo(TIMEOUT_SET), work).is_err() {}
                    }
                });
            }
        });
        assert_eq!(inside, 4 * rounds);
    }
}
