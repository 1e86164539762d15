//! The cache of a host: a [`Cache`] in a file, opened again when that file is gone.
//!
//! Every process must use the same file. A file that is deleted (systemd's RemoveIPC, a careless
//! `rm`) lives on in the processes that have it mapped, while others make a new one. So about once a
//! second an operation looks whether the name still leads to the file, and whether the file is whole.
//!
//! If not, a thread opens what has the name now, or makes it. A thread, because reserving gigabytes
//! takes long and the operation is in the middle of a request. Until the new file is whole all
//! processes go on with the old one. From then on none does: two files in use would answer differently.
//!
//! - Whoever makes a new file marks the old one before (`file/region.rs`). Every operation looks at
//!   the mark, and a process that sees it has to open the new file first.
//! - A file without a name cannot be reached by whoever makes the next one, and so has no mark. A
//!   process that has such a file, and finds another under the name, marks its own for the others.
//!
//! The same look replaces a file that was truncated, and one with a hopeless lock: a lock that stays
//! taken though nobody has it (a damaged mutex). Such a lock is never stolen in place, because a
//! process that was stopped inside would go on writing. In a new file nobody is inside.
//!
//! The look also asks whether the lock file is still there, by which others see that the file is in
//! use: without it another PID namespace would take the file over.
//!
//! A file belongs to one user, and a process may become another user's: root starts it, and then,
//! before or after a fork, it is the site's (gunicorn's `--user`). So a process that could become
//! another user's compares users at every use. A file that is not its user's it does not touch again:
//! the memory is given back at once, and the caller has to open a file of this user's. A child does not
//! even get such a mapping (`file/withheld.rs`). If the child is the same user's, it opens the file again.
//!
//! A file that was left is given back when no operation can be in the middle of it by any sane
//! measure, and none is inside a lock of it by proof. Its addresses stay taken, as a reader holds no
//! count: a reader that is still there finds nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use std::time::{Duration, Instant};

use crate::base::clock::{boot_ms, now_ms};
use crate::base::error::Error;
use crate::base::generation::generation;
use crate::base::stats::Counter;
use crate::base::user::{effective_uid, may_change};
use crate::file::lock_file::Presence;
use crate::file::region::{Left, OPEN_TIMEOUT, Region};
use crate::format::layout::Config;
use crate::memory::Mapped;
use crate::store::cache::Cache;
use crate::store::reopen::Reopening;
use crate::sync::holder::Busy;

const LOOK_EVERY_MS: u64 = 1000;
/// While a thread opens another file.
const LOOK_SOON_MS: u64 = 10;
/// Twice as long as any operation may wait: an operation that comes to a lock later finds it closed.
const GIVE_BACK_AFTER_MS: u64 = 10_000;
/// A process that becomes another user's does so when it starts, often within microseconds of a
/// use. While it is young it asks at every use whose it is. Later it asks once a tick of the clock,
/// which saves a process of root nearly all of those system calls.
const YOUNG_MS: u64 = 10_000;
const EVERY_USE_MS: u64 = 0;
const EVERY_TICK_MS: u64 = 1;
const TURN_POLL: Duration = Duration::from_millis(1);
/// In `entered`, beside the number of a process: it is being entered right now.
const ENTERING: u64 = 1 << 63;

/// The file at hand is of another user, or of a parent that kept it for itself, or was replaced:
/// to be opened again, by [`Store::open_again`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOurs;

impl From<NotOurs> for Busy {
    /// For a caller that cannot open the file here and now, and will be asked again.
    fn from(_: NotOurs) -> Self {
        Busy::UNKNOWN
    }
}

/// What one opened file is; never freed, since its users hold no count.
struct Opened {
    cache: Cache<Mapped>,
    base: PathBuf,
    config: Config,
    /// Who opened it: the user, and the process (its [`generation`]).
    user: u32,
    process: u64,
    /// When it was opened, this process could become another user's.
    may_change: bool,
    mapped: Mapped,
    path: PathBuf,
    inode: u64,
    size_bytes: u64,
    created: bool,
    notice: Option<String>,
    presence: Presence,
    /// The file that this one came after.
    before: Option<&'static Opened>,
    /// 0 while it is in use.
    left_at_ms: AtomicU64,
    given_back: AtomicBool,
    /// Seen to be shorter than it was mapped: not to be touched.
    truncated: AtomicBool,
}

/// A cache in a file. All operations are those of [`Cache`], by [`Store::cache`].
///
/// What every operation looks at comes first, in one cache line: 2 to 3 % of a `get`.
#[repr(C, align(64))]
pub struct Store {
    opened: AtomicPtr<Opened>,
    /// The process that has its slot of counters: its [`generation`].
    entered: AtomicU64,
    /// When somebody last asked whose process this is, and after how long the next one does.
    asked_at_ms: AtomicU64,
    ask_every_ms: AtomicU64,
    looked_at_ms: AtomicU64,
    opened_at_ms: AtomicU64,
    /// The process a thread of which opens the file again; 0 if none.
    opening: AtomicU64,
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
        let opened = Opened::new(region, base, config, None);
        let store = Self {
            opened: AtomicPtr::new(opened.kept()),
            entered: AtomicU64::new(entered),
            looked_at_ms: AtomicU64::new(now_ms()),
            asked_at_ms: AtomicU64::new(now_ms()),
            ask_every_ms: AtomicU64::new(EVERY_USE_MS),
            opened_at_ms: AtomicU64::new(now_ms()),
            opening: AtomicU64::new(0),
            reopening: AtomicPtr::default(),
            lock_epoch: AtomicU64::new(1),
        };
        Ok(store)
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
    ///
    /// # Errors
    ///
    /// [`NotOurs`] until the file was opened again.
    #[inline]
    pub fn cache(&self, now_ms: u64) -> Result<&Cache<Mapped>, NotOurs> {
        // A clock that was set back is far beyond the last time, too.
        let since_ms = now_ms.wrapping_sub(self.asked_at_ms.load(Relaxed));
        if self.entered.load(Acquire) != generation() || since_ms >= self.ask_every_ms.load(Relaxed)
        {
            self.ask(now_ms)?;
        }
        let cache = &self.current().cache;
        if cache.is_replaced() {
            return Err(NotOurs);
        }
        Ok(cache)
    }

    /// Whether the file at hand is of the user that this process belongs to now. If it is, a
    /// cache that is [`NotOurs`] can be opened again where it was.
    pub fn is_of_this_user(&self) -> bool {
        self.current().is_of_this_user()
    }

    /// Opens the file that is this process's, after [`NotOurs`]: at this path, or where it was.
    /// False if another thread has done that.
    ///
    /// # Errors
    ///
    /// As for [`Store::open`]; then the cache stays [`NotOurs`].
    pub fn open_again(&self, place: Option<(&Path, &Config)>) -> Result<bool, Error> {
        let _turn = Turn::taken(&self.opening);
        let current = self.current();
        let is_ours = current.is_ours();
        if is_ours && !current.cache.is_replaced() && current.cache.is_of_these_namespaces() {
            return Ok(false);
        }
        let left = if is_ours {
            current.left()
        } else {
            // First: it goes, whatever comes of the rest.
            current.leave();
            None
        };
        let (base, config) = place.unwrap_or((&current.base, &current.config));
        // It may be this process that makes the new one: its thread is about to be done.
        let made_here = if is_ours { self.reopened() } else { None };
        let region = match made_here {
            Some(region) => region,
            None => open_next(base, config, left.unwrap_or_default())?,
        };
        self.forget_reopening();
        let process = region.process;
        self.go_over_to(region, base, config, current);
        self.entered.store(process, Release);
        Ok(true)
    }

    /// Changes when another file was opened: every [`crate::Locator`] is void then.
    pub fn epoch(&self) -> u64 {
        self.current().cache.epoch.into()
    }

    /// Changes when named locks taken before are not in force any more: others do not see the
    /// file that they are in. To be read before a lock is asked for.
    /// 0 if the file is [`NotOurs`].
    pub fn lock_epoch(&self) -> u64 {
        self.cache(now_ms()).map_or(0, |_| self.lock_epoch.load(Acquire))
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

    #[cold]
    fn ask(&self, now_ms: u64) -> Result<(), NotOurs> {
        let current = self.current();
        let is_entered = self.entered.load(Acquire) == generation();
        if !current.is_ours() || !(is_entered || current.cache.is_of_these_namespaces()) {
            return Err(NotOurs);
        }
        self.enter();
        if now_ms.wrapping_sub(self.looked_at_ms.load(Relaxed)) >= LOOK_EVERY_MS {
            self.look(now_ms)?;
        }
        self.ask_every_ms.store(self.patience_ms(current, now_ms), Relaxed);
        let looked_at_ms = self.looked_at_ms.load(Relaxed);
        let asked_at_ms = if current.may_change { now_ms } else { looked_at_ms };
        self.asked_at_ms.store(asked_at_ms, Relaxed);
        Ok(())
    }

    fn patience_ms(&self, current: &Opened, now_ms: u64) -> u64 {
        match now_ms.wrapping_sub(self.opened_at_ms.load(Relaxed)) {
            _ if !current.may_change => LOOK_EVERY_MS,
            0..YOUNG_MS => EVERY_USE_MS,
            _ => EVERY_TICK_MS,
        }
    }

    /// In a forked child: a slot of counters and an identity of its own, before anything is
    /// counted or locked. One thread sees to that, and the others wait those microseconds. If the
    /// process is forked in between, the child has another number and begins anew.
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
    fn look(&self, now_ms: u64) -> Result<(), NotOurs> {
        self.looked_at_ms.store(now_ms, Relaxed);
        let current = self.current();
        current.give_back_before();
        let reopening = self.reopening.swap(std::ptr::null_mut(), AcqRel);
        if reopening.is_null() {
            match current.left() {
                Some(left) if left.another => current.follow(),
                Some(left) => self.reopen(current, left),
                None if current.is_shown() => {}
                None => {
                    // To be asked at each use, until it was opened again.
                    self.entered.store(0, Release);
                    return Err(NotOurs);
                }
            }
            return Ok(());
        }
        // SAFETY: from `Arc::into_raw`, and taken out by this thread alone.
        let reopening = unsafe { Arc::from_raw(reopening) };
        match reopening.result() {
            Some(Ok(region)) => self.go_over_to(region, &current.base, &current.config, current),
            Some(Err(_)) => current.cache.count(Counter::ReopenFailed),
            // In a child its thread is not there: the next look begins anew.
            None if reopening.is_of_another_process() => {}
            None => self.keep(reopening, now_ms),
        }
        Ok(())
    }

    fn reopen(&self, current: &Opened, left: Left) {
        self.lock_epoch.fetch_add(1, AcqRel);
        match Reopening::start(current.base.clone(), current.config.clone(), left) {
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

    fn go_over_to(&self, region: Region, base: &Path, config: &Config, from: &'static Opened) {
        let opened = Opened::new(region, base, config, Some(from)).kept();
        from.left_at_ms.store(boot_ms().max(1), Relaxed);
        self.opened_at_ms.store(now_ms(), Relaxed);
        let known = std::ptr::from_ref(from).cast_mut();
        let went = self.opened.compare_exchange(known, opened, AcqRel, Acquire);
        // Whatever is at hand now, somebody asks whose it is before it is used.
        self.ask_every_ms.store(EVERY_USE_MS, Relaxed);
        self.lock_epoch.fetch_add(1, AcqRel);
        if went.is_err() {
            // SAFETY: never freed; only this thread has it.
            unsafe { &*opened }.give_back(self.current());
        }
    }

    /// What a thread of this process opens or makes, once it has done.
    fn reopened(&self) -> Option<Region> {
        let reopening = self.reopening.swap(std::ptr::null_mut(), AcqRel);
        if reopening.is_null() {
            return None;
        }
        // SAFETY: from `Arc::into_raw`, and taken out by this thread alone.
        let reopening = unsafe { Arc::from_raw(reopening) };
        let end = Instant::now() + OPEN_TIMEOUT;
        while !reopening.is_of_another_process() && Instant::now() < end {
            if let Some(opened) = reopening.result() {
                return opened.ok();
            }
            std::thread::sleep(TURN_POLL);
        }
        None
    }

    fn forget_reopening(&self) {
        let reopening = self.reopening.swap(std::ptr::null_mut(), AcqRel);
        if !reopening.is_null() {
            // SAFETY: from `Arc::into_raw`, and taken out by this thread alone.
            drop(unsafe { Arc::from_raw(reopening) });
        }
    }
}

/// Opens what has the name of a file that was left. Whoever truncated that file may have truncated
/// the next one, too. Then the next one is replaced as well, as no user of it may be left who would.
fn open_next(base: &Path, config: &Config, left: Left) -> Result<Region, Error> {
    let opened = Region::open(base, config, OPEN_TIMEOUT, left);
    match (&opened, Region::cut_short(base)) {
        (Err(Error::Refused(_)), Some(inode)) if left.another => {
            let left = Left { useless: Some(inode), ..left };
            Region::open(base, config, OPEN_TIMEOUT, left)
        }
        _ => opened,
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.forget_reopening();
    }
}

/// One thread's turn among those of its process. A child that was forked meanwhile does not wait
/// for a thread that it does not have.
struct Turn<'a>(&'a AtomicU64);

impl<'a> Turn<'a> {
    fn taken(word: &'a AtomicU64) -> Self {
        let here = generation();
        loop {
            let of = word.load(Acquire);
            if of != here && word.compare_exchange(of, here, AcqRel, Relaxed).is_ok() {
                return Self(word);
            }
            std::thread::sleep(TURN_POLL);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

impl Opened {
    fn new(region: Region, base: &Path, config: &Config, before: Option<&'static Opened>) -> Self {
        let size_bytes = region.geometry.total_words as u64 * 8;
        let mut cache = Cache::new(region.mapped, region.geometry, region.locks, region.seed);
        cache.epoch = before.map_or(1, |before| match before.is_same_file(&cache, region.inode) {
            true => before.cache.epoch,
            false => before.cache.epoch + 1,
        });
        Self {
            cache,
            base: base.to_owned(),
            config: config.clone(),
            user: region.user,
            process: region.process,
            mapped: region.mapped,
            may_change: region.mapped.is_withheld() || may_change(),
            path: region.path,
            inode: region.inode,
            size_bytes,
            created: region.created,
            notice: region.notice,
            presence: Presence::new(region.presence),
            before,
            left_at_ms: AtomicU64::new(0),
            given_back: AtomicBool::new(false),
            truncated: AtomicBool::new(false),
        }
    }

    /// For the life of the process.
    fn kept(self) -> *mut Self {
        let opened = Box::into_raw(Box::new(self));
        #[cfg(target_os = "linux")]
        {
            // SAFETY: just made, never freed, and never borrowed mutably.
            let opened: &'static Self = unsafe { &*opened };
            if opened.mapped.is_withheld() {
                crate::file::withheld::withhold(opened.mapped, &opened.presence);
            }
        }
        opened
    }

    /// Then what is known of the places in it stays true.
    fn is_same_file(&self, other: &Cache<Mapped>, inode: u64) -> bool {
        self.inode == inode && self.cache.seed() == other.seed()
    }

    fn is_ours(&self) -> bool {
        self.left_at_ms.load(Relaxed) == 0 && self.is_here() && self.is_of_this_user()
    }

    /// Its memory is in this process.
    fn is_here(&self) -> bool {
        !self.mapped.is_withheld() || self.process == generation()
    }

    fn is_of_this_user(&self) -> bool {
        self.user == effective_uid()
    }

    /// What the next file has to know if this one cannot be used any more.
    fn left(&self) -> Option<Left> {
        let there = fs::metadata(&self.path);
        let is_this = there.as_ref().is_ok_and(|there| there.ino() == self.inode);
        let truncated = is_this && there.as_ref().is_ok_and(|there| there.len() != self.size_bytes);
        self.truncated.fetch_or(truncated, Relaxed);
        if is_this && !truncated && !self.cache.has_hopeless_lock() {
            return None;
        }
        // What is left of a truncated file may not hold the token, and must not be touched.
        let last_token = if truncated { 0 } else { self.cache.last_token() };
        Some(Left {
            useless: is_this.then_some(self.inode),
            another: !is_this && there.is_ok(),
            last_token,
            mapped: (!truncated).then_some(self.mapped),
        })
    }

    /// Sees to it that others see by the lock file that this one is in use: somebody may have
    /// removed it. False if others took the file over meanwhile, in another namespace.
    fn is_shown(&self) -> bool {
        if self.presence.shows(&self.base) {
            return true;
        }
        let is_left = || !self.cache.is_of_these_namespaces() || self.left().is_some();
        if !self.presence.take_again(&self.base, is_left) {
            self.cache.count(Counter::ReopenFailed);
        }
        self.cache.is_of_these_namespaces()
    }

    /// Another file has the name. If it is no cache, it is no reason to leave this file.
    fn follow(&self) {
        match Region::config_of(&self.base) {
            Err(Error::Refused(_)) => self.cache.count(Counter::ReopenFailed),
            // Also if this process cannot open it here and now: others may use it.
            _ => self.cache.mark_replaced(),
        }
    }

    /// What is not this process's must not stay in it.
    fn leave(&self) {
        self.left_at_ms.store(boot_ms().max(1), Relaxed);
        self.presence.close();
        self.give_memory_back();
    }

    /// Gives the files back that were left before this one: of another user at once.
    fn give_back_before(&self) {
        let mut at = self.before;
        while let Some(left) = at {
            let since_ms = boot_ms().saturating_sub(left.left_at_ms.load(Relaxed));
            let is_time = since_ms >= GIVE_BACK_AFTER_MS || left.user != self.user;
            if !left.given_back.load(Relaxed) && is_time {
                left.give_back(self);
            }
            at = left.before;
        }
    }

    /// Two threads may come here at once: each half is done by one of them, or twice in vain.
    fn give_back(&self, current: &Opened) {
        if !self.presence.is(&current.presence) {
            self.presence.close();
        }
        self.give_memory_back();
    }

    fn give_memory_back(&self) {
        self.given_back.store(!self.is_here() || self.release(), Relaxed);
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
