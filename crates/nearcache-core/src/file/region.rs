//! The file: found or made, checked, mapped.
//!
//! ```text
//! <base>.v<layout>.seg   the data; made under another name and renamed when whole
//! <base>.lock            never mapped; removed only with a refusal; locked by bytes:
//!                        0 = opening (exclusive, short), 1 = presence (shared, for life)
//! ```
//!
//! A file is trusted only if nobody but this user can have written it and this
//! machine, since its last boot, has. What fails is said in one line; a file of
//! another layout has another name and is left alone. A file is never repaired:
//! in doubt there is a new one.
//!
//! Whoever makes a new one marks the old one, if it can be reached, before the new one has its
//! name: who uses the old one sees the mark at the next operation, and comes here.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::base::error::Error;
use crate::base::generation::generation;
use crate::base::user::{self, effective_uid};
use crate::file::files::{
    OPENING_BYTE, OpenFailure, PRESENCE_BYTE, free_bytes, io_error, locked_for_opening,
    open_private, private_directory, remove_if_there, reserve, try_range, with_suffix,
};
use crate::file::machine::{Kernel, libc_flavour, machine, random_word};
use crate::format::layout::{
    Config, Geometry, LAYOUT_VERSION, LOCK_PLACE_TABLE, LOCK_PLACE_WORDS, LOCK_PLACES, MAGIC,
    MIN_SIZE_BYTES, NAMED_LOCK_TABLE, NAMED_LOCK_WORDS, NAMED_LOCKS, PROCESS_SLOTS, PROCESS_WORDS,
    PROCESSES, READY, control, header,
};
use crate::format::record;
use crate::memory::{Mapped, Mem};
use crate::sync::lock::Locks;
#[cfg(target_os = "linux")]
use crate::sync::lock::robust;

/// Longest wait, at the start, for another process that is making the file.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// A mapped file, ready for use.
pub(crate) struct Region {
    pub mapped: Mapped,
    pub geometry: Geometry,
    pub seed: u64,
    pub locks: Locks,
    pub path: PathBuf,
    pub inode: u64,
    pub created: bool,
    pub notice: Option<String>,
    /// Keeps the presence lock.
    pub presence: File,
    /// Who opened it: the user, and the process (its [`generation`]).
    pub user: u32,
    pub process: u64,
}

/// What a process knows of a file that it leaves for another one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Left {
    /// The inode of a file that is to be replaced, whatever it is now.
    pub useless: Option<u64>,
    /// Another file has its name already.
    pub another: bool,
    pub last_token: u64,
    /// The file itself, which may have no name any more; none if it was truncated.
    pub mapped: Option<Mapped>,
}

/// The data file's path for a base path.
pub(crate) fn data_path(base: &Path) -> PathBuf {
    with_suffix(base, &format!(".v{LAYOUT_VERSION}.seg"))
}

impl Region {
    /// Opens the cache at `base`, making it if there is none. What is `left` goes into
    /// the new one, or is replaced by it.
    pub fn open(
        base: &Path,
        config: &Config,
        patience: Duration,
        left: Left,
    ) -> Result<Self, Error> {
        let (user, process) = (effective_uid(), generation());
        let geometry = Geometry::new(config)?;
        let wanted =
            Wanted { base, config: config.clone(), geometry, kernel: Kernel::now()?, left };
        private_directory(base)?;
        let (presence, made_here) = locked_for_opening(base, patience)?;
        let opened = wanted.open(Users::of(&presence, made_here, base));
        if opened.is_err() && made_here {
            // Whoever waits for it will find it gone and make another. A failure to
            // remove it must not hide why the file cannot be used.
            let _ = remove_if_there(&with_suffix(base, ".lock"));
        }
        // Presence is shared by all users; taking it shared gives up exclusiveness.
        try_range(&presence, PRESENCE_BYTE, libc::F_RDLCK);
        try_range(&presence, OPENING_BYTE, libc::F_UNLCK);
        let region = opened?.into_region(presence, user, process);
        // A thread opens this while another one may change the user: then the checks say nothing.
        if effective_uid() != user {
            region.abandon();
            return Err(Error::Io(format!(
                "{}: the user of this process changed while the cache was opened; try again",
                base.display()
            )));
        }
        Ok(region)
    }

    /// Gives a file back that nobody has used yet.
    pub fn abandon(self) {
        // A child does not have what its parent kept for itself.
        #[cfg(target_os = "linux")]
        if !self.mapped.is_withheld() || self.process == generation() {
            // SAFETY: nobody has used it.
            unsafe { self.mapped.release(&[]) };
        }
    }

    /// The inode of the file at `base` if it was a cache file and is shorter than that now.
    pub fn cut_short(base: &Path) -> Option<u64> {
        let file = open_private(&data_path(base), false).ok()?;
        let there = file.metadata().ok()?;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at as u64 * 8).ok().map(|()| u64::from_ne_bytes(bytes))
        };
        let is_ours =
            [MAGIC, LAYOUT_VERSION].map(Some) == [word(header::MAGIC), word(header::LAYOUT)];
        let is_short =
            is_ours && word(header::TOTAL_BYTES).is_some_and(|bytes| bytes > there.len());
        (is_short || there.len() == 0).then(|| there.ino())
    }

    /// What the file at `base` was made with; an error if there is none to use.
    pub fn config_of(base: &Path) -> Result<Config, Error> {
        let path = data_path(base);
        let file = open_private(&path, false).map_err(|failure| match failure {
            OpenFailure::Missing => {
                Error::Refused(format!("{}: there is no such cache file", path.display()))
            }
            OpenFailure::Error(error) => error,
        })?;
        let opened = Opened::attach(&file, &path)?;
        if !opened.is_of(&Kernel::now()?) {
            return Err(Error::Refused(format!(
                "{}: was written before the machine was restarted, and counts as empty",
                path.display()
            )));
        }
        let config = opened.config();
        // SAFETY: nobody uses it.
        #[cfg(target_os = "linux")]
        unsafe {
            opened.mapped.release(&[])
        };
        Ok(config)
    }
}

/// Who else has the file open, by the presence lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Users {
    Nobody,
    /// Nobody shows, but somebody removed the lock file by which they would.
    Unseen,
    Others,
}

impl Users {
    /// Takes the presence lock for this process alone if it can be had.
    fn of(presence: &File, made_here: bool, base: &Path) -> Self {
        match try_range(presence, PRESENCE_BYTE, libc::F_WRLCK) {
            false => Self::Others,
            true if made_here && data_path(base).exists() => Self::Unseen,
            true => Self::Nobody,
        }
    }
}

/// What is to be opened.
struct Wanted<'a> {
    base: &'a Path,
    config: Config,
    geometry: Geometry,
    kernel: Kernel,
    left: Left,
}

impl Wanted<'_> {
    fn open(mut self, users: Users) -> Result<Opened, Error> {
        let path = data_path(self.base);
        let file = match open_private(&path, false) {
            Ok(file) => file,
            Err(OpenFailure::Missing) => {
                let last_token = self.left.last_token;
                return self.create_fitting(None, last_token, None);
            }
            Err(OpenFailure::Error(error)) => return Err(error),
        };
        if self.left.useless.is_some() && self.left.useless == inode_of(&file).ok() {
            let notice = "the cache file was damaged (truncated, or a lock of it stayed taken by \
                          nobody); it was made anew";
            let last_token = self.left.last_token;
            return self.create_fitting(Some(&file), last_token, Some(notice.into()));
        }
        let opened = Opened::attach(&file, &path)?;
        if self.config.or_less {
            self.resize(opened.config().size_bytes)?;
        }
        let last_token = self.left.last_token.max(opened.last_token());
        if !opened.is_of(&self.kernel) {
            return self.after_a_boot(&file, users, last_token);
        }
        // Whoever marked it ended before the new one had the name.
        if opened.mapped.load(header::REPLACED, Acquire) != 0 {
            return self.create(Some(&file), last_token, None);
        }
        if opened.geometry == self.geometry {
            return opened.admitted(&self.kernel, users);
        }
        let notice = format!(
            "the cache file had {} bytes and max_item {}, the settings ask for {} and {}",
            opened.geometry.total_words * 8,
            opened.geometry.max_item_bytes(),
            self.geometry.total_words * 8,
            self.geometry.max_item_bytes(),
        );
        if users == Users::Nobody {
            let notice = format!("{notice}; it was made anew and starts empty");
            return self.create(Some(&file), last_token, Some(notice));
        }
        let notice = format!(
            "{notice}; other processes use it, so it stays as it is until all have stopped"
        );
        let admitted = opened.admitted(&self.kernel, users)?;
        Ok(Opened { notice: Some(notice), ..admitted })
    }

    /// A file with another boot id is of an earlier boot, unless somebody has it open.
    fn after_a_boot(self, file: &File, users: Users, last_token: u64) -> Result<Opened, Error> {
        if users == Users::Others {
            return Err(Error::Refused(format!(
                "{}: is used by processes that see another boot id (a container with its own \
                 /proc/sys/kernel/random/boot_id); give each a LOCATION of its own",
                data_path(self.base).display()
            )));
        }
        let notice = "the machine was restarted since the cache was written; it starts empty";
        self.create(Some(file), last_token, Some(notice.into()))
    }

    /// As [`Self::create`], where no file says what size will do.
    fn create_fitting(
        mut self,
        old: Option<&File>,
        last_token: u64,
        notice: Option<String>,
    ) -> Result<Opened, Error> {
        self.shrink()?;
        self.create(old, last_token, notice)
    }

    /// Makes a new file beside and renames it over the old one, if any.
    fn create(
        mut self,
        old: Option<&File>,
        last_token: u64,
        notice: Option<String>,
    ) -> Result<Opened, Error> {
        loop {
            match self.create_beside(old, last_token, notice.clone()) {
                // Others took the room meanwhile, or the old file has it.
                Err(Error::Full(_)) if self.shrink()? => {}
                made => return made,
            }
        }
    }

    /// Wants less, if less will do and more than half of what is free was wanted.
    fn shrink(&mut self) -> Result<bool, Error> {
        let half = free_bytes(&data_path(self.base)).map_or(u64::MAX, |free| free / 2);
        let size = half.max(MIN_SIZE_BYTES);
        let shrinks = self.config.or_less && size < self.config.size_bytes;
        if shrinks {
            self.resize(size)?;
        }
        Ok(shrinks)
    }

    fn resize(&mut self, size_bytes: u64) -> Result<(), Error> {
        self.config.size_bytes = size_bytes;
        self.geometry = Geometry::new(&self.config)?;
        Ok(())
    }

    fn create_beside(
        &self,
        old: Option<&File>,
        last_token: u64,
        notice: Option<String>,
    ) -> Result<Opened, Error> {
        let fresh = with_suffix(self.base, &format!(".v{LAYOUT_VERSION}.new"));
        let path = data_path(self.base);
        // Left over by a process that died right here.
        remove_if_there(&fresh)?;
        let made = self.create_at(&fresh, last_token).and_then(|opened| {
            // Before anybody can use the new one, nobody begins anything in the old one.
            self.mark(old, 1);
            fs::rename(&fresh, &path).map_err(|error| {
                self.mark(old, 0);
                io_error(&path, "cannot be put in place", &error)
            })?;
            Ok(Opened { path, notice, ..opened })
        });
        if made.is_err() {
            remove_if_there(&fresh)?;
        }
        made
    }

    /// Tells those who use the old file; who cannot be told finds out at its next look. Written
    /// and not stored, where there is a descriptor: the file may end anywhere.
    fn mark(&self, old: Option<&File>, replaced: u64) {
        if let Some(file) = old {
            let at = header::REPLACED as u64 * 8;
            let _ = file.write_all_at(&replaced.to_ne_bytes(), at);
        }
        if let Some(mapped) = self.left.mapped {
            mapped.store(header::REPLACED, replaced, Release);
        }
    }

    fn create_at(&self, fresh: &Path, last_token: u64) -> Result<Opened, Error> {
        let file = open_private(fresh, true).map_err(|failure| match failure {
            OpenFailure::Error(error) => error,
            OpenFailure::Missing => Error::Io(format!("{}: vanished", fresh.display())),
        })?;
        let (geometry, kernel) = (&self.geometry, &self.kernel);
        let bytes = geometry.total_words * 8;
        reserve(&file, bytes, fresh)?;
        let mapped = map(&file, bytes, fresh)?;
        let word = |at, value| mapped.store(at, value, Relaxed);
        word(header::MAGIC, MAGIC);
        word(header::LAYOUT, LAYOUT_VERSION);
        word(header::TOTAL_BYTES, bytes as u64);
        word(header::MACHINE, machine());
        word(header::BOOT_ID, kernel.boot_id[0]);
        word(header::BOOT_ID + 1, kernel.boot_id[1]);
        word(header::UID, effective_uid().into());
        word(header::LIBC, libc_flavour());
        word(header::PID_NAMESPACE, kernel.pid_namespace);
        word(header::TIME_NAMESPACE, kernel.time_namespace);
        word(header::CREATED_MS, crate::base::clock::now_ms());
        let seed = random_word()?;
        word(header::SEED, seed);
        // No version of the file before is one of this: a value that was read there must not be
        // swapped for one here that nobody has seen.
        let first_version = random_word()?;
        for shard in 0..geometry.shards {
            let at = geometry.shard_at(shard);
            word(at + control::VERSION, first_version);
            word(at + control::SWEEP, record::with_check(0, shard as u64, seed));
        }
        word(header::MAX_ITEM, self.config.max_item_bytes.unwrap_or(0));
        word(header::MEAN_ITEM, self.config.mean_item_bytes.unwrap_or(0));
        word(header::SHARDS, geometry.shards as u64);
        word(header::TOKEN, last_token);
        initialise_locks(&mapped, geometry);
        mapped.store(header::READY, READY, Release);
        Ok(Opened {
            mapped,
            geometry: geometry.clone(),
            path: fresh.to_owned(),
            inode: inode_of(&file).map_err(|e| io_error(fresh, "cannot be read", &e))?,
            created: true,
            notice: None,
        })
    }
}

/// A mapped file before its locks are known to be usable.
struct Opened {
    mapped: Mapped,
    geometry: Geometry,
    path: PathBuf,
    inode: u64,
    created: bool,
    notice: Option<String>,
}

impl Opened {
    /// Maps an existing file after looking at everything that can be wrong.
    fn attach(file: &File, path: &Path) -> Result<Self, Error> {
        let metadata = file.metadata().map_err(|error| io_error(path, "cannot be read", &error))?;
        let foreign = |what: &str| {
            Error::Refused(format!(
                "{}: {what}; delete the file if it is not needed, or give LOCATION another name",
                path.display()
            ))
        };
        if metadata.len() < MIN_SIZE_BYTES || metadata.len() % 4096 != 0 {
            return Err(foreign(
                "is not a whole cache file (it was truncated, or is something else)",
            ));
        }
        let mapped = map(file, metadata.len() as usize, path)?;
        let word = |at| mapped.load(at, Relaxed);
        if word(header::MAGIC) != MAGIC {
            return Err(foreign("is not a nearcache file"));
        }
        if word(header::LAYOUT) != LAYOUT_VERSION {
            return Err(foreign("has the layout of another version of nearcache"));
        }
        if mapped.load(header::READY, Acquire) != READY {
            return Err(foreign("was never finished"));
        }
        if word(header::MACHINE) != machine() {
            return Err(foreign(
                "was made by a program of another kind (32 bit, byte order, libc)",
            ));
        }
        if word(header::UID) != u64::from(effective_uid()) {
            return Err(foreign("was made by another user"));
        }
        let config = config_in(&mapped, metadata.len());
        let geometry = Geometry::new(&config)
            .ok()
            .filter(|geometry| geometry.total_words as u64 * 8 == word(header::TOTAL_BYTES))
            .filter(|geometry| geometry.shards as u64 == word(header::SHARDS))
            .ok_or_else(|| foreign("is damaged (its header contradicts its size)"))?;
        if !locks_are_locks(&mapped, &geometry) {
            return Err(foreign("is damaged (a lock in it is none)"));
        }
        Ok(Self {
            mapped,
            geometry,
            path: path.to_owned(),
            inode: metadata.ino(),
            created: false,
            notice: None,
        })
    }

    fn is_of(&self, kernel: &Kernel) -> bool {
        let there = [header::BOOT_ID, header::BOOT_ID + 1].map(|at| self.mapped.load(at, Relaxed));
        there == kernel.boot_id
    }

    fn last_token(&self) -> u64 {
        self.mapped.load(header::TOKEN, Relaxed)
    }

    fn config(&self) -> Config {
        config_in(&self.mapped, self.geometry.total_words as u64 * 8)
    }

    /// Checks that this process's kind of lock works on the file.
    ///
    /// A robust mutex knows its owner by thread id, so its users must share a
    /// PID namespace (and a libc, whose mutex it is); named locks count on the clock
    /// of a time namespace. Alone, this process may take the file over: a container
    /// that was restarted finds its cache warm.
    fn admitted(self, kernel: &Kernel, users: Users) -> Result<Self, Error> {
        let here = [
            (header::PID_NAMESPACE, kernel.pid_namespace),
            (header::TIME_NAMESPACE, kernel.time_namespace),
            (header::LIBC, libc_flavour()),
        ];
        if here.iter().all(|(at, value)| self.mapped.load(*at, Relaxed) == *value) {
            return Ok(self);
        }
        if users != Users::Nobody {
            return Err(Error::Refused(format!(
                "{}: is used by processes of another container (PID or time namespace) or libc, which \
                 could not tell whether the holder of a lock lives; let the containers share the PID \
                 namespace (docker: --pid=container:NAME; Kubernetes: shareProcessNamespace: true), \
                 or give each a LOCATION of its own",
                self.path.display()
            )));
        }
        initialise_locks(&self.mapped, &self.geometry);
        forget_processes(&self.mapped);
        here.iter().for_each(|(at, value)| self.mapped.store(*at, *value, Relaxed));
        Ok(self)
    }

    fn into_region(self, presence: File, user: u32, process: u64) -> Region {
        let locks = locks_of(&self);
        Region {
            seed: self.mapped.load(header::SEED, Relaxed),
            mapped: self.mapped,
            geometry: self.geometry,
            locks,
            path: self.path,
            inode: self.inode,
            created: self.created,
            notice: self.notice,
            presence,
            user,
            process,
        }
    }
}

#[cfg(target_os = "linux")]
fn mutex_places(geometry: &Geometry) -> Vec<usize> {
    let shards = (0..geometry.shards).map(|shard| geometry.shard_at(shard));
    shards.chain([header::LOCK_MUTEX]).collect()
}

#[cfg(target_os = "linux")]
fn initialise_locks(mapped: &Mapped, geometry: &Geometry) {
    for at in mutex_places(geometry) {
        // SAFETY: the mapping stays; the file is new, or this process is
        // the only one that has it (the presence lock), so nobody uses these.
        unsafe { robust::initialise(mapped.address(at)) };
    }
}

#[cfg(not(target_os = "linux"))]
fn initialise_locks(_: &Mapped, _: &Geometry) {}

/// Whether every mutex is of the kind that this crate makes. With another kind
/// libc may wait without an end or abort. That a lock is taken is no damage.
#[cfg(target_os = "linux")]
fn locks_are_locks(mapped: &Mapped, geometry: &Geometry) -> bool {
    let libc_is_ours = mapped.load(header::LIBC, Relaxed) == libc_flavour();
    let wanted = robust::kind_made_here();
    let is_lock = |at: &usize| robust::kind(|word| mapped.load(at + word, Relaxed)) == wanted;
    // Locks of another libc are made anew, or the file is refused: `admitted`.
    !libc_is_ours || mutex_places(geometry).iter().all(is_lock)
}

#[cfg(not(target_os = "linux"))]
fn locks_are_locks(_: &Mapped, _: &Geometry) -> bool {
    true
}

#[cfg(target_os = "linux")]
fn locks_of(opened: &Opened) -> Locks {
    // SAFETY: `create_at` made the mutexes, here or in the process that made the file: whether
    // they are any was asked in `attach`, and `admitted` made them anew for another libc.
    Locks::Robust(unsafe { robust::Mutexes::new(opened.mapped, mutex_places(&opened.geometry)) })
}

#[cfg(not(target_os = "linux"))]
fn locks_of(opened: &Opened) -> Locks {
    let files =
        crate::sync::lock::files::FileLocks::new(opened.path.clone(), opened.geometry.shards + 1);
    Locks::Files(files)
}

/// The configuration in a header.
fn config_in(mapped: &Mapped, size_bytes: u64) -> Config {
    let given = |at| Some(mapped.load(at, Relaxed)).filter(|bytes| *bytes != 0);
    Config {
        size_bytes,
        or_less: false,
        max_item_bytes: given(header::MAX_ITEM),
        mean_item_bytes: given(header::MEAN_ITEM),
    }
}

/// Empties the tables that name processes of another PID namespace.
fn forget_processes(mapped: &Mapped) {
    for slot in 0..PROCESS_SLOTS {
        mapped.store(PROCESSES + slot * PROCESS_WORDS, 0, Relaxed);
    }
    for slot in 0..NAMED_LOCKS {
        mapped.store(NAMED_LOCK_TABLE + slot * NAMED_LOCK_WORDS, 0, Relaxed);
    }
    for place in 0..LOCK_PLACES {
        mapped.store(LOCK_PLACE_TABLE + place * LOCK_PLACE_WORDS, 0, Relaxed);
    }
}

fn inode_of(file: &File) -> std::io::Result<u64> {
    file.metadata().map(|metadata| metadata.ino())
}

/// Maps the file for the life of the process.
fn map(file: &File, bytes: usize, path: &Path) -> Result<Mapped, Error> {
    let raw = memmap2::MmapOptions::new()
        .len(bytes)
        .map_raw(file)
        .map_err(|error| io_error(path, "cannot be mapped", &error))?;
    let base = raw.as_mut_ptr();
    // Never undone: other threads may be reading. What is in it goes by `Mapped::release`.
    std::mem::forget(raw);
    // SAFETY: a page-aligned mapping of `bytes` bytes that is never undone (M1),
    // and that only this crate touches, through `Mem` (M2).
    let mapped = unsafe { Mapped::new(base, bytes / 8) };
    #[cfg(target_os = "linux")]
    // SAFETY: the same mapping; zeros are what a damaged file may hold.
    unsafe {
        crate::file::truncated::look_after(base, bytes);
    }
    #[cfg(target_os = "linux")]
    if user::may_change() {
        // SAFETY: this thread does not fork before `Store` has it, which calls `withhold`.
        return unsafe { mapped.withheld() }
            .map_err(|error| io_error(path, "cannot be kept", &error));
    }
    Ok(mapped)
}
