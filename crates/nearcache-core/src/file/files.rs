//! Files that belong to this user alone, and locks on bytes of them.
//!
//! What is refused: directories and files of other users or open to them, links,
//! and files with a second name. Every error says what to do next.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::user::effective_uid;

/// Locked, for a moment, by who opens the data file.
pub(crate) const OPENING_BYTE: i64 = 0;
/// Locked, shared and for life, by everybody who has it open.
pub(crate) const PRESENCE_BYTE: i64 = 1;

pub(crate) fn with_suffix(base: &Path, suffix: &str) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes the directory if need be, and insists that it is this user's alone:
/// values may be pickles, and who can write them can run code here.
pub(crate) fn private_directory(base: &Path) -> Result<(), Error> {
    let directory = base.parent().filter(|parent| parent.as_os_str() != "");
    let directory = directory
        .ok_or_else(|| Error::Refused(format!("{}: is not an absolute path", base.display())))?;
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error(directory, "cannot be made", &error)),
    }
    let metadata = fs::symlink_metadata(directory)
        .map_err(|error| io_error(directory, "cannot be read", &error))?;
    if !metadata.is_dir() {
        return Err(Error::Refused(format!("{}: is not a directory", directory.display())));
    }
    check_owner(directory, &metadata, &way_out_of(directory, &metadata, base))
}

/// A directory that all use, such as /dev/shm, must not be closed to them.
fn way_out_of(directory: &Path, metadata: &fs::Metadata, base: &Path) -> String {
    if metadata.mode() & libc::S_ISVTX == 0 {
        return format!("chmod 700 {} or choose another LOCATION", directory.display());
    }
    format!("set LOCATION to {}, in a directory of its own", base.join("cache").display())
}

pub(crate) fn check_owner(path: &Path, metadata: &fs::Metadata, mend: &str) -> Result<(), Error> {
    if metadata.uid() != effective_uid() {
        return Err(Error::Refused(format!(
            "{}: belongs to user {}, this process is user {}; chown it to this one, or give LOCATION \
             a path of its own",
            path.display(),
            metadata.uid(),
            effective_uid()
        )));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(Error::Refused(format!(
            "{}: may be used by other users (mode {:03o}), who could plant pickles in it; {mend}",
            path.display(),
            metadata.mode() & 0o7777,
        )));
    }
    Ok(())
}

pub(crate) enum OpenFailure {
    Missing,
    Error(Error),
}

/// Opens a file that only this user may use; never through a link.
pub(crate) fn open_private(path: &Path, create: bool) -> Result<File, OpenFailure> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(create).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => OpenFailure::Missing,
        _ => OpenFailure::Error(io_error(path, "cannot be opened", &error)),
    })?;
    check_private(&file, path).map_err(OpenFailure::Error)?;
    Ok(file)
}

pub(crate) fn check_private(file: &File, path: &Path) -> Result<(), Error> {
    let metadata = file.metadata().map_err(|error| io_error(path, "cannot be read", &error))?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(Error::Refused(format!(
            "{}: is not a plain file with one name; choose another LOCATION",
            path.display()
        )));
    }
    let mend = format!("chmod 600 {} or choose another LOCATION", path.display());
    check_owner(path, &metadata, &mend)
}

/// The lock file, with the right to open the data file, and whether it was made
/// here. Bounded by `patience`.
pub(crate) fn locked_for_opening(base: &Path, patience: Duration) -> Result<(File, bool), Error> {
    let path = with_suffix(base, ".lock");
    loop {
        let (file, made_here) = lock_file(&path)?;
        wait_for_range(&file, OPENING_BYTE, patience, base)?;
        // Removed while this process waited: the lock that counts is another.
        let there = fs::metadata(&path).map(|metadata| metadata.ino()).ok();
        let here = file.metadata().map_err(|e| io_error(&path, "cannot be read", &e))?.ino();
        if there == Some(here) {
            return Ok((file, made_here));
        }
    }
}

pub(crate) fn lock_file(path: &Path) -> Result<(File, bool), Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let opened = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            options.create(true).open(path).map(|file| (file, true))
        }
        opened => opened.map(|file| (file, false)),
    };
    let (file, made_here) = opened.map_err(|error| io_error(path, "cannot be opened", &error))?;
    check_private(&file, path)?;
    Ok((file, made_here))
}

/// Tries to lock, or unlocks, one byte of the lock file. The lock belongs to the
/// open file: children share it, and the last close lets go of it.
pub(crate) fn try_range(file: &File, start: i64, kind: i32) -> bool {
    #[cfg(target_os = "linux")]
    const SET_LOCK: i32 = libc::F_OFD_SETLK;
    // macOS: F_OFD_SETLK of <sys/fcntl.h>.
    #[cfg(not(target_os = "linux"))]
    const SET_LOCK: i32 = 90;
    // SAFETY: all-zero bytes are a valid flock.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as _;
    range.l_whence = libc::SEEK_SET as _;
    range.l_start = start;
    range.l_len = 1;
    // SAFETY: the descriptor is open and `range` is a valid flock.
    unsafe { libc::fcntl(file.as_raw_fd(), SET_LOCK, &range) == 0 }
}

/// The descriptor that keeps the presence lock.
pub(crate) struct Presence {
    /// -1 once closed.
    fd: AtomicI32,
    inode: AtomicU64,
}

impl Presence {
    pub fn new(file: File) -> Self {
        let inode = AtomicU64::new(inode_of(&file));
        Self { fd: AtomicI32::new(file.into_raw_fd()), inode }
    }

    /// Whether both are one number.
    pub fn is(&self, other: &Presence) -> bool {
        self.fd.load(Relaxed) == other.fd.load(Relaxed)
    }

    /// Whether processes that open the lock file that has the name now can see this presence.
    pub fn shows(&self, base: &Path) -> bool {
        let there = fs::metadata(with_suffix(base, ".lock")).map_or(UNKNOWN, |there| there.ino());
        let here = borrowed(self.fd.load(Relaxed)).map_or(UNKNOWN, |file| inode_of(&file));
        here != UNKNOWN && here == there
    }

    /// Takes it on the lock file that has the name now, unless somebody is opening the cache or
    /// `is_wrong` by then. Waits for nobody. False if it is not taken.
    pub fn take_again(&self, base: &Path, is_wrong: impl FnOnce() -> bool) -> bool {
        let path = with_suffix(base, ".lock");
        let Ok((file, _)) = lock_file(&path) else {
            return false;
        };
        let is_named = || fs::metadata(&path).is_ok_and(|there| there.ino() == inode_of(&file));
        if !try_range(&file, OPENING_BYTE, libc::F_WRLCK) || !is_named() || is_wrong() {
            return false;
        }
        try_range(&file, PRESENCE_BYTE, libc::F_RDLCK);
        try_range(&file, OPENING_BYTE, libc::F_UNLCK);
        let inode = inode_of(&file);
        let before = Self {
            fd: AtomicI32::new(self.fd.swap(file.into_raw_fd(), AcqRel)),
            inode: AtomicU64::new(self.inode.swap(inode, AcqRel)),
        };
        if !before.is(self) {
            before.close();
        }
        true
    }

    /// A daemon may have closed all descriptors, and have something else under this number.
    pub fn close(&self) {
        let Some(file) = borrowed(self.fd.swap(-1, AcqRel)) else {
            return;
        };
        let inode = inode_of(&file);
        if inode != UNKNOWN && inode == self.inode.load(Relaxed) {
            drop(ManuallyDrop::into_inner(file));
        }
    }
}

/// Somebody else may have closed it.
fn borrowed(fd: RawFd) -> Option<ManuallyDrop<File>> {
    // SAFETY: not -1; if it is not open, nothing is done with it.
    (fd >= 0).then(|| ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
}

const UNKNOWN: u64 = 0;

fn inode_of(file: &File) -> u64 {
    file.metadata().map_or(UNKNOWN, |metadata| metadata.ino())
}

pub(crate) fn wait_for_range(
    file: &File,
    start: i64,
    patience: Duration,
    base: &Path,
) -> Result<(), Error> {
    let end = Instant::now() + patience;
    while !try_range(file, start, libc::F_WRLCK) {
        if Instant::now() > end {
            return Err(Error::Io(format!(
                "{}: another process has been opening the cache for {} ms; is it stopped?",
                base.display(),
                patience.as_millis()
            )));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Takes the room for the file now, so that a full disk is an error here and not
/// a SIGBUS at some later write.
///
/// If there is less room than that, nothing is tried: on a disk the attempt takes all that is left
/// before it fails, and other programs that write there meanwhile fail, too.
pub(crate) fn reserve(file: &File, bytes: usize, path: &Path) -> Result<(), Error> {
    let free = free_bytes(path);
    let status = if free.is_some_and(|free| bytes as u64 > free) {
        libc::ENOSPC
    } else {
        allocate(file, bytes)
    };
    match status {
        0 => Ok(()),
        libc::ENOSPC | libc::ENOMEM | libc::EDQUOT | libc::EFBIG => {
            let free_mib = free.unwrap_or(0) >> 20;
            let less = match free_mib {
                0 => String::new(),
                most => format!("write OPTIONS \"size\": \"{most}MB\" or less, "),
            };
            Err(Error::Full(format!(
                "{}: no room for {} MiB ({free_mib} MiB are free there); {less}enlarge the file \
                 system (Docker: --shm-size), or put LOCATION elsewhere",
                path.display(),
                bytes >> 20,
            )))
        }
        code => Err(io_error(path, "cannot be reserved", &std::io::Error::from_raw_os_error(code))),
    }
}

/// An error number, or 0.
fn allocate(file: &File, bytes: usize) -> libc::c_int {
    #[cfg(target_os = "linux")]
    // SAFETY: the descriptor is open.
    let status = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as i64) };
    #[cfg(not(target_os = "linux"))]
    let status = match file.set_len(bytes as u64) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    status
}

/// Where the file lies; `None` if its file system does not tell (a ramfs has no bound).
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let there = rustix::fs::statvfs(path.parent().unwrap_or(path)).ok()?;
    (there.f_blocks > 0).then(|| there.f_bavail * there.f_frsize)
}

pub(crate) fn remove_if_there(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(io_error(path, "cannot be removed", &error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn io_error(path: &Path, what: &str, error: &std::io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => "; choose a LOCATION this user may write",
        ErrorKind::NotFound => "; make the directory above it or choose another LOCATION",
        _ => "",
    };
    Error::Io(format!("{}: {what}: {error}{hint}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn what_does_not_fit_takes_nothing_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        let file = File::create(&path).unwrap();
        // Twice what there is: others may make room meanwhile.
        let bytes = 2 * (free_bytes(&path).unwrap() + (1 << 20));
        let refused = reserve(&file, bytes as usize, &path);
        assert!(matches!(refused, Err(Error::Full(_))));
        assert_eq!(file.metadata().unwrap().blocks(), 0);
    }
}
