//! Values that are more than the text they are written as: times, bytes, whole numbers.

use chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use serde_json::Number;

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// A whole number that is written as a float.
pub(super) fn whole(number: &Number) -> Option<i64> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
    (float.fract() == 0.0 && float.abs() <= MOST).then_some(float as i64)
}

/// Whether a text is base64, and what it looks like if it is written anew; fails with the offset of what is wrong.
pub(super) fn base64(text: &str) -> Result<Option<String>, usize> {
    let bytes = text.as_bytes();
    let next = |mut at: usize| {
        while matches!(bytes.get(at), Some(b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    let mut quantum: Vec<u8> = Vec::with_capacity(4);
    let mut canonical = true;
    let mut at = next(0);
    while let Some(byte) = bytes.get(at) {
        match (sextet(*byte), quantum.len()) {
            (Some(bits), _) => quantum.push(bits),
            (None, filled) if *byte == b'=' && filled >= 2 => {
                let end = padding(bytes, filled, at, next)?;
                let spare = if filled == 2 { 0b1111 } else { 0b11 };
                canonical &= quantum.last().is_none_or(|bits| bits & spare == 0);
                return Ok(rewritten(text, canonical && end == bytes.len()));
            }
            (None, _) => return Err(at),
        }
        if quantum.len() == 4 {
            quantum.clear();
        }
        at = next(at + 1);
    }
    match quantum.len() {
        0 => Ok(rewritten(text, true)),
        filled => Err(bytes.len() - filled),
    }
}

/// Where the padding that begins here ends; nothing may follow it.
fn padding(
    bytes: &[u8],
    filled: usize,
    at: usize,
    next: impl Fn(usize) -> usize,
) -> Result<usize, usize> {
    let mut end = next(at + 1);
    if filled == 2 {
        match bytes.get(end) {
            None => return Err(bytes.len()),
            Some(b'=') => end = next(end + 1),
            Some(_) => return Err(end - 1),
        }
    }
    match end == bytes.len() {
        true => Ok(end),
        false => Err(end),
    }
}

/// The text without line ends and without bits that mean nothing; none if it has neither.
fn rewritten(text: &str, canonical: bool) -> Option<String> {
    if canonical && !text.contains(['\n', '\r']) {
        return None;
    }
    let sextets: Vec<u8> = text.bytes().filter_map(sextet).collect();
    let bytes = sextets.chunks(4).flat_map(|chunk| {
        let bits = joined(chunk, 6, 4);
        let [_, bytes @ ..] = bits.to_be_bytes();
        bytes.into_iter().take(chunk.len() * 6 / 8)
    });
    Some(to_base64(&bytes.collect::<Vec<u8>>()))
}

/// Bytes as base64.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = joined(chunk, 8, 3);
        for place in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place > chunk.len() {
                '='
            } else {
                char::from(letter)
            });
        }
    }
    out
}

/// Groups of so many bits, as if there were so many of them.
fn joined(groups: &[u8], width: usize, count: usize) -> u32 {
    let groups = groups.iter().copied().chain(std::iter::repeat(0));
    groups
        .take(count)
        .fold(0, |bits, group| bits << width | u32::from(group))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// A time in the form the server writes it, to the second or to the microsecond.
pub(super) fn time(text: &str, micros: bool) -> Result<String, String> {
    let mut reader = Reader {
        text,
        rest: text,
        layout: if micros { MICROS } else { SECONDS },
    };
    let (local, offset) = reader.time(micros)?;
    let utc = local - offset;
    let form = if micros {
        "%Y-%m-%dT%H:%M:%S%.6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(utc.format(form).to_string())
}

/// Reads a time by Go's layout and complains as Go does.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Reader<'_> {
    fn wrong(&self, element: &str) -> String {
        format!(
            "parsing time {:?} as {:?}: cannot parse {:?} as {element:?}",
            self.text, self.layout, self.rest
        )
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {:?}: {what} out of range", self.text)
    }

    fn digits(&mut self, count: usize, element: &str) -> Result<u32, String> {
        let head = self.rest.get(..count);
        let all_digits = |head: &&str| head.bytes().all(|b| b.is_ascii_digit());
        match head.filter(all_digits).and_then(|head| head.parse().ok()) {
            Some(number) => {
                self.rest = &self.rest[count..];
                Ok(number)
            }
            None => Err(self.wrong(element)),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.wrong(literal)),
        }
    }

    fn time(&mut self, micros: bool) -> Result<(NaiveDateTime, TimeDelta), String> {
        let year = self.digits(4, "2006")?;
        self.literal("-")?;
        let month = self.digits(2, "01")?;
        if !(1..=12).contains(&month) {
            return Err(self.out_of_range("month"));
        }
        self.literal("-")?;
        let day = self.digits(2, "02")?;
        self.literal("T")?;
        let hour = self.limited("15", 24, "hour")?;
        self.literal(":")?;
        let minute = self.limited("04", 60, "minute")?;
        self.literal(":")?;
        let second = self.limited("05", 60, "second")?;
        let nanos = self.fraction(micros)?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(format!(
                "parsing time {:?}: extra text: {:?}",
                self.text, self.rest
            ));
        }
        let date = NaiveDate::from_ymd_opt(i32::try_from(year).unwrap_or_default(), month, day);
        let local = date.and_then(|date| date.and_hms_nano_opt(hour, minute, second, nanos));
        let local = local.ok_or_else(|| self.out_of_range("day"))?;
        Ok((local, offset))
    }

    fn limited(&mut self, element: &str, limit: u32, what: &str) -> Result<u32, String> {
        let number = self.digits(2, element)?;
        match number < limit {
            true => Ok(number),
            false => Err(self.out_of_range(what)),
        }
    }

    /// Nanoseconds. A layout without a fraction allows one; a layout with one asks for all its digits.
    fn fraction(&mut self, micros: bool) -> Result<u32, String> {
        let found = self.rest.strip_prefix(['.', ',']);
        let digits = found.map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            &rest[..end.unwrap_or(rest.len())]
        });
        let digits = match (micros, digits) {
            (true, Some(digits)) if digits.len() >= 6 => &digits[..6],
            (true, _) => return Err(self.wrong(".000000")),
            (false, Some(digits)) if !digits.is_empty() => digits,
            (false, _) => return Ok(0),
        };
        self.rest = &self.rest[1 + digits.len()..];
        let nanos = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
        Ok(nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    }

    fn offset(&mut self) -> Result<TimeDelta, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(TimeDelta::zero());
        }
        let number = |text: &str| text.parse::<i64>().ok().filter(|_| text.len() == 2);
        let read = || {
            let sign = match self.rest.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, minutes) = self.rest.get(1..6)?.split_once(':')?;
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            TimeDelta::try_minutes(sign * (hours * 60 + minutes))
        };
        let offset = read().ok_or_else(|| self.wrong("Z07:00"))?;
        self.rest = &self.rest[6..];
        Ok(offset)
    }
}
