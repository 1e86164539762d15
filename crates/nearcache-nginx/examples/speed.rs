//! How fast is a log read, by the reader alone and by the whole pass?
//!
//! `cargo run --release -p nearcache-nginx --example speed -- FILE [FORMAT] [TIMES]`

use std::time::Instant;

use nearcache_nginx::{CacheValid, Consumer, Format, LogPass, Options, Reader, Record, Rules};

struct Nothing;

impl Consumer for Nothing {
    fn take(&mut self, _record: &Record<'_>) {}
}

/// Rounds are short and in turn, and the best of each counts: it is disturbed least.
const ROUNDS: usize = 15;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let log = std::fs::read(&arguments[1]).expect("a log that can be read");
    let format = arguments.get(2).map_or("combined", String::as_str);
    let times = arguments.get(3).map_or(10, |text| text.parse().expect("a number"));
    let mut best = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        best[0] = best[0].min(ns_per_line(&log, format, times, &mut Nothing));
        let mut pass = LogPass::new(options()).expect("no patterns");
        best[1] = best[1].min(ns_per_line(&log, format, times, &mut pass));
    }
    println!("reader {:.0} ns a line, pass {:.0} ns a line", best[0], best[1]);
}

fn ns_per_line(log: &[u8], format: &str, times: usize, consumer: &mut impl Consumer) -> f64 {
    let mut reader = Reader::new(Format::compile(format, None).expect("a format"));
    let began = Instant::now();
    for _ in 0..times {
        log.chunks(1 << 20).for_each(|chunk| reader.feed(chunk, consumer));
    }
    reader.finish(consumer);
    began.elapsed().as_nanos() as f64 / reader.lines as f64
}

fn options() -> Options {
    Options {
        locations: Vec::new(),
        groups: Vec::new(),
        max_groups: 10_000,
        rules: Rules { valid: CacheValid::default(), inactive_us: None, min_uses: 1 },
        max_keys: 900_000,
        key_parts: Vec::new(),
        lengths: None,
        utc_offset_s: 0,
    }
}
