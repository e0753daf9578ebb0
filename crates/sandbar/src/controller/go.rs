//! Values as programs written in Go take them on their command lines, which is how manifests have them.

use std::time::Duration;

/// The words that Go takes for a truth value.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// Numbers with units, one after the other: `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let remedy = || "use a time such as 500ms, 30s, 5m or 1h30m".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let is_digit = |byte: char| byte.is_ascii_digit() || byte == '.';
        let split = rest.find(|byte| !is_digit(byte)).ok_or_else(remedy)?;
        let (number, unit) = rest.split_at(split);
        let end = unit.find(is_digit).unwrap_or(unit.len());
        let (unit, more) = unit.split_at(end);
        let one = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(remedy()),
        };
        seconds += number.parse::<f64>().map_err(|_| remedy())? * one;
        rest = more;
    }
    if text.is_empty() {
        return Err(remedy());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| remedy())
}

/// A count of at least one.
pub(super) fn at_least_one(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "use a whole number of at least 1".to_owned())
}

/// A rate, which may be nothing.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|rate| rate.is_finite() && *rate >= 0.0)
        .ok_or_else(|| "use a number of at least 0; 0 is no limit".to_owned())
}

/// A rate that is none below zero.
pub(super) fn queries(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|rate| rate.is_finite())
        .ok_or_else(|| "use a number; -1 is no limit".to_owned())
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bind {
    Nowhere,
    /// A host, or every address if it is empty, and a port.
    At(String, u16),
}

/// `:8080`, `127.0.0.1:8080`, `[::1]:8080`, or `0` for not at all.
pub(super) fn bind(text: &str) -> Result<Bind, String> {
    if text == "0" {
        return Ok(Bind::Nowhere);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("?", ""));
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_whole = bare.is_some() || !host.contains([':', '?']);
    match port.parse() {
        Ok(port) if is_whole => Ok(Bind::At(bare.unwrap_or(host).to_owned(), port)),
        _ => Err("use [host]:port, such as :8080, or 0 for not at all".to_owned()),
    }
}

/// As zap names levels: a word, or a number that says how much more than `info`.
pub(super) fn level(text: &str) -> Result<tracing::Level, String> {
    match (text, text.parse::<i32>()) {
        ("info", _) => Ok(tracing::Level::INFO),
        ("debug", _) | (_, Ok(1)) => Ok(tracing::Level::DEBUG),
        ("warn", _) => Ok(tracing::Level::WARN),
        ("error" | "dpanic" | "panic" | "fatal", _) => Ok(tracing::Level::ERROR),
        (_, Ok(2..)) => Ok(tracing::Level::TRACE),
        _ => Err("use debug, info, error, panic, or a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Bind, at_least_one, bind, boolean, duration, level, queries, rate};

    #[test]
    fn durations_are_those_of_go() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("5m", 300_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("+2s", 2_000),
            ("1h0m0.5s", 3_600_500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "m", "5 m", "-5m", "5x", "1..5s", "1m30"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn truth_has_the_words_of_go() {
        assert_eq!(boolean("T"), Ok(true));
        assert_eq!(boolean("False"), Ok(false));
        assert!(boolean("yes").is_err());
    }

    #[test]
    fn numbers_have_their_bounds() {
        assert_eq!(at_least_one("7"), Ok(7));
        assert!(at_least_one("0").is_err() && at_least_one("-1").is_err());
        assert_eq!(rate("0.5"), Ok(0.5));
        assert!(rate("-1").is_err() && rate("NaN").is_err());
        assert_eq!(queries("-1"), Ok(-1.0));
    }

    #[test]
    fn addresses_have_a_port() {
        let at = |host: &str, port| Ok(Bind::At(host.to_owned(), port));
        assert_eq!(bind("0"), Ok(Bind::Nowhere));
        assert_eq!(bind(":8080"), at("", 8080));
        assert_eq!(bind("localhost:0"), at("localhost", 0));
        assert_eq!(bind("[::1]:9"), at("::1", 9));
        for text in ["", "8080", "::1:9", "host", "host:", "host:70000"] {
            assert!(bind(text).is_err(), "{text}");
        }
    }

    #[test]
    fn levels_are_those_of_zap() {
        assert_eq!(level("info"), Ok(tracing::Level::INFO));
        assert_eq!(level("1"), Ok(tracing::Level::DEBUG));
        assert_eq!(level("5"), Ok(tracing::Level::TRACE));
        assert_eq!(level("panic"), Ok(tracing::Level::ERROR));
        assert!(level("0").is_err() && level("loud").is_err());
    }
}
