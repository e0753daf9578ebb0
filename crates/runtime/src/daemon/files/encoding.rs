//! Which encoding a client wants its download in.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
}

/// `None` when the client takes nothing that there is.
pub(super) fn preferred(headers: &HeaderMap) -> Option<Encoding> {
    let mut gzip = None;
    let mut identity = None;
    let mut rest = None;
    let values = headers.get_all(ACCEPT_ENCODING).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    for choice in values.flat_map(|value| value.split(',')) {
        let (name, weight) = weighted(choice);
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "identity" => identity = Some(weight),
            "*" => rest = Some(weight),
            _ => {}
        }
    }
    // named by nobody, no encoding at all is still welcome, but less than one that is named
    let named_gzip = gzip.or(rest.filter(|_| identity == Some(0))).unwrap_or(0);
    let identity_weight = identity.or(rest).unwrap_or(1);
    match (named_gzip, identity_weight) {
        (0, 0) => None,
        (gzip, identity) if gzip >= identity.max(1) => Some(Encoding::Gzip),
        (_, 0) => Some(Encoding::Gzip),
        _ => Some(Encoding::Identity),
    }
}

/// A name and its weight in thousandths.
fn weighted(choice: &str) -> (&str, u32) {
    let (name, parameters) = choice.split_once(';').unwrap_or((choice, ""));
    let weight = parameters
        .split(';')
        .find_map(|parameter| parameter.trim().strip_prefix("q="))
        .and_then(thousandths)
        .unwrap_or(1000);
    (name.trim(), weight)
}

fn thousandths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let whole: u32 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    let fraction: u32 = digits.parse().ok()?;
    Some((whole.min(1) * 1000 + fraction).min(1000))
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT_ENCODING;
    use http::{HeaderMap, HeaderValue};

    use super::{Encoding, preferred};

    #[test]
    fn gzip_is_sent_to_those_who_prefer_it() {
        for (accepted, expected) in [
            (None, Some(Encoding::Identity)),
            (Some("gzip, deflate"), Some(Encoding::Gzip)),
            (Some("zstd, br"), Some(Encoding::Identity)),
            (Some("gzip;q=0.5, identity"), Some(Encoding::Identity)),
            (Some("gzip;q=0"), Some(Encoding::Identity)),
            (Some("identity"), Some(Encoding::Identity)),
            (Some("*"), Some(Encoding::Identity)),
            (Some("identity;q=0, *"), Some(Encoding::Gzip)),
            (Some("gzip;q=0.2, identity;q=0"), Some(Encoding::Gzip)),
            (Some("identity;q=0"), None),
            (Some("br, *;q=0"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accepted) = accepted {
                headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            }
            assert_eq!(preferred(&headers), expected, "{accepted:?}");
        }
    }
}
