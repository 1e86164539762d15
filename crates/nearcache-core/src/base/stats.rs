//! Every counter, named and defined.

/// Counters of the eviction policy: one set a shard, written under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum PolicyCounter {
    /// Left the small ring unused.
    EvictedSmall,
    /// Left the main ring unused.
    EvictedMain,
    /// Made way for another key in full buckets.
    EvictedIndex,
    /// Was over when the cleaner or the sweeper came by.
    Expired,
    /// Went from the small to the main ring.
    Promoted,
    /// Came back a short while after its eviction.
    GhostHits,
    /// Words copied to keep live records: the cost of packing.
    CopiedWords,
    /// An owner of the lock died inside.
    Recoveries,
    /// The shard was found damaged and cleared.
    Resets,
    /// No page was free for a record; it was not stored.
    NoRoom,
    /// Pieces of memory that the kernel did not make present ahead of their first write.
    NotPrepared,
    /// Removed by the sweeper: no look-up found it, as a mark of its path was damaged.
    Unreachable,
    /// Writes that had to make room in the index while the log had some.
    IndexFull,
}

pub(crate) const POLICY_NAMES: [&str; 13] = [
    "evicted_small",
    "evicted_main",
    "evicted_index",
    "expired_removed",
    "promoted",
    "ghost_hits",
    "copied_words",
    "owner_deaths",
    "shard_resets",
    "no_room",
    "not_prepared",
    "unreachable",
    "index_full",
];

/// Counters of use: one set a process, written by it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Reads that found a value.
    Hits,
    /// Reads that found none, expired ones included.
    Misses,
    /// Reads that found a value whose time was over.
    Expired,
    /// Values stored.
    Sets,
    /// Keys deleted.
    Deletes,
    /// Values refused because key and value exceed `max_item`.
    TooLarge,
    /// Writes given up because a lock stayed busy: dropped with the old value, or an error.
    DroppedBusy,
    /// Waits for a lock, in slices of 20 ms.
    Waits,
    /// Reads given up because the record kept moving.
    Gave,
    /// Records whose checksum was wrong.
    Damaged,
    /// Values that the caller could not decode.
    Undecodable,
    /// The file was gone or useless and could not be made anew; tried again each second.
    ReopenFailed,
    /// Times a named lock was asked for without a place in its queue: all 1,024 were taken.
    LockPolls,
}

pub(crate) const COUNTER_NAMES: [&str; 13] = [
    "hits",
    "misses",
    "expired",
    "sets",
    "deletes",
    "too_large",
    "dropped_busy",
    "waits",
    "torn",
    "damaged",
    "undecodable",
    "reopen_failed",
    "lock_polls",
];
