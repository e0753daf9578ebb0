//! Events, in both of their forms.

use serde_json::Value;

use super::access::{child, int, text, text_at};
use super::check::{self, Errors, Path};
use super::{Field, Rules};

/// The form of the core group.
pub(super) const CORE: Rules = Rules {
    validate: |event| Errors::of(|errors| check_event(event, "reportingComponent", errors)),
    validate_update: |new, _, _| {
        Errors::of(|errors| check_event(new, "reportingComponent", errors))
    },
    fields: &[
        ("involvedObject.apiVersion", |it| about(it, "apiVersion")),
        ("involvedObject.fieldPath", |it| about(it, "fieldPath")),
        ("involvedObject.kind", |it| about(it, "kind")),
        ("involvedObject.name", |it| about(it, "name")),
        ("involvedObject.namespace", |it| about(it, "namespace")),
        ("involvedObject.resourceVersion", |it| {
            about(it, "resourceVersion")
        }),
        ("involvedObject.uid", |it| about(it, "uid")),
        REASON,
        ("reportingComponent", |it| reporter(it).to_owned()),
        ("source", source),
        TYPE,
    ],
    ..Rules::PLAIN
};

/// The form of `events.k8s.io`.
pub(super) const OWN: Rules = Rules {
    validate: |event| {
        Errors::of(|errors| {
            check_event(event, "reportingController", errors);
            check_new(event, errors);
        })
    },
    validate_update: |new, old, _| {
        Errors::of(|errors| {
            check_event(new, "reportingController", errors);
            check_changes(new, old, errors);
        })
    },
    fields: &[
        REASON,
        ("regarding.apiVersion", |it| about(it, "apiVersion")),
        ("regarding.fieldPath", |it| about(it, "fieldPath")),
        ("regarding.kind", |it| about(it, "kind")),
        ("regarding.name", |it| about(it, "name")),
        ("regarding.namespace", |it| about(it, "namespace")),
        ("regarding.resourceVersion", |it| {
            about(it, "resourceVersion")
        }),
        ("regarding.uid", |it| about(it, "uid")),
        ("reportingController", |it| reporter(it).to_owned()),
        TYPE,
    ],
    ..Rules::PLAIN
};

const REASON: Field = ("reason", |event| text(event, "reason").to_owned());
const TYPE: Field = ("type", |event| text(event, "type").to_owned());

/// A field that has one name in the core group and another in `events.k8s.io`.
fn either<'a>(event: &'a Value, core: &str, own: &str) -> Option<&'a Value> {
    event
        .get(core)
        .or_else(|| event.get(own))
        .filter(|value| !value.is_null())
}

fn involved(event: &Value) -> &Value {
    either(event, "involvedObject", "regarding").unwrap_or(&Value::Null)
}

fn about(event: &Value, field: &str) -> String {
    text(involved(event), field).to_owned()
}

fn reporter(event: &Value) -> &str {
    let reporter = either(event, "reportingComponent", "reportingController");
    reporter.and_then(Value::as_str).unwrap_or_default()
}

fn source(event: &Value) -> String {
    let source = either(event, "source", "deprecatedSource");
    match source.map_or("", |source| text(source, "component")) {
        "" => reporter(event).to_owned(),
        component => component.to_owned(),
    }
}

fn check_event(event: &Value, reporter_field: &str, errors: &mut Errors) {
    let namespace = text_at(event, "/metadata/namespace");
    let of_object = text(involved(event), "namespace");
    let is_old = text(event, "eventTime").is_empty();
    let fits = match (is_old, of_object) {
        (true, "") => matches!(namespace, "" | "default"),
        (true, of_object) => of_object == namespace,
        (false, "") => matches!(namespace, "default" | "kube-system"),
        (false, _) => true,
    };
    if !fits {
        let path = Path::new("involvedObject");
        errors.invalid(
            &path.field("namespace"),
            of_object,
            "does not match event.namespace",
        );
    }
    if is_old {
        return;
    }
    let path = Path::new(reporter_field);
    if reporter(event).is_empty() {
        errors.required(&path, "");
    }
    errors.qualified_name(&path, reporter(event));
    for field in ["reportingInstance", "action", "reason"] {
        let value = text(event, field);
        if value.is_empty() {
            errors.required(&Path::new(field), "");
        }
        if value.len() > 128 {
            errors.invalid(&Path::new(field), "", "can have at most 128 characters");
        }
    }
    let note = either(event, "message", "note").and_then(Value::as_str);
    if note.is_some_and(|note| note.len() > 1024) {
        errors.invalid(
            &Path::new("message"),
            "",
            "can have at most 1024 characters",
        );
    }
}

fn check_series(event: &Value, errors: &mut Errors) {
    let Some(series) = child(event, "series") else {
        return;
    };
    if int(series, "count").unwrap_or(0) < 2 {
        errors.invalid(&Path::new("series.count"), "", "should be at least 2");
    }
    if text(series, "lastObservedTime").is_empty() {
        errors.required(&Path::new("series.lastObservedTime"), "");
    }
}

fn check_new(event: &Value, errors: &mut Errors) {
    check_series(event, errors);
    if text(event, "eventTime").is_empty() {
        errors.required(&Path::new("eventTime"), "");
    }
    let kind = text(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        let detail = format!("has invalid value: {kind}");
        errors.invalid(&Path::new("type"), "", &detail);
    }
    let source = either(event, "source", "deprecatedSource");
    let has_source = source.is_some_and(|source| {
        ["component", "host"]
            .iter()
            .any(|field| !text(source, field).is_empty())
    });
    let times = |core, own| either(event, core, own).is_some();
    for (field, set) in [
        (
            "firstTimestamp",
            times("firstTimestamp", "deprecatedFirstTimestamp"),
        ),
        (
            "lastTimestamp",
            times("lastTimestamp", "deprecatedLastTimestamp"),
        ),
        ("count", times("count", "deprecatedCount")),
        ("source", has_source),
    ] {
        if set {
            errors.invalid(&Path::new(field), "", "needs to be unset");
        }
    }
}

/// Only the series of an event goes on. The server names the reason twice.
const FIXED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("reason", "reason"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

fn check_changes(new: &Value, old: &Value, errors: &mut Errors) {
    if new.get("series") != old.get("series") {
        check_series(new, errors);
    }
    for (shown, field) in FIXED {
        let (new, old) = (either(new, field, shown), either(old, field, shown));
        // one group writes what the other leaves out when it is empty
        let is_set = |value: Option<&Value>| value.is_some_and(|value| *value != "");
        if new == old || !(is_set(new) || is_set(old)) {
            continue;
        }
        let (path, value) = (Path::new(shown), new.unwrap_or(&Value::Null));
        match *shown {
            "involvedObject" | "related" => {
                errors.invalid_internal(&path, "ObjectReference", value, check::FIXED);
            }
            "source" => errors.invalid_internal(&path, "EventSource", value, check::FIXED),
            _ => errors.invalid(&path, value.clone(), check::FIXED),
        }
    }
}
