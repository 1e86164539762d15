//! What the pass says of small logs, each a story with one lesson; and that nothing breaks it.

use nearcache_nginx::{
    CacheValid, Format, Histogram, Kind, LogPass, Options, Reader, Recent, Rules, SPELLING_NAMES,
    STATUS_NAMES, Subject, Tally, Top, WHY_NAMES,
};
use proptest::prelude::*;

fn options() -> Options {
    Options {
        locations: Vec::new(),
        groups: Vec::new(),
        max_groups: 10_000,
        rules: Rules {
            valid: CacheValid { valid_s: Some(vec![(Some(200), 3600)]), ignored: 0 },
            inactive_us: Some(600_000_000),
            min_uses: 1,
        },
        max_keys: 900_000,
        key_parts: Vec::new(),
        lengths: None,
        utc_offset_s: 0,
    }
}

fn read(options: Options, format: &str, log: &[u8]) -> LogPass {
    let mut reader = Reader::new(Format::compile(format, None).unwrap());
    let mut pass = LogPass::new(options).unwrap();
    reader.feed(log, &mut pass);
    reader.finish(&mut pass);
    pass
}

fn total(pass: &LogPass) -> Tally {
    let mut total = Tally::default();
    pass.by_location().iter().for_each(|tally| total.merge(tally));
    total
}

/// The reasons that were given, with how often.
fn reasons(tally: &Tally) -> Vec<(&'static str, u64)> {
    let named = WHY_NAMES.iter().zip(&tally.why);
    named.filter(|(_, sum)| sum.requests > 0).map(|(name, sum)| (*name, sum.requests)).collect()
}

/// End, duration, status, target; then other members of the JSON line.
struct Line(f64, f64, &'static str, &'static str, &'static str);

impl Line {
    /// As nginx would log it; who asked upstream took as long as the request.
    fn json(&self) -> String {
        let Line(end, took, status, target, more) = self;
        let asked = matches!(*status, "MISS" | "EXPIRED" | "REVALIDATED" | "BYPASS");
        let upstream = if asked { format!("{took:.3}") } else { String::new() };
        let lifetimes = r#""upstream_http_cache_control":"","upstream_http_expires":"","upstream_http_x_accel_expires":"","upstream_http_set_cookie":"""#;
        let comma = if more.is_empty() { "" } else { "," };
        format!(
            r#"{{"msec":"{end:.3}","request_time":"{took:.3}","upstream_response_time":"{upstream}","upstream_cache_status":"{status}","request_method":"GET","request_uri":"{target}","status":"200",{lifetimes}{comma}{more}}}"#
        )
    }
}

fn told(options: Options, lines: &[Line]) -> LogPass {
    let log: Vec<String> = lines.iter().map(Line::json).collect();
    read(options, "json", log.join("\n").as_bytes())
}

fn why(lines: &[Line]) -> Vec<(&'static str, u64)> {
    reasons(&total(&told(options(), lines)))
}

#[test]
fn a_first_request_is_compulsory_and_a_hit_is_no_miss() {
    let lines = [Line(1000.0, 0.2, "MISS", "/a", ""), Line(1001.0, 0.0, "HIT", "/a", "")];
    assert_eq!(why(&lines), [("compulsory", 1)]);
    let tally = total(&told(options(), &lines));
    assert_eq!(
        (tally.count().requests, tally.count().upstream_us, tally.cacheable),
        (2, 200_000, 2)
    );
    let buckets: Vec<_> = tally.fetches.buckets().iter().map(|b| (b.mean_us(), b.count)).collect();
    assert_eq!(buckets, [(200_000, 1)]);
}

#[test]
fn what_was_fresh_and_is_gone_was_inactive_or_evicted() {
    let miss = |end| Line(end, 0.0, "MISS", "/a", "");
    assert_eq!(why(&[miss(1000.0), miss(1100.0)]), [("compulsory", 1), ("evicted", 1)]);
    assert_eq!(why(&[miss(1000.0), miss(1601.0)]), [("compulsory", 1), ("inactive", 1)]);
    assert_eq!(why(&[miss(1000.0), miss(5000.0)]), [("compulsory", 1), ("expired", 1)]);
    let mut unknown = options();
    unknown.rules.inactive_us = None;
    let pass = told(unknown, &[miss(1000.0), miss(1100.0)]);
    assert_eq!(reasons(&total(&pass)), [("compulsory", 1), ("dropped", 1)]);
}

#[test]
fn a_hit_keeps_a_key_active() {
    let lines = [
        Line(1000.0, 0.0, "MISS", "/a", ""),
        Line(1500.0, 0.0, "HIT", "/a", ""),
        Line(2000.0, 0.0, "MISS", "/a", ""),
    ];
    assert_eq!(why(&lines), [("compulsory", 1), ("evicted", 1)]);
}

#[test]
fn lifetimes_that_ended_are_expired() {
    let lines = [
        Line(1000.0, 0.0, "HIT", "/a", ""),
        Line(1001.0, 0.1, "EXPIRED", "/a", ""),
        Line(1002.0, 0.1, "REVALIDATED", "/a", ""),
        Line(1003.0, 0.0, "STALE", "/a", ""),
        Line(1004.0, 0.0, "UPDATING", "/a", ""),
    ];
    assert_eq!(why(&lines), [("expired", 2)]);
}

#[test]
fn headers_say_what_forbids_storing() {
    let control = r#""upstream_http_cache_control":"private, max-age=9""#;
    let cookie = r#""upstream_http_set_cookie":"1""#;
    let lines = [
        Line(1000.0, 0.1, "MISS", "/a", control),
        Line(1001.0, 0.1, "MISS", "/a", control),
        Line(1002.0, 0.1, "MISS", "/b", cookie),
        Line(1003.0, 0.1, "MISS", "/c", r#""upstream_http_vary":"*""#),
        Line(1004.0, 0.1, "MISS", "/d", r#""upstream_http_x_accel_expires":"0""#),
        Line(1005.0, 0.1, "MISS", "/e", r#""status":"404""#),
    ];
    let expected = [("set_cookie", 1), ("private", 2), ("vary", 1), ("status", 1), ("no_ttl", 1)];
    let pass = told(options(), &lines);
    assert_eq!(reasons(&total(&pass)), expected);
    assert_eq!(total(&pass).cacheable, 0);
}

#[test]
fn a_lifetime_of_the_configuration_proves_nothing_where_cookies_are_not_logged() {
    let line = |end: f64, took: f64| {
        format!("{end:.3} {took:.3} {took:.3} MISS 200 \"GET /me HTTP/1.1\"\n")
    };
    // One after the other; then each beside the one before.
    let log = [line(1000.0, 0.1), line(1001.0, 0.1), line(1002.0, 0.5), line(1002.3, 0.5)].concat();
    let format =
        r#"$msec $request_time $upstream_response_time $upstream_cache_status $status "$request""#;
    let pass = read(options(), format, log.as_bytes());
    assert_eq!(reasons(&total(&pass)), [("compulsory", 1), ("never_stored", 3)]);
}

#[test]
fn what_is_fetched_beside_a_first_fetch_is_a_stampede_until_that_is_over() {
    let log = b"1000.500 0.500 0.500 MISS \"GET /a HTTP/1.1\"\n\
        1000.600 0.500 0.500 MISS \"GET /a HTTP/1.1\"\n\
        1000.990 0.500 0.500 MISS \"GET /a HTTP/1.1\"\n\
        1001.300 0.500 0.500 MISS \"GET /a HTTP/1.1\"\n";
    let format = r#"$msec $request_time $upstream_response_time $upstream_cache_status "$request""#;
    let found = reasons(&total(&read(options(), format, log)));
    assert_eq!(found, [("compulsory", 1), ("duplicate", 2), ("never_stored", 1)]);
}

#[test]
fn without_headers_or_configuration_never_stored_is_all_that_can_be_said() {
    let log = b"1000.000 0.100 0.100 MISS \"GET /a HTTP/1.1\"\n\
        1001.000 0.100 0.100 MISS \"GET /a HTTP/1.1\"\n\
        1002.000 0.100 0.100 MISS \"GET /b HTTP/1.1\"\n\
        1003.000 0.000 - HIT \"GET /b HTTP/1.1\"\n\
        1004.000 0.100 0.100 MISS \"GET /b HTTP/1.1\"\n";
    let mut bare = options();
    bare.rules.valid = CacheValid::default();
    let format = "$msec $request_time $upstream_response_time $upstream_cache_status \"$request\"";
    let pass = read(bare, format, log);
    let expected = [("compulsory", 2), ("evicted", 1), ("never_stored", 1)];
    assert_eq!(reasons(&total(&pass)), expected);
}

#[test]
fn a_fresh_copy_under_another_spelling_is_fragmentation() {
    let lines = [
        Line(1000.0, 0.1, "MISS", "/s?q=a&p=1", ""),
        Line(1001.0, 0.1, "MISS", "/s?p=1&q=a", ""),
        Line(1002.0, 0.1, "MISS", "/s?q=A&p=1", ""),
        Line(1003.0, 0.1, "MISS", "/s?q=a&p=1&utm_source=x", ""),
        Line(1004.0, 0.1, "MISS", "/s?q=b&p=1", ""),
        // The first spelling, when all copies are too old.
        Line(9000.0, 0.1, "MISS", "/s?q=A&p=1", ""),
    ];
    let pass = told(options(), &lines);
    let expected = [("compulsory", 2), ("expired", 1), ("fragmented", 3)];
    assert_eq!(reasons(&total(&pass)), expected);
    let spellings: Vec<_> = SPELLING_NAMES
        .iter()
        .zip(&pass.spellings)
        .map(|(name, sum)| (*name, sum.requests))
        .collect();
    assert_eq!(spellings, [("case", 2), ("order", 2), ("tracking", 1), ("encoding", 0)]);
}

#[test]
fn a_copy_for_other_headers_is_a_variant() {
    let gzip = r#""upstream_http_vary":"Accept-Encoding","http_accept_encoding":"gzip""#;
    let brotli = r#""upstream_http_vary":"Accept-Encoding","http_accept_encoding":"br""#;
    let cookie = r#""upstream_http_vary":"Cookie""#;
    let silent = r#""upstream_http_vary":"Accept-Encoding""#;
    let twice = |first, second| {
        why(&[Line(1000.0, 0.1, "MISS", "/a", first), Line(1001.0, 0.1, "MISS", "/a", second)])[1].0
    };
    assert_eq!(twice(gzip, brotli), "variant");
    assert_eq!(twice(gzip, gzip), "evicted");
    assert_eq!(twice(cookie, cookie), "variant");
    assert_eq!(twice(silent, silent), "unknown");
}

#[test]
fn fetches_of_one_key_that_overlap_are_a_stampede() {
    let lines = [
        Line(1000.500, 0.5, "MISS", "/a", ""),
        Line(1000.700, 0.5, "MISS", "/a", ""),
        Line(1000.800, 0.7, "MISS", "/a", ""),
        Line(1000.900, 0.7, "MISS", "/b", ""),
    ];
    let tally = total(&told(options(), &lines));
    assert_eq!(reasons(&tally), [("compulsory", 2), ("duplicate", 2)]);
    assert_eq!(tally.why[WHY_NAMES.iter().position(|n| *n == "duplicate").unwrap()].us, 1_200_000);
}

#[test]
fn whole_seconds_prove_no_overlap_that_may_be_none() {
    let line = |second: u32, took: &str| {
        format!("[17/May/2015:10:05:{second:02} +0000] {took} {took} MISS \"GET /a HTTP/1.1\"\n")
    };
    let format =
        "[$time_local] $request_time $upstream_response_time $upstream_cache_status \"$request\"";
    let why = |second: u32, took: &str| {
        let log = line(10, "5.000") + &line(second, took);
        reasons(&total(&read(options(), format, log.as_bytes())))
    };
    assert_eq!(why(11, "1.500"), [("compulsory", 1), ("never_stored", 1)]);
    assert_eq!(why(11, "4.000"), [("compulsory", 1), ("duplicate", 1)]);
}

#[test]
fn a_hit_that_began_before_its_copy_was_there_has_waited() {
    let lines = [
        Line(1001.000, 1.0, "MISS", "/a", ""),
        Line(1001.100, 0.9, "HIT", "/a", ""),
        Line(1002.000, 0.9, "HIT", "/a", ""),
    ];
    let waits = total(&told(options(), &lines)).lock_waits;
    // Until nginx looked again, which it does every 0.5 s: not only until the copy was there.
    assert_eq!((waits.requests, waits.us), (1, 900_000));
}

#[test]
fn a_lock_makes_requests_wait_also_for_what_is_never_stored() {
    let log = [(1000.1, 0.1), (1000.6, 0.6), (1001.1, 1.1)].map(|(end, took)| {
        format!(
            r#"{{"msec":"{end}","request_time":"{took}","upstream_response_time":"0.1","upstream_cache_status":"MISS","request_uri":"/me","request_method":"GET","upstream_http_set_cookie":"s=1"}}"#
        )
    });
    let tally = total(&read(options(), "json", log.join("\n").as_bytes()));
    assert_eq!(reasons(&tally), [("set_cookie", 3)]);
    assert_eq!((tally.lock_waits.requests, tally.lock_waits.us), (2, 1_500_000));
}

#[test]
fn a_slow_client_is_no_lock_wait() {
    // The answer was there after 0.1 s; its first reader took 5 s to take it.
    let log = br#"{"msec":"1005.0","request_time":"5.0","upstream_response_time":"0.1","upstream_cache_status":"MISS","request_uri":"/a","request_method":"GET"}
{"msec":"1005.1","request_time":"4.0","upstream_response_time":"","upstream_cache_status":"HIT","request_uri":"/a","request_method":"GET"}"#;
    assert_eq!(total(&read(options(), "json", log)).lock_waits.requests, 0);
}

#[test]
fn what_takes_no_part_in_the_cache_is_told_apart() {
    let log = br#"{"msec":"1.0","upstream_response_time":"","upstream_cache_status":"","request_uri":"/static","request_method":"GET"}
{"msec":"2.0","upstream_response_time":"0.1","upstream_cache_status":"","request_uri":"/a","request_method":"GET"}
{"msec":"3.0","upstream_response_time":"0.1","upstream_cache_status":"","request_uri":"/a","request_method":"POST"}
{"msec":"4.0","upstream_response_time":"0.1","upstream_cache_status":"BYPASS","request_uri":"/a","request_method":"GET"}
{"msec":"5.0","upstream_response_time":"0.1","upstream_cache_status":"BYPASS","request_uri":"/a","request_method":"GET","http_authorization":"1"}
{"msec":"6.0","upstream_response_time":"0.1","upstream_cache_status":"NEW","request_uri":"/a","request_method":"GET"}"#;
    let tally = total(&read(options(), "json", log));
    let expected =
        [("method", 1), ("bypass", 1), ("authorization", 1), ("no_cache_here", 1), ("unknown", 1)];
    assert_eq!(reasons(&tally), expected);
    assert_eq!(tally.cacheable, 0);
}

#[test]
fn min_uses_delays_storing() {
    let mut twice = options();
    twice.rules.min_uses = 2;
    let miss = |end| Line(end, 0.0, "MISS", "/a", "");
    let pass = told(twice, &[miss(1000.0), miss(1001.0), miss(1002.0)]);
    assert_eq!(reasons(&total(&pass)), [("compulsory", 1), ("evicted", 1), ("min_uses", 1)]);
}

#[test]
fn hours_begin_where_they_are_told_to_and_know_what_they_served() {
    let mut india = options();
    india.utc_offset_s = 19_800;
    let lines = [
        Line(1799.0, 0.0, "MISS", "/a", ""),
        Line(1800.0, 0.0, "HIT", "/a", ""),
        Line(5399.0, 0.0, "HIT", "/a", ""),
    ];
    let pass = told(india, &lines);
    let hours: Vec<_> =
        pass.ledger().by_hour().into_iter().map(|(h, served)| (h.start_s, served)).collect();
    assert_eq!(hours, [(Some(-1800), vec![]), (Some(1800), vec![(0, 2)])]);
}

#[test]
fn beyond_the_bound_on_keys_reasons_are_estimates() {
    let mut few = options();
    few.max_keys = 500;
    let mut log = String::new();
    for round in 0..2 {
        for key in 0..20_000 {
            log += &format!(
                r#"{{"msec":"{}","upstream_cache_status":"MISS","request_uri":"/{key}/x{key}","status":"200","request_method":"GET"}}"#,
                1000 + round
            );
            log.push('\n');
        }
    }
    let pass = read(few, "json", log.as_bytes());
    assert!(pass.misses().keys.len() <= 500);
    let tally = total(&pass);
    let reasons = reasons(&tally);
    let of = |name| reasons.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count);
    assert!((14_000..26_000).contains(&of("compulsory")), "{reasons:?}");
    assert!((14_000..26_000).contains(&of("never_stored")), "{reasons:?}");
    assert_eq!(tally.count().requests, 40_000);
}

fn everything() -> Options {
    let mut options = options();
    let patterns = [(Kind::Exact, "/"), (Kind::Prefix, "/a"), (Kind::Regex, r"(?<x>\d+)+$")];
    options.locations = patterns.map(|(kind, text)| (kind, text.to_owned())).to_vec();
    options.groups = vec![("q=(.*)(?=x)".to_owned(), "x".to_owned())];
    options.max_groups = 5;
    options.max_keys = 20;
    options.lengths = Some((Subject::Argument(b"q".to_vec()), String::new()));
    options
}

const FORMAT: &str = "$msec $request_time $upstream_response_time $upstream_cache_status $status \
                      $body_bytes_sent \"$request\" \"$upstream_http_cache_control\" \"$upstream_http_expires\"";

/// Everything adds up, whatever was read.
fn check(pass: &LogPass, records: u64) {
    let tally = total(pass);
    assert_eq!(tally.count().requests, records);
    let by_hour: u64 = pass.ledger().by_hour().iter().map(|(h, _)| h.tally.count().requests).sum();
    assert_eq!(by_hour, records);
    assert!(tally.cacheable <= records);
    let lengths = pass.lengths().unwrap();
    assert_eq!(lengths.requests() + lengths.absent, records);
    assert!(pass.misses().keys.len() <= 20);
    assert!(pass.groups().table().len() <= 5 + 4);
    assert_eq!(tally.statuses.len(), STATUS_NAMES.len());
}

/// Looks add up to everything, and what was looked at is not seen again.
fn check_looks(pass: &LogPass, looks: &[&Recent]) {
    let mut seen = Tally::default();
    for (_, tally) in looks.iter().flat_map(|look| look.by_group()) {
        seen.merge(tally);
    }
    assert_eq!(seen, total(pass));
    let timed = |times: &Histogram| times.buckets().iter().map(|b| b.count).sum::<u64>();
    let timed: u64 = looks.iter().map(|look| timed(&look.served) + timed(&look.missed)).sum();
    assert!(timed <= seen.count().requests);
    let missed = |top: &Top| top.heaviest(usize::MAX).0.iter().map(|e| e.requests).sum::<u64>();
    assert_eq!(looks.iter().map(|look| missed(&look.top)).sum::<u64>(), missed(pass.top()));
}

fn feed(format: &str, log: &[u8]) {
    let mut reader = Reader::new(Format::compile(format, None).unwrap());
    let mut pass = LogPass::new(everything()).unwrap();
    pass.recent = Some(Recent::default());
    let (before, after) = log.split_at(log.len() / 2);
    reader.feed(before, &mut pass);
    let earlier = pass.recent.replace(Recent::default()).unwrap();
    reader.feed(after, &mut pass);
    reader.finish(&mut pass);
    check(&pass, reader.lines - reader.bad);
    check_looks(&pass, &[&earlier, pass.recent.as_ref().unwrap()]);
    pass.top().heaviest(10);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for format in ["combined", "json", FORMAT] {
            feed(format, &bytes);
        }
    }

    #[test]
    fn no_lines_that_fit_panic_and_sums_add_up(
        lines in prop::collection::vec(
            (
                prop_oneof![Just(u64::MAX), 0u64..9_223_372_036_854, 1_000u64..1_010],
                "([0-9]{1,19}(\\.[0-9]{3})?|-)",
                "([0-9]{1,19}\\.[0-9]{3}|-|0.1, 9.9 : -)",
                "(HIT|MISS|EXPIRED|STALE|UPDATING|REVALIDATED|BYPASS|-|X)",
                "[0-9]{1,19}",
                "/[a-cA-C0-9%\\\\/.?&=+_q-]{0,30}",
                "(max-age=[0-9]{0,12}|private|-|S-MAXAGE=|@[0-9]{1,19}|Sun, 17 May 2015 10:05:03 GMT)",
            ),
            0..40,
        ),
    ) {
        let mut log = String::new();
        for (end, took, upstream, status, bytes, target, header) in lines {
            log += &format!(
                "{end}.000 {took} {upstream} {status} 200 {bytes} \"GET {target} HTTP/1.1\" \"{header}\" \"{header}\"\n"
            );
        }
        feed(FORMAT, log.as_bytes());
    }
}
