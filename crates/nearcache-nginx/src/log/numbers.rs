//! Decimal numbers as nginx writes them. Anything else is `None`.

/// The times of all upstreams that one request asked: `a, b : c` and `-`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upstream {
    pub total_us: u64,
    /// How many answered with a time; one that did not (`-`) is not counted.
    pub asked: u32,
}

pub(crate) fn whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))
    })
}

/// `12.345` seconds as 12,345,000 microseconds; digits after the sixth are dropped.
pub(crate) fn seconds_as_us(text: &[u8]) -> Option<u64> {
    let point = memchr::memchr(b'.', text).unwrap_or(text.len());
    let seconds = whole(&text[..point])?;
    let fraction = text.get(point + 1..).unwrap_or(b"");
    let mut us = 0;
    for place in 0..6 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        us = us * 10 + u64::from(digit - b'0');
    }
    seconds.checked_mul(1_000_000)?.checked_add(us)
}

/// `0.010, 0.020 : 0.500`: commas between servers of one group, colons between groups.
pub(crate) fn upstream_times(text: &[u8]) -> Upstream {
    // Almost always it is one number.
    if let Some(total_us) = seconds_as_us(text) {
        return Upstream { total_us, asked: 1 };
    }
    let times = text.split(|byte| matches!(byte, b',' | b':' | b' ')).filter_map(seconds_as_us);
    times.fold(Upstream::default(), |sum, us| Upstream {
        total_us: sum.total_us.saturating_add(us),
        asked: sum.asked.saturating_add(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_keep_their_microseconds() {
        assert_eq!(seconds_as_us(b"12.345"), Some(12_345_000));
        assert_eq!(seconds_as_us(b"0.000"), Some(0));
        assert_eq!(seconds_as_us(b"7"), Some(7_000_000));
        assert_eq!(seconds_as_us(b"1.2345678"), Some(1_234_567));
        for wrong in [&b""[..], b"-", b".5", b"1.x", b"99999999999999999999"] {
            assert_eq!(seconds_as_us(wrong), None);
        }
    }

    #[test]
    fn times_of_several_upstreams_are_summed() {
        let upstream = |total_us, asked| Upstream { total_us, asked };
        assert_eq!(upstream_times(b"0.010"), upstream(10_000, 1));
        assert_eq!(upstream_times(b"0.010, 0.020 : 0.500"), upstream(530_000, 3));
        assert_eq!(upstream_times(b"-, 0.020"), upstream(20_000, 1));
        assert_eq!(upstream_times(b"-"), upstream(0, 0));
    }
}
