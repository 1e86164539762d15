//! What others would do with the same room: LRU, ARC and S3-FIFO, exactly, in the plainest code.
//!
//! A key has a size, and room is counted in it. With sizes of 1 they are the published ones:
//! Megiddo and Modha, ARC, FAST 2003; Yang et al., S3-FIFO, SOSP 2023, with the parameters of
//! libCacheSim (small 0.1, ghost 0.9, two uses).

use std::collections::{HashMap, VecDeque};

/// A policy and what it holds.
pub trait Peer {
    /// Asks for a key, and stores it on a miss. Whether it was a hit.
    fn ask(&mut self, key: u32, size: u64) -> bool;
}

/// Queues of keys, oldest first, from whose middle a key can be taken.
#[derive(Default)]
struct Queue {
    entries: VecDeque<(u32, u64)>,
    /// Stamp and size of what is in.
    members: HashMap<u32, (u64, u64)>,
    stamps: u64,
    size: u64,
}

impl Queue {
    fn push(&mut self, key: u32, size: u64) {
        self.stamps += 1;
        self.entries.push_back((key, self.stamps));
        self.members.insert(key, (self.stamps, size));
        self.size += size;
    }

    fn take(&mut self, key: u32) -> Option<u64> {
        let (_, size) = self.members.remove(&key)?;
        self.size -= size;
        Some(size)
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        while let Some((key, stamp)) = self.entries.pop_front() {
            if self.members.get(&key).is_some_and(|(last, _)| *last == stamp) {
                let size = self.take(key).expect("it is a member");
                return Some((key, size));
            }
        }
        None
    }
}

pub struct Lru {
    room: u64,
    queue: Queue,
}

impl Lru {
    pub fn new(room: u64) -> Self {
        Self { room, queue: Queue::default() }
    }
}

impl Peer for Lru {
    fn ask(&mut self, key: u32, size: u64) -> bool {
        let hit = self.queue.take(key).is_some();
        while self.queue.size + size > self.room && self.queue.pop().is_some() {}
        self.queue.push(key, size);
        hit
    }
}

/// The names of the paper: `t` holds items, `b` their ghosts; 1 is of one use, 2 of more.
pub struct Arc {
    room: u64,
    target: u64,
    t: [Queue; 2],
    b: [Queue; 2],
}

impl Arc {
    pub fn new(room: u64) -> Self {
        Self { room, target: 0, t: Default::default(), b: Default::default() }
    }

    fn replace(&mut self, size: u64, in_second_ghost: bool) {
        while self.t[0].size + self.t[1].size + size > self.room {
            let first = &self.t[0];
            let over = first.size > self.target || in_second_ghost && first.size == self.target;
            let from = if first.size > 0 && over || self.t[1].size == 0 { 0 } else { 1 };
            let Some((key, size)) = self.t[from].pop() else { return };
            self.b[from].push(key, size);
        }
    }

    fn trim_ghosts(&mut self) {
        while self.t[0].size + self.b[0].size > self.room && self.b[0].pop().is_some() {}
        let all = |arc: &Self| arc.t.iter().chain(&arc.b).map(|queue| queue.size).sum::<u64>();
        while all(self) > 2 * self.room && self.b[1].pop().is_some() {}
    }
}

impl Peer for Arc {
    fn ask(&mut self, key: u32, size: u64) -> bool {
        if self.t[0].take(key).or_else(|| self.t[1].take(key)).is_some() {
            self.t[1].push(key, size);
            return true;
        }
        let [one, two] = [self.b[0].size.max(1), self.b[1].size.max(1)];
        if self.b[0].take(key).is_some() {
            self.target = (self.target + size * (two / one).max(1)).min(self.room);
            self.replace(size, false);
            self.t[1].push(key, size);
        } else if self.b[1].take(key).is_some() {
            self.target = self.target.saturating_sub(size * (one / two).max(1));
            self.replace(size, true);
            self.t[1].push(key, size);
        } else {
            self.replace(size, false);
            self.t[0].push(key, size);
        }
        self.trim_ghosts();
        false
    }
}

pub struct S3Fifo {
    room: u64,
    small: Queue,
    main: Queue,
    ghost: Queue,
    uses: HashMap<u32, u8>,
    been_full: bool,
}

impl S3Fifo {
    pub fn new(room: u64) -> Self {
        let [small, main, ghost] = Default::default();
        Self { room, small, main, ghost, uses: HashMap::new(), been_full: false }
    }

    fn make_room(&mut self, size: u64) {
        while self.small.size + self.main.size + size > self.room {
            self.been_full = true;
            let main_is_over = self.main.size > self.room - self.room / 10;
            if main_is_over || self.small.size == 0 {
                let Some((key, size)) = self.main.pop() else { return };
                match self.uses[&key] {
                    0 => drop(self.uses.remove(&key)),
                    uses => {
                        self.uses.insert(key, uses - 1);
                        self.main.push(key, size);
                    }
                }
                continue;
            }
            let Some((key, size)) = self.small.pop() else { return };
            if self.uses[&key] >= 2 {
                self.uses.insert(key, 0);
                self.main.push(key, size);
            } else {
                self.uses.remove(&key);
                self.ghost.push(key, size);
                while self.ghost.size > self.room * 9 / 10 && self.ghost.pop().is_some() {}
            }
        }
    }
}

impl Peer for S3Fifo {
    fn ask(&mut self, key: u32, size: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        let remembered = self.ghost.take(key).is_some();
        self.make_room(size);
        let filling = !self.been_full && self.small.size >= self.room / 10;
        let queue = if remembered || filling { &mut self.main } else { &mut self.small };
        queue.push(key, size);
        self.uses.insert(key, 0);
        false
    }
}
