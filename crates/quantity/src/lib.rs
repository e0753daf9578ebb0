//! Resource quantities (`500m`, `1.5Gi`, `1e3`): read exactly, compared by value, written as the API server writes them.

use std::{cmp::Ordering, fmt};

/// An amount with the family of suffixes it was written in.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// Without factors of ten.
    digits: i128,
    exponent: i32,
    family: Family,
    /// The text it was read from, if the server would write the same.
    text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// `m`, `k`, `M`
    Decimal,
    /// `Ki`, `Mi`
    Binary,
    /// `e3`
    Exponent,
}

/// Why a text is no quantity, in the words of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const DECIMAL: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Powers of 1024, from the first on.
const BINARY: &[&str] = &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The smallest part that is kept.
const NANO: i32 = -9;

/// How many digits the server keeps in its short form, in which a text may be kept as it is.
const SHORT_DIGITS: usize = 18;

/// A text, taken apart.
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = |text: &'a str| -> (&'a str, &'a str) {
            let end = text.find(|c: char| !c.is_ascii_digit());
            text.split_at(end.unwrap_or(text.len()))
        };
        let (whole, rest) = digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let power = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if text.is_empty() || !power.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Self {
            negative: text.starts_with('-'),
            whole: whole.trim_start_matches('0'),
            fraction,
            suffix,
        })
    }
}

/// The family of a suffix, and the power of ten or of two that it stands for.
fn suffix(text: &str) -> Result<(Family, i32), QuantityError> {
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == text) {
        return Ok((Family::Decimal, *power));
    }
    if let Some(index) = BINARY.iter().position(|known| *known == text) {
        let power = i32::try_from(10 * (index + 1)).unwrap_or(i32::MAX);
        return Ok((Family::Binary, power));
    }
    text.strip_prefix(['e', 'E'])
        .and_then(|power| power.parse().ok())
        .map(|power| (Family::Exponent, power))
        .ok_or(QuantityError::Suffix)
}

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::of(text)?;
        let (family, power) = suffix(parts.suffix)?;
        let shown = format!("{}{}", parts.whole, parts.fraction);
        let mut digits: i128 = match shown.as_str() {
            "" => 0,
            shown => shown.parse().map_err(|_| QuantityError::Number)?,
        };
        let places = i32::try_from(parts.fraction.len()).map_err(|_| QuantityError::Number)?;
        let mut exponent = -places;
        match family {
            Family::Binary => {
                let factor = 1_i128.checked_shl(power.unsigned_abs());
                let grown = factor.and_then(|factor| digits.checked_mul(factor));
                digits = grown.ok_or(QuantityError::Number)?;
            }
            Family::Decimal | Family::Exponent => exponent = exponent.saturating_add(power),
        }
        let mut quantity = Self {
            digits,
            exponent,
            family,
            text: None,
        };
        quantity.round_up_to_nano();
        quantity.normalise();
        quantity.cap();
        if parts.negative {
            quantity.digits = -quantity.digits;
        }
        if keeps_text(&parts, family, power) {
            quantity.text = Some(text.to_owned());
        }
        Ok(quantity)
    }

    fn round_up_to_nano(&mut self) {
        while self.exponent < NANO && self.digits != 0 {
            let rest = self.digits % 10;
            self.digits = self.digits / 10 + i128::from(rest != 0);
            self.exponent += 1;
        }
    }

    fn normalise(&mut self) {
        if self.digits == 0 {
            self.exponent = 0;
        }
        while self.digits != 0 && self.digits % 10 == 0 {
            self.digits /= 10;
            self.exponent += 1;
        }
    }

    /// Binary amounts have a limit; those below one are shown in decimals.
    fn cap(&mut self) {
        if self.family != Family::Binary {
            return;
        }
        let most = Self::from(i64::MAX);
        if self.amount(&most) == Ordering::Greater {
            self.digits = most.digits;
            self.exponent = most.exponent;
        }
        if self.digits != 0 && self.amount(&Self::from(1)) == Ordering::Less {
            self.family = Family::Decimal;
        }
    }

    /// The amount alone: one text for all ways to write it.
    pub fn exact(&self) -> String {
        format!("{}e{}", self.digits, self.exponent)
    }

    pub fn is_zero(&self) -> bool {
        self.digits == 0
    }

    pub fn is_negative(&self) -> bool {
        self.digits < 0
    }

    pub fn is_whole(&self) -> bool {
        self.exponent >= 0
    }

    /// The amount as a number, rounded up; the nearest that fits if it is out of range.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// The amount in thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        self.scaled(3)
    }

    fn scaled(&self, places: i32) -> i64 {
        let exponent = self.exponent.saturating_add(places);
        let out = if exponent >= 0 {
            ten_to(exponent).and_then(|factor| self.digits.checked_mul(factor))
        } else {
            let divisor = ten_to(-exponent).unwrap_or(i128::MAX);
            let rest = self.digits % divisor;
            // towards infinity, away from zero
            Some(self.digits / divisor + rest.signum())
        };
        match out.map(i64::try_from) {
            Some(Ok(value)) => value,
            _ if self.digits < 0 => i64::MIN,
            _ => i64::MAX,
        }
    }

    fn amount(&self, other: &Self) -> Ordering {
        let (a, b) = (self.digits.signum(), other.digits.signum());
        if a != b || a == 0 {
            return a.cmp(&b);
        }
        let least = self.exponent.min(other.exponent);
        let aligned = |quantity: &Self| {
            ten_to(quantity.exponent - least).and_then(|f| quantity.digits.checked_mul(f))
        };
        match (aligned(self), aligned(other)) {
            (Some(one), Some(two)) => one.cmp(&two),
            // whichever does not fit is the one that is farther from zero
            (None, _) if a > 0 => Ordering::Greater,
            (_, None) if a < 0 => Ordering::Greater,
            _ => Ordering::Less,
        }
    }

    /// The digits and the power of 1024 in which a whole binary amount is shown.
    fn in_1024s(&self) -> Option<(i128, usize)> {
        if self.family != Family::Binary || !self.is_whole() {
            return None;
        }
        let mut digits = ten_to(self.exponent).and_then(|f| self.digits.checked_mul(f))?;
        if digits.abs() < 1024 {
            return None;
        }
        let mut power = 0;
        while digits.abs() >= 1024 && digits % 1024 == 0 {
            digits /= 1024;
            power += 1;
        }
        Some((digits, power))
    }
}

/// Whether the server shows the text as it came: it does when the number needs no other power of its family.
fn keeps_text(parts: &Parts<'_>, family: Family, power: i32) -> bool {
    let shifted = format!("{}{}", parts.whole, parts.fraction);
    if shifted.is_empty() || parts.whole.is_empty() || shifted.len() > SHORT_DIGITS {
        return false;
    }
    let places = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    match family {
        Family::Binary => {
            let precision = 15 - i32::try_from(shifted.len()).unwrap_or(15) - power * 3 / 10 - 1;
            let value: i64 = shifted.parse().unwrap_or_default();
            parts.fraction.is_empty() && precision >= 0 && value & 7 != 0
        }
        Family::Decimal | Family::Exponent => {
            let scale = power.saturating_sub(places);
            scale >= NANO && scale % 3 == 0 && !shifted.ends_with("000")
        }
    }
}

fn ten_to(power: i32) -> Option<i128> {
    10_i128.checked_pow(power.try_into().ok()?)
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        let mut out = Self {
            digits: value.into(),
            exponent: 0,
            family: Family::Decimal,
            text: None,
        };
        out.normalise();
        out
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.digits == 0 {
            return f.write_str("0");
        }
        if let Some((digits, power)) = self.in_1024s() {
            let suffix = match power {
                0 => "",
                power => BINARY.get(power - 1).copied().unwrap_or_default(),
            };
            return write!(f, "{digits}{suffix}");
        }
        let rest = self.exponent.rem_euclid(3);
        let exponent = self.exponent - rest;
        let digits = self.digits * ten_to(rest).unwrap_or(1);
        match self.family {
            Family::Exponent if exponent == 0 => write!(f, "{digits}"),
            Family::Exponent => write!(f, "{digits}e{exponent}"),
            Family::Decimal | Family::Binary => {
                let known = DECIMAL.iter().find(|(_, power)| *power == exponent);
                let suffix = known.map(|(suffix, _)| *suffix).unwrap_or_default();
                write!(f, "{digits}{suffix}")
            }
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.amount(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.amount(other)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::{Quantity, QuantityError};

    #[test]
    fn quantities_are_written_as_the_server_writes_them() {
        for (text, written) in [
            ("0", "0"),
            ("00", "0"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("+5", "+5"),
            ("1000", "1k"),
            ("100000m", "100"),
            ("1000Ki", "1000Ki"),
            ("1024Ki", "1Mi"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.1Ki", "102400m"),
            ("512Ki", "512Ki"),
            ("1e3", "1e3"),
            ("1000e0", "1e3"),
            ("12e1", "120"),
            ("0.0000000001", "1n"),
            ("1.G", "1.G"),
            ("-2.5", "-2500m"),
            ("1024", "1024"),
            ("64", "64"),
            ("1234567890123456789012", "1234567890123456789012"),
        ] {
            assert_eq!(
                Quantity::parse(text).unwrap().to_string(),
                written,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_quantity_is_told() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("lots", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("1KK", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1ki", QuantityError::Suffix),
        ] {
            assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let read = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(read("1Ki"), read("1024"));
        assert_eq!(read("1Ki").exact(), read("1024000m").exact());
        assert!(read("999m") < read("1"));
        assert!(read("-1") < read("0"));
        assert!(read("1e30") > read("1Ei"));
        assert_eq!(read("1500m").value(), 2);
        assert_eq!(read("1.5").milli_value(), 1500);
        assert!(read("1e30").is_whole() && !read("1m").is_whole());
    }
}
