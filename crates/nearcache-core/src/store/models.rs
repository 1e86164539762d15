//! The small protocols under loom, which tries the orders of accesses and, for
//! relaxed ones, the old values that the memory model allows.
//!
//! What runs is [`Shard`] itself, over a geometry of a few pages of eight words.
//! Words that decide what a reader returns are loom's: pages, page tables, slots
//! and `safe_tail`. The others (what only the lock holder reads, and hints) are
//! plain atomics, or there would be too many orders to try. At most two
//! preemptions an execution, one where relaxed reads alone make many.
//!
//! That each fence is needed is shown in `models/fences.rs`, which takes them away.
//!
//! Limits: loom does not let a load see a store that comes later in another
//! thread's order than it could by itself (load buffering), and has no kernel in
//! it, so a death inside the lock is not here but in `tests/crash`.

mod fences;
mod lock_queue;
mod memory;
mod protocols;
mod world;
