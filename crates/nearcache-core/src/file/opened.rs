//! A cache file: made whole, or looked at from end to end before it is trusted; and mapped.
//!
//! Not here: which file it is to be (`region.rs`).

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::base::clock::now_ms;
use crate::base::error::Error;
use crate::base::user::{self, effective_uid};
use crate::file::files::{OpenFailure, io_error, open_private};
use crate::file::machine::{Kernel, libc_flavour, machine, random_word};
use crate::file::room::reserve;
use crate::format::layout::{
    Config, Geometry, LAYOUT_VERSION, LOCK_PLACE_TABLE, LOCK_PLACE_WORDS, LOCK_PLACES, MAGIC,
    MIN_SIZE_BYTES, NAMED_LOCK_TABLE, NAMED_LOCK_WORDS, NAMED_LOCKS, PROCESS_SLOTS, PROCESS_WORDS,
    PROCESSES, READY, control, header,
};
use crate::format::record;
use crate::memory::{Mapped, Mem};
use crate::sync::lock::Locks;
#[cfg(not(target_os = "linux"))]
use crate::sync::lock::files::FileLocks;
#[cfg(target_os = "linux")]
use crate::sync::lock::robust;

/// A mapped file before its locks are known to be usable.
pub(crate) struct Opened {
    pub mapped: Mapped,
    pub geometry: Geometry,
    pub path: PathBuf,
    pub inode: u64,
    pub created: bool,
    pub notice: Option<String>,
}

impl Opened {
    /// Makes a file at `fresh`, where there is none: whole, before anybody else can find it.
    pub fn create(
        fresh: &Path,
        config: &Config,
        geometry: &Geometry,
        kernel: &Kernel,
        last_token: u64,
    ) -> Result<Self, Error> {
        let file = open_private(fresh, true).map_err(|failure| match failure {
            OpenFailure::Error(error) => error,
            OpenFailure::Missing => Error::Io(format!("{}: vanished", fresh.display())),
        })?;
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
        word(header::CREATED_MS, now_ms());
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
        word(header::MAX_ITEM, config.max_item_bytes.unwrap_or(0));
        word(header::MEAN_ITEM, config.mean_item_bytes.unwrap_or(0));
        word(header::SHARDS, geometry.shards as u64);
        word(header::TOKEN, last_token);
        initialise_locks(&mapped, geometry);
        mapped.store(header::READY, READY, Release);
        Ok(Self {
            mapped,
            geometry: geometry.clone(),
            path: fresh.to_owned(),
            inode: file.metadata().map_err(|e| io_error(fresh, "cannot be read", &e))?.ino(),
            created: true,
            notice: None,
        })
    }

    /// Maps an existing file after looking at everything that can be wrong.
    pub fn attach(file: &File, path: &Path) -> Result<Self, Error> {
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

    pub fn is_of(&self, kernel: &Kernel) -> bool {
        let there = [header::BOOT_ID, header::BOOT_ID + 1].map(|at| self.mapped.load(at, Relaxed));
        there == kernel.boot_id
    }

    pub fn last_token(&self) -> u64 {
        self.mapped.load(header::TOKEN, Relaxed)
    }

    pub fn config(&self) -> Config {
        config_in(&self.mapped, self.geometry.total_words as u64 * 8)
    }

    /// Checks that this process's kind of lock works on the file.
    ///
    /// A robust mutex knows its owner by thread id, so its users must share a
    /// PID namespace (and a libc, whose mutex it is); named locks count on the clock
    /// of a time namespace. Alone, this process may take the file over: a container
    /// that was restarted finds its cache warm.
    pub fn admitted(self, kernel: &Kernel, alone: bool) -> Result<Self, Error> {
        let here = [
            (header::PID_NAMESPACE, kernel.pid_namespace),
            (header::TIME_NAMESPACE, kernel.time_namespace),
            (header::LIBC, libc_flavour()),
        ];
        if here.iter().all(|(at, value)| self.mapped.load(*at, Relaxed) == *value) {
            return Ok(self);
        }
        if !alone {
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

    pub fn seed(&self) -> u64 {
        self.mapped.load(header::SEED, Relaxed)
    }

    #[cfg(target_os = "linux")]
    pub fn locks(&self) -> Locks {
        let places = mutex_places(&self.geometry);
        // SAFETY: `create` made the mutexes, here or in the process that made the file: whether
        // they are any was asked in `attach`, and `admitted` made them anew for another libc.
        Locks::Robust(unsafe { robust::Mutexes::new(self.mapped, places) })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn locks(&self) -> Locks {
        Locks::Files(FileLocks::new(self.path.clone(), self.geometry.shards + 1))
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
