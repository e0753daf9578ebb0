//! Selectors of labels, and numbers that may be percentages, as specs have them.

use api::structural::names;
use serde_json::Value;

use super::access::{entries, items, text};
use super::check::{Errors, Path};

/// A label selector.
pub(super) fn check(selector: &Value, path: &Path, errors: &mut Errors) {
    errors.labels(&path.field("matchLabels"), entries(selector, "matchLabels"));
    let path = path.field("matchExpressions");
    for (index, requirement) in items(selector, "matchExpressions").iter().enumerate() {
        let path = path.index(index);
        let values = items(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.required(&path.field("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&path.field("values"), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.invalid(
                    &path.field("operator"),
                    other,
                    "not a valid selector operator",
                );
            }
        }
        errors.qualified_name(&path.field("key"), text(requirement, "key"));
        let path = path.field("values");
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            let problems = names::label_value_problems(value);
            errors.problems(&path.index(index), value, problems);
        }
    }
}

pub(super) fn is_empty(selector: &Value) -> bool {
    entries(selector, "matchLabels").next().is_none()
        && items(selector, "matchExpressions").is_empty()
}

/// Whether a selector that is well formed selects these labels.
pub(super) fn matches(selector: &Value, labels: Option<&Value>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    let expressions = items(selector, "matchExpressions").iter();
    entries(selector, "matchLabels").all(|(key, value)| label(key) == Some(value))
        && expressions.into_iter().all(|requirement| {
            let value = label(text(requirement, "key"));
            let among = value.is_some_and(|value| items(requirement, "values").contains(value));
            match text(requirement, "operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

/// A selector as errors show it, in the order of its fields.
pub(super) fn shown(selector: Option<&Value>) -> String {
    let Some(selector) = selector else {
        return "null".to_owned();
    };
    let fields = ["matchLabels", "matchExpressions"]
        .iter()
        .filter_map(|field| {
            let value = selector.get(*field)?;
            Some(format!("\"{field}\":{value}"))
        });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// A number that is not negative, or a percentage.
pub(super) fn check_share(share: Option<&Value>, path: &Path, errors: &mut Errors) {
    match share {
        Some(Value::String(text)) if percentage(share).is_none() => {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                          '93%', regex used for validation is '[0-9]+%')";
            errors.invalid(path, text.as_str(), detail);
        }
        Some(Value::Number(number)) => errors.not_negative(path, number.as_i64()),
        _ => {}
    }
}

/// No more than all.
pub(super) fn check_at_most_all(share: Option<&Value>, path: &Path, errors: &mut Errors) {
    if percentage(share).is_some_and(|percent| percent > 100) {
        let share = share.cloned().unwrap_or_default();
        errors.invalid(path, share, "must not be greater than 100%");
    }
}

pub(super) fn is_zero(share: Option<&Value>) -> bool {
    match share {
        Some(Value::String(_)) => percentage(share) == Some(0),
        share => share.and_then(Value::as_i64).unwrap_or(0) == 0,
    }
}

fn percentage(share: Option<&Value>) -> Option<u64> {
    let digits = share?.as_str()?.strip_suffix('%')?;
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{is_zero, matches, percentage, shown};

    #[test]
    fn a_selector_matches_labels() {
        let selector = json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["d", "e"]},
                {"key": "f", "operator": "DoesNotExist"},
            ],
        });
        assert!(matches(&selector, Some(&json!({"a": "b", "c": "d"}))));
        assert!(!matches(&selector, Some(&json!({"a": "b", "c": "x"}))));
        assert!(!matches(
            &selector,
            Some(&json!({"a": "b", "c": "d", "f": ""}))
        ));
        assert!(!matches(&selector, None));
    }

    #[test]
    fn a_selector_is_shown_labels_first() {
        let selector = json!({"matchExpressions": [], "matchLabels": {"a": "b"}});
        let expected = r#"{"matchLabels":{"a":"b"},"matchExpressions":[]}"#;
        assert_eq!(shown(Some(&selector)), expected);
    }

    #[test]
    fn shares_are_numbers_or_percentages() {
        assert_eq!(percentage(Some(&json!("25%"))), Some(25));
        assert_eq!(percentage(Some(&json!("%"))), None);
        assert_eq!(percentage(Some(&json!("x%"))), None);
        assert!(is_zero(Some(&json!("0%"))) && is_zero(Some(&json!(0))));
        assert!(!is_zero(Some(&json!("25%"))));
    }
}
