//! Label and field selectors as they stand in a query.

use std::collections::BTreeMap;

use local::selector::{Fields, Labels};

pub(crate) fn drive(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let labels = BTreeMap::from([("a", "b"), ("example.com/n", "12")]);
    match Labels::parse(text) {
        Ok(selector) => _ = selector.matches(&labels),
        Err(error) => assert!(error.to_string().len() < 4_000 + 40 * text.len()),
    }
    match Fields::parse(text) {
        Ok(selector) => _ = selector.matches(|path| labels.get(path).copied()),
        Err(error) => assert!(error.to_string().len() < 4_000 + 40 * text.len()),
    }
}
