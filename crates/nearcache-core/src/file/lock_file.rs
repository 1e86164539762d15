//! The lock file of a cache. A process that opens the data file has locked its first byte, and a
//! process that has the data file open its second.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::file::files::{check_private, io_error, with_suffix};

/// Locked, for a moment, by the process that opens the data file.
pub(crate) const OPENING_BYTE: i64 = 0;
/// Locked, shared and for life, by every process that has the data file open.
pub(crate) const PRESENCE_BYTE: i64 = 1;

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

fn lock_file(path: &Path) -> Result<(File, bool), Error> {
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

fn wait_for_range(file: &File, start: i64, patience: Duration, base: &Path) -> Result<(), Error> {
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
