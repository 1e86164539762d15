//! The cache of a host: a [`Cache`] in a file, opened again when somebody has
//! removed the file.
//!
//! Every process must use the same file. A file that is deleted (systemd's
//! RemoveIPC, a careless `rm`) lives on in those who have it mapped while others
//! make a new one. So about once a second an operation looks whether the name
//! still leads to the file; if not, it opens what is there now. The old mapping
//! is never undone: other threads may be reading it.
//!
//! The same look replaces a file with a hopeless lock: one that stays taken though
//! nobody has it (a damaged mutex). It is never stolen in place, because a process
//! that was stopped inside would go on writing; in a new file nobody is inside.

use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::cache::Cache;
use crate::clock::now_ms;
use crate::error::Error;
use crate::layout::Config;
use crate::lock::TIMEOUT_SET;
use crate::mem::Mapped;
use crate::region::{OPEN_TIMEOUT, Region};
use crate::stats::Counter;

const LOOK_EVERY_MS: u64 = 1000;

/// What one opened file is; never freed, since its users hold no count.
struct Opened {
    cache: Cache<Mapped>,
    path: PathBuf,
    inode: u64,
    size_bytes: u64,
    created: bool,
    notice: Option<String>,
    _presence: std::fs::File,
}

/// A cache in a file. All operations are those of [`Cache`], by [`Store::cache`].
pub struct Store {
    base: PathBuf,
    config: Config,
    opened: AtomicPtr<Opened>,
    next_look_ms: AtomicU64,
    /// The process that is opening another file right now, or was when this one
    /// was forked off it.
    opening: AtomicU32,
}

impl Store {
    /// Opens the cache at `base` (a path without suffix), making it if need be.
    ///
    /// # Errors
    ///
    /// [`Error`] if the file cannot be made, or must not be trusted.
    pub fn open(base: &Path, config: &Config) -> Result<Self, Error> {
        let region = Region::open(base, config, OPEN_TIMEOUT, None)?;
        let opened = Opened::new(region, 1);
        Ok(Self {
            base: base.to_owned(),
            config: config.clone(),
            opened: AtomicPtr::new(Box::into_raw(Box::new(opened))),
            next_look_ms: AtomicU64::new(now_ms() + LOOK_EVERY_MS),
            opening: AtomicU32::new(0),
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
        if now_ms >= self.next_look_ms.load(Relaxed) {
            self.look(now_ms);
        }
        &self.current().cache
    }

    /// Changes when another file was opened: every [`crate::Place`] is void then.
    pub fn epoch(&self) -> u64 {
        self.current().cache.epoch.into()
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

    /// To be called in a child after fork.
    pub fn child_after_fork(&self) {
        self.current().cache.enter_process();
    }

    #[inline]
    fn current(&self) -> &Opened {
        // SAFETY: always a pointer from `Box::into_raw` that is never freed.
        unsafe { &*self.opened.load(Acquire) }
    }

    #[cold]
    fn look(&self, now_ms: u64) {
        self.next_look_ms.store(now_ms + LOOK_EVERY_MS, Relaxed);
        let inode = |path| std::fs::metadata(path).map(|m| std::os::unix::fs::MetadataExt::ino(&m));
        let current = self.current();
        let useless = current.cache.has_hopeless_lock().then_some(current.inode);
        if useless.is_none() && inode(&current.path).is_ok_and(|inode| inode == current.inode) {
            return;
        }
        // One thread opens; the others go on with the old file for a moment. Not a
        // mutex, which a child would inherit locked.
        let (me, opener) = (std::process::id(), self.opening.load(Relaxed));
        let taken = self.opening.compare_exchange(opener, me, Acquire, Relaxed);
        if opener == me || taken.is_err() {
            return;
        }
        // Called in the middle of an operation: no longer than a write may wait.
        match Region::open(&self.base, &self.config, TIMEOUT_SET, useless) {
            Ok(region) => {
                let opened = Opened::new(region, current.cache.epoch + 1);
                self.opened.store(Box::into_raw(Box::new(opened)), Release);
            }
            // The old file still works for this process; the next look tries again.
            Err(_) => current.cache.count(Counter::ReopenFailed),
        }
        self.opening.store(0, Release);
    }
}

impl Opened {
    fn new(region: Region, epoch: u32) -> Self {
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
            _presence: region.presence,
        }
    }
}
