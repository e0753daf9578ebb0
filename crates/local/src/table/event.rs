//! What a table says about an event.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Definition;
use super::cells::{has, name, number, since, text, text_or};

pub(super) const COLUMNS: &[Definition] = &[
    Definition::new("Last Seen", "How long ago it happened last."),
    Definition::new("Type", "Whether something went wrong."),
    Definition::new("Reason", "What happened, in a word."),
    Definition::new("Object", "What it happened to."),
    Definition::new("Subobject", "The part of the object.").wide(),
    Definition::new("Source", "Who reports it.").wide(),
    Definition::new("Message", "What happened."),
    Definition::new("First Seen", "How long ago it happened first.").wide(),
    Definition::new("Count", "How often it happened.").wide(),
    Definition::NAME.wide(),
];

/// Where the two groups of events have the same things.
pub(super) struct Fields {
    object: &'static str,
    message: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
    source: &'static str,
    reporter: &'static str,
}

pub(super) static CORE: Fields = Fields {
    object: "/involvedObject",
    message: "/message",
    first: "/firstTimestamp",
    last: "/lastTimestamp",
    count: "/count",
    source: "/source",
    reporter: "/reportingComponent",
};

pub(super) static NEW: Fields = Fields {
    object: "/regarding",
    message: "/note",
    first: "/deprecatedFirstTimestamp",
    last: "/deprecatedLastTimestamp",
    count: "/deprecatedCount",
    source: "/deprecatedSource",
    reporter: "/reportingController",
};

pub(super) fn cells(event: &Value, fields: &Fields, now: Timestamp) -> Vec<Value> {
    let first = match has(event, fields.first) {
        true => since(event, fields.first, now),
        false => since(event, "/eventTime", now),
    };
    let series = event.pointer("/series").filter(|series| series.is_object());
    let (last, count) = match (series, number(event, fields.count)) {
        (Some(series), _) => (
            since(series, "/lastObservedTime", now),
            number(series, "/count"),
        ),
        (None, count) if has(event, fields.last) => (since(event, fields.last, now), count.max(1)),
        (None, count) => (first.clone(), count.max(1)),
    };
    let nothing = Value::Null;
    let object = event.pointer(fields.object).unwrap_or(&nothing);
    let source = event.pointer(fields.source).unwrap_or(&nothing);
    let kind = text(object, "/kind").to_lowercase();
    let target = match text(object, "/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = text_or(source, "/component", text(event, fields.reporter));
    let reporter = match text_or(source, "/host", text(event, "/reportingInstance")) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    vec![
        last.into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        target.into(),
        text(object, "/fieldPath").into(),
        reporter.into(),
        text(event, fields.message).trim().into(),
        first.into(),
        count.into(),
        name(event).into(),
    ]
}
