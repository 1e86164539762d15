//! What nginx would have done with the requests of a log, under given rules.
//!
//! Each rule, and where nginx has it (1.22 to 1.31 agree):
//!
//! | rule | source |
//! |---|---|
//! | fresh until the *end* of second `floor(stored) + ttl` | ngx_http_file_cache_read: `valid_sec < ngx_time()` |
//! | a response is there when its fetch has ended; until then others miss, too | ngx_http_file_cache_update |
//! | `inactive` counts from the last request, not the last fetch | ngx_http_file_cache_exists: `fcn->expire` |
//! | removal by a manager that sleeps up to 10 s | `store.rs` |
//! | below `min_uses` nothing is stored: MISS | ngx_http_file_cache_exists: `NGX_HTTP_CACHE_SCARCE` |
//! | too old: STALE and a fetch behind it (`background_update`), UPDATING for others (`use_stale updating`), else EXPIRED, all of them | ngx_http_upstream_cache |
//! | `cache_lock` holds for what is not there, not for what is too old; who waits looks every 500 ms | ngx_http_file_cache_lock, _lock_wait |
//! | after `lock_timeout` it is fetched, and not stored | ngx_http_file_cache_lock_wait |
//! | a variant lies under its own key, behind the main one | ngx_http_file_cache_reopen |
//! | BYPASS stores nothing, or with `no_cache` not set for it, anew | ngx_http_upstream_send_response |
//! | what may not be stored leaves no node (with `min_uses` 1) | ngx_http_file_cache_free |
//!
//! REVALIDATED counts as EXPIRED: which of the two depends on the origin. Not modelled: purges,
//! `min_free`, failing upstreams other than those that the log shows, restarts.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::log::record::CacheStatus;
use crate::whatif::asked::{
    AS_BEFORE, Asked, CHANGED, FAILED, FORBIDDEN, GET, GOOD, LONGEST_LIFE, NOT_ASKED, UNSAID,
};
use crate::whatif::outcome::Outcome;
use crate::whatif::rekey::Rekeyed;
use crate::whatif::rules::{PlaceRules, Rules};
use crate::whatif::store::{Store, seconds};
use crate::whatif::trace::Trace;

const LOCK_LOOKS_US: i64 = 500_000;
/// Of a response that was never seen whole.
const USUAL_FILE_BYTES: u32 = 4096;

enum What {
    /// The fetch for this request has ended.
    Fetched { asked: u32, node: u32, is_owner: bool, stores: bool },
    /// This request looks whether the lock is free.
    Look { asked: u32, node: u32, until_us: i64 },
}

struct Event {
    at_us: i64,
    number: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.number == other.number
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Event) -> std::cmp::Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

/// Replays a trace.
pub fn replay(trace: &Trace, rules: &Rules, rekeyed: &Rekeyed) -> Outcome {
    let mut model = Model {
        trace,
        rules,
        rekeyed,
        store: Store::new(&rules.zones, rekeyed.count()),
        variants: HashMap::new(),
        lives: vec![AS_BEFORE; trace.keys.len()],
        changed_us: vec![i64::MIN; trace.keys.len()],
        events: BinaryHeap::new(),
        numbers: 0,
        outcome: Outcome::new(rekeyed.count()),
    };
    model.run();
    model.outcome.finish(&model.store, rules, rekeyed);
    model.outcome
}

struct Model<'a> {
    trace: &'a Trace,
    rules: &'a Rules,
    rekeyed: &'a Rekeyed,
    store: Store,
    /// Nodes of variants, by main key and variant.
    variants: HashMap<(u32, u32), u32>,
    /// By key as logged: what its last response said of its life.
    lives: Vec<u32>,
    /// By key as logged: since when the origin is known to have something new.
    changed_us: Vec<i64>,
    events: BinaryHeap<Reverse<Event>>,
    numbers: u64,
    outcome: Outcome,
}

impl Model<'_> {
    fn run(&mut self) {
        for number in 0..self.trace.requests.len() {
            let asked = self.asked(number as u32);
            self.advance(asked.start_us);
            self.store.manage(asked.start_us);
            self.note(&asked);
            self.arrive(number as u32, &asked);
        }
        self.advance(i64::MAX);
    }

    fn asked(&self, number: u32) -> Asked {
        let mut asked = self.trace.requests[number as usize];
        asked.start_us = asked.start_us.saturating_add(self.rules.later_us);
        asked
    }

    /// Everything that happens up to this moment.
    fn advance(&mut self, until_us: i64) {
        while self.events.peek().is_some_and(|Reverse(event)| event.at_us <= until_us) {
            let Some(Reverse(event)) = self.events.pop() else { return };
            self.store.manage(event.at_us);
            match event.what {
                What::Fetched { asked, node, is_owner, stores } => {
                    self.fetched(asked, node, is_owner, stores, event.at_us);
                }
                What::Look { asked, node, until_us } => {
                    self.look(asked, node, until_us, event.at_us);
                }
            }
        }
    }

    fn at(&mut self, at_us: i64, what: What) {
        self.numbers += 1;
        self.events.push(Reverse(Event { at_us, number: self.numbers, what }));
    }

    fn note(&mut self, asked: &Asked) {
        let key = asked.key as usize;
        if asked.has(CHANGED) {
            self.changed_us[key] = asked.start_us;
        }
        if asked.life != AS_BEFORE {
            self.lives[key] = asked.life;
        }
    }

    // -- a request, as ngx_http_upstream_cache and ngx_http_file_cache_open take it

    fn arrive(&mut self, number: u32, asked: &Asked) {
        let place = self.place(asked);
        let Some(zone) = place.zone.filter(|_| asked.has(GET)) else {
            self.outcome.uncached(asked);
            return;
        };
        if asked.logged == CacheStatus::Bypass {
            self.bypass(number, asked, zone, &place);
            return;
        }
        let main = self.rekeyed.keys[asked.key as usize];
        let (was_kept, node) = self.find(main, asked, zone);
        let of = &self.store.nodes[node as usize];
        let (exists, enough) = (of.exists, of.uses >= place.min_uses || (was_kept && of.exists));
        self.store.nodes[node as usize].holders += 1;
        if !enough {
            self.fetch(number, asked, node, asked.start_us, false, false, CacheStatus::Miss);
        } else if exists {
            self.found(number, asked, node, asked.start_us);
        } else {
            self.missing(number, asked, node, asked.start_us, None);
        }
    }

    /// The node of a key or, behind it, of the variant that this request asks for. Was it kept?
    fn find(&mut self, main: u32, asked: &Asked, zone: u16) -> (bool, u32) {
        let was_kept = self.use_once(main, zone, asked.start_us);
        let of = &self.store.nodes[main as usize];
        if !of.exists || of.variant == 0 || of.variant == asked.variant {
            return (was_kept, main);
        }
        let store = &mut self.store;
        let node =
            *self.variants.entry((main, asked.variant)).or_insert_with(|| store.add_node(zone));
        (self.use_once(node, zone, asked.start_us), node)
    }

    fn use_once(&mut self, node: u32, zone: u16, now_us: i64) -> bool {
        let was_kept = self.store.nodes[node as usize].is_kept;
        self.store.touch(node, zone, now_us);
        let uses = &mut self.store.nodes[node as usize].uses;
        *uses = uses.saturating_add(1);
        was_kept
    }

    /// There is a response: is it fresh enough?
    fn found(&mut self, number: u32, asked: &Asked, node: u32, now_us: i64) {
        let place = self.place(asked);
        let of = &mut self.store.nodes[node as usize];
        if seconds(now_us) <= of.valid_s {
            self.serve(asked, node, now_us, CacheStatus::Hit);
            return;
        }
        let swr = seconds(now_us) <= of.valid_s.saturating_add(i64::from(of.swr_s));
        let may_be_stale = place.stale_updating || swr;
        let is_first = !std::mem::replace(&mut of.is_updating, true);
        if !is_first && may_be_stale {
            self.serve(asked, node, now_us, CacheStatus::Updating);
        } else if is_first && may_be_stale && place.background {
            self.store.nodes[node as usize].holders += 1;
            self.start_fetch(number, asked, node, now_us, true, true);
            self.serve(asked, node, now_us, CacheStatus::Stale);
        } else if asked.has(FAILED) {
            self.outcome.fetched(self.fetch_us(asked));
            self.store.nodes[node as usize].is_updating &= !is_first;
            self.serve(asked, node, now_us, CacheStatus::Stale);
        } else {
            self.fetch(number, asked, node, now_us, is_first, true, CacheStatus::Expired);
        }
    }

    /// There is none. `until_us`: when it has waited long enough, if it waits already.
    fn missing(
        &mut self,
        number: u32,
        asked: &Asked,
        node: u32,
        now_us: i64,
        until_us: Option<i64>,
    ) {
        let place = self.place(asked);
        if !place.lock {
            self.fetch(number, asked, node, now_us, false, true, CacheStatus::Miss);
            return;
        }
        let of = &mut self.store.nodes[node as usize];
        if !of.is_updating || of.locked_until_us <= now_us {
            of.is_updating = true;
            of.locked_until_us = now_us.saturating_add(place.lock_age_us);
            self.fetch(number, asked, node, now_us, true, true, CacheStatus::Miss);
            return;
        }
        let until_us = until_us.unwrap_or(now_us.saturating_add(place.lock_timeout_us));
        if until_us <= now_us {
            self.fetch(number, asked, node, now_us, false, false, CacheStatus::Miss);
            return;
        }
        let look_us = now_us.saturating_add(LOCK_LOOKS_US).min(until_us);
        self.at(look_us, What::Look { asked: number, node, until_us });
    }

    fn look(&mut self, number: u32, node: u32, until_us: i64, now_us: i64) {
        let asked = self.asked(number);
        let of = &self.store.nodes[node as usize];
        if of.exists {
            self.found(number, &asked, node, now_us);
        } else {
            self.missing(number, &asked, node, now_us, Some(until_us));
        }
    }

    fn bypass(&mut self, number: u32, asked: &Asked, zone: u16, place: &PlaceRules) {
        self.outcome.answered(asked, self.rekeyed, CacheStatus::Bypass, 0, self.rules);
        if !place.bypass_stores {
            self.outcome.fetched(self.fetch_us(asked));
            return;
        }
        let main = self.rekeyed.keys[asked.key as usize];
        let (_, node) = self.find(main, asked, zone);
        self.store.nodes[node as usize].holders += 1;
        self.start_fetch(number, asked, node, asked.start_us, false, true);
    }

    fn serve(&mut self, asked: &Asked, node: u32, now_us: i64, status: CacheStatus) {
        let fetch_us = self.fetch_us(asked);
        let of = &mut self.store.nodes[node as usize];
        of.holders -= 1;
        let age_us = now_us.saturating_sub(of.made_us).max(0);
        let changed_us = self.changed_us[asked.key as usize];
        let is_outdated = changed_us > of.made_us && changed_us <= now_us;
        self.outcome.served(fetch_us, age_us, is_outdated, asked, self.rules);
        let waited_us = now_us - asked.start_us;
        self.outcome.answered(asked, self.rekeyed, status, waited_us, self.rules);
    }

    // -- fetches

    #[allow(clippy::too_many_arguments)]
    fn fetch(
        &mut self,
        number: u32,
        asked: &Asked,
        node: u32,
        now_us: i64,
        is_owner: bool,
        stores: bool,
        status: CacheStatus,
    ) {
        self.start_fetch(number, asked, node, now_us, is_owner, stores);
        let waited_us = now_us - asked.start_us;
        self.outcome.answered(asked, self.rekeyed, status, waited_us, self.rules);
    }

    fn start_fetch(
        &mut self,
        number: u32,
        asked: &Asked,
        node: u32,
        now_us: i64,
        is_owner: bool,
        stores: bool,
    ) {
        let us = self.fetch_us(asked);
        self.outcome.fetched(us);
        let ends_us = now_us.saturating_add(us as i64);
        self.at(ends_us, What::Fetched { asked: number, node, is_owner, stores });
    }

    fn fetched(&mut self, number: u32, node: u32, is_owner: bool, stores: bool, now_us: i64) {
        let asked = self.asked(number);
        let place = self.place(&asked);
        let life_s = if stores { self.life_s(&asked) } else { None };
        let made_us = now_us.saturating_sub(self.fetch_us(&asked) as i64);
        let of = &mut self.store.nodes[node as usize];
        of.holders -= 1;
        of.is_updating &= !is_owner;
        if let Some(life_s) = life_s {
            of.valid_s = seconds(now_us).saturating_add(i64::from(life_s));
            of.made_us = made_us;
            of.variant = asked.variant;
            let fact = &self.trace.keys.facts[asked.key as usize];
            of.swr_s = fact.swr_s;
            let bytes = if fact.file_bytes > 0 { fact.file_bytes } else { USUAL_FILE_BYTES };
            self.store.put(node, bytes);
        } else if !of.exists && of.holders == 0 && of.is_kept && place.min_uses == 1 {
            self.store.remove(node);
        }
    }

    /// How long the response for this request is kept; `None`: not at all.
    fn life_s(&self, asked: &Asked) -> Option<u32> {
        if asked.has(FAILED) {
            return None;
        }
        let key = asked.key as usize;
        let said = if asked.life == AS_BEFORE { self.lives[key] } else { asked.life };
        let ttl_s = self.rules.ttl_s.filter(|_| asked.has(GOOD));
        match self.rekeyed.lengths.get(key).copied().flatten() {
            Some(length) => {
                let (_, most) = self.rules.max_length.as_ref()?;
                let forbids = said == FORBIDDEN || !asked.has(GOOD);
                if length as usize > *most || forbids {
                    return None;
                }
                let said = (said <= LONGEST_LIFE).then_some(said).or(self.usual_s());
                ttl_s.or(said)
            }
            None if self.rules.trust_evidence && self.trace.keys.facts[key].is_never_stored() => {
                None
            }
            None if said <= LONGEST_LIFE => Some(ttl_s.unwrap_or(said)),
            None if self.rules.assume_stored && matches!(said, UNSAID | AS_BEFORE) => ttl_s,
            None if said == UNSAID && asked.has(GOOD) => {
                self.rules.unsaid_s.map(|s| ttl_s.unwrap_or(s))
            }
            None if said == AS_BEFORE => ttl_s.or(self.usual_s()),
            None => None,
        }
    }

    fn usual_s(&self) -> Option<u32> {
        self.trace.usual_life.or(self.rules.unsaid_s)
    }

    /// How long its fetch took, or would take.
    fn fetch_us(&self, asked: &Asked) -> u64 {
        match asked.upstream_us {
            NOT_ASKED => self.trace.prices_us[asked.key as usize],
            us => u64::from(us),
        }
    }

    fn place(&self, asked: &Asked) -> PlaceRules {
        let last = self.rules.places.len() - 1;
        self.rules.places[usize::from(asked.place).min(last)]
    }
}
