//! The cache of a host: a [`Cache`] in a file, opened again when that is gone.
//!
//! Every process must use the same file. A file that is deleted (systemd's
//! RemoveIPC, a careless `rm`) lives on in those who have it mapped while others
//! make a new one. So about once a second an operation looks whether the name
//! still leads to the file, whole. If not, a thread opens what is there now, or
//! makes it: that may take as long as it takes to reserve gigabytes, and the
//! operation is in the middle of a request. Until then all go on with the old
//! file; the first look after that goes over to the new one.
//!
//! The same look replaces a file that was truncated, and one with a hopeless lock:
//! one that stays taken though nobody has it (a damaged mutex). It is never stolen
//! in place, because a process that was stopped inside would go on writing; in a
//! new file nobody is inside.
//!
//! A file that was left is given back when no operation can be in the middle of it by
//! any sane measure, and none is inside a lock of it by proof. Its addresses stay
//! taken, as a reader holds no count: whoever is still there finds nothing.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

use crate::cache::Cache;
use crate::clock::{boot_ms, now_ms};
use crate::error::Error;
use crate::generation::generation;
use crate::layout::Config;
use crate::mem::Mapped;
use crate::region::{Left, OPEN_TIMEOUT, Region};
use crate::reopen::Reopening;
use crate::stats::Counter;

const LOOK_EVERY_MS: u64 = 1000;
/// While a thread opens another file.
const LOOK_SOON_MS: u64 = 10;
/// Twice as long as any operation may wait: who is still inside after that sees it closed.
const GIVE_BACK_AFTER_MS: u64 = 10_000;
/// In `entered`, beside the number of a process: it is being entered right now.
const ENTERING: u64 = 1 << 63;

/// What one opened file is; never freed, since its users hold no count.
struct Opened {
    cache: Cache<Mapped>,
    path: PathBuf,
    inode: u64,
    size_bytes: u64,
    created: bool,
    notice: Option<String>,
    /// The descriptor with the presence lock and its inode; -1 once closed.
    presence: AtomicI32,
    presence_inode: Option<u64>,
    /// The file that this one came after.
    before: Option<&'static Opened>,
    left_at_ms: AtomicU64,
    given_back: AtomicBool,
    /// Seen to be shorter than it was mapped: not to be touched.
    truncated: AtomicBool,
}

/// A cache in a file. All operations are those of [`Cache`], by [`Store::cache`].
pub struct Store {
    base: PathBuf,
    config: Config,
    opened: AtomicPtr<Opened>,
    /// The process that has its slot of counters: its [`generation`].
    entered: AtomicU64,
    looked_at_ms: AtomicU64,
    /// Not a mutex, which a child would inherit locked.
    reopening: AtomicPtr<Reopening>,
    lock_epoch: AtomicU64,
}

impl Store {
    /// Opens the cache at `base` (a path without suffix), making it if need be.
    ///
    /// # Errors
    ///
    /// [`Error`] if the file cannot be made, or must not be trusted.
    pub fn open(base: &Path, config: &Config) -> Result<Self, Error> {
        let entered = generation();
        let region = Region::open(base, config, OPEN_TIMEOUT, Left::default())?;
        let opened = Opened::new(region, 1, None);
        Ok(Self {
            base: base.to_owned(),
            config: config.clone(),
            opened: AtomicPtr::new(Box::into_raw(Box::new(opened))),
            entered: AtomicU64::new(entered),
            looked_at_ms: AtomicU64::new(now_ms()),
            reopening: AtomicPtr::default(),
            lock_epoch: AtomicU64::new(1),
        })
    }

    /// Opens the cache at `base` as it is, with whatever it was made.
    ///
    /// # Errors
    ///
    /// [`Error`] if there is none, or it must not be trusted.
    pub fn existing(base: &Path) -> Result<Self, Error> {
        Self::open(base, &Region::config_of(base)?)
    }

    /// The cache, of the file that has the name now. `now_ms` as for the
    /// operation that follows.
    #[inline]
    pub fn cache(&self, now_ms: u64) -> &Cache<Mapped> {
        if self.entered.load(Acquire) != generation() {
            self.enter();
        }
        // A clock that was set back is far beyond the last look, too.
        if now_ms.wrapping_sub(self.looked_at_ms.load(Relaxed)) >= LOOK_EVERY_MS {
            self.look(now_ms);
        }
        &self.current().cache
    }

    /// Changes when another file was opened: every [`crate::Place`] is void then.
    pub fn epoch(&self) -> u64 {
        self.current().cache.epoch.into()
    }

    /// Changes when named locks taken before are not in force any more: others do not see the
    /// file that they are in. To be read before a lock is asked for.
    pub fn lock_epoch(&self) -> u64 {
        self.cache(now_ms());
        self.lock_epoch.load(Acquire)
    }

    /// The data file.
    pub fn path(&self) -> &Path {
        &self.current().path
    }

    /// Whether the file was made by this store, so that the cache was empty.
    pub fn created(&self) -> bool {
        self.current().created
    }

    /// Size of the data file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.current().size_bytes
    }

    /// What the user should know about how the file was opened.
    pub fn notice(&self) -> Option<&str> {
        self.current().notice.as_deref()
    }

    #[inline]
    fn current(&self) -> &'static Opened {
        // SAFETY: always a pointer from `Box::into_raw` that is never freed.
        unsafe { &*self.opened.load(Acquire) }
    }

    /// In a forked child: a slot of counters and an identity of its own, before anything is
    /// counted or locked. One thread sees to it; the others wait those microseconds. Should the
    /// process be forked in between, the child has another number and begins anew.
    #[cold]
    fn enter(&self) {
        let here = generation();
        loop {
            let of = self.entered.load(Acquire);
            if of == here {
                return;
            }
            if of == here | ENTERING {
                std::thread::yield_now();
            } else if self.entered.compare_exchange(of, here | ENTERING, Acquire, Relaxed).is_ok() {
                self.current().cache.enter_process();
                self.entered.store(here, Release);
                return;
            }
        }
    }

    #[cold]
    fn look(&self, now_ms: u64) {
        self.looked_at_ms.store(now_ms, Relaxed);
        let current = self.current();
        current.give_back_before();
        let reopening = self.reopening.swap(std::ptr::null_mut(), AcqRel);
        if reopening.is_null() {
            if let Some(left) = current.left() {
                self.reopen(current, left);
            }
            return;
        }
        // SAFETY: from `Arc::into_raw`, and taken out by this thread alone.
        let reopening = unsafe { Arc::from_raw(reopening) };
        match reopening.result() {
            Some(Ok(region)) => self.go_over_to(region, current),
            Some(Err(_)) => current.cache.count(Counter::ReopenFailed),
            // In a child its thread is not there: the next look begins anew.
            None if reopening.is_of_another_process() => {}
            None => self.keep(reopening, now_ms),
        }
    }

    fn reopen(&self, current: &Opened, left: Left) {
        self.lock_epoch.fetch_add(1, AcqRel);
        match Reopening::start(self.base.clone(), self.config.clone(), left) {
            Some(reopening) => self.keep(reopening, self.looked_at_ms.load(Relaxed)),
            // No thread could be had; the next look tries again.
            None => current.cache.count(Counter::ReopenFailed),
        }
    }

    /// For the next look, soon. Should another thread have begun one as well, this one's is for
    /// nothing.
    fn keep(&self, reopening: Arc<Reopening>, now_ms: u64) {
        self.looked_at_ms.store(now_ms.wrapping_sub(LOOK_EVERY_MS - LOOK_SOON_MS), Relaxed);
        let raw = Arc::into_raw(reopening).cast_mut();
        let kept = self.reopening.compare_exchange(std::ptr::null_mut(), raw, AcqRel, Relaxed);
        if kept.is_err() {
            // SAFETY: from `into_raw` just above, and nobody else has it.
            drop(unsafe { Arc::from_raw(raw) });
        }
    }

    fn go_over_to(&self, region: Region, current: &'static Opened) {
        let opened = Opened::new(region, current.cache.epoch + 1, Some(current));
        current.left_at_ms.store(boot_ms(), Relaxed);
        self.opened.store(Box::into_raw(Box::new(opened)), Release);
        self.lock_epoch.fetch_add(1, AcqRel);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let reopening = self.reopening.swap(std::ptr::null_mut(), AcqRel);
        if !reopening.is_null() {
            // SAFETY: from `Arc::into_raw`, and taken out by this thread alone.
            drop(unsafe { Arc::from_raw(reopening) });
        }
    }
}

impl Opened {
    fn new(region: Region, epoch: u32, before: Option<&'static Opened>) -> Self {
        let size_bytes = region.geometry.total_words as u64 * 8;
        let mut cache = Cache::new(region.mapped, region.geometry, region.locks, region.seed);
        cache.epoch = epoch;
        Self {
            cache,
            path: region.path,
            inode: region.inode,
            size_bytes,
            created: region.created,
            notice: region.notice,
            presence_inode: region.presence.metadata().map(|metadata| metadata.ino()).ok(),
            presence: AtomicI32::new(region.presence.into_raw_fd()),
            before,
            left_at_ms: AtomicU64::new(0),
            given_back: AtomicBool::new(false),
            truncated: AtomicBool::new(false),
        }
    }

    /// What the next file has to know if this one cannot be used any more.
    fn left(&self) -> Option<Left> {
        let there = fs::metadata(&self.path);
        let is_this = there.as_ref().is_ok_and(|there| there.ino() == self.inode);
        let truncated = is_this && there.is_ok_and(|there| there.len() != self.size_bytes);
        self.truncated.fetch_or(truncated, Relaxed);
        if is_this && !truncated && !self.cache.has_hopeless_lock() {
            return None;
        }
        // What is left of a truncated file may not hold the token, and must not be touched.
        let last_token = if truncated { 0 } else { self.cache.last_token() };
        Some(Left { useless: is_this.then_some(self.inode), last_token })
    }

    /// Gives the files back that were left before this one.
    fn give_back_before(&self) {
        let mut at = self.before;
        while let Some(left) = at {
            let since_ms = boot_ms().saturating_sub(left.left_at_ms.load(Relaxed));
            if !left.given_back.load(Relaxed) && since_ms >= GIVE_BACK_AFTER_MS {
                left.give_back(self);
            }
            at = left.before;
        }
    }

    /// Two threads may come here at once: each half is done by one of them, or twice in vain.
    fn give_back(&self, current: &Opened) {
        let fd = self.presence.swap(-1, AcqRel);
        if fd >= 0 && fd != current.presence.load(Relaxed) {
            self.close_presence(fd);
        }
        self.given_back.store(self.release(), Relaxed);
    }

    /// A daemon may have closed all descriptors, and have something else under this number.
    fn close_presence(&self, fd: i32) {
        // SAFETY: if it is not open, nothing is done with it.
        let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        let inode = file.metadata().map(|metadata| metadata.ino()).ok();
        if inode.is_some() && inode == self.presence_inode {
            debug_assert_eq!(file.as_raw_fd(), fd);
            drop(std::mem::ManuallyDrop::into_inner(file));
        }
    }

    #[cfg(target_os = "linux")]
    fn release(&self) -> bool {
        self.cache.release(!self.truncated.load(Relaxed))
    }

    /// Elsewhere a mapping cannot be exchanged at once.
    #[cfg(not(target_os = "linux"))]
    fn release(&self) -> bool {
        true
    }
}
