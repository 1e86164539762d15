//! Any sequence of operations, against a dict with deadlines.
//!
//! With room for everything the two must agree to the letter. Where values are
//! evicted, a miss is right if the counters say that something was evicted; a
//! wrong value never is. Time is given, so nothing sleeps.

use std::collections::{BTreeMap, HashMap};

use nearcache_core::memory::Boxed;
use nearcache_core::{Added, Buffer, Cache, Config, Incr, Stored, TAG_INT, Wait};
use proptest::prelude::*;

const START: u64 = 1_000_000;
const WAIT: Wait = Wait::Try;
const TAG: u8 = 0x80;
/// Keys are few, so that operations meet.
const KEYS: u8 = 24;

#[derive(Debug, Clone)]
enum Operation {
    Set(u8, Value, Option<u64>),
    Add(u8, Value, Option<u64>),
    GetAndSet(u8, Value),
    CasRead(u8, Value),
    CasStale(u8, Value),
    Touch(u8, Option<u64>),
    Incr(u8, i64),
    Delete(u8),
    Get(u8),
    Pass(u64),
    Clear,
    Cull(u64),
    TooLarge(u8),
}

#[derive(Debug, Clone)]
enum Value {
    Bytes(u8, usize),
    Integer(i64),
}

impl Value {
    fn parts(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Bytes(fill, length) => (TAG, vec![*fill; *length]),
            Self::Integer(number) => (TAG_INT, number.to_le_bytes().to_vec()),
        }
    }
}

fn value(longest: usize) -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (any::<u8>(), 0..longest).prop_map(|(fill, length)| Value::Bytes(fill, length)),
        1 => (-3_i64..3).prop_map(Value::Integer),
        1 => prop_oneof![Just(i64::MAX), Just(i64::MIN)].prop_map(Value::Integer),
    ]
}

fn operation(longest: usize) -> impl Strategy<Value = Operation> {
    let key = 0..KEYS;
    let ttl = prop::option::of(1_u64..50);
    let amount = prop_oneof![-3_i64..4, Just(i64::MAX), Just(i64::MIN)];
    prop_oneof![
        8 => (key.clone(), value(longest), ttl.clone()).prop_map(|(k, v, t)| Operation::Set(k, v, t)),
        3 => (key.clone(), value(longest), ttl.clone()).prop_map(|(k, v, t)| Operation::Add(k, v, t)),
        2 => (key.clone(), value(longest)).prop_map(|(k, v)| Operation::GetAndSet(k, v)),
        2 => (key.clone(), value(longest)).prop_map(|(k, v)| Operation::CasRead(k, v)),
        1 => (key.clone(), value(longest)).prop_map(|(k, v)| Operation::CasStale(k, v)),
        2 => (key.clone(), ttl).prop_map(|(k, t)| Operation::Touch(k, t)),
        4 => (key.clone(), amount).prop_map(|(k, n)| Operation::Incr(k, n)),
        3 => key.clone().prop_map(Operation::Delete),
        4 => key.clone().prop_map(Operation::Get),
        2 => (1_u64..30).prop_map(Operation::Pass),
        1 => prop_oneof![3 => Just(Operation::Pass(1)), 1 => Just(Operation::Clear)],
        1 => (0_u64..3).prop_map(Operation::Cull),
        1 => key.prop_map(Operation::TooLarge),
    ]
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    tag: u8,
    value: Vec<u8>,
    expires_at_ms: u64,
}

/// A cache and the dict it is compared with.
struct Pair {
    cache: Cache<Boxed>,
    dict: BTreeMap<u8, Entry>,
    now: u64,
    /// Versions seen, by key: none may come twice for two values.
    versions: HashMap<(u8, u64), Entry>,
    evicted: u64,
}

impl Pair {
    fn new(config: &Config) -> Self {
        Self {
            cache: Cache::boxed(config).unwrap(),
            dict: BTreeMap::new(),
            now: START,
            versions: HashMap::new(),
            evicted: 0,
        }
    }

    fn evictions(&self) -> u64 {
        let stats = self.cache.stats(self.now);
        let counted = ["evicted_small", "evicted_main", "evicted_index", "no_room"];
        let of = |name: &&str| stats.iter().find(|(known, _)| known == name).unwrap().1;
        counted.iter().map(of).sum()
    }

    /// What the dict says; what is over is not there.
    fn wanted(&mut self, key: u8) -> Option<Entry> {
        let now = self.now;
        self.dict.retain(|_, entry| entry.expires_at_ms == 0 || entry.expires_at_ms > now);
        self.dict.get(&key).cloned()
    }

    /// What the cache says.
    fn found(&mut self, key: u8) -> Option<Entry> {
        let mut buffer = Buffer::default();
        let found = self.cache.get(self.cache.key(&[key]), self.now, &mut buffer)?;
        let entry = Entry {
            tag: found.tag,
            value: buffer.value().to_vec(),
            expires_at_ms: found.expires_at_ms,
        };
        assert!(self.cache.still_current(&found.place, self.now));
        let known = self.versions.entry((key, found.version)).or_insert(entry.clone());
        assert_eq!(known.value, entry.value, "one version, two values");
        // `touch` changes the deadline and keeps the version.
        known.expires_at_ms = entry.expires_at_ms;
        Some(entry)
    }

    /// Compares a key; forgets what was rightly evicted.
    fn agree(&mut self, key: u8) -> Option<Entry> {
        let (wanted, found) = (self.wanted(key), self.found(key));
        let evicted = self.evictions();
        if found.is_none() && wanted.is_some() && evicted > self.evicted {
            self.dict.remove(&key);
            return None;
        }
        assert_eq!(found, wanted, "key {key}");
        let deadline = self.cache.expires_at(self.cache.key(&[key]), self.now);
        assert_eq!(deadline, wanted.as_ref().map(|entry| entry.expires_at_ms));
        wanted
    }

    fn deadline(&self, ttl: &Option<u64>) -> u64 {
        ttl.map_or(0, |ttl| self.now + ttl)
    }

    fn store(&mut self, key: u8, value: &Value, expires_at_ms: u64) {
        let (tag, value) = value.parts();
        let entry = Entry { tag, value, expires_at_ms };
        self.dict.insert(key, entry);
    }

    fn run(&mut self, operation: &Operation) {
        use Operation::*;
        let now = self.now;
        let key_of = |key: &u8| [*key];
        match operation {
            Set(key, value, ttl) => {
                let (tag, bytes) = value.parts();
                let deadline = self.deadline(ttl);
                let key_bytes = key_of(key);
                let hashed = self.cache.key(&key_bytes);
                let stored = self.cache.set(hashed, tag, &bytes, deadline, now, WAIT);
                assert!(matches!(stored, Ok(Stored::Yes(_))));
                self.store(*key, value, deadline);
            }
            Add(key, value, ttl) => {
                let there = self.agree(*key).is_some();
                let (tag, bytes) = value.parts();
                let deadline = self.deadline(ttl);
                let key_bytes = key_of(key);
                let hashed = self.cache.key(&key_bytes);
                let added = self.cache.add(hashed, tag, &bytes, deadline, now, WAIT);
                match added.unwrap() {
                    Added::Exists => assert!(there),
                    // Or evicted to make room for it.
                    Added::Stored(_) => {
                        assert!(!there || self.evictions() > self.evicted);
                        self.store(*key, value, deadline);
                    }
                    Added::TooLarge => panic!("too large"),
                }
            }
            GetAndSet(key, value) => {
                let old = self.agree(*key);
                let (tag, bytes) = value.parts();
                let mut buffer = Buffer::default();
                let key_bytes = key_of(key);
                let hashed = self.cache.key(&key_bytes);
                let found =
                    self.cache.get_and_set(hashed, tag, &bytes, 0, now, WAIT, &mut buffer).unwrap();
                match found {
                    Some(_) => assert_eq!(Some(buffer.value()), old.as_ref().map(|o| &o.value[..])),
                    None => assert!(old.is_none() || self.evictions() > self.evicted),
                }
                self.store(*key, value, 0);
            }
            CasRead(key, value) | CasStale(key, value) => {
                self.agree(*key);
                let (tag, bytes) = value.parts();
                let key_bytes = key_of(key);
                let hashed = self.cache.key(&key_bytes);
                let Some(found) = self.cache.get(hashed, now, &mut Buffer::default()) else {
                    return;
                };
                let stale = matches!(operation, CasStale(..));
                let version = found.version - u64::from(stale);
                let swapped = self.cache.cas(hashed, tag, &bytes, version, 0, now, WAIT);
                if swapped.unwrap() {
                    assert!(!stale);
                    self.store(*key, value, 0);
                } else {
                    assert!(stale || self.evictions() > self.evicted);
                }
            }
            Touch(key, ttl) => {
                let there = self.agree(*key).is_some();
                let deadline = self.deadline(ttl);
                let touched = self.cache.touch(self.cache.key(&key_of(key)), deadline, now, WAIT);
                assert_eq!(touched, Ok(there));
                if let Some(entry) = self.dict.get_mut(key) {
                    entry.expires_at_ms = deadline;
                }
            }
            Incr(key, delta) => {
                let entry = self.agree(*key);
                let result = self.cache.incr(self.cache.key(&key_of(key)), *delta, now, WAIT);
                let gone = self.evictions() > self.evicted;
                self.expect_incr(*key, entry, *delta, result.unwrap(), gone);
            }
            Delete(key) => {
                let there = self.agree(*key).is_some();
                assert_eq!(self.cache.delete(self.cache.key(&key_of(key)), now), there);
                self.dict.remove(key);
            }
            Get(key) => {
                self.agree(*key);
            }
            Pass(ms) => self.now += ms,
            Clear => {
                self.cache.clear(WAIT).unwrap();
                self.dict.clear();
                assert_eq!(self.cache.len(), 0);
            }
            Cull(items) => {
                let before = self.cache.len();
                let gone = self.cache.cull(*items, WAIT).unwrap();
                assert_eq!(self.cache.len(), before - gone);
                assert!(gone >= before.min(*items));
            }
            TooLarge(key) => {
                let bytes = vec![0; self.cache.max_item_bytes() as usize + 1];
                let key_bytes = key_of(key);
                let hashed = self.cache.key(&key_bytes);
                let stored = self.cache.set(hashed, TAG, &bytes, 0, now, WAIT);
                assert!(matches!(stored, Ok(Stored::TooLarge)));
                self.dict.remove(key);
            }
        }
    }

    fn expect_incr(&mut self, key: u8, entry: Option<Entry>, delta: i64, got: Incr, gone: bool) {
        let number = |entry: &Entry| entry.value.clone().try_into().ok().map(i64::from_le_bytes);
        let wanted = match &entry {
            None => Incr::Missing,
            Some(entry) if entry.tag != TAG_INT => Incr::NotInteger,
            Some(entry) => match number(entry).and_then(|old| old.checked_add(delta)) {
                Some(sum) => Incr::Value(sum),
                None => Incr::Overflow,
            },
        };
        if got == Incr::Missing && gone {
            self.dict.remove(&key);
            return;
        }
        assert_eq!(got, wanted);
        if let (Some(entry), Incr::Value(sum)) = (self.dict.get_mut(&key), got) {
            entry.value = sum.to_le_bytes().to_vec();
        }
    }

    /// Everything there is, by every way of asking.
    fn agree_on_all(&mut self) {
        for key in 0..KEYS {
            self.agree(key);
        }
        let mut scanned = BTreeMap::new();
        let mut cursor = 0;
        loop {
            cursor = self.cache.scan(cursor, 5, self.now, &mut |item| {
                let shown = (item.value_len, item.tag, item.expires_at_ms);
                assert!(scanned.insert(item.key.to_vec(), shown).is_none(), "shown twice");
            });
            if cursor == 0 {
                break;
            }
        }
        let wanted: BTreeMap<_, _> = self
            .dict
            .iter()
            .map(|(key, e)| (vec![*key], (e.value.len(), e.tag, e.expires_at_ms)))
            .collect();
        assert_eq!(scanned, wanted);
        // Those over and not yet swept are counted.
        assert!(self.cache.len() >= self.dict.len() as u64);
        assert_eq!(self.cache.check(WAIT), Vec::<String>::new());
    }
}

fn config() -> Config {
    Config::of_size(1 << 20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_room_for_all_it_is_a_dict_with_deadlines(
        operations in prop::collection::vec(operation(400), 1..200)
    ) {
        let mut pair = Pair::new(&config());
        for operation in &operations {
            if matches!(operation, Operation::Cull(_)) {
                continue;
            }
            pair.run(operation);
        }
        prop_assert_eq!(pair.evictions(), 0);
        pair.agree_on_all();
    }

    #[test]
    fn without_room_a_value_is_right_or_evicted(
        operations in prop::collection::vec(operation(100_000), 1..150)
    ) {
        let mut pair = Pair::new(&config());
        for operation in &operations {
            pair.run(operation);
        }
        pair.agree_on_all();
    }

    #[test]
    fn with_two_buckets_for_all_keys_a_value_is_right_or_evicted(
        operations in prop::collection::vec(operation(50), 1..150)
    ) {
        let mut pair = Pair::new(&Config { mean_item_bytes: Some(65536), ..config() });
        for operation in &operations {
            pair.run(operation);
        }
        pair.agree_on_all();
    }
}
