//! Children that may die, a directory in memory, and what a cache holds.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use nearcache_core::memory::{Counting, Mem};
use nearcache_core::{Buffer, Cache, Config, LAYOUT_VERSION, TIMEOUT, Wait};

/// The time given to every operation.
pub const NOW: u64 = 1_000_000;
pub const WAIT: Wait = Wait::UpTo(TIMEOUT);
/// Longest life of a child. Only a hang takes as long, whatever else the machine does.
const DEADLINE_SECONDS: u32 = 300;
const PANICKED: i32 = 101;

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It came to its end.
    Finished,
    /// It panicked.
    Panicked,
    /// It did not come to its end in time.
    Hung,
    /// A signal ended it.
    Killed(i32),
}

/// A child that runs by itself.
pub struct Child(libc::pid_t);

impl Child {
    /// Forks. This process must have one thread.
    pub fn start(work: impl FnOnce()) -> Self {
        // SAFETY: one thread, so the child may do whatever this process may.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                // SAFETY: a timer of this process alone; its signal ends it.
                unsafe { libc::alarm(DEADLINE_SECONDS) };
                let result = catch_unwind(AssertUnwindSafe(work));
                // Without the destructors of what belongs to the parent.
                // SAFETY: ends this process.
                unsafe { libc::_exit(if result.is_ok() { 0 } else { PANICKED }) }
            }
            pid => Self(pid),
        }
    }

    pub fn kill(&self) {
        // SAFETY: a child that has not been waited for, so the id is still its own.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    pub fn wait(self) -> End {
        let mut status = 0;
        // SAFETY: a child of this process and a valid place.
        let pid = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!(pid, self.0, "waitpid");
        if !libc::WIFSIGNALED(status) {
            return match libc::WEXITSTATUS(status) {
                0 => End::Finished,
                _ => End::Panicked,
            };
        }
        match libc::WTERMSIG(status) {
            libc::SIGALRM => End::Hung,
            signal => End::Killed(signal),
        }
    }
}

/// Runs `work` in a child and says how that ended.
pub fn in_child(work: impl FnOnce()) -> End {
    Child::start(work).wait()
}

/// A private directory, in memory where there is such a place.
pub fn scratch() -> tempfile::TempDir {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let mut builder = tempfile::Builder::new();
    let builder = builder.permissions(mode);
    let in_memory = builder.tempdir_in("/dev/shm");
    in_memory.or_else(|_| builder.tempdir()).unwrap()
}

/// The data file of a base path.
pub fn data_file(base: &Path) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(format!(".v{LAYOUT_VERSION}.seg"));
    name.into()
}

/// Puts a data file where the next open finds it, as only its owner may use it.
pub fn put_file(base: &Path, bytes: &[u8]) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let path = data_file(base);
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).unwrap().write_all(bytes).unwrap();
}

/// Opens a cache whose memory never kills.
pub fn open(base: &Path, config: &Config) -> Cache<Counting> {
    Cache::counting(base, config, 0).unwrap()
}

/// All that a key holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub tag: u8,
    pub value: Vec<u8>,
    pub expires_at_ms: u64,
    pub version: u64,
}

pub type Contents = BTreeMap<Vec<u8>, Held>;

pub fn get<M: Mem>(cache: &Cache<M>, key: &[u8]) -> Option<Held> {
    let mut buffer = Buffer::default();
    let found = cache.get(cache.key(key), NOW, &mut buffer)?;
    Some(Held {
        tag: found.tag,
        value: buffer.value().to_vec(),
        expires_at_ms: found.expires_at_ms,
        version: found.version,
    })
}

/// What the cache holds of these keys.
pub fn read<'k, M: Mem>(cache: &Cache<M>, keys: impl IntoIterator<Item = &'k Vec<u8>>) -> Contents {
    keys.into_iter().filter_map(|key| Some((key.clone(), get(cache, key)?))).collect()
}

/// All keys, those expired included.
pub fn keys<M: Mem>(cache: &Cache<M>) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    assert_eq!(cache.scan(0, usize::MAX, 0, &mut |item| keys.push(item.key.to_vec())), 0);
    keys
}

pub fn stat<M: Mem>(cache: &Cache<M>, name: &str) -> u64 {
    let stats = cache.stats(NOW);
    let found = stats.iter().find(|(known, _)| *known == name);
    found.expect("a known counter").1
}

/// Random numbers from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
