//! Times as the API writes them.

use std::time::{Duration, SystemTime};

/// Reads an RFC 3339 time from 1970 on.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let (date, clock) = text.split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone = clock.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = clock.split_at(zone);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.splitn(3, ':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let fine = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    if !fine || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let seconds = u64::try_from(seconds - offset(zone)?).ok()?;
    let since = Duration::new(seconds, nanos(fraction)?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

fn number(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn nanos(fraction: &str) -> Option<u32> {
    let digits = fraction.get(..fraction.len().min(9))?;
    let places = u32::try_from(digits.len()).ok()?;
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    let value: u32 = digits.parse().ok().filter(|_| is_number)?;
    Some(value * 10_u32.pow(9 - places))
}

/// Seconds east of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    let sign = match zone.chars().next()? {
        'Z' | 'z' => return (zone.len() == 1).then_some(0),
        '+' => 1,
        _ => -1,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    Some(sign * (number(hours)? * 3600 + number(minutes)? * 60))
}

/// Days from the first of 1970 to a day of the Gregorian calendar. Years are counted from March, so that the leap day is
/// the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    let before_year = 365 * year + year / 4 - year / 100 + year / 400;
    let before_month = (153 * month + 2) / 5;
    before_year + before_month + day - 1 - DAYS_TO_1970
}

/// From the first of March of the year 0.
const DAYS_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::parse;

    #[test]
    fn times_of_the_api_are_read() {
        let known = [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2000-02-29T12:00:00Z", 951_825_600, 0),
            ("2026-11-16T03:22:16Z", 1_794_799_336, 0),
            ("2026-11-16T04:22:16.25+01:00", 1_794_799_336, 250_000_000),
            (
                "2026-11-15T22:22:16.123456789-05:00",
                1_794_799_336,
                123_456_789,
            ),
        ];
        for (text, seconds, nanos) in known {
            let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
            assert_eq!(parse(text), Some(time), "{text}");
        }
        for odd in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T0:0:-1Z",
            "1950-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
