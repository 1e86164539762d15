//! Traffic made from a seed, one kind each.
//!
//! Each kind is scaled to the number of items that the cache under test holds (`held`), so
//! that a store of any size meets the same difficulty. The kinds:
//!
//! | kind | what it stands for |
//! |---|---|
//! | `zipf` | steady popularity (exponent and keys in the name) |
//! | `scans`, `once` | steady popularity, a fifth of it crawlers: in runs, or single pages |
//! | `shifts` | all ranks change six or twenty times; `shifts to new`: to keys never seen |
//! | `drift` | a key climbs through the ranks and vanishes at the top, slowly or fast |
//! | `swaps` | now and then a cold key takes a hot one's rank |
//! | `loop` | a job that walks more keys than the cache holds, again and again |
//! | `phases` | a loop, steady and drifting traffic in turns |
//! | `sessions` | users who come, ask a few times, and never come back |
//! | `news` | articles are most popular when they are new |

/// A sequence of keys.
pub struct Trace {
    pub name: &'static str,
    pub keys: Vec<u32>,
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    fn one_in(&mut self, n: f64) -> bool {
        self.unit() * n < 1.0
    }

    fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut ranks: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            ranks.swap(i, self.below(i + 1));
        }
        ranks
    }
}

/// Ranks by Zipf's law.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(sums.collect())
    }

    fn rank(&self, random: &mut Random) -> usize {
        let sum = random.unit() * self.0[self.0.len() - 1];
        self.0.partition_point(|up_to| *up_to < sum).min(self.0.len() - 1)
    }
}

/// Every kind of traffic, `turns` requests for each item held.
pub fn all(held: usize, turns: usize, seed: u64) -> Vec<Trace> {
    let n = held * turns;
    let mut random = Random(seed);
    let r = &mut random;
    let mut all = Vec::new();
    let mut add = |name, keys: Vec<usize>| {
        let keys = keys.into_iter().map(|key| key as u32).collect();
        all.push(Trace { name, keys });
    };
    add("zipf 0.6, 2x", steady(r, n, 2 * held, 0.6));
    add("zipf 0.8, 4x", steady(r, n, 4 * held, 0.8));
    add("zipf 1.0, 10x", steady(r, n, 10 * held, 1.0));
    add("zipf 0.9, 50x", steady(r, n, 50 * held, 0.9));
    add("zipf 0.9 + scans", scanned(r, n, held, held / 2));
    add("zipf 0.9 + once", scanned(r, n, held, 1));
    add("shifts, 6", shifting(r, n, 2 * held, 1.0, 6, false));
    add("shifts, 6, wide", shifting(r, n, 8 * held, 0.9, 6, false));
    add("shifts, 20", shifting(r, n, 3 * held, 1.0, 20, false));
    add("shifts to new, 6", shifting(r, n, 2 * held, 1.0, 6, true));
    add("drift", drifting(r, n, 4 * held, 1.0, 20));
    add("drift, slow", drifting(r, n, 4 * held, 0.8, 100));
    add("drift, fast", drifting(r, n, 4 * held, 1.0, 3));
    add("swaps", swapping(r, n, 3 * held));
    add("loop, 1.05x", (0..n).map(|i| i % (held * 21 / 20)).collect());
    add("loop, 1.3x", (0..n).map(|i| i % (held * 13 / 10)).collect());
    add("loop, 2x", (0..n).map(|i| i % (held * 2)).collect());
    add("loop + zipf", looping_beside_steady(r, n, held));
    add("phases", phases(r, n, held));
    add("sessions", sessions(r, n, held / 2, None));
    add("sessions + pages", sessions(r, n, held, Some(Zipf::new(2 * held, 0.9))));
    add("news", news(r, n, 6 * held));
    all
}

fn steady(r: &mut Random, n: usize, keys: usize, exponent: f64) -> Vec<usize> {
    let zipf = Zipf::new(keys, exponent);
    (0..n).map(|_| zipf.rank(r)).collect()
}

fn scanned(r: &mut Random, n: usize, held: usize, run: usize) -> Vec<usize> {
    let zipf = Zipf::new(10 * held, 0.9);
    let mut never_seen = 10 * held..;
    let mut trace = Vec::new();
    while trace.len() < n {
        // So that a fifth of all requests are of runs.
        if r.one_in(4.0 * run as f64 + 1.0) {
            trace.extend(never_seen.by_ref().take(run));
        } else {
            trace.push(zipf.rank(r));
        }
    }
    trace
}

fn shifting(r: &mut Random, n: usize, keys: usize, a: f64, shifts: usize, new: bool) -> Vec<usize> {
    let zipf = Zipf::new(keys, a);
    let mut trace = Vec::new();
    for shift in 0..shifts {
        let ranks = r.permutation(keys);
        let first = if new { shift * keys } else { 0 };
        trace.extend((0..n / shifts).map(|_| first + ranks[zipf.rank(r)]));
    }
    trace
}

/// The ranks move along by one every `requests`.
fn drifting(r: &mut Random, n: usize, keys: usize, a: f64, requests: usize) -> Vec<usize> {
    let zipf = Zipf::new(keys, a);
    (0..n).map(|i| zipf.rank(r) + i / requests).collect()
}

fn swapping(r: &mut Random, n: usize, keys: usize) -> Vec<usize> {
    let zipf = Zipf::new(keys, 1.0);
    let mut ranks = r.permutation(keys);
    let mut trace = Vec::new();
    for _ in 0..n {
        trace.push(ranks[zipf.rank(r)]);
        if r.one_in(10.0) {
            ranks.swap(zipf.rank(r), r.below(keys));
        }
    }
    trace
}

fn looping_beside_steady(r: &mut Random, n: usize, held: usize) -> Vec<usize> {
    let zipf = Zipf::new(4 * held, 1.0);
    let around = held * 3 / 2;
    let mut at = 0;
    let mut next = || {
        at += 1;
        at % around
    };
    (0..n).map(|_| if r.one_in(2.0) { next() } else { around + zipf.rank(r) }).collect()
}

fn phases(r: &mut Random, n: usize, held: usize) -> Vec<usize> {
    let zipf = Zipf::new(4 * held, 1.0);
    let around = held * 13 / 10;
    let phase = n / 6;
    (0..n)
        .map(|i| match i / phase % 3 {
            0 => i % phase % around,
            1 => around + zipf.rank(r),
            _ => (10 + i / phase / 3 * 10) * held + zipf.rank(r) + i % phase / 10,
        })
        .collect()
}

fn sessions(r: &mut Random, n: usize, users: usize, pages: Option<Zipf>) -> Vec<usize> {
    let first_user = pages.as_ref().map_or(0, |zipf| zipf.0.len());
    let mut here: Vec<usize> = (first_user..first_user + users).collect();
    let mut next = first_user + users;
    let mut trace = Vec::new();
    while trace.len() < n {
        if let Some(zipf) = &pages
            && r.one_in(2.0)
        {
            trace.push(zipf.rank(r));
            continue;
        }
        let user = r.below(users);
        trace.push(here[user]);
        if r.one_in(if pages.is_some() { 5.0 } else { 10.0 }) {
            here[user] = next;
            next += 1;
        }
    }
    trace
}

fn news(r: &mut Random, n: usize, articles: usize) -> Vec<usize> {
    let zipf = Zipf::new(articles, 1.0);
    let mut newest = articles;
    let mut trace = Vec::new();
    for _ in 0..n {
        if r.one_in(50.0) {
            newest += 1;
        }
        trace.push(newest - zipf.rank(r));
    }
    trace
}
