//! One shard: its two rings, and the pages that they take in turn. The lock is held.
//!
//! A ring grows at its head, page number by page number. The page table says which page is behind
//! a number, and the descriptor of a page which number of which ring claims it (I6).

use std::sync::atomic::Ordering::Release;

use crate::base::stats::PolicyCounter;
use crate::format::layout::{RESERVE_PAGES, RESERVE_SHARE, control};
use crate::memory::Mem;
use crate::shard::read::{Shard, page_table_word};

pub(crate) const SMALL: usize = 0;
pub(crate) const MAIN: usize = 1;
/// Words made present at once (64 KiB): what is done under the lock is to stay short.
const PIECE_WORDS: usize = 1 << 13;

impl<M: Mem> Shard<'_, M> {
    /// Appends whole words to a ring; where they begin, or `None` if no page is
    /// free. Room for a draft has been made before.
    pub fn append_locked(&self, ring: usize, words: &[u64]) -> Option<u64> {
        let head = self.word(control::HEAD + ring);
        // `safe_tail` may have been moved by the owner before, whose fence does not
        // order this owner's bytes: a reader who sees them must see it too.
        self.mem.fence(Release);
        let mut done = 0;
        while done < words.len() {
            let at = head + done as u64;
            self.page_for_writing_locked(ring, at >> self.geo.page_shift)?;
            let left = (self.geo.page_words() - (at & (self.geo.page_words() - 1))) as usize;
            let run = left.min(words.len() - done);
            self.mem.copy_in(self.locate(ring, at)?, &words[done..done + run]);
            done += run;
        }
        self.mem.store(self.base + control::HEAD + ring, head + words.len() as u64, Release);
        Some(head)
    }

    /// Makes sure that a page number of a ring has a page behind it (I6).
    fn page_for_writing_locked(&self, ring: usize, number: u64) -> Option<()> {
        let entry = self.page_table_entry(ring, number);
        let wanted = (number + 1) << 1 | ring as u64;
        let there = self.page_of(ring, number);
        if there.is_some_and(|page| self.word(self.geo.descriptors + page) == wanted) {
            return Some(());
        }
        let page = self.free_page_locked(ring, number)?;
        self.prepare_page_locked(page);
        // The descriptor first: a page that is claimed twice is impossible, one
        // that is claimed in vain is free again when its number leaves the window.
        self.set_word(self.geo.descriptors + page, wanted);
        self.set_word(entry, page_table_word(number, page));
        Some(())
    }

    /// Makes memory present in pieces, ahead of the first lap, which takes the pages in order.
    fn prepare_page_locked(&self, page: usize) {
        let pages = (PIECE_WORDS >> self.geo.page_shift).max(1);
        if self.word(self.geo.descriptors + page) != 0 || !page.is_multiple_of(pages) {
            return;
        }
        let pages = pages.min(self.geo.pages - page);
        let at = self.base + self.geo.pages_at + (page << self.geo.page_shift);
        if !self.mem.prepare(at, pages << self.geo.page_shift) {
            self.count(PolicyCounter::NotPrepared, 1);
        }
    }

    /// Finds a page whose number is outside its ring's window (I6), which is
    /// taken to reach to `number`: the pages before it, in a record of several
    /// pages, are claimed already and `head` has yet to move.
    fn free_page_locked(&self, ring: usize, number: u64) -> Option<usize> {
        let cursor = self.word(control::PAGE_CURSOR) as usize % self.geo.pages;
        let mut windows = [self.window_pages(SMALL), self.window_pages(MAIN)];
        windows[ring].end = windows[ring].end.max(number + 1);
        let free =
            (0..self.geo.pages).map(|step| (cursor + step) % self.geo.pages).find(|page| {
                let descriptor = self.word(self.geo.descriptors + page);
                let number = (descriptor >> 1).wrapping_sub(1);
                descriptor == 0 || !windows[(descriptor & 1) as usize].contains(&number)
            })?;
        self.set_word(control::PAGE_CURSOR, free as u64 + 1);
        Some(free)
    }

    /// Frees the pages that claim a number inside a window to which the page table
    /// leads elsewhere: a crash between the two stores of a claim leaves one, and
    /// the room counted by windows would be missing it until its number is over.
    pub fn reclaim_pages_locked(&self) {
        let windows = [self.window_pages(SMALL), self.window_pages(MAIN)];
        for page in 0..self.geo.pages {
            let descriptor = self.word(self.geo.descriptors + page);
            let ring = (descriptor & 1) as usize;
            let number = (descriptor >> 1).wrapping_sub(1);
            if windows[ring].contains(&number) && self.page_of(ring, number) != Some(page) {
                self.set_word(self.geo.descriptors + page, 0);
            }
        }
    }

    /// Page numbers that hold records of a ring, and the one being written.
    pub fn window_pages(&self, ring: usize) -> std::ops::Range<u64> {
        let first = self.word(control::SAFE_TAIL + ring) >> self.geo.page_shift;
        let head = self.word(control::HEAD + ring);
        first..(head >> self.geo.page_shift) + 1
    }

    /// Pages outside both windows.
    pub fn free_pages(&self) -> u64 {
        let used: u64 = [SMALL, MAIN]
            .map(|ring| {
                let window = self.window_pages(ring);
                window.end - window.start
            })
            .iter()
            .sum();
        (self.geo.pages as u64).saturating_sub(used)
    }

    /// Pages held back so that the cleaner can copy the largest record there is
    /// before it lets go of the old one. Without them it would have to evict it.
    pub fn reserve_pages(&self) -> u64 {
        let largest = (self.word(control::LARGEST) >> self.geo.page_shift) + 2;
        let pages = self.geo.pages as u64;
        largest.min(pages / RESERVE_SHARE).max(RESERVE_PAGES)
    }

    /// Words of records the shard can hold, as large as they are.
    pub fn room_words(&self) -> u64 {
        (self.geo.pages as u64 - self.reserve_pages()) << self.geo.page_shift
    }

    /// Words of live records in both rings. A hint.
    pub fn all_live_words(&self) -> u64 {
        self.live_words(SMALL).saturating_add(self.live_words(MAIN))
    }
}
