//! Conditional and partial requests, answered by a file's size and the time of its last change.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderMap, HeaderValue};

/// What of a file is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Range(Range<u64>),
    NotModified,
    PreconditionFailed,
    Unsatisfiable,
}

const ALL: [HeaderName; 6] = [
    RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    IF_RANGE,
];

/// Such requests are about the file as it is stored, not as it would be compressed.
pub(super) fn present(headers: &HeaderMap) -> bool {
    ALL.iter().any(|name| headers.contains_key(name))
}

pub(super) fn part(headers: &HeaderMap, size: u64, modified: SystemTime) -> Part {
    let modified = whole_seconds(modified);
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str());
    let time = |name| httpdate::parse_http_date(text(name)?.ok()?).ok();
    let any = |name| text(name).map(|value| value.is_ok_and(|value| value.trim() == "*"));
    // files have no entity tags, so that only `*` can match
    let unchanged_as_wanted = match any(IF_MATCH) {
        Some(matched) => matched,
        None => time(IF_UNMODIFIED_SINCE).is_none_or(|since| modified <= since),
    };
    if !unchanged_as_wanted {
        return Part::PreconditionFailed;
    }
    let known_already = match any(IF_NONE_MATCH) {
        Some(matched) => matched,
        None => time(IF_MODIFIED_SINCE).is_some_and(|since| modified <= since),
    };
    if known_already {
        return Part::NotModified;
    }
    let still_the_same = match text(IF_RANGE) {
        None => true,
        Some(_) => time(IF_RANGE) == Some(modified),
    };
    match text(RANGE) {
        Some(Ok(range)) if still_the_same => one_range(range, size),
        _ => Part::Whole,
    }
}

/// Dates in headers have no fractions.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

/// Several ranges at once may be answered with the whole, and are.
fn one_range(text: &str, size: u64) -> Part {
    let Some(range) = text.trim().strip_prefix("bytes=") else {
        return Part::Unsatisfiable;
    };
    if range.contains(',') {
        return Part::Whole;
    }
    let Some((from, to)) = range.split_once('-') else {
        return Part::Unsatisfiable;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = match (from.trim().is_empty(), to.trim().is_empty()) {
        (true, _) => number(to).map(|last| size.saturating_sub(last)..size),
        (false, true) => number(from).map(|from| from..size),
        (false, false) => number(from)
            .zip(number(to))
            .and_then(|(from, to)| (from <= to).then(|| from..to.saturating_add(1).min(size))),
    };
    match range {
        // clients ask so for the beginning of files that they do not know
        Some(_) if size == 0 => Part::Whole,
        Some(range) if range.start < range.end => Part::Range(range),
        _ => Part::Unsatisfiable,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{Part, part};

    const BEFORE: &str = "Thu, 01 Jan 1970 00:01:00 GMT";
    const THEN: &str = "Thu, 01 Jan 1970 00:01:40 GMT";

    fn asked(headers: &[(&'static str, &'static str)]) -> Part {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect();
        part(&headers, 10, UNIX_EPOCH + Duration::from_millis(100_700))
    }

    #[test]
    fn ranges_are_cut_to_the_file_or_refused() {
        for (range, expected) in [
            ("bytes=0-3", Part::Range(0..4)),
            ("bytes=4-", Part::Range(4..10)),
            ("bytes=-3", Part::Range(7..10)),
            ("bytes=-30", Part::Range(0..10)),
            ("bytes=8-99", Part::Range(8..10)),
            ("bytes=8-18446744073709551615", Part::Range(8..10)),
            ("bytes=10-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=5-4", Part::Unsatisfiable),
            ("bytes=x-", Part::Unsatisfiable),
            ("lines=1-2", Part::Unsatisfiable),
            ("bytes=0-1,4-5", Part::Whole),
        ] {
            assert_eq!(asked(&[("range", range)]), expected, "{range}");
        }
    }

    #[test]
    fn conditions_compare_whole_seconds() {
        for (headers, expected) in [
            (&[("if-modified-since", THEN)][..], Part::NotModified),
            (&[("if-modified-since", BEFORE)], Part::Whole),
            (&[("if-none-match", "*")], Part::NotModified),
            (
                &[("if-none-match", "\"x\""), ("if-modified-since", THEN)],
                Part::Whole,
            ),
            (&[("if-unmodified-since", BEFORE)], Part::PreconditionFailed),
            (&[("if-unmodified-since", THEN)], Part::Whole),
            (&[("if-match", "\"x\"")], Part::PreconditionFailed),
            (
                &[("range", "bytes=0-0"), ("if-range", THEN)],
                Part::Range(0..1),
            ),
            (&[("range", "bytes=0-0"), ("if-range", BEFORE)], Part::Whole),
        ] {
            assert_eq!(asked(headers), expected, "{headers:?}");
        }
    }
}
