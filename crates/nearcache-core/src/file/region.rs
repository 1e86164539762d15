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
use std::sync::atomic::{Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use crate::base::error::Error;
use crate::base::generation::generation;
use crate::base::user::effective_uid;
use crate::file::files::{
    OpenFailure, io_error, open_private, private_directory, remove_if_there, with_suffix,
};
use crate::file::lock_file::{OPENING_BYTE, PRESENCE_BYTE, locked_for_opening, try_range};
use crate::file::machine::Kernel;
use crate::file::opened::Opened;
use crate::file::room::free_bytes;
use crate::format::layout::{Config, Geometry, LAYOUT_VERSION, MAGIC, MIN_SIZE_BYTES, header};
use crate::memory::{Mapped, Mem};
use crate::sync::lock::Locks;

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
        let region = Self::of(opened?, presence, user, process);
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

    fn of(opened: Opened, presence: File, user: u32, process: u64) -> Self {
        Self {
            seed: opened.seed(),
            mapped: opened.mapped,
            locks: opened.locks(),
            geometry: opened.geometry,
            path: opened.path,
            inode: opened.inode,
            created: opened.created,
            notice: opened.notice,
            presence,
            user,
            process,
        }
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
        if self.left.useless.is_some()
            && self.left.useless == file.metadata().ok().map(|there| there.ino())
        {
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
            return opened.admitted(&self.kernel, users == Users::Nobody);
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
        let admitted = opened.admitted(&self.kernel, users == Users::Nobody)?;
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
        let made = Opened::create(&fresh, &self.config, &self.geometry, &self.kernel, last_token);
        let made = made.and_then(|opened| {
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

    /// Tells the users of the old file. Users who cannot be told find out at their next look. Where
    /// there is a descriptor the mark is written and not stored: the file may end anywhere.
    fn mark(&self, old: Option<&File>, replaced: u64) {
        if let Some(file) = old {
            let at = header::REPLACED as u64 * 8;
            let _ = file.write_all_at(&replaced.to_ne_bytes(), at);
        }
        if let Some(mapped) = self.left.mapped {
            mapped.store(header::REPLACED, replaced, Release);
        }
    }
}
