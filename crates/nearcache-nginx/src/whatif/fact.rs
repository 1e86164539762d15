//! What a log shows of one key: its file, its fetches, whether it is ever stored, how it changes.
//!
//! Not here: the key itself and its requests (`trace.rs`).

use crate::ledger::prices::{self, Fetches};
use crate::log::numbers;
use crate::log::record::{CacheStatus, Field};
use crate::log::request::Request;
use crate::whatif::asked::{
    AS_BEFORE, Asked, BEFORE, CHANGED, FAILED, GOOD, LONGEST_LIFE, NOT_ASKED, UNSAID,
};
use crate::whatif::lifetime::Lifetimes;
use crate::whatif::store::seconds;

/// nginx's own header in a file, "\nKEY: " and "\n".
const FILE_HEADER: u32 = 336 + 6 + 1;
/// Of a response's head, where the log has the size of the body only.
const USUAL_HEAD: u32 = 300;

/// What the log shows of one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fact {
    /// Its location, and its URL group.
    pub place: u16,
    pub group: u32,
    /// Of its file in the cache, header and all; 0: never seen whole.
    pub file_bytes: u32,
    pub fetches: Fetches,
    /// Size of its last fetched response; 0: none.
    version: u32,
    /// When the last fetch began; 0: none.
    fetch_began_us: i64,
    /// Was it asked for before?
    is_known: bool,
    /// Was it ever answered from the cache, or found there too old?
    was_stored: bool,
    /// Was it ever fetched although a copy should have been fresh?
    missed_fresh: bool,
    pub swr_s: u32,
    last_life: u32,
    /// The second in which its copy was fetched, if that is known.
    stored_s: Option<i64>,
    /// How soon it was missed again, where nothing said how long it lives; 0: never.
    missed_again_us: i64,
}

impl Fact {
    pub fn new(place: u16, group: u32) -> Fact {
        Fact { place, group, last_life: UNSAID, ..Fact::default() }
    }

    /// How long responses live that do not say was learned since: what was missed sooner?
    pub fn judge(&mut self, life_s: u32) {
        self.missed_fresh |= (1..fresh_us(life_s)).contains(&self.missed_again_us);
    }

    /// Asked for again while it should have been fresh, and never once in the cache.
    pub fn is_never_stored(&self) -> bool {
        self.missed_fresh && !self.was_stored
    }
}

/// Refetches of one key: how long after the fetch before, in powers of two of a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refetches {
    pub count: u64,
    pub changed: u64,
    pub sum_us: u64,
}

impl Fact {
    /// True if the line tells of a response of its own.
    pub fn learn(
        &mut self,
        request: &Request<'_>,
        asked: &mut Asked,
        refetches: &mut [Refetches],
    ) -> bool {
        let is_fetch = asked.logged.is_fetch() || asked.logged == CacheStatus::Unknown;
        let bytes = response_bytes(request, is_fetch);
        if bytes > 0 && (is_fetch || self.file_bytes == 0) {
            let key_bytes = request.key_text.len() as u32;
            self.file_bytes = bytes.saturating_add(FILE_HEADER + key_bytes);
        }
        let was_there =
            !matches!(asked.logged, CacheStatus::Miss | CacheStatus::Bypass | CacheStatus::Unknown);
        if was_there && !self.is_known {
            asked.flags |= BEFORE;
        }
        self.is_known = true;
        self.was_stored |= was_there;
        if let Some(control) = request.record.text(Field::CacheControl) {
            self.swr_s = stale_while_revalidate(control);
        }
        if asked.upstream_us != NOT_ASKED && prices::is_telling(asked.logged) {
            self.fetches.add(u64::from(asked.upstream_us));
        }
        if is_fetch {
            self.fetched(asked, bytes, refetches);
        } else if asked.logged == CacheStatus::Revalidated {
            let after_us = asked.start_us.saturating_sub(self.fetch_began_us);
            if self.fetch_began_us != 0 && after_us > 0 {
                add_refetch(refetches, after_us, false);
            }
            self.fetch_began_us = asked.start_us;
        }
        is_fetch
    }

    fn fetched(&mut self, asked: &mut Asked, bytes: u32, refetches: &mut [Refetches]) {
        let after_us = asked.start_us.saturating_sub(self.fetch_began_us);
        let was_fetched = self.fetch_began_us != 0 && after_us > 0;
        if was_fetched && asked.logged == CacheStatus::Miss {
            // A second more than the fetch took.
            let fetch_us = if asked.upstream_us == NOT_ASKED { 0 } else { asked.upstream_us };
            let known_us = i64::from(fetch_us) + 1_000_000;
            if self.last_life <= LONGEST_LIFE {
                self.missed_fresh |= (known_us..fresh_us(self.last_life)).contains(&after_us);
            } else if self.last_life == UNSAID && after_us >= known_us {
                let before_us = self.missed_again_us;
                self.missed_again_us =
                    if before_us == 0 { after_us } else { before_us.min(after_us) };
            }
        }
        if was_fetched && bytes > 0 && self.version > 0 {
            let has_changed = bytes != self.version;
            add_refetch(refetches, after_us, has_changed);
            if has_changed {
                asked.flags |= CHANGED;
            }
        }
        if bytes > 0 {
            self.version = bytes;
        }
        self.fetch_began_us = asked.start_us;
        if asked.life != AS_BEFORE {
            self.last_life = asked.life;
        }
    }
}

impl Fact {
    /// What this request shows of how long a copy of unsaid life lives, and since when there is one.
    pub fn witness(&mut self, asked: &Asked, lifetimes: &mut Lifetimes) {
        let age_s = self.stored_s.filter(|_| self.last_life == UNSAID).and_then(|stored_s| {
            // Lines are in the order in which requests ended: this one may have begun before.
            u32::try_from(seconds(asked.start_us) - stored_s).ok()
        });
        match (asked.logged, age_s) {
            (CacheStatus::Hit, Some(age_s)) => lifetimes.fresh_at(age_s),
            (
                CacheStatus::Expired
                | CacheStatus::Stale
                | CacheStatus::Updating
                | CacheStatus::Revalidated,
                Some(age_s),
            ) => lifetimes.expired_at(age_s),
            _ => {}
        }
        match asked.logged {
            CacheStatus::Hit | CacheStatus::Updating => {}
            CacheStatus::Stale if asked.has(FAILED) => {}
            CacheStatus::Miss
            | CacheStatus::Expired
            | CacheStatus::Stale
            | CacheStatus::Revalidated
                if asked.has(GOOD) && asked.upstream_us != NOT_ASKED =>
            {
                let took_us = i64::from(asked.upstream_us);
                self.stored_s = Some(seconds(asked.start_us.saturating_add(took_us)));
            }
            _ => self.stored_s = None,
        }
    }
}

/// Ten minutes are the least `inactive` in use.
fn fresh_us(life_s: u32) -> i64 {
    i64::from(life_s.min(600)) * 1_000_000
}

fn add_refetch(refetches: &mut [Refetches], after_us: i64, has_changed: bool) {
    let log = (after_us as u64 / 1_000_000).checked_ilog2();
    let of = &mut refetches[log.map_or(0, |log| log as usize + 1)];
    of.count += 1;
    of.sum_us = of.sum_us.saturating_add(after_us as u64);
    of.changed += u64::from(has_changed);
}

/// Head and body of a whole response; 0 if the line does not show one.
fn response_bytes(request: &Request<'_>, is_fetch: bool) -> u32 {
    let method = request.method.unwrap_or(b"GET");
    if !matches!(request.record.status(), Some(200..=299 | 300..=303 | 307 | 308 | 400..=498))
        || request.record.status() == Some(206)
    {
        return 0;
    }
    let upstream = request.record.text(Field::UpstreamBytes).and_then(numbers::whole);
    let bytes = match upstream.filter(|bytes| is_fetch && *bytes > 0) {
        Some(bytes) => bytes,
        None if method == b"GET" => request.bytes + u64::from(USUAL_HEAD),
        None => return 0,
    };
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn stale_while_revalidate(control: &[u8]) -> u32 {
    const NAME: &[u8] = b"stale-while-revalidate=";
    let Some(at) = control.windows(NAME.len()).position(|word| word.eq_ignore_ascii_case(NAME))
    else {
        return 0;
    };
    let rest = &control[at + NAME.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    numbers::whole(&rest[..digits]).map_or(0, |seconds| u32::try_from(seconds).unwrap_or(u32::MAX))
}
