//! URL groups: targets that differ only in ids are one. `/song/5246889/amazon` is
//! `/song/<n>/amazon`, `/search?q=abba&page=2` is `/search?page&q`.
//!
//! By shape alone, without memory of other targets, so that a target has the same group in
//! every log. The number of groups is bounded; beyond it all are "(other)" of their location.

use std::collections::HashMap;

use fancy_regex::Regex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::base::hashing::ByHash;
use crate::base::text;
use crate::urls::locations::{self, PatternError};
use crate::urls::spelling::is_tracking;

pub const OTHER: &[u8] = b"(other)";
/// More of a path, a name or a list of arguments would be noise.
const MOST_SEGMENTS: usize = 12;
const LONGEST_PIECE: usize = 48;
const MOST_ARGUMENTS: usize = 8;

/// One group, by its position in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: Box<[u8]>,
    pub location: u16,
}

#[derive(Debug)]
pub struct Groups {
    rules: Vec<(Regex, Box<[u8]>)>,
    most: usize,
    table: Vec<Group>,
    places: HashMap<u64, u32, ByHash>,
    name: Vec<u8>,
    /// Matches that were given up because they took too many steps.
    pub gave_up: u64,
}

impl Groups {
    /// Rules are regular expressions with the name of the group, tried in order.
    pub fn new(rules: &[(String, String)], most: usize) -> Result<Groups, PatternError> {
        let compiled = rules.iter().map(|(pattern, name)| {
            let name = name.clone().into_bytes().into_boxed_slice();
            locations::compile(pattern, false).map(|regex| (regex, name))
        });
        Ok(Groups { rules: compiled.collect::<Result<_, _>>()?, ..Groups::by_shape(most) })
    }

    /// Without rules.
    pub fn by_shape(most: usize) -> Groups {
        Groups {
            rules: Vec::new(),
            most,
            table: Vec::new(),
            places: HashMap::default(),
            name: Vec::new(),
            gave_up: 0,
        }
    }

    pub fn table(&self) -> &[Group] {
        &self.table
    }

    /// The position of the group of a target that falls into this location.
    pub fn of(&mut self, target: &[u8], location: u16) -> u32 {
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        match self.by_rule(target) {
            Some(rule) => name.extend_from_slice(&self.rules[rule].1),
            None => shape(target, &mut name),
        }
        let place = self.place(&name, location);
        self.name = name;
        place
    }

    fn by_rule(&mut self, target: &[u8]) -> Option<usize> {
        if self.rules.is_empty() {
            return None;
        }
        let target = String::from_utf8_lossy(target);
        for (number, (regex, _)) in self.rules.iter().enumerate() {
            match regex.is_match(&target) {
                Ok(true) => return Some(number),
                Ok(false) => {}
                Err(_) => self.gave_up += 1,
            }
        }
        None
    }

    fn place(&mut self, name: &[u8], location: u16) -> u32 {
        let hash = xxh3_64_with_seed(name, u64::from(location));
        if let Some(place) = self.places.get(&hash) {
            return *place;
        }
        // One "(other)" a location may come on top: there are few locations.
        if self.table.len() >= self.most && name != OTHER {
            return self.place(OTHER, location);
        }
        let place = self.table.len() as u32;
        self.places.insert(hash, place);
        self.table.push(Group { name: name.into(), location });
        place
    }
}

/// Appends the shape of a target.
pub fn shape(target: &[u8], out: &mut Vec<u8>) {
    let (path, args) = text::split_target(target);
    let mut segments = path.split(|byte| *byte == b'/');
    segment_shape(segments.next().unwrap_or(b""), out);
    for (number, segment) in segments.enumerate() {
        out.push(b'/');
        if number == MOST_SEGMENTS {
            out.extend_from_slice(b"<more>");
            break;
        }
        segment_shape(segment, out);
    }
    if !args.is_empty() {
        argument_names(args, out);
    }
}

/// Appends a segment; pieces between dots each by themselves, as in `app.3f2a9c1b.js`.
fn segment_shape(segment: &[u8], out: &mut Vec<u8>) {
    if segment.iter().any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'%' | b'+' | b'\\')) {
        out.extend_from_slice(b"<text>");
        return;
    }
    if all_numbers(segment) {
        out.extend_from_slice(b"<n>");
        return;
    }
    for (number, piece) in segment.split(|byte| *byte == b'.').enumerate() {
        if number > 0 {
            out.push(b'.');
        }
        // `1` in `logstash-1.1.0.jar` is of a version; `5.html` is the fifth page.
        let is_version = number > 0 && piece.len() < 4;
        out.extend_from_slice(id_kind(piece).filter(|_| !is_version).unwrap_or(piece));
    }
}

/// What kind of id a piece is; `None` if it is a name.
fn id_kind(piece: &[u8]) -> Option<&'static [u8]> {
    let mut seen = Seen::default();
    piece.iter().for_each(|byte| seen.add(*byte));
    if seen.digits == 0 && piece.len() <= LONGEST_PIECE {
        return (seen.breaks >= 3).then_some(b"<slug>");
    }
    if seen.digits == piece.len() {
        return Some(b"<n>");
    }
    if piece.len() == 36 && seen.breaks == 4 && seen.digits + seen.hex_letters == 32 {
        return Some(b"<uuid>");
    }
    if piece.len() >= 8 && seen.hex_letters > 0 && seen.digits + seen.hex_letters == piece.len() {
        return Some(b"<hex>");
    }
    if seen.breaks >= 3 || piece.len() >= 20 {
        return Some(b"<slug>");
    }
    (piece.len() >= 10 && seen.upper && seen.lower).then_some(b"<id>")
}

#[derive(Default)]
struct Seen {
    digits: usize,
    hex_letters: usize,
    /// `-` and `_`, as between words.
    breaks: usize,
    upper: bool,
    lower: bool,
}

impl Seen {
    fn add(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => self.digits += 1,
            b'-' | b'_' => self.breaks += 1,
            _ => {
                self.hex_letters += usize::from(byte.is_ascii_hexdigit());
                self.upper |= byte.is_ascii_uppercase();
                self.lower |= byte.is_ascii_lowercase();
            }
        }
    }
}

/// `5246889`, `2015-05-17`, `1.2`
fn all_numbers(segment: &[u8]) -> bool {
    segment.first().is_some_and(u8::is_ascii_digit)
        && segment.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'_' | b'.' | b',' | b':'))
}

/// Appends `?a&b`: names sorted, each once, tracking left out.
fn argument_names(args: &[u8], out: &mut Vec<u8>) {
    let mut names: [&[u8]; MOST_ARGUMENTS] = [b""; MOST_ARGUMENTS];
    let mut count = 0;
    for (name, _) in text::arguments(args) {
        let odd = name.is_empty() || name.len() > LONGEST_PIECE || !name.iter().all(is_name_byte);
        let name = if odd { &b"<text>"[..] } else { name };
        if is_tracking(name) || names[..count].contains(&name) {
            continue;
        }
        if count == MOST_ARGUMENTS {
            break;
        }
        names[count] = name;
        count += 1;
    }
    names[..count].sort_unstable();
    for (number, name) in names[..count].iter().enumerate() {
        out.push(if number == 0 { b'?' } else { b'&' });
        out.extend_from_slice(name);
    }
}

fn is_name_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'[' | b']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaped(target: &str) -> String {
        let mut out = Vec::new();
        shape(target.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ids_are_told_from_names() {
        for (target, group) in [
            ("/", "/"),
            ("/api/song/5246889/amazon", "/api/song/<n>/amazon"),
            ("/song/abba/5246889.html", "/song/abba/<n>.html"),
            ("/2015/05-17/", "/<n>/<n>/"),
            ("/u/123e4567-e89b-12d3-a456-426614174000", "/u/<uuid>"),
            ("/static/app.3f2a9c1b.js", "/static/app.<hex>.js"),
            ("/jquery-3.5.1.min.js", "/jquery-3.5.1.min.js"),
            ("/face/facade", "/face/facade"),
            ("/blog/how-much-faster-is-redis", "/blog/<slug>"),
            ("/presentations/logstash-monitorama-2013/x.png", "/presentations/<slug>/x.png"),
            ("/v/dQw4w9WgXcQ", "/v/<id>"),
            ("/search/foo%20bar", "/search/<text>"),
            ("/robots.txt", "/robots.txt"),
            ("http://host/a", "/a"),
            ("*", "*"),
        ] {
            assert_eq!(shaped(target), group, "{target}");
        }
    }

    #[test]
    fn arguments_are_their_names_without_tracking() {
        assert_eq!(shaped("/s?q=abba&page=2&utm_source=x&q=1"), "/s?page&q");
        assert_eq!(shaped("/s?fbclid=1"), "/s");
        assert_eq!(shaped("/s?a%20b=1&=2"), "/s?<text>");
    }

    #[test]
    fn endless_paths_and_arguments_make_short_names() {
        let deep = "/a".repeat(1000);
        assert!(shaped(&deep).ends_with("/a/<more>"));
        let args: Vec<String> = (0..100).map(|i| format!("x{i}=1")).collect();
        assert!(shaped(&format!("/?{}", args.join("&"))).len() < 40);
        assert_eq!(shaped(&format!("/{}", "x".repeat(4000))), "/<slug>");
    }

    #[test]
    fn rules_come_first_and_the_table_is_bounded() {
        let rules = [("^/api/".to_owned(), "the api".to_owned())];
        let mut groups = Groups::new(&rules, 3).unwrap();
        let mut name = |target: &str, location| {
            let place = groups.of(target.as_bytes(), location);
            String::from_utf8(groups.table()[place as usize].name.to_vec()).unwrap()
        };
        assert_eq!(name("/api/x/1", 0), "the api");
        assert_eq!(name("/a", 0), "/a");
        assert_eq!(name("/a", 1), "/a");
        assert_eq!(name("/b", 0), "(other)");
        assert_eq!(name("/c", 0), "(other)");
        assert_eq!(name("/c", 1), "(other)");
        assert_eq!(name("/a", 0), "/a");
        assert_eq!(groups.table().len(), 5);
    }
}
