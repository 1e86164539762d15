//! Memory whose words are loom's, and a view of it that leaves out one fence or order.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::atomic::AtomicU64 as Modelled;

use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS, Geometry, control};
use crate::format::record::HEADER_WORDS;
use crate::memory::Mem;

enum Word {
    Modelled(Modelled),
    Plain(AtomicU64),
}

pub struct Memory {
    words: Vec<Word>,
}

impl Memory {
    pub fn new(geometry: &Geometry) -> Self {
        let slots = geometry.index..geometry.ghost;
        let tails = control::SAFE_TAIL..control::SAFE_TAIL + 2;
        let tables = geometry.page_table..geometry.descriptors;
        let decides = |at: &usize| {
            slots.contains(at)
                || tails.contains(at)
                || tables.contains(at)
                || *at >= geometry.pages_at
        };
        Self::of(geometry.total_words, decides)
    }

    pub fn of(words: usize, decides: impl Fn(&usize) -> bool) -> Self {
        let word = |at: usize| match decides(&at) {
            true => Word::Modelled(Modelled::new(0)),
            false => Word::Plain(AtomicU64::new(0)),
        };
        Self { words: (0..words).map(word).collect() }
    }

    /// [`Mem::cas`] with an order of the caller's.
    pub fn swap(&self, at: usize, old: u64, new: u64, order: Ordering) -> Result<(), u64> {
        match &self.words[at] {
            Word::Modelled(word) => word.compare_exchange(old, new, order, Ordering::Acquire),
            Word::Plain(word) => word.compare_exchange(old, new, order, Ordering::Acquire),
        }
        .map(|_| ())
    }
}

impl Mem for Memory {
    fn words(&self) -> usize {
        self.words.len()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        match &self.words[at] {
            Word::Modelled(word) => word.load(order),
            Word::Plain(word) => word.load(order),
        }
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
        match &self.words[at] {
            Word::Modelled(word) => word.store(value, order),
            Word::Plain(word) => word.store(value, order),
        }
    }
    fn cas(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        self.swap(at, old, new, Ordering::AcqRel)
    }
    fn add(&self, at: usize, delta: u64) {
        match &self.words[at] {
            Word::Modelled(word) => word.fetch_add(delta, Ordering::Relaxed),
            Word::Plain(word) => word.fetch_add(delta, Ordering::Relaxed),
        };
    }
    fn fence(&self, order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

/// What can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    FenceBeforeBytes,
    FenceBehindTail,
    FenceAfterCopy,
    FenceAfterHeader,
    FenceAfterTable,
    FenceAfterExpiry,
    FenceAfterTail,
    TailRelease,
    SlotRelease,
    SlotAcquire,
    SwapRelease,
}

/// The memory as one operation of one thread accesses it.
pub struct View<'a> {
    memory: &'a Memory,
    geometry: &'a Geometry,
    broken: Option<Rule>,
    /// The word that was accessed last.
    last: Cell<usize>,
}

impl<'a> View<'a> {
    pub fn new(memory: &'a Memory, geometry: &'a Geometry, broken: Option<Rule>) -> Self {
        Self { memory, geometry, broken, last: Cell::new(0) }
    }

    fn is_slot(&self, at: usize) -> bool {
        (self.geometry.index..self.geometry.ghost).contains(&at)
            && (at - self.geometry.index) % BUCKET_WORDS < BUCKET_SLOTS
    }

    fn is_tail(at: usize) -> bool {
        (control::SAFE_TAIL..control::SAFE_TAIL + 2).contains(&at)
    }

    /// The order that is left of `order` for an access.
    fn order(&self, at: usize, order: Ordering, rules: [(Rule, bool); 2]) -> Ordering {
        self.last.set(at);
        let is_broken = rules.iter().any(|(rule, here)| self.broken == Some(*rule) && *here);
        if is_broken { Ordering::Relaxed } else { order }
    }

    /// Which fence this is.
    fn fence_rule(&self, order: Ordering) -> Rule {
        const EXPIRY: usize = 2;
        let last = self.last.get();
        let geometry = self.geometry;
        match (order, last.checked_sub(geometry.pages_at)) {
            (Ordering::Release, _) if Self::is_tail(last) => Rule::FenceBehindTail,
            (Ordering::Release, _) => Rule::FenceBeforeBytes,
            (_, Some(inside)) => match inside % geometry.page_words() as usize {
                EXPIRY => Rule::FenceAfterExpiry,
                HEADER_WORDS.. => Rule::FenceAfterCopy,
                _ => Rule::FenceAfterHeader,
            },
            _ if Self::is_tail(last) => Rule::FenceAfterTail,
            _ => {
                assert!((geometry.page_table..geometry.descriptors).contains(&last));
                Rule::FenceAfterTable
            }
        }
    }
}

impl Mem for View<'_> {
    fn words(&self) -> usize {
        self.memory.words()
    }
    fn load(&self, at: usize, order: Ordering) -> u64 {
        let rules = [(Rule::SlotAcquire, self.is_slot(at)); 2];
        self.memory.load(at, self.order(at, order, rules))
    }
    fn store(&self, at: usize, value: u64, order: Ordering) {
        let rules = [(Rule::SlotRelease, self.is_slot(at)), (Rule::TailRelease, Self::is_tail(at))];
        self.memory.store(at, value, self.order(at, order, rules));
    }
    fn cas(&self, at: usize, old: u64, new: u64) -> Result<(), u64> {
        let rules = [(Rule::SwapRelease, self.is_slot(at)); 2];
        let order = self.order(at, Ordering::AcqRel, rules);
        self.memory.swap(at, old, new, order)
    }
    fn add(&self, at: usize, delta: u64) {
        self.memory.add(at, delta);
    }
    fn fence(&self, order: Ordering) {
        if self.broken.is_none_or(|rule| rule != self.fence_rule(order)) {
            self.memory.fence(order);
        }
    }
}
