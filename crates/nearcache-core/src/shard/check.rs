//! Walks a shard and says which invariants are broken.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Acquire;

use crate::format::layout::{BUCKET_SLOTS, BUCKET_WORDS, control};
use crate::format::record::{self, HEADER_WORDS};
use crate::memory::Mem;
use crate::shard::read::{Shard, ring_of, slot_word, tag_of};
use crate::shard::rings::{MAIN, SMALL};

const HINTS: [usize; 3] = [control::LIVE + SMALL, control::LIVE + MAIN, control::ITEMS];

impl<M: Mem> Shard<'_, M> {
    /// Adds a line to `faults` for every broken invariant.
    pub fn check_locked(&self, faults: &mut Vec<String>) {
        let mut fault = |text: String| faults.push(format!("shard {}: {text}", self.number));
        // Offsets of whole records, by ring (I1, I2).
        let mut records: HashMap<(usize, u64), u64> = HashMap::new();
        for ring in [SMALL, MAIN] {
            let [safe_tail, tail, head] =
                [control::SAFE_TAIL, control::TAIL, control::HEAD].map(|at| self.word(at + ring));
            if !(safe_tail <= tail && tail <= head) {
                fault(format!("ring {ring}: I1 safe_tail {safe_tail}, tail {tail}, head {head}"));
                continue;
            }
            if head - tail > self.geo.pages as u64 * self.geo.page_words() {
                fault(format!("ring {ring}: I1 {} words in the window", head - tail));
                continue;
            }
            let whole = self.walk_ring(ring, &mut |at, header| {
                records.insert((ring, at), header.hash);
            });
            if !whole {
                fault(format!("ring {ring}: I2 something that is no record"));
            }
        }
        self.check_pages(&mut fault);
        self.check_index(&records, &mut fault);
    }

    fn check_pages(&self, fault: &mut dyn FnMut(String)) {
        let mut owners = HashMap::new();
        for ring in [SMALL, MAIN] {
            let window = self.window_pages(ring);
            let empty = self.word(control::TAIL + ring) == self.word(control::HEAD + ring);
            let in_use = if empty { window.start..window.start } else { window };
            let head = self.word(control::HEAD + ring);
            for number in in_use {
                if number << self.geo.page_shift >= head {
                    continue;
                }
                let at = self.locate(ring, number << self.geo.page_shift);
                let Some(at) = at else {
                    fault(format!("ring {ring}: I6 page {number} is nowhere"));
                    continue;
                };
                if let Some(other) = owners.insert(at, (ring, number)) {
                    fault(format!("I6 one page for {other:?} and {:?}", (ring, number)));
                }
            }
        }
    }

    fn check_index(&self, records: &HashMap<(usize, u64), u64>, fault: &mut dyn FnMut(String)) {
        let mut keys: HashMap<Vec<u8>, usize> = HashMap::new();
        let (mut live, mut items) = ([0, 0], 0);
        let hints = HINTS.map(|at| self.word(at));
        let first = self.base + self.geo.index;
        for bucket in (first..).step_by(BUCKET_WORDS).take(self.geo.buckets) {
            for slot in bucket..bucket + BUCKET_SLOTS {
                let word = self.mem.load(slot, Acquire);
                if word == 0 || !self.live(word) {
                    continue;
                }
                let (ring, offset) = (ring_of(word), self.offset_of(word));
                let Some(hash) = records.get(&(ring, offset)) else {
                    fault(format!("slot {slot}: I3 points at no record"));
                    continue;
                };
                if slot_word(*hash, ring, offset) != word || word >> 49 != tag_of(*hash) {
                    fault(format!("slot {slot}: I3 points at another key's record"));
                }
                if self.step_of(*hash, bucket).is_none() {
                    fault(format!("slot {slot}: I7 is in a bucket where nobody looks for it"));
                }
                let Some(mut words) = self.whole_record(ring, offset) else {
                    continue;
                };
                let header = self.header(ring, offset).expect("read above");
                live[ring] += header.words as u64;
                items += 1;
                let key = record::bytes(&words[HEADER_WORDS..])[..header.key_len].to_vec();
                if let Some(other) = keys.insert(key, slot) {
                    fault(format!("slots {other} and {slot}: I4 one key"));
                }
                if !record::verify(&mut words, &header, self.seed) {
                    fault(format!("slot {slot}: its record's checksum is wrong"));
                }
            }
        }
        self.check_hints(hints, [live[SMALL], live[MAIN], items], fault);
    }

    fn whole_record(&self, ring: usize, offset: u64) -> Option<Vec<u64>> {
        let header = self.header(ring, offset)?;
        let mut words = vec![0; header.words];
        self.copy_out(ring, offset, &mut words).then_some(words)
    }

    /// Hints may be off by what killed processes left undone, not by more than
    /// there is. Sets right those that no delete changed since `hints` were read.
    fn check_hints(&self, hints: [u64; 3], counted: [u64; 3], fault: &mut dyn FnMut(String)) {
        let capacity = self.geo.pages as u64 * self.geo.page_words();
        for ((at, hint), counted) in HINTS.into_iter().zip(hints).zip(counted) {
            if (hint as i64).max(0) as u64 > capacity {
                fault(format!("a hint says {hint}, but there are {counted}"));
            }
            // If another process counts right now, the next check will do.
            let _ = self.mem.cas(self.base + at, hint, counted);
        }
    }
}
