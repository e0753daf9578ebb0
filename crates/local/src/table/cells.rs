//! What the cells of several kinds are made of.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
pub(super) const UNKNOWN: &str = "<unknown>";
pub(super) const INVALID: &str = "<invalid>";

/// The text at a JSON pointer, empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn text_or<'a>(object: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    match text(object, pointer) {
        "" => otherwise,
        text => text,
    }
}

/// Zero if there is none.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer) == Some(&Value::Bool(true))
}

/// Whether something other than null is there.
pub(super) fn has(object: &Value, pointer: &str) -> bool {
    object
        .pointer(pointer)
        .is_some_and(|value| !value.is_null())
}

pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// How many entries a map has.
pub(super) fn size(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

pub(super) fn joined<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().collect::<Vec<_>>().join(",")
}

/// The status of the first condition of that type.
pub(super) fn condition<'a>(object: &'a Value, condition_type: &str) -> Option<&'a str> {
    items(object, "/status/conditions")
        .iter()
        .find(|condition| condition["type"] == condition_type)
        .map(|condition| text(condition, "/status"))
}

pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(super) fn age(object: &Value, now: Timestamp) -> String {
    since(object, "/metadata/creationTimestamp", now)
}

/// How long ago the time at a JSON pointer was.
pub(super) fn since(object: &Value, pointer: &str, now: Timestamp) -> String {
    match time(text(object, pointer)) {
        Some(time) => elapsed(time, now),
        None => UNKNOWN.to_owned(),
    }
}

/// A time of RFC 3339. The zero of Go is none.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    // what Timestamp reads beyond RFC 3339 has another separator, or no seconds
    let separators = [(10, b'T'), (13, b':'), (16, b':')];
    let complete = separators
        .iter()
        .all(|(at, separator)| text.as_bytes().get(*at) == Some(separator));
    match complete && text != "0001-01-01T00:00:00Z" {
        true => text.parse().ok(),
        false => None,
    }
}

/// A duration in the two units that matter: `45s`, `3m20s`, `5h10m`, `2d4h`, `30d`, `3y40d`.
pub(super) fn elapsed(then: Timestamp, now: Timestamp) -> String {
    // beyond what 64 bits of nanoseconds hold, a duration stays at their bound
    let bound = i128::from(i64::MAX);
    let nanoseconds = (now.as_nanosecond() - then.as_nanosecond()).clamp(-bound, bound);
    let seconds = nanoseconds / 1_000_000_000;
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let (days, years) = (hours / 24, hours / (24 * 365));
    let two = |great, unit, small, small_unit| match small {
        0 => format!("{great}{unit}"),
        _ => format!("{great}{unit}{small}{small_unit}"),
    };
    match () {
        // clocks of two machines may be that much apart
        () if seconds < -1 => INVALID.to_owned(),
        () if seconds < 120 => format!("{}s", seconds.max(0)),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, 'y', days % 365, 'd'),
        () => format!("{years}y"),
    }
}

/// `a=b,c=d`, empty for no labels.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let labels = object.pointer(pointer).and_then(Value::as_object);
    let mut pairs: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    pairs.join(",")
}

/// A label selector as one writes it in a query, empty if it selects everything or nothing.
pub(super) fn selector(object: &Value, pointer: &str) -> Option<String> {
    let mut requirements: Vec<(&str, String)> = Vec::new();
    let Some(selector) = object.pointer(pointer) else {
        return Some(String::new());
    };
    let labels = selector["matchLabels"].as_object();
    for (key, value) in labels.into_iter().flatten() {
        requirements.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in items(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        requirements.push((key, requirement(key, expression)?));
    }
    requirements.sort_by_key(|(key, _)| *key);
    Some(joined(requirements.iter().map(|(_, text)| text.as_str())))
}

fn requirement(key: &str, expression: &Value) -> Option<String> {
    let operator = match text(expression, "/operator") {
        "Exists" => return Some(key.to_owned()),
        "DoesNotExist" => return Some(format!("!{key}")),
        "In" => "in",
        "NotIn" => "notin",
        _ => return None,
    };
    let mut values: Vec<&str> = items(expression, "/values")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    values.sort_unstable();
    Some(format!("{key} {operator} ({})", values.join(",")))
}

/// A number as Go prints it: without a fraction where there is none, with an exponent where it is very big or small.
pub(super) fn go_number(number: &serde_json::Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&exponent) {
        return float.to_string();
    }
    let mut text = digits.to_owned();
    let sign = if exponent < 0 { '-' } else { '+' };
    // writing to a string cannot fail
    _ = write!(text, "e{sign}{:02}", exponent.unsigned_abs());
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    use super::{elapsed, go_number, selector, time};

    #[test]
    fn durations_have_the_two_units_that_matter() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        for (seconds, shown) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (10 * MINUTE + 5, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR + 5 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (7 * DAY + 5 * HOUR, "7d5h"),
            (8 * DAY + 5 * HOUR, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (6 * 365 * DAY + 321 * DAY, "6y321d"),
            (9 * 365 * DAY + 3 * DAY, "9y"),
        ] {
            let then = now - SignedDuration::from_secs(seconds);
            assert_eq!(elapsed(then, now), shown, "{seconds} s");
        }
    }

    #[test]
    fn only_whole_times_of_rfc_3339_are_times() {
        assert!(time("2026-01-01T00:00:00Z").is_some());
        assert!(time("2026-01-01T00:00:00.000001+02:00").is_some());
        for text in [
            "",
            "2026-01-01",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00Z",
            "0001-01-01T00:00:00Z",
        ] {
            assert!(time(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_selector_is_written_as_in_a_query() {
        let object = json!({"selector": {
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "d", "operator": "In", "values": ["y", "x"]},
                {"key": "a", "operator": "NotIn", "values": ["z"]},
                {"key": "c", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist"},
            ],
        }});
        assert_eq!(
            selector(&object, "/selector").as_deref(),
            Some("a notin (z),b=1,c,d in (x,y),!e")
        );
        let odd = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}});
        assert_eq!(selector(&odd, "/selector"), None);
    }

    #[test]
    fn numbers_are_printed_as_go_does() {
        for (number, shown) in [
            (json!(5), "5"),
            (json!(3.0), "3"),
            (json!(2.75), "2.75"),
            (json!(1e21), "1e+21"),
            (json!(1e20), "100000000000000000000"),
            (json!(0.0001), "0.0001"),
            (json!(1.5e-7), "1.5e-07"),
        ] {
            let number = number.as_number().unwrap();
            assert_eq!(go_number(number), shown);
        }
    }
}
