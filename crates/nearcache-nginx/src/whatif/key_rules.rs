//! Rules that make one cache key out of several spellings: `lower,strip,sort-args,drop=utm_*|gclid`.
//!
//! In the words of `nearcache nginx config --normalize`, and as it means them.
//!
//! A key is taken for `[scheme and host]path[?arguments]`, which is what almost every
//! `*_cache_key` writes. Whether spellings get equal answers is not known here.

use std::fmt;

use crate::base::text;

/// How keys are made, in the order in which it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// `alias=www.example.com:example.com`: the first host counts as the second.
    pub aliases: Vec<(Vec<u8>, Vec<u8>)>,
    /// `lower-path`
    pub lower_path: bool,
    /// `lower`: values of arguments, and their names.
    pub lower: bool,
    /// `strip`: spaces around values of arguments.
    pub strip: bool,
    /// `drop=utm_*|gclid`: arguments whose name matches are left out.
    pub drop: Vec<Vec<u8>>,
    /// `keep=q|page`: if there are any, only these arguments, by name, the first of each.
    pub keep: Vec<Vec<u8>>,
    /// `sort-args`: by name; those of one name stay in their order.
    pub sort: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(String);

impl fmt::Display for RuleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(names) = self.0.strip_prefix("allow=") {
            return write!(out, "allow= is called keep=, as in `config --normalize`: keep={names}");
        }
        write!(
            out,
            "{:?} is no rule for keys; there are lower, lower-path, strip, sort-args, \
             drop=NAME|NAME, keep=NAME|NAME (both with *), and alias=HOST:HOST",
            self.0
        )
    }
}

/// A key in its parts.
struct Parts<'a> {
    host: &'a [u8],
    path: &'a [u8],
    args: &'a [u8],
}

impl KeyRules {
    /// Rules separated by commas.
    pub fn parse(text: &str) -> Result<KeyRules, RuleError> {
        let mut rules = KeyRules::default();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            rules.add(rule).ok_or_else(|| RuleError(rule.to_owned()))?;
        }
        Ok(rules)
    }

    fn add(&mut self, rule: &str) -> Option<()> {
        match rule.split_once('=') {
            None => match rule {
                "lower" => self.lower = true,
                "lower-path" => self.lower_path = true,
                "strip" => self.strip = true,
                "sort-args" => self.sort = true,
                _ => return None,
            },
            Some(("drop", names)) => self.drop.extend(globs(names)?),
            Some(("keep", names)) => self.keep.extend(globs(names)?),
            Some(("alias", hosts)) => {
                let (from, to) = hosts.split_once(':')?;
                self.aliases.push((from.into(), to.into()));
            }
            Some(_) => return None,
        }
        Some(())
    }

    /// These rules and others together: what is one key under either is one under both.
    pub fn and(&mut self, other: &KeyRules) {
        self.aliases.extend_from_slice(&other.aliases);
        self.lower_path |= other.lower_path;
        self.lower |= other.lower;
        self.strip |= other.strip;
        self.drop.extend_from_slice(&other.drop);
        // The arguments that only one of them leaves out must not count.
        if self.keep.is_empty() {
            self.keep.extend_from_slice(&other.keep);
        } else if !other.keep.is_empty() {
            self.keep.retain(|glob| other.keep.contains(glob));
            if self.keep.is_empty() {
                self.drop.push(b"*".to_vec());
            }
        }
        self.sort |= other.sort;
    }

    pub fn is_empty(&self) -> bool {
        *self == KeyRules::default()
    }

    /// Writes to `out` what the key becomes.
    pub fn apply(&self, key: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let parts = Parts::of(key);
        let alias = self.aliases.iter().find(|(from, _)| parts.host.ends_with(from));
        match alias {
            Some((from, to)) => {
                out.extend_from_slice(&parts.host[..parts.host.len() - from.len()]);
                out.extend_from_slice(to);
            }
            None => out.extend_from_slice(parts.host),
        }
        let begin = out.len();
        out.extend_from_slice(parts.path);
        if self.lower_path {
            lower(out, begin);
        }
        self.arguments(parts.args, out);
    }

    fn arguments(&self, args: &[u8], out: &mut Vec<u8>) {
        if args.is_empty() {
            return;
        }
        let mut kept: Vec<Vec<u8>> = text::arguments(args)
            .map(|(name, value)| self.argument(name, value))
            .filter(|argument| self.keeps(name_of(argument)))
            .collect();
        if self.sort || !self.keep.is_empty() {
            kept.sort_by(|one, other| name_of(one).cmp(name_of(other)));
        }
        if !self.keep.is_empty() {
            kept.dedup_by(|later, first| name_of(later) == name_of(first));
        }
        for (number, argument) in kept.iter().enumerate() {
            out.push(if number == 0 { b'?' } else { b'&' });
            out.extend_from_slice(argument);
        }
    }

    fn argument(&self, name: &[u8], value: Option<&[u8]>) -> Vec<u8> {
        let mut made = name.to_vec();
        if self.lower {
            made.make_ascii_lowercase();
        }
        if let Some(value) = value {
            made.push(b'=');
            self.value(value, &mut made);
        }
        made
    }

    fn value(&self, value: &[u8], out: &mut Vec<u8>) {
        if !self.lower && !self.strip {
            out.extend_from_slice(value);
            return;
        }
        let mut plain = Vec::new();
        text::plain(value, true, &mut plain);
        if self.lower {
            lower(&mut plain, 0);
        }
        let shown = if self.strip { plain.trim_ascii() } else { &plain };
        for byte in shown {
            match byte {
                // What means something stays quoted, or two keys would become one.
                b'&' => out.extend_from_slice(b"%26"),
                b'%' => out.extend_from_slice(b"%25"),
                b'+' => out.extend_from_slice(b"%2B"),
                b'\\' => out.extend_from_slice(b"%5C"),
                byte => out.push(*byte),
            }
        }
    }

    fn keeps(&self, name: &[u8]) -> bool {
        let is_in = |globs: &[Vec<u8>]| globs.iter().any(|glob| matches(glob, name, self.lower));
        (self.keep.is_empty() || is_in(&self.keep)) && !is_in(&self.drop)
    }
}

impl<'a> Parts<'a> {
    fn of(key: &'a [u8]) -> Parts<'a> {
        let question = memchr::memchr(b'?', key).unwrap_or(key.len());
        let (base, args) = (&key[..question], key.get(question + 1..).unwrap_or(b""));
        let after_scheme = memchr::memmem::find(base, b"://").map_or(0, |at| at + 3);
        let slash =
            memchr::memchr(b'/', &base[after_scheme..]).map_or(base.len(), |at| after_scheme + at);
        Parts { host: &base[..slash], path: &base[slash..], args }
    }
}

fn name_of(argument: &[u8]) -> &[u8] {
    &argument[..memchr::memchr(b'=', argument).unwrap_or(argument.len())]
}

/// As Python's `str.lower`, also for other alphabets; bytes that are no UTF-8 as ASCII.
fn lower(text: &mut Vec<u8>, from: usize) {
    match std::str::from_utf8(&text[from..]) {
        Ok(valid) if !valid.is_ascii() => {
            let lowered = valid.to_lowercase();
            text.truncate(from);
            text.extend_from_slice(lowered.as_bytes());
        }
        _ => text[from..].make_ascii_lowercase(),
    }
}

/// Names with `|` between; `None` if there is none.
fn globs(names: &str) -> Option<Vec<Vec<u8>>> {
    let found: Vec<Vec<u8>> = names
        .split('|')
        .map(|name| name.trim().as_bytes().to_vec())
        .filter(|name| !name.is_empty())
        .collect();
    (!found.is_empty()).then_some(found)
}

/// `*` stands for any bytes. Linear: the last star is the only one that is ever moved.
///
/// `any_case`: under `lower` names are in lower case already, and no capital would ever match.
fn matches(glob: &[u8], name: &[u8], any_case: bool) -> bool {
    let is_same =
        |one: u8, other: u8| one == other || (any_case && one.eq_ignore_ascii_case(&other));
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if glob.get(g) == Some(&b'*') {
            star = Some((g, n));
            g += 1;
        } else if glob.get(g).is_some_and(|byte| is_same(*byte, name[n])) {
            (g, n) = (g + 1, n + 1);
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            (g, n) = (at + 1, from + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(rules: &str, key: &str) -> String {
        let mut out = Vec::new();
        KeyRules::parse(rules).unwrap().apply(key.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_rule_does_what_it_says() {
        for (rules, key, made) in [
            ("", "https://H/A?b=%41&a", "https://H/A?b=%41&a"),
            ("lower", "http://h/A?Q=%41b+C", "http://h/A?q=ab c"),
            ("lower", "/s?q=%C3%89t%C3%A9", "/s?q=été"),
            ("lower-path", "httphost/A/B?q=X", "httphost/a/b?q=X"),
            ("strip", "/s?q=+abba%20", "/s?q=abba"),
            ("sort-args", "/s?b=1&a=2&b=0", "/s?a=2&b=1&b=0"),
            ("drop=utm_*", "/s?utm_source=x&q=1&utm_x", "/s?q=1"),
            ("drop=utm_*", "/s?utm_source=x", "/s"),
            ("drop=utm_*|fbclid", "/s?utm_x=1&fbclid=2&q=1", "/s?q=1"),
            ("drop=Page*", "/s?page=1&Page=2", "/s?page=1"),
            ("lower,drop=Page*", "/s?page=1&Page=2&PAGES=3&q=1", "/s?q=1"),
            ("keep=q,keep=p*", "/s?page=1&x=2&q=3", "/s?page=1&q=3"),
            ("keep=q|page", "/s?q=3&x=2&page=1&q=4", "/s?page=1&q=3"),
            ("lower,keep=Q", "/s?Q=A&x=2", "/s?q=a"),
            ("alias=www.a.b:a.b", "https://www.a.b/x", "https://a.b/x"),
            ("alias=www.a.b:a.b", "/x", "/x"),
            ("strip", "/s?q=a%26b", "/s?q=a%26b"),
            ("strip", "/s?q=a%2Bb", "/s?q=a%2Bb"),
            ("lower,drop=fbclid", "/s?FBCLID=1&a=1", "/s?a=1"),
        ] {
            assert_eq!(applied(rules, key), made, "{rules} {key}");
        }
    }

    #[test]
    fn what_is_no_rule_says_which_there_are() {
        for rules in ["upper", "drop=", "keep=|", "alias=a", "lower=1"] {
            let error = KeyRules::parse(rules).unwrap_err().to_string();
            assert!(error.contains(rules) && error.contains("sort-args"), "{error}");
        }
        let renamed = KeyRules::parse("lower,allow=q|page").unwrap_err().to_string();
        assert!(renamed.contains("keep=q|page"), "{renamed}");
    }

    #[test]
    fn rules_together_merge_what_either_merges() {
        let mut both = KeyRules::parse("lower,drop=utm_*").unwrap();
        both.and(&KeyRules::parse("sort-args,keep=q").unwrap());
        let mut out = Vec::new();
        both.apply(b"/s?utm_x=1&x=2&q=A", &mut out);
        assert_eq!(out, b"/s?q=a");
        both.and(&KeyRules::parse("keep=p").unwrap());
        both.apply(b"/s?q=1&p=2", &mut out);
        assert_eq!(out, b"/s");
    }

    #[test]
    fn globs_are_linear_and_right() {
        for (glob, name, right) in [
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*", "", true),
            ("", "a", false),
            ("*_*x", "a_b_x", true),
        ] {
            let found = matches(glob.as_bytes(), name.as_bytes(), false);
            assert_eq!(found, right, "{glob} {name}");
        }
        let stars = "*a".repeat(200);
        assert!(!matches(stars.as_bytes(), "a".repeat(100).as_bytes(), true));
    }
}
