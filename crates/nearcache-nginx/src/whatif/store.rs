//! nginx's table of cached responses: nodes in the order of their last use, and the manager
//! that removes them.
//!
//! From ngx_http_file_cache.c: `ngx_http_file_cache_expire` (inactive), `_forced_expire`
//! (max_size, a full zone), `_manager` (when it does which). A removed node keeps its place
//! here, so that numbers stay valid; it is then as if it had never been.
//!
//! Not here: what requests make of it (`model.rs`).

pub const NOBODY: u32 = u32::MAX;

/// `manager_files` and `manager_sleep` of `*_cache_path`. The third bound, `manager_threshold`
/// (200 ms), depends on the disk and is not modelled.
const MANAGER_FILES: u32 = 100;
const MANAGER_SLEEP_US: i64 = 50_000;
/// The longest that the manager sleeps.
const MANAGER_IDLE_S: i64 = 10;
/// So many nodes that are in use are passed over when one has to go.
const TRIES: u32 = 20;

/// One `*_cache_path`.
#[derive(Clone, Copy, Debug)]
pub struct ZoneRules {
    pub inactive_s: i64,
    /// In blocks of the file system.
    pub max_blocks: Option<u64>,
    /// How many nodes `keys_zone` has room for.
    pub max_nodes: Option<u64>,
    pub block_bytes: u32,
}

/// One response, or a place for one.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Fresh up to the end of this second.
    pub valid_s: i64,
    /// When its fetch began: what it holds is as old as that.
    pub made_us: i64,
    expire_s: i64,
    /// Until then only one request may fetch it.
    pub locked_until_us: i64,
    prev: u32,
    next: u32,
    pub uses: u32,
    /// Requests that hold it now.
    pub holders: u32,
    pub blocks: u32,
    /// Of its `Vary`; 0: it has none.
    pub variant: u32,
    pub zone: u16,
    pub is_kept: bool,
    pub exists: bool,
    pub is_updating: bool,
    pub swr_s: u32,
}

impl Node {
    fn new(zone: u16) -> Node {
        Node {
            valid_s: 0,
            made_us: 0,
            expire_s: 0,
            locked_until_us: 0,
            prev: NOBODY,
            next: NOBODY,
            uses: 0,
            holders: 0,
            blocks: 0,
            variant: 0,
            zone,
            is_kept: false,
            exists: false,
            is_updating: false,
            swr_s: 0,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Zone {
    rules: ZoneRules,
    first: u32,
    last: u32,
    pub blocks: u64,
    pub nodes: u64,
    watermark: u64,
    wakes_us: Option<i64>,
    pub peak_blocks: u64,
    pub peak_nodes: u64,
    /// Removed because nobody asked, and to make room.
    pub inactive: u64,
    pub evicted: u64,
}

#[derive(Debug)]
pub struct Store {
    pub nodes: Vec<Node>,
    pub zones: Vec<Zone>,
}

impl Store {
    /// With a node for each key; those of variants are added when they are needed.
    pub fn new(rules: &[ZoneRules], keys: usize) -> Store {
        let zone = |rules: &ZoneRules| Zone {
            rules: *rules,
            first: NOBODY,
            last: NOBODY,
            blocks: 0,
            nodes: 0,
            watermark: u64::MAX,
            wakes_us: None,
            peak_blocks: 0,
            peak_nodes: 0,
            inactive: 0,
            evicted: 0,
        };
        Store { nodes: vec![Node::new(0); keys], zones: rules.iter().map(zone).collect() }
    }

    pub fn add_node(&mut self, zone: u16) -> u32 {
        self.nodes.push(Node::new(zone));
        (self.nodes.len() - 1) as u32
    }

    /// A request came for it: it is the last to go, and goes `inactive` from now.
    pub fn touch(&mut self, node: u32, zone: u16, now_us: i64) {
        if self.nodes[node as usize].is_kept {
            self.unlink(node);
        } else {
            self.make_room(zone);
            self.nodes[node as usize] = Node { is_kept: true, ..Node::new(zone) };
            let zone = &mut self.zones[usize::from(zone)];
            zone.nodes += 1;
            zone.peak_nodes = zone.peak_nodes.max(zone.nodes);
        }
        let inactive_s = self.zone_of(node).rules.inactive_s;
        self.nodes[node as usize].expire_s = seconds(now_us).saturating_add(inactive_s);
        self.link_first(node);
    }

    /// Its file is in place now.
    pub fn put(&mut self, node: u32, file_bytes: u32) {
        let of = &mut self.nodes[node as usize];
        let zone = &mut self.zones[usize::from(of.zone)];
        let blocks = file_bytes.div_ceil(zone.rules.block_bytes.max(1));
        zone.blocks = zone.blocks - u64::from(of.blocks) + u64::from(blocks);
        zone.peak_blocks = zone.peak_blocks.max(zone.blocks);
        of.blocks = blocks;
        of.exists = true;
    }

    /// It is forgotten, with its file.
    pub fn remove(&mut self, node: u32) {
        self.unlink(node);
        let of = &mut self.nodes[node as usize];
        let zone = &mut self.zones[usize::from(of.zone)];
        zone.blocks -= u64::from(of.blocks);
        zone.nodes -= 1;
        *of = Node { holders: of.holders, ..Node::new(of.zone) };
    }

    /// The managers have worked up to this moment.
    pub fn manage(&mut self, now_us: i64) {
        for zone in 0..self.zones.len() {
            // Nobody knows when it woke before the log began.
            let mut wakes_us = self.zones[zone].wakes_us.unwrap_or(now_us);
            while wakes_us <= now_us {
                wakes_us =
                    wakes_us.saturating_add(self.manage_once(zone, wakes_us, now_us).max(1000));
            }
            self.zones[zone].wakes_us = Some(wakes_us);
        }
    }

    /// One round; how long it then sleeps.
    fn manage_once(&mut self, zone: usize, at_us: i64, now_us: i64) -> i64 {
        let mut files = 0;
        let sleeps_s = loop {
            let last = self.zones[zone].last;
            if last == NOBODY {
                break MANAGER_IDLE_S;
            }
            let left_s = self.nodes[last as usize].expire_s.saturating_sub(seconds(at_us));
            if left_s > 0 {
                break left_s;
            }
            self.retire(last, zone, at_us);
            files += 1;
            if files >= MANAGER_FILES {
                return MANAGER_SLEEP_US;
            }
        };
        while self.is_too_full(zone) {
            if !self.evict_one(zone) {
                return 1_000_000;
            }
            files += 1;
            if files >= MANAGER_FILES {
                return MANAGER_SLEEP_US;
            }
        }
        if sleeps_s <= MANAGER_IDLE_S && self.zones[zone].last != NOBODY {
            return sleeps_s * 1_000_000;
        }
        // It wakes every ten seconds and finds nothing to do: all at once, or a log with a
        // gap of years would take as long.
        let idle_us = MANAGER_IDLE_S * 1_000_000;
        let until_now = now_us.saturating_sub(at_us) / idle_us;
        let rounds = if self.zones[zone].last == NOBODY {
            until_now
        } else {
            until_now.min(sleeps_s / MANAGER_IDLE_S)
        };
        rounds.max(1) * idle_us
    }

    fn retire(&mut self, node: u32, zone: usize, now_us: i64) {
        if self.nodes[node as usize].holders == 0 {
            self.zones[zone].inactive += 1;
            self.remove(node);
            return;
        }
        self.unlink(node);
        let inactive_s = self.zones[zone].rules.inactive_s;
        self.nodes[node as usize].expire_s = seconds(now_us).saturating_add(inactive_s.max(1));
        self.link_first(node);
    }

    fn is_too_full(&self, zone: usize) -> bool {
        let zone = &self.zones[zone];
        zone.last != NOBODY
            && (zone.rules.max_blocks.is_some_and(|most| zone.blocks >= most)
                || zone.nodes >= zone.watermark)
    }

    fn evict_one(&mut self, zone: usize) -> bool {
        let mut node = self.zones[zone].last;
        for _ in 0..TRIES {
            if node == NOBODY {
                return false;
            }
            if self.nodes[node as usize].holders == 0 {
                self.zones[zone].evicted += 1;
                self.remove(node);
                return true;
            }
            node = self.nodes[node as usize].prev;
        }
        false
    }

    /// The zone in shared memory is full: the worker itself makes room, and from then on the
    /// manager keeps an eighth free.
    fn make_room(&mut self, zone: u16) {
        let of = &mut self.zones[usize::from(zone)];
        if of.rules.max_nodes.is_some_and(|most| of.nodes >= most) {
            of.watermark = (of.nodes - of.nodes / 8).max(1);
            self.evict_one(usize::from(zone));
        }
    }

    fn zone_of(&self, node: u32) -> &Zone {
        &self.zones[usize::from(self.nodes[node as usize].zone)]
    }

    fn link_first(&mut self, node: u32) {
        let zone = usize::from(self.nodes[node as usize].zone);
        let second = std::mem::replace(&mut self.zones[zone].first, node);
        self.nodes[node as usize].prev = NOBODY;
        self.nodes[node as usize].next = second;
        match second {
            NOBODY => self.zones[zone].last = node,
            _ => self.nodes[second as usize].prev = node,
        }
    }

    fn unlink(&mut self, node: u32) {
        let Node { prev, next, zone, .. } = self.nodes[node as usize];
        let zone = usize::from(zone);
        match prev {
            NOBODY => self.zones[zone].first = next,
            _ => self.nodes[prev as usize].next = next,
        }
        match next {
            NOBODY => self.zones[zone].last = prev,
            _ => self.nodes[next as usize].prev = prev,
        }
    }
}

/// What `ngx_time()` says at that moment.
pub fn seconds(us: i64) -> i64 {
    us.div_euclid(1_000_000)
}
