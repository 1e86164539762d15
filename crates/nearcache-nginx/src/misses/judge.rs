//! Why was a request not served from the cache? One reason each, from the line and the past.
//!
//! Headers that forbid storing come first, then what the key's past shows. A reason is
//! claimed only if the log shows it. A request with two possible reasons has a class of its own.

use xxhash_rust::xxh3::xxh3_64;

use crate::log::record::{CacheStatus, Field};
use crate::log::request::Request;
use crate::misses::freshness::{CacheValid, Verdict};
use crate::misses::why::Why;
use crate::urls::keys::{FETCHED, Keys, PROVEN, STORED, Seen, UNKNOWN_TTL};
use crate::urls::spelling::Spelling;

/// What of the configuration decides about misses, as far as it is known.
#[derive(Clone, Debug)]
pub struct Rules {
    pub valid: CacheValid,
    pub inactive_us: Option<i64>,
    pub min_uses: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// `None`: served from the cache, or nobody upstream was asked, or the key is not sampled.
    pub why: Option<Why>,
    /// Not served, but the past of its key is not followed: it counts under no reason.
    pub unsampled: bool,
    /// Of how many requests this one is the sample.
    pub weight: u64,
    /// It waited for another's fetch, so long.
    pub waited_us: Option<u64>,
    /// With [`Why::Fragmented`]: what differs, see [`crate::urls::spelling`].
    pub differs: u8,
}

impl Judgement {
    /// The reason, if it was not served; unknown where the past of its key is not followed.
    pub fn missed(&self) -> Option<Why> {
        self.why.or(self.unsampled.then_some(Why::Unknown))
    }
}

/// A wait for the lock ends at a look every 500 ms: less is a slow client's.
const LOCK_LOOKS_US: u64 = 500_000;
/// From the end of a fetch until its file is in place, on a slow disk.
const IN_PLACE_US: i64 = 100_000;

#[derive(Debug)]
pub struct Misses {
    rules: Rules,
    pub keys: Keys,
    scratch: Vec<u8>,
}

impl Misses {
    pub fn new(rules: Rules, most_keys: usize) -> Misses {
        Misses { rules, keys: Keys::new(most_keys), scratch: Vec::new() }
    }

    pub fn judge(&mut self, request: &Request<'_>) -> Judgement {
        match request.cache {
            // Distinct keys tell what a cache could do, even where there is none.
            None => {
                if request.is_get() {
                    self.touch(request);
                }
                plainly(request.may_have_asked().then_some(Why::Unknown))
            }
            Some(CacheStatus::Unknown) => plainly(Some(Why::Unknown)),
            Some(CacheStatus::None) => plainly(outside(request)),
            Some(CacheStatus::Bypass) => plainly(Some(bypassed(request))),
            Some(status) => self.judge_cached(request, status),
        }
    }

    fn touch(&mut self, request: &Request<'_>) {
        if self.keys.get(request.key).is_none()
            && let Some(seen) = self.remembered(request)
        {
            self.keys.put(request.key, seen);
        }
    }

    /// `None` if the key is not among the sampled.
    fn remembered(&mut self, request: &Request<'_>) -> Option<Seen> {
        if let Some(seen) = self.keys.get(request.key) {
            return Some(*seen);
        }
        let spelling = Spelling::of(request.key_text, &mut self.scratch);
        let family = spelling.family ^ request.place;
        self.keys.admits(family).then(|| Seen::new(family, spelling.oddities))
    }

    fn judge_cached(&mut self, request: &Request<'_>, status: CacheStatus) -> Judgement {
        let verdict = match status {
            CacheStatus::Miss | CacheStatus::Expired | CacheStatus::Revalidated => {
                self.rules.valid.judge(request.record)
            }
            _ => Verdict::Unsaid,
        };
        let forbidden = match verdict {
            Verdict::Not(why) if status.is_fetch() => Some(why),
            _ => None,
        };
        let Some(before) = self.remembered(request) else {
            let unsampled = status.is_fetch() && forbidden.is_none();
            return Judgement { unsampled, ..plainly(forbidden) };
        };
        let judgement = match forbidden {
            // A lock makes requests wait for each other, even if nothing will be stored.
            Some(why) => Judgement {
                waited_us: overlaps(request, &before).then(|| waited_in_vain(request)).flatten(),
                ..plainly(Some(why))
            },
            None => self.by_past(request, status, &before),
        };
        self.remember(request, status, verdict, before);
        judgement
    }

    fn by_past(&self, request: &Request<'_>, status: CacheStatus, before: &Seen) -> Judgement {
        let weight = self.keys.weight();
        let served = |waited_us| Judgement { weight, waited_us, ..Judgement::default() };
        let beside = overlaps(request, before);
        let why = match status {
            CacheStatus::Hit => return served(waited_for_copy(request, before)),
            CacheStatus::Stale | CacheStatus::Updating => return served(None),
            CacheStatus::Revalidated => Why::Expired,
            _ if beside && !never_kept(request, status, before) => Why::Duplicate,
            CacheStatus::Expired => Why::Expired,
            _ => self.why_missed(request, before),
        };
        let mut judgement = Judgement { why: Some(why), weight, ..Judgement::default() };
        if beside {
            judgement.waited_us = waited_in_vain(request);
        } else if let Some(differs) = self.other_spelling(request, why, before) {
            judgement.why = Some(Why::Fragmented);
            judgement.differs = differs;
        }
        judgement
    }

    /// Of a MISS whose response could be stored, for all the log says.
    fn why_missed(&self, request: &Request<'_>, before: &Seen) -> Why {
        if before.uses == 0 {
            return Why::Compulsory;
        }
        if before.uses < self.rules.min_uses {
            return Why::MinUses;
        }
        if !before.has(STORED | PROVEN) {
            return Why::NeverStored;
        }
        if let Some(why) = varies(request, before) {
            return why;
        }
        let (Some(start_us), false) = (request.start_us, before.last_us == i64::MIN) else {
            return Why::Unknown;
        };
        if before.expired_at(start_us) {
            return Why::Expired;
        }
        match self.rules.inactive_us {
            Some(inactive_us) if before.idle_at(start_us, inactive_us) => Why::Inactive,
            Some(_) => Why::Evicted,
            None => Why::Dropped,
        }
    }

    /// What differs, if another spelling of the key had a copy that would have done.
    fn other_spelling(&self, request: &Request<'_>, why: Why, before: &Seen) -> Option<u8> {
        let mendable = matches!(
            why,
            Why::Compulsory | Why::Expired | Why::Inactive | Why::Evicted | Why::Dropped
        );
        let sibling = self.keys.sibling(request.key, before.family).filter(|_| mendable)?;
        let start_us = request.start_us?;
        let idle = self.rules.inactive_us.is_some_and(|us| sibling.idle_at(start_us, us));
        // Without a TTL nobody knows whether the copy had expired, unless there was none before.
        let fresh = if sibling.ttl_s == UNKNOWN_TTL {
            why == Why::Compulsory
        } else {
            !sibling.expired_at(start_us)
        };
        (sibling.has(STORED) && fresh && !idle)
            .then(|| Spelling::differences(before.oddities, sibling.oddities))
    }

    fn remember(
        &mut self,
        request: &Request<'_>,
        status: CacheStatus,
        verdict: Verdict,
        before: Seen,
    ) {
        let mut seen = before;
        seen.uses = seen.uses.saturating_add(1);
        let is_store = status.is_fetch() || status == CacheStatus::Revalidated;
        if is_store {
            self.store(request, status, verdict, &mut seen);
        }
        if status != CacheStatus::Miss {
            seen.flags |= PROVEN;
            if !seen.has(STORED) && !matches!(verdict, Verdict::Not(_)) {
                seen.flags |= STORED;
                seen.stored_us = request.start_us.unwrap_or(0);
                self.keys.stored(request.key, seen.family);
            }
        }
        if let Some(end_us) = request.end_us {
            seen.last_us = seen.last_us.max(end_us);
        }
        self.keys.put(request.key, seen);
    }

    fn store(
        &mut self,
        request: &Request<'_>,
        status: CacheStatus,
        verdict: Verdict,
        seen: &mut Seen,
    ) {
        let fetched_us = request.fetched_us();
        if status.is_fetch() {
            seen.busy_until_us = seen.busy_until_us.max(fetched_us.unwrap_or(i64::MIN));
        }
        let ttl_s = match verdict {
            Verdict::Not(_) => {
                // An old copy that had expired stays; one that was missed is not there.
                if status == CacheStatus::Miss {
                    seen.flags &= !STORED;
                }
                return;
            }
            Verdict::Lives(ttl_s) => {
                if self.rules.valid.hears_what_forbids(request.record) {
                    seen.flags |= PROVEN;
                }
                ttl_s.min(UNKNOWN_TTL - 1)
            }
            Verdict::Unsaid => UNKNOWN_TTL,
        };
        if seen.uses < self.rules.min_uses {
            return;
        }
        // Until one is served it is the first fetch that tells whether any is kept.
        if !seen.has(STORED | FETCHED) || seen.has(PROVEN) {
            seen.stored_us = fetched_us.unwrap_or(0);
        }
        seen.flags |= STORED | FETCHED;
        seen.ttl_s = ttl_s;
        seen.variant = variant_of(request);
        self.keys.stored(request.key, seen.family);
    }
}

fn plainly(why: Option<Why>) -> Judgement {
    Judgement { why, weight: 1, ..Judgement::default() }
}

/// Of a request that no cache took part in.
fn outside(request: &Request<'_>) -> Option<Why> {
    match request.upstream {
        Some(upstream) if upstream.asked == 0 => None,
        _ if !request.is_get() => Some(Why::Method),
        Some(_) => Some(Why::NoCacheHere),
        // A file of nginx's own, or an upstream: the log does not say.
        None => Some(Why::Unknown),
    }
}

fn bypassed(request: &Request<'_>) -> Why {
    match request.record.text(Field::Authorization) {
        Some(text) if !matches!(text, b"" | b"0") => Why::Authorization,
        _ => Why::Bypass,
    }
}

/// Did it begin while an earlier fetch of the key was under way?
fn overlaps(request: &Request<'_>, before: &Seen) -> bool {
    request
        .began_us
        .is_some_and(|began| began.saturating_add(request.slack_us) < before.busy_until_us)
}

/// Had a fetch of this key ended well before, and yet no copy ever answered? Then it was not
/// another fetch that it missed: nothing is kept, and a lock would only make people wait.
fn never_kept(request: &Request<'_>, status: CacheStatus, before: &Seen) -> bool {
    let kept_by_us = before.stored_us.saturating_add(request.slack_us + IN_PLACE_US);
    status == CacheStatus::Miss
        && before.has(STORED | FETCHED)
        && !before.has(PROVEN)
        && request.began_us.is_some_and(|began| began > kept_by_us)
}

/// A HIT that began before its copy was stored has waited for it, until nginx looked again.
fn waited_for_copy(request: &Request<'_>, before: &Seen) -> Option<u64> {
    let began_us = request.began_us?.saturating_add(request.slack_us);
    let waited_us = u64::try_from(before.stored_us.saturating_sub(began_us)).ok()?;
    let waited_us = waited_us.next_multiple_of(LOCK_LOOKS_US).min(request.took_us());
    (before.has(STORED | FETCHED) && waited_us > 0).then_some(waited_us)
}

/// A fetch beside another that began long after the request did: the lock's time was over.
fn waited_in_vain(request: &Request<'_>) -> Option<u64> {
    let waited_us = request.request_us?.saturating_sub(request.upstream?.total_us);
    (waited_us >= LOCK_LOOKS_US).then_some(waited_us)
}

/// Had the copy been made for other headers? `None` if not.
fn varies(request: &Request<'_>, before: &Seen) -> Option<Why> {
    let vary = request.record.text(Field::Vary).filter(|vary| !vary.is_empty())?;
    let only_encoding = vary.trim_ascii().eq_ignore_ascii_case(b"accept-encoding");
    if request.record.says(Field::AcceptEncoding) && before.variant != variant_of(request) {
        return Some(Why::Variant);
    }
    match (only_encoding, request.record.says(Field::AcceptEncoding)) {
        (true, true) => None,
        (true, false) => Some(Why::Unknown),
        // A header whose value the log does not have.
        (false, _) => Some(Why::Variant),
    }
}

fn variant_of(request: &Request<'_>) -> u32 {
    let text = request.record.text(Field::AcceptEncoding).unwrap_or(b"");
    xxh3_64(text) as u32
}
