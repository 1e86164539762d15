//! Files that belong to this user alone.
//!
//! What is refused: directories and files of other users or open to them, links,
//! and files with a second name. Every error says what to do next.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::base::error::Error;
use crate::base::user::effective_uid;

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

fn check_owner(path: &Path, metadata: &fs::Metadata, mend: &str) -> Result<(), Error> {
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
