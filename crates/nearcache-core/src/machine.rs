//! What this process runs on: a file is trusted only where all of it agrees.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::Error;
use crate::files::io_error;

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

/// 128 bits that change with every boot.
#[cfg(target_os = "linux")]
pub(crate) fn boot_id() -> [u64; 2] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let id = u128::from_str_radix(&digits, 16).unwrap_or(0);
    [(id >> 64) as u64, id as u64]
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn boot_id() -> [u64; 2] {
    [0, 0]
}

pub(crate) fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
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
