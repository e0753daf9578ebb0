//! The parameters that requests take beside their bodies.

use serde_json::{Value, json};

use super::Dialect;

pub(super) struct Parameter {
    name: &'static str,
    place: &'static str,
    kind: &'static str,
    says: &'static str,
}

const fn query(name: &'static str, kind: &'static str, says: &'static str) -> Parameter {
    Parameter {
        name,
        place: "query",
        kind,
        says,
    }
}

const fn in_path(name: &'static str, says: &'static str) -> Parameter {
    Parameter {
        name,
        place: "path",
        kind: "string",
        says,
    }
}

pub(super) static NAME: Parameter = in_path("name", "The name of the object.");
pub(super) static NAMESPACE: Parameter = in_path("namespace", "The namespace of the object.");
pub(super) static PRETTY: Parameter =
    query("pretty", "string", "If 'true', the answer is indented.");

const DRY_RUN: Parameter = query(
    "dryRun",
    "string",
    "'All' does everything but store the result.",
);
const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "Who owns the fields that this request sets.",
);
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What happens to unknown and repeated fields: 'Ignore', 'Warn' or 'Strict'.",
);
const FORCE: Parameter = query(
    "force",
    "boolean",
    "Whether an apply takes fields away from other managers.",
);
const GRACE: Parameter = query(
    "gracePeriodSeconds",
    "integer",
    "How long the object has to end.",
);
const ORPHAN: Parameter = query(
    "orphanDependents",
    "boolean",
    "Deprecated in favour of propagationPolicy.",
);
const PROPAGATION: Parameter = query(
    "propagationPolicy",
    "string",
    "What becomes of dependents: 'Orphan', 'Background' or 'Foreground'.",
);
const CONTINUE: Parameter = query("continue", "string", "Where the last page of a list ended.");
const FIELD_SELECTOR: Parameter = query("fieldSelector", "string", "Which fields objects have.");
const LABEL_SELECTOR: Parameter = query("labelSelector", "string", "Which labels objects have.");
const LIMIT: Parameter = query("limit", "integer", "How many objects a page of a list has.");
const RESOURCE_VERSION: Parameter = query(
    "resourceVersion",
    "string",
    "The state of the store that is asked for.",
);
const VERSION_MATCH: Parameter = query(
    "resourceVersionMatch",
    "string",
    "Whether that state is meant exactly: 'Exact' or 'NotOlderThan'.",
);
const INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "Whether a watch begins with what is there.",
);
const TIMEOUT: Parameter = query("timeoutSeconds", "integer", "When a list or watch ends.");

pub(super) const NONE: &[Parameter] = &[];
pub(super) const OF_CREATE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
pub(super) const OF_PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
pub(super) const OF_DELETE: &[Parameter] = &[DRY_RUN, GRACE, ORPHAN, PROPAGATION];
pub(super) const OF_LIST: &[Parameter] = &[
    query(
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch tells how far it is.",
    ),
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    VERSION_MATCH,
    INITIAL_EVENTS,
    TIMEOUT,
    query("watch", "boolean", "Streams changes in place of a list."),
];
pub(super) const OF_DELETE_COLLECTION: &[Parameter] = &[
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN,
    PROPAGATION,
    RESOURCE_VERSION,
    VERSION_MATCH,
    INITIAL_EVENTS,
    TIMEOUT,
];

impl Parameter {
    pub(super) fn render(&self, dialect: Dialect) -> Value {
        let mut out = json!({"name": self.name, "in": self.place, "description": self.says});
        if self.place == "path" {
            out["required"] = json!(true);
        }
        match dialect {
            Dialect::V3 => out["schema"] = json!({"type": self.kind, "uniqueItems": true}),
            Dialect::V2 => {
                out["type"] = json!(self.kind);
                out["uniqueItems"] = json!(true);
            }
        }
        out
    }
}
