//! Whose process this is, and whether that can change.
//!
//! A server that is started by root becomes another user's process (gunicorn's `--user`, uWSGI's
//! `uid`), before or after a fork, and tells nobody.

pub(crate) fn effective_uid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// Whether this process could become another user's: it is of several already, or has the right
/// to. Root has it, but in a container that drops it.
#[cfg(target_os = "linux")]
pub(crate) fn may_change() -> bool {
    let (mut real, mut effective, mut saved) = (0, 0, 0);
    // SAFETY: three places to write to.
    let status = unsafe { libc::getresuid(&mut real, &mut effective, &mut saved) };
    status != 0 || real != effective || saved != effective || may_set_uid()
}

/// As root can; nobody knows of the others without asking the kernel in its own way.
#[cfg(not(target_os = "linux"))]
pub(crate) fn may_change() -> bool {
    // SAFETY: always succeeds.
    let real = unsafe { libc::getuid() };
    real != effective_uid() || real == 0
}

/// Whether it has CAP_SETUID; true if that cannot be asked.
#[cfg(target_os = "linux")]
fn may_set_uid() -> bool {
    const VERSION_3: u32 = 0x2008_0522; // <linux/capability.h>
    const SETUID: u32 = 1 << 7;
    let header = [VERSION_3, 0];
    // Two times: effective, permitted, inheritable; the first 32 capabilities first.
    let mut sets = [0_u32; 6];
    // SAFETY: both are as capget(2) wants them, for the calling thread (0).
    let status = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    status != 0 || sets[1] & SETUID != 0
}
