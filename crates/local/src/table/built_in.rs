//! The columns of the built-in kinds.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::cells::{
    INVALID, NONE, age, flag, items, joined, name, number, selector, size, text, text_or,
};
use super::{Definition, event, node, pod, service, storage};

/// How objects of a kind are shown.
pub(super) struct Layout {
    group: &'static str,
    kind: &'static str,
    pub(super) columns: &'static [Definition],
    /// As many as there are columns.
    pub(super) cells: fn(&Value, Timestamp) -> Vec<Value>,
    pub(super) conditions: fn(&Value) -> Option<Value>,
}

impl Layout {
    const fn new(
        group: &'static str,
        kind: &'static str,
        columns: &'static [Definition],
        cells: fn(&Value, Timestamp) -> Vec<Value>,
    ) -> Self {
        Self {
            group,
            kind,
            columns,
            cells,
            conditions: |_| None,
        }
    }
}

pub(super) fn layout(group: &str, kind: &str) -> &'static Layout {
    LAYOUTS
        .iter()
        .find(|layout| layout.group == group && layout.kind == kind)
        .unwrap_or(&PLAIN)
}

const fn column(name: &'static str, description: &'static str) -> Definition {
    Definition::new(name, description)
}

const NAME: Definition = Definition::NAME;
const AGE: Definition = Definition::AGE;

static PLAIN: Layout = Layout::new("", "", &[NAME, AGE], |object, now| {
    vec![name(object).into(), age(object, now).into()]
});

const DESIRED: Definition =
    column("Desired", "How many replicas there should be.").of_type("integer");
const AVAILABLE: Definition =
    column("Available", "How many replicas there are.").of_type("integer");

/// The name is not marked as one here.
pub(super) static SCALE: Layout = Layout::new(
    "autoscaling",
    "Scale",
    &[Definition { format: "", ..NAME }, DESIRED, AVAILABLE, AGE],
    scale,
);

pub(super) static CUSTOM_SCALE: Layout = Layout::new(
    "autoscaling",
    "Scale",
    &[NAME, DESIRED, AVAILABLE, AGE.of_type("date")],
    scale,
);

static LAYOUTS: &[Layout] = &[
    Layout {
        conditions: pod::conditions,
        ..Layout::new("", "Pod", pod::COLUMNS, pod::cells)
    },
    Layout::new("", "Service", service::COLUMNS, service::cells),
    Layout::new(
        "",
        "Secret",
        &[NAME, column("Type", "What the data is for."), DATA, AGE],
        |secret, now| {
            vec![
                name(secret).into(),
                text(secret, "/type").into(),
                size(secret, "/data").into(),
                age(secret, now).into(),
            ]
        },
    ),
    Layout::new("", "ConfigMap", &[NAME, DATA, AGE], |map, now| {
        vec![
            name(map).into(),
            (size(map, "/data") + size(map, "/binaryData")).into(),
            age(map, now).into(),
        ]
    }),
    Layout::new(
        "",
        "Namespace",
        &[
            NAME,
            column(
                "Status",
                "Whether the namespace is in use or being deleted.",
            ),
            AGE,
        ],
        |namespace, now| {
            vec![
                name(namespace).into(),
                text(namespace, "/status/phase").into(),
                age(namespace, now).into(),
            ]
        },
    ),
    Layout::new("", "Node", node::COLUMNS, node::cells),
    Layout::new("", "PersistentVolumeClaim", storage::CLAIM, storage::claim),
    Layout::new("", "PersistentVolume", storage::VOLUME, storage::volume),
    Layout::new("", "Event", event::COLUMNS, |event, now| {
        event::cells(event, &event::CORE, now)
    }),
    Layout::new("events.k8s.io", "Event", event::COLUMNS, |event, now| {
        event::cells(event, &event::NEW, now)
    }),
    Layout::new(
        "coordination.k8s.io",
        "Lease",
        &[NAME, column("Holder", "Who has the lease."), AGE],
        |lease, now| {
            vec![
                name(lease).into(),
                text(lease, "/spec/holderIdentity").into(),
                age(lease, now).into(),
            ]
        },
    ),
    Layout::new(
        "networking.k8s.io",
        "NetworkPolicy",
        &[
            NAME,
            column("Pod-Selector", "Which pods the policy is for."),
            AGE,
        ],
        |policy, now| {
            let selected = match selector(policy, "/spec/podSelector") {
                None => "<error>".to_owned(),
                Some(all) if all.is_empty() => NONE.to_owned(),
                Some(selected) => selected,
            };
            vec![
                name(policy).into(),
                selected.into(),
                age(policy, now).into(),
            ]
        },
    ),
    Layout::new(
        "apps",
        "ControllerRevision",
        &[
            NAME,
            column("Controller", "The object whose state this is."),
            column("Revision", "The number of the state."),
            AGE,
        ],
        revision,
    ),
    Layout::new(
        "apps",
        "Deployment",
        &[
            NAME,
            column("Ready", "How many of the wanted pods are ready."),
            column("Up-to-date", "How many pods follow the newest template."),
            column(
                "Available",
                "How many pods have been ready for long enough.",
            ),
            AGE,
            column("Containers", "The names of the containers.").wide(),
            column("Images", "The images of the containers.").wide(),
            column("Selector", "The labels of the pods.").wide(),
        ],
        deployment,
    ),
    Layout::new(
        "storage.k8s.io",
        "StorageClass",
        storage::CLASS,
        storage::storage_class,
    ),
    Layout::new(
        "policy",
        "PodDisruptionBudget",
        &[
            NAME,
            column("Min Available", "How many pods must stay."),
            column("Max Unavailable", "How many pods may be missing."),
            column("Allowed Disruptions", "How many pods may go now.").of_type("integer"),
            AGE,
        ],
        budget,
    ),
    Layout::new(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &[
            NAME,
            column("Created At", "When the object was created.").of_type("date"),
        ],
        |definition, _| {
            let created = text_or(
                definition,
                "/metadata/creationTimestamp",
                "0001-01-01T00:00:00Z",
            );
            vec![name(definition).into(), created.into()]
        },
    ),
];

const DATA: Definition = column("Data", "How many entries there are.");
fn scale(scale: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(scale).into(),
        number(scale, "/spec/replicas").into(),
        number(scale, "/status/replicas").into(),
        age(scale, now).into(),
    ]
}

fn revision(revision: &Value, now: Timestamp) -> Vec<Value> {
    let controller = items(revision, "/metadata/ownerReferences")
        .iter()
        .find(|owner| flag(owner, "/controller"));
    let controller = controller.map_or(NONE.to_owned(), |owner| {
        let kind = match text(owner, "/apiVersion").split_once('/') {
            Some((group, _)) => format!("{}.{group}", text(owner, "/kind")),
            None => text(owner, "/kind").to_owned(),
        };
        format!("{}/{}", kind.to_lowercase(), text(owner, "/name"))
    });
    vec![
        name(revision).into(),
        controller.into(),
        number(revision, "/revision").into(),
        age(revision, now).into(),
    ]
}

fn deployment(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let containers = items(deployment, "/spec/template/spec/containers");
    let all = |pointer| joined(containers.iter().map(|container| text(container, pointer)));
    let ready = number(deployment, "/status/readyReplicas");
    let wanted = number(deployment, "/spec/replicas");
    let selected = selector(deployment, "/spec/selector");
    vec![
        name(deployment).into(),
        format!("{ready}/{wanted}").into(),
        number(deployment, "/status/updatedReplicas").into(),
        number(deployment, "/status/availableReplicas").into(),
        age(deployment, now).into(),
        all("/name").into(),
        all("/image").into(),
        selected.unwrap_or_else(|| INVALID.to_owned()).into(),
    ]
}

fn budget(budget: &Value, now: Timestamp) -> Vec<Value> {
    let share = |pointer| match budget.pointer(pointer) {
        Some(Value::String(percent)) => percent.clone(),
        Some(Value::Number(count)) => count.to_string(),
        _ => "N/A".to_owned(),
    };
    vec![
        name(budget).into(),
        share("/spec/minAvailable").into(),
        share("/spec/maxUnavailable").into(),
        number(budget, "/status/disruptionsAllowed").into(),
        age(budget, now).into(),
    ]
}
