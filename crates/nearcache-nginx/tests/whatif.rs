//! The model obeys the laws that any cache does, and no log makes it panic.

use nearcache_nginx::whatif::{
    KeyRules, Outcome, PlaceRules, Rekeyed, Rules, Trace, TraceOptions, ZoneRules, replay,
};
use nearcache_nginx::{CacheValid, Format, Locations, Reader};
use proptest::prelude::*;

const FORMAT: &str = "$msec $request_time $upstream_response_time $upstream_cache_status \
                      $status $body_bytes_sent $request_method $request_uri $upstream_http_cache_control";

fn trace_of(log: &[u8], max_requests: usize) -> Trace {
    let mut trace = Trace::new(TraceOptions {
        places: Locations::new(&[]).unwrap(),
        valid: vec![CacheValid { valid_s: Some(vec![(Some(200), 60)]), ignored: 0 }],
        sample_by: KeyRules::default(),
        max_keys: 1_000_000,
        max_requests,
        key_parts: Vec::new(),
    });
    let mut reader = Reader::new(Format::compile(FORMAT, None).unwrap());
    reader.feed(log, &mut trace);
    reader.finish(&mut trace);
    trace.finish();
    trace
}

/// Lines for (tenths of a second after the one before, key): fetched in no time.
fn log_of(requests: &[(u16, u8)], bytes: impl Fn(u8) -> u32) -> Vec<u8> {
    let mut tenths = 17_000_000_000u64;
    let mut log = String::new();
    for (gap, key) in requests {
        tenths += u64::from(*gap);
        let (seconds, tenth) = (tenths / 10, tenths % 10);
        log += &format!("{seconds}.{tenth}00 0.000 0.000 MISS 200 {} GET /{key} -\n", bytes(*key));
    }
    log.into_bytes()
}

fn rules() -> Rules {
    Rules {
        zones: vec![ZoneRules {
            inactive_s: i64::from(u32::MAX),
            max_blocks: None,
            max_nodes: None,
            block_bytes: 4096,
        }],
        places: vec![PlaceRules {
            zone: Some(0),
            min_uses: 1,
            lock: false,
            lock_timeout_us: 5_000_000,
            lock_age_us: 5_000_000,
            stale_updating: false,
            background: false,
            bypass_stores: false,
        }],
        ttl_s: None,
        key: KeyRules::default(),
        max_length: None,
        assume_stored: false,
        unsaid_s: None,
        trust_evidence: false,
        settled_us: i64::MIN,
        later_us: 0,
    }
}

fn run(trace: &Trace, rules: &Rules) -> Outcome {
    let subject = rules.max_length.as_ref().map(|(subject, _)| subject);
    replay(trace, rules, &Rekeyed::new(trace, &rules.key, subject))
}

fn served(trace: &Trace, change: impl FnOnce(&mut Rules)) -> u64 {
    let mut rules = rules();
    change(&mut rules);
    run(trace, &rules).all.served()
}

/// What nginx does with `lines` (time, took, target) and these rules: statuses in order.
fn statuses(lines: &[(f64, f64, &str)], change: impl FnOnce(&mut Rules)) -> Vec<(usize, u64)> {
    let log: String = lines
        .iter()
        .map(|(at, took, uri)| {
            format!(
                "{:.3} {took:.3} {took:.3} MISS 200 100 GET {uri} -\n",
                1_700_000_000.0 + at + took
            )
        })
        .collect();
    let mut rules = rules();
    change(&mut rules);
    let outcome = run(&trace_of(log.as_bytes(), 1 << 20), &rules);
    let by = outcome.all.by.iter().map(|answers| answers.requests).enumerate();
    by.filter(|(_, requests)| *requests > 0).collect()
}

const MISS: usize = 1;
const EXPIRED: usize = 3;
const STALE: usize = 4;
const UPDATING: usize = 5;
const HIT: usize = 7;

#[test]
fn a_response_is_fresh_to_the_end_of_its_last_second() {
    // Stored at .5, so valid until second 60 has ended: for up to a second more than a minute.
    let at = |last| [(0.5, 0.0, "/"), (last, 0.0, "/")];
    assert_eq!(statuses(&at(60.999), |_| {}), [(MISS, 1), (HIT, 1)]);
    assert_eq!(statuses(&at(61.0), |_| {}), [(MISS, 1), (EXPIRED, 1)]);
}

#[test]
fn without_a_lock_everybody_fetches_what_is_being_fetched() {
    let lines = [(0.0, 1.0, "/"), (0.5, 1.0, "/"), (1.1, 0.0, "/")];
    assert_eq!(statuses(&lines, |_| {}), [(MISS, 2), (HIT, 1)]);
}

#[test]
fn with_a_lock_the_others_wait_and_look_every_half_second() {
    let lines = [(0.0, 1.2, "/"), (0.1, 1.2, "/")];
    assert_eq!(statuses(&lines, |rules| rules.places[0].lock = true), [(MISS, 1), (HIT, 1)]);
    let trace = trace_of(
        b"1700000001.200 1.200 1.200 MISS 200 9 GET / -\n1700000001.300 1.200 1.200 MISS 200 9 GET / -\n",
        9,
    );
    let mut rules = rules();
    rules.places[0].lock = true;
    let outcome = run(&trace, &rules);
    // It came at 0.1 and looks at 0.6, 1.1 and 1.6.
    assert_eq!((outcome.lock_waits, outcome.lock_wait_us), (1, 1_500_000));
    rules.places[0].lock_timeout_us = 300_000;
    assert_eq!(run(&trace, &rules).all.served(), 0, "after the timeout it fetches itself");
}

#[test]
fn a_background_update_keeps_everybody_from_waiting() {
    let lines = [(0.0, 0.0, "/"), (70.0, 0.5, "/"), (70.1, 0.5, "/"), (70.6, 0.0, "/")];
    let on = |rules: &mut Rules| {
        (rules.places[0].background, rules.places[0].stale_updating) = (true, true);
    };
    assert_eq!(statuses(&lines, on), [(MISS, 1), (STALE, 1), (UPDATING, 1), (HIT, 1)]);
    let only_updating = |rules: &mut Rules| rules.places[0].stale_updating = true;
    assert_eq!(statuses(&lines, only_updating), [(MISS, 1), (EXPIRED, 1), (UPDATING, 1), (HIT, 1)]);
}

#[test]
fn inactive_counts_from_the_last_request() {
    let lines = [(0.0, 0.0, "/"), (8.0, 0.0, "/"), (16.0, 0.0, "/"), (40.0, 0.0, "/")];
    let short = |rules: &mut Rules| rules.zones[0].inactive_s = 10;
    assert_eq!(statuses(&lines, short), [(MISS, 2), (HIT, 2)]);
}

#[test]
fn min_uses_stores_at_the_second_request() {
    let lines = [(0.0, 0.0, "/"), (1.0, 0.0, "/"), (2.0, 0.0, "/")];
    let two = |rules: &mut Rules| rules.places[0].min_uses = 2;
    assert_eq!(statuses(&lines, two), [(MISS, 2), (HIT, 1)]);
}

#[test]
fn max_size_is_enforced_when_the_manager_wakes() {
    // Three blocks where two are too many; it woke at 0 and wakes at 10.
    let lines = [
        (0.0, 0.0, "/a"),
        (1.0, 0.0, "/b"),
        (2.0, 0.0, "/c"),
        (9.0, 0.0, "/a"),
        (11.0, 0.0, "/b"),
        (12.0, 0.0, "/a"),
    ];
    let small = |rules: &mut Rules| rules.zones[0].max_blocks = Some(2);
    assert_eq!(statuses(&lines, small), [(MISS, 4), (HIT, 2)]);
}

#[test]
fn a_rule_for_keys_makes_one_of_two() {
    let lines = [(0.0, 0.0, "/s?q=A"), (1.0, 0.0, "/s?q=a&utm_x=1"), (2.0, 0.0, "/s?q=b")];
    let rules = |rules: &mut Rules| rules.key = KeyRules::parse("lower,drop=utm_*").unwrap();
    assert_eq!(statuses(&lines, rules), [(MISS, 2), (HIT, 1)]);
}

#[test]
fn variants_lie_behind_the_main_key() {
    let format = "$msec \"$request\" $status $body_bytes_sent $upstream_cache_status $upstream_http_vary \"$http_accept_encoding\"";
    let mut trace = Trace::new(TraceOptions {
        places: Locations::new(&[]).unwrap(),
        valid: vec![CacheValid { valid_s: Some(vec![(Some(200), 60)]), ignored: 0 }],
        sample_by: KeyRules::default(),
        max_keys: 10,
        max_requests: 10,
        key_parts: Vec::new(),
    });
    let mut reader = Reader::new(Format::compile(format, None).unwrap());
    for (second, encoding) in ["gzip", "br", "gzip", "br", "gzip, br", "gzip,br"].iter().enumerate()
    {
        let line = format!(
            "170000000{second}.000 \"GET / HTTP/1.1\" 200 10 MISS Accept-Encoding \"{encoding}\"\n"
        );
        reader.feed(line.as_bytes(), &mut trace);
    }
    trace.finish();
    assert_eq!(run(&trace, &rules()).all.served(), 3);
}

#[test]
fn a_gap_of_centuries_takes_no_time() {
    let lines = [(-1_600_000_000.0, 0.0, "/a"), (0.0, 0.0, "/b"), (90_000_000_000.0, 0.0, "/c")];
    assert_eq!(statuses(&lines, |_| {}), [(MISS, 3)]);
}

#[test]
fn a_sample_keeps_whole_keys_and_its_share() {
    let requests: Vec<(u16, u8)> = (0..20_000u32).map(|n| (1, (n % 251) as u8)).collect();
    let log = log_of(&requests, |_| 100);
    let trace = trace_of(&log, 6000);
    assert_eq!(trace.seen, 20_000);
    assert!(trace.requests.len() <= 6000 && trace.rate() < 1.0);
    // Each kept key has all of its requests: 20,000 / 251.
    assert!(trace.requests.len().abs_diff(trace.keys.len() * 79) <= trace.keys.len());
}

proptest! {
    #[test]
    fn hits_and_misses_are_all_requests(
        requests in prop::collection::vec((0u16..400, 0u8..12), 1..200),
        lock in any::<bool>(),
        background in any::<bool>(),
        min_uses in 1u32..3,
        inactive_s in 1i64..50,
        blocks in prop::option::of(1u64..9),
        nodes in prop::option::of(1u64..9),
        took_ms in 0u32..3000,
    ) {
        let log = String::from_utf8(log_of(&requests, |key| u32::from(key) * 900)).unwrap();
        let took = format!("{}.{:03}", took_ms / 1000, took_ms % 1000);
        let log = log.replace(" 0.000 0.000 ", &format!(" {took} {took} "));
        let trace = trace_of(log.as_bytes(), 1 << 20);
        let mut rules = rules();
        let place = &mut rules.places[0];
        (place.lock, place.background, place.stale_updating) = (lock, background, background);
        place.min_uses = min_uses;
        rules.ttl_s = Some(3);
        let zone = &mut rules.zones[0];
        (zone.inactive_s, zone.max_blocks, zone.max_nodes) = (inactive_s, blocks, nodes);
        let outcome = run(&trace, &rules);
        prop_assert_eq!(outcome.all.requests(), requests.len() as u64);
        let stale = outcome.all.by[STALE].requests;
        // Who is not served fetches; a background update fetches for who is.
        prop_assert_eq!(outcome.fetches, outcome.all.requests() - outcome.all.served() + stale);
        prop_assert!(outcome.end_bytes <= outcome.peak_bytes);
    }

    #[test]
    fn a_longer_time_to_live_never_costs_hits(
        requests in prop::collection::vec((0u16..100, 0u8..5), 1..200),
        ttl_s in 1u32..30,
        more_s in 1u32..30,
    ) {
        let trace = trace_of(&log_of(&requests, |_| 10), 1 << 20);
        let short = served(&trace, |rules| rules.ttl_s = Some(ttl_s));
        let long = served(&trace, |rules| rules.ttl_s = Some(ttl_s + more_s));
        prop_assert!(short <= long, "{short} > {long}");
    }

    #[test]
    fn a_larger_cache_never_costs_hits(
        requests in prop::collection::vec((0u16..100, 0u8..20), 1..90),
        blocks in 1u64..20,
        more in 1u64..20,
    ) {
        // LRU has the inclusion property (Mattson et al., 1970), with any sizes: the smaller
        // holds what was used last. Fewer files than the manager removes at once.
        let trace = trace_of(&log_of(&requests, |key| u32::from(key) * 2000), 1 << 20);
        let forever = |rules: &mut Rules| rules.ttl_s = Some(1 << 30);
        let small = served(&trace, |rules| {
            forever(rules);
            rules.zones[0].max_blocks = Some(blocks);
        });
        let large = served(&trace, |rules| {
            forever(rules);
            rules.zones[0].max_blocks = Some(blocks + more);
        });
        prop_assert!(small <= large, "{small} > {large}");
    }

    #[test]
    fn merging_keys_never_costs_hits_where_nothing_is_removed(
        requests in prop::collection::vec((0u16..100, 0u8..20), 1..90),
    ) {
        let log = String::from_utf8(log_of(&requests, |_| 10)).unwrap();
        let log = log.replace("GET /", "GET /?a=");
        let trace = trace_of(log.as_bytes(), 1 << 20);
        let forever = |rules: &mut Rules| rules.ttl_s = Some(1 << 30);
        let apart = served(&trace, forever);
        let merged = served(&trace, |rules| {
            forever(rules);
            rules.key = KeyRules::parse("drop=a").unwrap();
        });
        prop_assert_eq!(merged, requests.len() as u64 - 1);
        prop_assert!(apart <= merged);
    }

    #[test]
    fn no_bytes_and_no_times_panic(
        times in prop::collection::vec("[0-9]{1,18}(\\.[0-9]{1,7})?|-", 1..20),
        words in prop::collection::vec("HIT|MISS|EXPIRED|BYPASS|STALE|-|x", 1..20),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        key in "(lower|strip|sort-args|drop=\\*a\\*|keep=b|alias=h:g)(,lower)?",
    ) {
        let mut log = Vec::new();
        for (number, time) in times.iter().enumerate() {
            let word = &words[number % words.len()];
            let took = &times[(number * 7 + 1) % times.len()];
            log.extend_from_slice(
                format!("{time} {took} {took} {word} 200 {took} GET /a?b={number} max-age=5\n").as_bytes(),
            );
        }
        log.extend_from_slice(b"1.0 0.1 0.1 MISS 200 1 GET ");
        log.extend_from_slice(&bytes);
        let trace = trace_of(&log, 10);
        let mut rules = rules();
        rules.key = KeyRules::parse(&key).unwrap();
        rules.zones[0].inactive_s = 600;
        rules.places[0].lock = true;
        let outcome = run(&trace, &rules);
        prop_assert_eq!(outcome.all.requests() + outcome.uncached, trace.requests.len() as u64);
    }
}
