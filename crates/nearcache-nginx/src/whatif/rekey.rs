//! The keys of a trace under rules: which become one, and how long what they ask for is.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::base::hashing::ByHash;
use crate::ledger::lengths::{Subject, value_length};
use crate::whatif::key_rules::KeyRules;
use crate::whatif::trace::Trace;

#[derive(Clone, Debug)]
pub struct Rekeyed {
    /// By key as logged: the key it becomes.
    pub keys: Vec<u32>,
    /// By key as logged; empty without a rule on lengths.
    pub lengths: Vec<Option<u16>>,
    count: usize,
}

impl Rekeyed {
    pub fn new(trace: &Trace, rules: &KeyRules, subject: Option<&Subject>) -> Rekeyed {
        let all = 0..trace.keys.len() as u32;
        let lengths = subject.map(|subject| lengths(trace, subject)).unwrap_or_default();
        if rules.is_empty() {
            return Rekeyed { keys: all.collect(), lengths, count: trace.keys.len() };
        }
        let mut made = Vec::new();
        let mut places: HashMap<u64, u32, ByHash> = HashMap::default();
        let keys = all
            .map(|key| {
                rules.apply(trace.keys.text(key), &mut made);
                let next = places.len() as u32;
                *places.entry(xxh3_64(&made)).or_insert(next)
            })
            .collect();
        Rekeyed { keys, lengths, count: places.len() }
    }

    /// How many keys there are then.
    pub fn count(&self) -> usize {
        self.count
    }
}

fn lengths(trace: &Trace, subject: &Subject) -> Vec<Option<u16>> {
    let mut scratch = Vec::new();
    (0..trace.keys.len() as u32)
        .map(|key| {
            let length = value_length(target_in(trace.keys.text(key)), subject, &mut scratch)?;
            Some(u16::try_from(length).unwrap_or(u16::MAX))
        })
        .collect()
}

/// `/path?args` of a key that begins with scheme, method or host.
fn target_in(key: &[u8]) -> &[u8] {
    let after_scheme = memchr::memmem::find(key, b"://").map_or(0, |at| at + 3);
    let slash = memchr::memchr(b'/', &key[after_scheme..]);
    slash.map_or(b"", |at| &key[after_scheme + at..])
}
