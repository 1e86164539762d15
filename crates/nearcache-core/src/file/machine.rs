//! What this process runs on: a file is trusted only where all of it agrees.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::base::error::Error;
use crate::file::files::io_error;
use crate::sync::process::can_name_processes;

/// What must agree for the words of the file to mean the same.
pub(crate) fn machine() -> u64 {
    let big_endian = u64::from(cfg!(target_endian = "big"));
    let mutex_bytes = size_of::<libc::pthread_mutex_t>() as u64;
    size_of::<usize>() as u64 | big_endian << 8 | mutex_bytes << 16
}

pub(crate) fn libc_flavour() -> u64 {
    match () {
        () if cfg!(target_env = "gnu") => 1,
        () if cfg!(target_env = "musl") => 2,
        () => 3,
    }
}

/// The kernel that a file's words are of: only as long as it runs are processes and clocks numbered
/// as in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// 128 bits that change with every boot.
    pub boot_id: [u64; 2],
    /// Inodes: of what thread ids and process ids count in, and the clock of locks.
    pub pid_namespace: u64,
    pub time_namespace: u64,
}

impl Kernel {
    /// An error if this process may not know: a guess would be wrong for the processes that know.
    #[cfg(target_os = "linux")]
    pub fn now() -> Result<Self, Error> {
        can_name_processes()?;
        Ok(Self {
            boot_id: boot_id(Path::new("/proc/sys/kernel/random/boot_id"))?,
            pid_namespace: namespace("/proc/self/ns/pid")?,
            // A kernel without time namespaces (before 5.6) has no such file.
            time_namespace: namespace("/proc/self/ns/time").unwrap_or(0),
        })
    }

    /// Whether a file of these namespaces may be used here: a child may be forked into others.
    /// No if they cannot be told, and no descriptor is needed for that.
    #[cfg(target_os = "linux")]
    pub fn is_in(pid_namespace: u64, time_namespace: u64) -> bool {
        namespace("/proc/self/ns/pid") == Ok(pid_namespace)
            && namespace("/proc/self/ns/time").unwrap_or(0) == time_namespace
    }

    #[cfg(not(target_os = "linux"))]
    pub fn is_in(_: u64, _: u64) -> bool {
        true
    }

    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Result<Self, Error> {
        can_name_processes()?;
        Ok(Self { boot_id: [0, 0], pid_namespace: 0, time_namespace: 0 })
    }
}

#[cfg(target_os = "linux")]
fn boot_id(path: &Path) -> Result<[u64; 2], Error> {
    let what = "cannot be read, and a cache file counts for one boot of the machine only; let this \
                process see it (systemd: ProcSubset=all; containers: mount /proc)";
    let text = fs::read_to_string(path).map_err(|error| io_error(path, what, &error))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(id) if id != 0 => Ok([(id >> 64) as u64, id as u64]),
        _ => Err(Error::Io(format!("{}: {what}: it holds {text:?}", path.display()))),
    }
}

#[cfg(target_os = "linux")]
fn namespace(path: &str) -> Result<u64, Error> {
    let what = "cannot be read, by which processes of other containers are known; mount /proc";
    let metadata = fs::metadata(path).map_err(|error| io_error(Path::new(path), what, &error))?;
    Ok(metadata.ino())
}

/// Seed of the hash: secret to this user, so nobody else can make keys collide.
pub(crate) fn random_word() -> Result<u64, Error> {
    use std::io::Read;
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| io_error(Path::new("/dev/urandom"), "cannot be read", &error))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_that_is_missing_or_none_is_an_error_that_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("boot_id");
        let missing = boot_id(&path).unwrap_err();
        fs::write(&path, "00000000-0000-0000-0000-000000000000\n").unwrap();
        let zero = boot_id(&path).unwrap_err();
        fs::write(&path, "").unwrap();
        let empty = boot_id(&path).unwrap_err();
        for error in [missing, zero, empty] {
            assert!(error.to_string().contains("ProcSubset=all"), "{error}");
        }
        fs::write(&path, "00000000-0000-0001-0000-000000000002\n").unwrap();
        assert_eq!(boot_id(&path), Ok([1, 2]));
    }
}
