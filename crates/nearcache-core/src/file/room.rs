//! Room on the file system of a cache file.

use std::fs::File;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::base::error::Error;
use crate::file::files::io_error;

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
