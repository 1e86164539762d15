//! No input panics or hangs, and how it is cut into chunks changes nothing.

use nearcache_nginx::{Consumer, Field, Format, LONGEST_LINE, Reader, Record};
use proptest::prelude::*;

/// Time, status, target, upstream time.
type Line = (Option<i64>, Option<u16>, Option<Vec<u8>>, Option<u64>);

#[derive(Default, Debug, PartialEq)]
struct Kept(Vec<Line>);

impl Consumer for Kept {
    fn take(&mut self, record: &Record<'_>) {
        let uri = record.uri().map(<[u8]>::to_vec);
        let upstream = record.upstream().map(|upstream| upstream.total_us);
        record.method();
        record.cache_status();
        record.text(Field::Key);
        self.0.push((record.time_us, record.status(), uri, upstream));
    }
}

fn read(format: &str, chunks: &[&[u8]]) -> (Kept, u64, u64) {
    let mut reader = Reader::new(Format::compile(format, None).unwrap());
    let mut kept = Kept::default();
    for chunk in chunks {
        reader.feed(chunk, &mut kept);
    }
    reader.finish(&mut kept);
    (kept, reader.lines, reader.bad)
}

const LINES: &[u8] =
    b"1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"x\"\n\
    nonsense\r\n\
    \n\
    1.2.3.4 - - [17/May/2015:10:05:04 +0000] \"POST /b?c HTTP/1.1\" 404 7 \"-\" \"y\"\r\n\
    1.2.3.4 - - [17/May/2015:10:05:05 +0000] \"\\x16\\x03\" 400 0 \"-\" \"-\"";

#[test]
fn good_and_bad_lines_are_told_apart_and_counted() {
    let (kept, lines, bad) = read("combined", &[LINES]);
    assert_eq!((lines, bad), (4, 1));
    let uris: Vec<_> = kept.0.iter().map(|line| line.2.clone()).collect();
    assert_eq!(uris, [Some(b"/a".to_vec()), Some(b"/b?c".to_vec()), None]);
    assert_eq!(kept.0[0].0, Some(1_431_857_103_000_000));
}

#[test]
fn a_line_without_end_does_not_fill_the_memory_and_ends_at_the_newline() {
    let endless = vec![b'x'; LONGEST_LINE];
    let (kept, lines, bad) = read("combined", &[&endless, &endless, b"xx\n", LINES]);
    assert_eq!((kept.0.len(), lines, bad), (3, 5, 2));
}

proptest! {
    #[test]
    fn chunks_may_be_cut_anywhere(cuts in prop::collection::vec(0..LINES.len(), 0..6)) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts {
            chunks.push(&LINES[from..cut]);
            from = cut;
        }
        chunks.push(&LINES[from..]);
        prop_assert_eq!(read("combined", &chunks), read("combined", &[LINES]));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for format in ["combined", "json", "$msec $request_time $upstream_response_time \"$request\""] {
            let (kept, lines, bad) = read(format, &[&bytes]);
            prop_assert_eq!(kept.0.len() as u64, lines - bad);
        }
    }

    #[test]
    fn nearly_right_lines_do_not_panic(
        at in 0..LINES.len(),
        byte in any::<u8>(),
        json in "[{}\\[\\]\":,a-z0-9\\\\ .-]{0,80}",
    ) {
        let mut bytes = LINES.to_vec();
        bytes[at] = byte;
        read("combined", &[&bytes]);
        read("json", &[format!("{{\"status\":{json}").as_bytes()]);
    }

    #[test]
    fn any_format_compiles_or_says_why(text in ".{0,60}", line in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(format) = Format::compile(&text, Some("a")) {
            let mut reader = Reader::new(format);
            let mut kept = Kept::default();
            reader.feed(&line, &mut kept);
            reader.finish(&mut kept);
        }
    }
}
