//! Glob patterns over bytes, as Redis's `KEYS` understands them.

/// Whether `text` matches `pattern`: `*` any run, `?` one byte, `[abc]`,
/// `[a-z]` and `[^a]` one byte of a set, `\` takes the next byte as it is.
///
/// Time is at most `pattern.len() * text.len()` steps: a star that fails is
/// retried one byte further, and only the last star ever is.
pub fn glob_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, t));
            p += 1;
        } else if let Some(next) = step(pattern, p, text[t]) {
            p = next;
            t += 1;
        } else if let Some((star_p, star_t)) = star {
            star = Some((star_p, star_t + 1));
            p = star_p + 1;
            t = star_t + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Matches one byte at `p`; the position after it in the pattern, or `None`.
fn step(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => set(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Matches one byte against the set that begins at `p`, after its `[`.
fn set(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut found = false;
    while p < pattern.len() && pattern[p] != b']' {
        if pattern[p] == b'\\' && p + 1 < pattern.len() {
            p += 1;
        }
        let low = pattern[p];
        let is_range = p + 2 < pattern.len() && pattern[p + 1] == b'-' && pattern[p + 2] != b']';
        let high = if is_range { pattern[p + 2] } else { low };
        p += if is_range { 3 } else { 1 };
        found |= (low.min(high)..=low.max(high)).contains(&byte);
    }
    (found != negated).then_some((p + 1).min(pattern.len()))
}

#[cfg(test)]
mod tests {
    use super::glob_match;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[abc]x", "bx", true),
            ("[^abc]x", "bx", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("", "", true),
            ("", "a", false),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("[abc", "a", true),
            ("a[", "a", false),
        ] {
            assert_eq!(
                glob_match(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!glob_match(pattern.as_bytes(), "a".repeat(5000).as_bytes()));
    }
}
