//! Whose process this is, and whether that can change.
//!
//! A process that root starts may become another user's (gunicorn's `--user`, uWSGI's `uid`), before or
//! after a fork, and nobody is told.

pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process could become another user's: it is of several users already, or has the
/// right to become another's. Root has that right, but in a container that drops it.
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
    let real = rustix::process::getuid().as_raw();
    real != effective_uid() || real == 0
}

/// Whether it has CAP_SETUID; true if that cannot be asked.
#[cfg(target_os = "linux")]
fn may_set_uid() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).map_or(true, |sets| sets.permitted.contains(CapabilitySet::SETUID))
}
