//! A cache as a whole: how full it is, what it counted, whether it is sound.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::clock::boot_ms;
use crate::base::stats::{COUNTER_NAMES, POLICY_NAMES};
use crate::format::layout::{control, header};
use crate::memory::Mem;
use crate::shard::rings::{MAIN, SMALL};
use crate::store::cache::Cache;
use crate::sync::lock::Wait;
use crate::sync::process;

impl<M: Mem> Cache<M> {
    /// Items held, those expired but not yet removed included.
    pub fn len(&self) -> u64 {
        saturating_sum(self.shards().map(|shard| shard.items()))
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All counters of all processes, and the fill. `boot_ms` as for the named locks.
    pub fn stats(&self, boot_ms: u64) -> Vec<(&'static str, u64)> {
        let sum = |at: usize| saturating_sum(self.shards().map(|shard| shard.word(at)));
        let mut stats = Vec::new();
        for (counter, name) in COUNTER_NAMES.iter().enumerate() {
            stats.push((*name, process::total(&self.mem, counter)));
        }
        for (counter, name) in POLICY_NAMES.iter().enumerate() {
            stats.push((*name, sum(control::COUNTERS + counter)));
        }
        let live =
            self.shards().flat_map(|shard| [shard.live_words(SMALL), shard.live_words(MAIN)]);
        let shards = self.geometry.shards as u64;
        // Without the mutex: a moment's answer.
        let named_locks = self.named_locks(boot_ms);
        stats.extend([
            ("items", self.len()),
            ("live_bytes", saturating_sum(live).saturating_mul(8)),
            ("capacity_bytes", self.geometry.capacity_words() * 8 * shards),
            ("size_bytes", self.geometry.total_words as u64 * 8),
            ("max_item_bytes", self.max_item_bytes()),
            ("shards", shards),
            ("small_ring_percent", self.small_ring_percent()),
            ("created_at_ms", self.mem.load(header::CREATED_MS, Relaxed)),
            ("processes", process::alive(&self.mem)),
            ("locks_held", named_locks.held()),
            ("lock_waiters", named_locks.queue().waiters()),
        ]);
        stats
    }

    /// Where the border between the two rings is, on the average of the shards.
    fn small_ring_percent(&self) -> u64 {
        let shares: f64 = self.shards().map(|shard| shard.small_share()).sum();
        (shares * 100.0 / self.geometry.shards as f64).round() as u64
    }

    /// Walks everything and says which invariants are broken, a line each.
    /// Takes the lock of one shard at a time.
    pub fn check(&self, wait: Wait) -> Vec<String> {
        let mut faults = Vec::new();
        for number in 0..self.geometry.shards {
            if self.locked_number(number, wait, |shard| shard.check_locked(&mut faults)).is_err() {
                faults.push(format!("shard {number}: its lock is busy; not checked"));
            }
        }
        if self.named(boot_ms(), wait, |locks| locks.check(&mut faults)).is_err() {
            faults.push("named locks: their mutex is busy; not checked".to_owned());
        }
        faults
    }
}

/// The words summed may be damaged.
fn saturating_sum(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, u64::saturating_add)
}
