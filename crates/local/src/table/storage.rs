//! What a table says about volumes.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Definition;
use super::cells::{UNSET, age, flag, has, items, joined, name, text, text_or};

pub(super) const CLAIM: &[Definition] = &[
    Definition::NAME,
    Definition::new("Status", "Whether the claim has its volume."),
    Definition::new("Volume", "The volume that is bound."),
    Definition::new("Capacity", "How big the volume is."),
    Definition::new("Access Modes", "How the volume can be mounted."),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    Definition::AGE,
    VOLUME_MODE,
];

pub(super) const VOLUME: &[Definition] = &[
    Definition::NAME,
    Definition::new("Capacity", "How big the volume is."),
    Definition::new("Access Modes", "How the volume can be mounted."),
    Definition::new(
        "Reclaim Policy",
        "What becomes of the volume when its claim goes.",
    ),
    Definition::new("Status", "Whether the volume is bound."),
    Definition::new("Claim", "The claim that has the volume."),
    STORAGE_CLASS,
    ATTRIBUTES_CLASS,
    Definition::new("Reason", "Why the volume is in its state."),
    Definition::AGE,
    VOLUME_MODE,
];

pub(super) const CLASS: &[Definition] = &[
    Definition::NAME,
    Definition::new("Provisioner", "Who makes the volumes."),
    Definition::new(
        "ReclaimPolicy",
        "What becomes of a volume when its claim goes.",
    ),
    Definition::new("VolumeBindingMode", "When a claim gets its volume."),
    Definition::new("AllowVolumeExpansion", "Whether volumes may grow."),
    Definition::AGE,
];

const STORAGE_CLASS: Definition = Definition::new("StorageClass", "The class of the volume.");
const ATTRIBUTES_CLASS: Definition = Definition::new(
    "VolumeAttributesClass",
    "The class of the volume's attributes.",
);
const VOLUME_MODE: Definition = Definition::new(
    "VolumeMode",
    "Whether the volume is a file system or a device.",
)
.wide();

pub(super) fn claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let (capacity, modes) = match text(claim, "/spec/volumeName") {
        "" => ("", String::new()),
        _ => (
            text_or(claim, "/status/capacity/storage", "0"),
            access_modes(claim, "/status/accessModes"),
        ),
    };
    vec![
        name(claim).into(),
        volume_phase(claim).into(),
        text(claim, "/spec/volumeName").into(),
        capacity.into(),
        modes.into(),
        class(claim).into(),
        or_unset(claim, "/spec/volumeAttributesClassName").into(),
        age(claim, now).into(),
        or_unset(claim, "/spec/volumeMode").into(),
    ]
}

pub(super) fn volume(volume: &Value, now: Timestamp) -> Vec<Value> {
    let claim = match volume.pointer("/spec/claimRef") {
        None => String::new(),
        Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
    };
    vec![
        name(volume).into(),
        text_or(volume, "/spec/capacity/storage", "0").into(),
        access_modes(volume, "/spec/accessModes").into(),
        text(volume, "/spec/persistentVolumeReclaimPolicy").into(),
        volume_phase(volume).into(),
        claim.into(),
        class(volume).into(),
        or_unset(volume, "/spec/volumeAttributesClassName").into(),
        text(volume, "/status/reason").into(),
        age(volume, now).into(),
        or_unset(volume, "/spec/volumeMode").into(),
    ]
}

pub(super) fn storage_class(class: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = ["storageclass", "storageclass.beta"].iter().any(|prefix| {
        let pointer = format!("/metadata/annotations/{prefix}.kubernetes.io~1is-default-class");
        text(class, &pointer) == "true"
    });
    let shown = match is_default {
        true => format!("{} (default)", name(class)),
        false => name(class).to_owned(),
    };
    vec![
        shown.into(),
        text(class, "/provisioner").into(),
        text_or(class, "/reclaimPolicy", "Delete").into(),
        text_or(class, "/volumeBindingMode", "Immediate").into(),
        flag(class, "/allowVolumeExpansion").into(),
        age(class, now).into(),
    ]
}

/// Of a field that may be set to an empty text.
fn or_unset<'a>(object: &'a Value, pointer: &str) -> &'a str {
    match has(object, pointer) {
        true => text(object, pointer),
        false => UNSET,
    }
}

fn volume_phase(object: &Value) -> &str {
    match has(object, "/metadata/deletionTimestamp") {
        true => "Terminating",
        false => text(object, "/status/phase"),
    }
}

fn class(object: &Value) -> &str {
    const ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    match has(object, ANNOTATION) {
        true => text(object, ANNOTATION),
        false => text(object, "/spec/storageClassName"),
    }
}

fn access_modes(object: &Value, pointer: &str) -> String {
    let modes = items(object, pointer);
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    joined(
        short
            .into_iter()
            .filter(|(mode, _)| modes.iter().any(|has| has == mode))
            .map(|(_, short)| short),
    )
}
