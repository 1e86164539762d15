//! `17/May/2015:10:05:03 +0000` and `2015-05-17T10:05:03+00:00` as seconds since 1970.

/// Remembers the last time it read: thousands of lines in a row have the same.
#[derive(Debug, Default)]
pub struct Clock {
    last: [u8; 26],
    length: usize,
    seconds: i64,
}

impl Clock {
    pub(crate) fn local(&mut self, text: &[u8]) -> Option<i64> {
        self.remembered(text, parse_local)
    }

    pub(crate) fn iso8601(&mut self, text: &[u8]) -> Option<i64> {
        self.remembered(text, parse_iso8601)
    }

    fn remembered(&mut self, text: &[u8], parse: fn(&[u8]) -> Option<i64>) -> Option<i64> {
        if self.length > 0 && self.length == text.len() && self.last[..self.length] == *text {
            return Some(self.seconds);
        }
        let seconds = parse(text)?;
        if text.len() <= self.last.len() {
            self.last[..text.len()].copy_from_slice(text);
            (self.length, self.seconds) = (text.len(), seconds);
        }
        Some(seconds)
    }
}

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// `17/May/2015:10:05:03 +0000`
fn parse_local(text: &[u8]) -> Option<i64> {
    if text.len() != 26 || text[2] != b'/' || text[6] != b'/' || text[11] != b':' {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == &text[3..6])? as i64 + 1;
    let days = days_from_civil(number(&text[7..11])?, month, number(&text[..2])?)?;
    let seconds = clock_seconds(&text[12..20])?;
    Some(days * 86_400 + seconds - zone_seconds(text[21], &text[22..24], &text[24..26])?)
}

/// `2015-05-17T10:05:03+00:00`
fn parse_iso8601(text: &[u8]) -> Option<i64> {
    if text.len() != 25 || text[4] != b'-' || text[7] != b'-' || text[10] != b'T' {
        return None;
    }
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let days = days_from_civil(year, month, day)?;
    let seconds = clock_seconds(&text[11..19])?;
    Some(days * 86_400 + seconds - zone_seconds(text[19], &text[20..22], &text[23..25])?)
}

/// `Sun, 17 May 2015 10:05:03 GMT`, as in HTTP's headers. The two older forms are out of use.
pub(crate) fn http_date(text: &[u8]) -> Option<i64> {
    if text.len() != 29 || text[4] != b' ' || text[16] != b' ' || !text.ends_with(b" GMT") {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == &text[8..11])? as i64 + 1;
    let days = days_from_civil(number(&text[12..16])?, month, number(&text[5..7])?)?;
    Some(days * 86_400 + clock_seconds(&text[17..25])?)
}

/// `10:05:03`
fn clock_seconds(text: &[u8]) -> Option<i64> {
    let (hour, minute, second) = (number(&text[..2])?, number(&text[3..5])?, number(&text[6..8])?);
    let sound = text[2] == b':' && text[5] == b':' && hour < 24 && minute < 60 && second < 61;
    sound.then_some(hour * 3600 + minute * 60 + second)
}

fn zone_seconds(sign: u8, hours: &[u8], minutes: &[u8]) -> Option<i64> {
    let seconds = number(hours)? * 3600 + number(minutes)? * 60;
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

fn number(text: &[u8]) -> Option<i64> {
    crate::log::numbers::whole(text).and_then(|n| i64::try_from(n).ok())
}

/// Days since 1970 of a date of the Gregorian calendar, counted in eras of 400 years
/// that begin in March (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_give_the_same_second() {
        let mut clock = Clock::default();
        assert_eq!(clock.local(b"17/May/2015:10:05:03 +0000"), Some(1_431_857_103));
        assert_eq!(clock.iso8601(b"2015-05-17T12:05:03+02:00"), Some(1_431_857_103));
        assert_eq!(clock.local(b"17/May/2015:05:05:03 -0500"), Some(1_431_857_103));
        assert_eq!(clock.local(b"29/Feb/2024:23:59:59 +0000"), Some(1_709_251_199));
        assert_eq!(clock.local(b"01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(http_date(b"Sun, 17 May 2015 10:05:03 GMT"), Some(1_431_857_103));
        assert_eq!(http_date(b"Sunday, 17-May-15 10:05:03 GMT"), None);
    }

    #[test]
    fn what_is_no_time_is_none() {
        let mut clock = Clock::default();
        let wrong: [&[u8]; 5] = [
            b"",
            b"17/Mai/2015:10:05:03 +0000",
            b"17/May/2015:25:05:03 +0000",
            b"17/May/2015 10:05:03 +0000",
            b"00/May/2015:10:05:03 +0000",
        ];
        for text in wrong {
            assert_eq!(clock.local(text), None);
        }
    }
}
