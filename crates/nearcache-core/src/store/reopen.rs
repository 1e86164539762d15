//! A thread that opens a cache file, so that no operation waits for it.
//!
//! The next operation that looks fetches the result. After a fork the child has the memory and not
//! the thread: the child begins anew.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Release};
use std::thread;

use crate::base::error::Error;
use crate::file::region::{Left, OPEN_TIMEOUT, Region};
use crate::format::layout::Config;

type Opened = Result<Region, Error>;

const STACK_BYTES: usize = 256 << 10;

pub(crate) struct Reopening {
    process: u32,
    result: AtomicPtr<Opened>,
}

impl Reopening {
    /// `None` if there is no thread to be had.
    pub fn start(base: PathBuf, config: Config, left: Left) -> Option<Arc<Self>> {
        let reopening =
            Arc::new(Self { process: std::process::id(), result: AtomicPtr::default() });
        let here = Arc::clone(&reopening);
        let work = move || {
            take_no_signals();
            here.finish(Region::open(&base, &config, OPEN_TIMEOUT, left));
        };
        let builder = thread::Builder::new().name("nearcache-open".into()).stack_size(STACK_BYTES);
        builder.spawn(work).ok().map(|_| reopening)
    }

    /// What came of it, once.
    pub fn result(&self) -> Option<Opened> {
        let result = self.result.swap(std::ptr::null_mut(), AcqRel);
        // SAFETY: from `Box::into_raw` in `finish`, and taken out here alone.
        (!result.is_null()).then(|| *unsafe { Box::from_raw(result) })
    }

    pub fn is_of_another_process(&self) -> bool {
        self.process != std::process::id()
    }

    fn finish(&self, opened: Opened) {
        self.result.store(Box::into_raw(Box::new(opened)), Release);
    }
}

impl Drop for Reopening {
    /// What nobody fetched keeps its addresses, and nothing else.
    fn drop(&mut self) {
        if let Some(Ok(region)) = self.result() {
            region.abandon();
        }
    }
}

/// They are for the program's own threads, which may be waiting for one.
fn take_no_signals() {
    // SAFETY: all-zero bytes are a valid set, which is filled; of this thread alone.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
