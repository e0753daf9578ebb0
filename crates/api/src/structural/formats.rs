//! The formats of strings that the API server checks; it ignores any other.

use std::{
    hash::{Hash, Hasher},
    mem::discriminant,
    net::{Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use regex::Regex;
use serde_json::Value;

use super::node::Type;

/// What a format asks of a string.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    /// Formats of numbers: their range is checked with the other limits.
    Numeric,
    Matches(fn(&str) -> bool),
}

/// Which function it is follows from the name of the format and the types, which stand beside it.
impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        discriminant(self) == discriminant(other)
    }
}

impl Hash for Format {
    fn hash<H: Hasher>(&self, state: &mut H) {
        discriminant(self).hash(state);
    }
}

/// A format that is checked for the given types.
pub(super) fn known(name: &str, types: &[Type]) -> Option<Format> {
    match types {
        [] | [Type::String] | [_, _, ..] => {
            let check = check_of(&name.replace('-', ""))?;
            Some(Format::Matches(check))
        }
        [Type::Integer] => matches!(name, "int32" | "int64").then_some(Format::Numeric),
        [Type::Number] => matches!(name, "float" | "double").then_some(Format::Numeric),
        [Type::Array | Type::Boolean | Type::Object] => None,
    }
}

/// The formats in a schema that are never checked, each once.
pub fn unrecognized_formats(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect_unrecognized(schema, &mut found);
    found
}

fn collect_unrecognized(schema: &Value, found: &mut Vec<String>) {
    let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
    let format = text("format");
    let recognized = match text("type") {
        "" | "string" => check_of(&format.replace('-', "")).is_some(),
        "integer" => known(format, &[Type::Integer]).is_some(),
        "number" => known(format, &[Type::Number]).is_some(),
        _ => false,
    };
    if !format.is_empty() && !recognized && !found.iter().any(|known| known == format) {
        found.push(format.to_owned());
    }
    for keyword in ["items", "not", "additionalProperties"] {
        if let Some(inner) = schema.get(keyword) {
            collect_unrecognized(inner, found);
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let listed = schema.get(keyword).and_then(Value::as_array);
        for inner in listed.into_iter().flatten() {
            collect_unrecognized(inner, found);
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for inner in properties
        .into_iter()
        .flat_map(|properties| properties.values())
    {
        collect_unrecognized(inner, found);
    }
}

fn check_of(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |text| text.contains('.') && is_ip(text, true),
        "ipv6" => |text| text.contains(':') && is_ip(text, false),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some(b'3')),
        "uuid4" => |text| is_uuid(text, Some(b'4')),
        "uuid5" => |text| is_uuid(text, Some(b'5')),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| text.len() == 11 && SSN.is_match(text),
        "hexcolor" => is_hex_color,
        "rgbcolor" => |text| RGB_COLOR.is_match(text),
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && is_label(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_label),
        _ => return None,
    })
}

macro_rules! patterns {
    ($($name:ident = $pattern:expr;)*) => {
        $(static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($pattern).expect("a literal pattern"));)*
    };
}

patterns! {
    SSN = r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$";
    RGB_COLOR = concat!(
        r"^rgb\([\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])",
        r"[\t\n\f\r ]*,[\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])",
        r"[\t\n\f\r ]*,[\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\f\r ]*\)$",
    );
    CREDIT_CARD = concat!(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}",
        "|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    );
    TIME = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    WORDY_DURATION = r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)";
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    !text.is_empty()
        && text.bytes().all(|b| inner(b) || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut rest = text.as_bytes();
    for (place, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if place > 0
            && let Some(after) = rest.strip_prefix(b"-")
        {
            rest = after;
        }
        let Some((part, after)) = rest.split_at_checked(length) else {
            return false;
        };
        let wrong = match (place, version) {
            (2, Some(version)) => part[0] != version,
            // the variant is not looked at in version 3
            (3, Some(b'4' | b'5')) => !matches!(part[0], b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
            _ => false,
        };
        if wrong || !part.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// Decimal parts may have leading zeros in an IPv4 address on its own, as they may for the API server.
fn is_ip(text: &str, sloppy: bool) -> bool {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().is_ok();
    }
    if !sloppy {
        return text.parse::<Ipv4Addr>().is_ok();
    }
    let parts: Vec<_> = text.split('.').collect();
    parts.len() == 4
        && parts.iter().all(|part| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_digit())
                && part.parse::<u32>().is_ok_and(|number| number <= 255)
        })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = if address.contains(':') { 128 } else { 32 };
    is_ip(address, true)
        && !bits.is_empty()
        && bits.bytes().all(|b| b.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

fn is_mac(text: &str) -> bool {
    let (separator, width) = match text.as_bytes() {
        [_, _, b':', ..] => (':', 2),
        [_, _, b'-', ..] => ('-', 2),
        [_, _, _, _, b'.', ..] => ('.', 4),
        _ => return false,
    };
    let mut bytes = 0;
    for part in text.split(separator) {
        if part.len() != width || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        bytes += width / 2;
    }
    matches!(bytes, 6 | 8 | 20)
}

fn digits_of(text: &str) -> String {
    let kept = |letter: &char| !matches!(letter, '-' | ' ' | '\t' | '\n' | '\u{c}' | '\r');
    text.chars().filter(kept).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    let bytes = digits.as_bytes();
    if bytes.len() != 10 || !bytes[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let last = match bytes[9] {
        b'X' => 10,
        digit if digit.is_ascii_digit() => u32::from(digit - b'0'),
        _ => return false,
    };
    let sum: u32 = (1..)
        .zip(&bytes[..9])
        .map(|(place, digit)| place * u32::from(digit - b'0'))
        .sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    let bytes = digits.as_bytes();
    if bytes.len() != 13 || !bytes.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weights = [1, 3].into_iter().cycle();
    let sum: u32 = weights
        .zip(bytes)
        .map(|(weight, digit)| weight * u32::from(digit - b'0'))
        .sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(
            |(place, digit)| match (place % 2, u32::from(digit - b'0')) {
                (0, digit) => digit,
                (_, digit) if digit * 2 >= 10 => digit * 2 % 10 + 1,
                (_, digit) => digit * 2,
            },
        )
        .sum();
    sum.is_multiple_of(10)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    !text.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && body.bytes().all(letter)
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shaped = bytes.len() == 10
        && bytes.iter().enumerate().all(|(place, b)| match place {
            4 | 7 => *b == b'-',
            _ => b.is_ascii_digit(),
        });
    if !shaped {
        return false;
    }
    let number = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or_default();
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some(clock) = TIME.captures(time) else {
        return false;
    };
    text.len() >= 4 && is_date(date) && &clock[1] <= "23" && &clock[2] <= "59" && &clock[3] <= "59"
}

/// Go's durations (`1h30m`), and those in words (`3 days`).
fn is_duration(text: &str) -> bool {
    is_go_duration(text)
        || WORDY_DURATION.captures_iter(text).any(|found| {
            const EXACT: &[&str] = &["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
            const BEGINNINGS: &[&str] = &[
                "nano", "micro", "milli", "sec", "min", "hour", "day", "week",
            ];
            let unit = found[2].to_lowercase();
            EXACT.contains(&unit.as_str()) || BEGINNINGS.iter().any(|word| unit.starts_with(word))
        })
}

fn is_go_duration(text: &str) -> bool {
    go_duration(text).is_some()
}

/// The nanoseconds of a duration such as `-1h30m` or `1.5s`.
pub(super) fn go_duration(text: &str) -> Option<i64> {
    const UNITS: &[(&str, f64)] = &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("μs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 6e10),
        ("h", 3.6e12),
    ];
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum: i64 = 0;
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let amount = &rest[..rest.len() - after.len()];
        let (unit, nanoseconds) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        sum = sum.checked_add(part(amount, *nanoseconds)?)?;
        rest = &after[unit.len()..];
    }
    Some(if text.starts_with('-') { -sum } else { sum })
}

/// An amount of a unit; whole parts are exact.
#[expect(
    clippy::cast_possible_truncation,
    reason = "units are whole, and a fraction is below one of them"
)]
fn part(amount: &str, unit: f64) -> Option<i64> {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let number = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<i64>().ok(),
    };
    let fraction = match fraction {
        "" => 0,
        digits => (format!("0.{digits}").parse::<f64>().ok()? * unit) as i64,
    };
    number(whole)?
        .checked_mul(unit as i64)?
        .checked_add(fraction)
}

fn is_hostname(text: &str) -> bool {
    static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
        const LETTER: &str = r"a-zA-Z0-9\p{S}\p{L}";
        let single = format!(r"[{LETTER}]((-?[{LETTER}]{{0,62}})?)");
        let label = format!(r"([{LETTER}](([{LETTER}\-]{{0,61}}[{LETTER}])?)(\.))");
        let pattern = format!(r"^({single}|{label}{{1,}}([a-zA-Z\p{{L}}]){{2,63}})$");
        Regex::new(&pattern).expect("a literal pattern")
    });
    HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

/// An address as in a mail's header: `a@b`, or `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let address = match text
        .strip_suffix('>')
        .and_then(|open| open.rsplit_once('<'))
    {
        Some((name, address)) => {
            let plain = |c: char| c.is_alphanumeric() || " \t.!#$%&'*+-/=?^_`{|}~\"".contains(c);
            if !name.chars().all(plain) {
                return false;
            }
            address
        }
        None => text.trim(),
    };
    let atom = |part: &str| {
        let letter = |c: char| {
            !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c)
        };
        !part.is_empty()
            && part
                .split('.')
                .all(|word| !word.is_empty() && word.chars().all(letter))
    };
    address
        .rsplit_once('@')
        .is_some_and(|(local, domain)| atom(local) && atom(domain))
}

/// What can stand in the first line of an HTTP request: an absolute URI, or a path from the root.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let path = |text: &str| escapes_are_right(text.split('?').next().unwrap_or_default());
    if text.starts_with('/') {
        return path(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let right_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    if !right_scheme {
        return false;
    }
    match rest.strip_prefix("//") {
        Some(rest) => {
            let host_ends = rest.find(['/', '?']).unwrap_or(rest.len());
            is_authority(&rest[..host_ends]) && path(&rest[host_ends..])
        }
        None => true,
    }
}

fn escapes_are_right(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'%')
        .all(|(place, _)| {
            bytes
                .get(place + 1..place + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
        })
}

fn is_authority(text: &str) -> bool {
    let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let port = match host.strip_prefix('[') {
        Some(inner) => match inner.split_once(']') {
            Some((_, port)) => port.strip_prefix(':').or(port.is_empty().then_some("")),
            None => None,
        },
        None => match host.rsplit_once(':') {
            Some((name, _)) if name.contains(':') => None,
            Some((_, port)) => Some(port),
            None => Some(""),
        },
    };
    let letters = |b: u8| {
        !b.is_ascii() || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b)
    };
    port.is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
        && host.bytes().all(letters)
        && escapes_are_right(host)
}

/// The bytes behind base64; none if it is none.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    if !is_base64(text) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for letter in text.bytes().take_while(|b| *b != b'=') {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    Some(bytes)
}
