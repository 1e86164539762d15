//! How long responses live, learned from what nginx did with copies of known age.
//!
//! For a log without Cache-Control, and nobody who knows `*_cache_valid`. nginx counts in whole
//! seconds: a copy fetched in second `f` is fresh up to and with second `f + ttl`. So a hit at
//! age `a` says `ttl >= a`, and a copy found too old at age `a` says `ttl < a`. Under one time
//! to live the two do not overlap; where there are several they do, and the estimate is the one
//! that the fewest of them contradict. Between the oldest hit below it and the youngest expired
//! copy above it nothing tells: that is its uncertainty.
//!
//! Not here: which lines are evidence (`trace.rs`).

use std::collections::BTreeMap;

/// Ages above it are kept to one part in so many, so that the table is bounded.
const EXACT_S: u32 = 4096;
/// What people write: a time to live is a multiple of the largest of these that fits.
const ROUND_S: [u32; 14] =
    [86_400, 43_200, 21_600, 7200, 3600, 1800, 900, 600, 300, 60, 30, 10, 5, 2];
const FEW: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub seconds: u32,
    /// All from `least_s` to `most_s` fit the log as well; `None`: nothing was ever too old.
    pub least_s: u32,
    pub most_s: Option<u32>,
    pub fresh: u64,
    pub expired: u64,
    /// Of both, those that say otherwise.
    pub contradicting: u64,
}

#[derive(Debug, Default)]
pub struct Lifetimes {
    /// By age: found fresh, found too old.
    ages: BTreeMap<u32, (u64, u64)>,
}

impl Lifetimes {
    pub fn fresh_at(&mut self, age_s: u32) {
        self.ages.entry(coarse(age_s)).or_default().0 += 1;
    }

    pub fn expired_at(&mut self, age_s: u32) {
        // Rounded upwards: it must not contradict a hit of less than its age.
        let age_s = coarse(age_s.saturating_add(step(age_s) - 1));
        self.ages.entry(age_s).or_default().1 += 1;
    }

    /// `None` if there are too few hits to tell.
    pub fn estimate(&self) -> Option<Lifetime> {
        let fresh: u64 = self.ages.values().map(|(fresh, _)| fresh).sum();
        let expired: u64 = self.ages.values().map(|(_, expired)| expired).sum();
        if fresh == 0 || fresh + expired < FEW {
            return None;
        }
        // With a time to live from this age up to the next: who contradicts?
        let mut contradicting = fresh;
        let mut best: Option<(u64, u32, Option<u32>)> = None;
        let mut ages = self.ages.iter().peekable();
        while let Some((&age_s, (fresh, expired))) = ages.next() {
            contradicting = contradicting - fresh + expired;
            let most_s = ages.peek().map(|(next_s, _)| **next_s - 1);
            if best.is_none_or(|(least, _, _)| contradicting < least) {
                best = Some((contradicting, age_s, most_s));
            }
        }
        let (contradicting, least_s, most_s) = best?;
        let seconds = most_s.map_or(least_s, |most_s| roundest(least_s, most_s)).max(1);
        Some(Lifetime { seconds, least_s, most_s, fresh, expired, contradicting })
    }
}

fn step(age_s: u32) -> u32 {
    (age_s / EXACT_S + 1).next_power_of_two()
}

fn coarse(age_s: u32) -> u32 {
    age_s - age_s % step(age_s)
}

/// The multiple of the largest round number between these; the least if there is none.
fn roundest(least_s: u32, most_s: u32) -> u32 {
    let fits = |round: &u32| {
        let first_s = least_s.div_ceil(*round).max(1).saturating_mul(*round);
        (first_s <= most_s).then_some(first_s)
    };
    ROUND_S.iter().find_map(fits).unwrap_or(least_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(fresh: &[u32], expired: &[u32]) -> Option<Lifetime> {
        let mut lifetimes = Lifetimes::default();
        fresh.iter().for_each(|age_s| lifetimes.fresh_at(*age_s));
        expired.iter().for_each(|age_s| lifetimes.expired_at(*age_s));
        lifetimes.estimate()
    }

    fn range(found: Option<Lifetime>) -> (u32, u32, Option<u32>, u64) {
        let found = found.unwrap();
        (found.seconds, found.least_s, found.most_s, found.contradicting)
    }

    #[test]
    fn hits_and_expired_copies_enclose_the_time_to_live() {
        let fresh: Vec<u32> = (0..58).collect();
        assert_eq!(range(learned(&fresh, &[64, 71, 900])), (60, 57, Some(63), 0));
        assert_eq!(range(learned(&fresh, &[58, 71, 900])), (57, 57, Some(57), 0));
    }

    #[test]
    fn where_nothing_expires_it_is_at_least_the_oldest_hit() {
        assert_eq!(range(learned(&[7; 40], &[])), (7, 7, None, 0));
    }

    #[test]
    fn of_several_the_one_with_the_fewest_contradictions_is_taken() {
        let mut fresh = vec![5; 100];
        fresh.extend([500, 600]);
        assert_eq!(range(learned(&fresh, &[11; 50])), (10, 5, Some(10), 2));
    }

    #[test]
    fn too_little_teaches_nothing() {
        assert_eq!(learned(&[], &[9; 100]), None);
        assert_eq!(learned(&[1; 10], &[9; 10]), None);
    }

    #[test]
    fn old_ages_are_rounded_away_from_each_other() {
        let mut lifetimes = Lifetimes::default();
        for _ in 0..50 {
            lifetimes.fresh_at(86_399);
            lifetimes.expired_at(86_401);
        }
        let found = lifetimes.estimate().unwrap();
        assert_eq!((found.seconds, found.contradicting), (86_400, 0));
        for age_s in 0..300_000 {
            lifetimes.fresh_at(age_s);
            lifetimes.expired_at(u32::MAX - age_s);
        }
        assert!(lifetimes.ages.len() < 60_000);
    }
}
