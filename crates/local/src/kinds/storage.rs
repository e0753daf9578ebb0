//! Claims of storage, volumes, and classes of them.

use quantity::Quantity;
use serde_json::{Value, json};

use super::access::{
    as_map, child, entries, fill, fill_text, items, made, take_from, text, text_at,
};
use super::check::{Errors, Path};
use super::{Others, Part, Rules, internal, selectors};
use crate::status::Failure;

const MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub(super) const CLAIM: Rules = Rules {
    default: |claim| {
        fill(made(claim, "spec"), "volumeMode", "Filesystem");
        fill_text(made(claim, "status"), "phase", "Pending");
    },
    prepare_create: |claim| {
        as_map(claim).insert("status".to_owned(), json!({"phase": "Pending"}));
        same_sources(claim);
    },
    admit: |claim, others| {
        protect(claim, "kubernetes.io/pvc-protection");
        choose_class(claim, others);
        Ok(())
    },
    validate: |claim| Errors::of(|errors| check_claim(&claim["spec"], errors)),
    prepare_update: |new, old, part| {
        (Rules::PLAIN.prepare_update)(new, old, part);
        same_sources(new);
    },
    validate_update: |new, old, part| match part {
        Part::Status => Vec::new(),
        _ => Errors::of(|errors| check_claim_update(new, old, errors)),
    },
    ..Rules::PLAIN
};

pub(super) const VOLUME: Rules = Rules {
    default: |volume| {
        let spec = made(volume, "spec");
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        if let Some(Value::Object(host)) = spec.get_mut("hostPath") {
            fill(host, "type", "");
        }
        fill_text(made(volume, "status"), "phase", "Pending");
    },
    prepare_create: |volume| {
        let now = volume.pointer("/metadata/creationTimestamp").cloned();
        let status = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        as_map(volume).insert("status".to_owned(), status);
    },
    admit: protect_volume,
    validate: |volume| Errors::of(|errors| check_volume(&volume["spec"], errors)),
    validate_update: |new, old, part| match part {
        Part::Status => Vec::new(),
        _ => Errors::of(|errors| check_volume_update(new, old, errors)),
    },
    ..Rules::PLAIN
};

pub(super) const CLASS: Rules = Rules {
    default: |class| {
        let class = as_map(class);
        fill(class, "reclaimPolicy", "Delete");
        fill(class, "volumeBindingMode", "Immediate");
    },
    validate: |class| Errors::of(|errors| check_class(class, errors)),
    validate_update: |new, old, _| {
        Errors::of(|errors| {
            for field in [
                "parameters",
                "provisioner",
                "reclaimPolicy",
                "volumeBindingMode",
            ] {
                errors.fixed(&Path::new(field), new.get(field), old.get(field));
            }
        })
    },
    ..Rules::PLAIN
};

/// What is in use is not deleted before its users are gone.
fn protect(object: &mut Value, finalizer: &str) {
    let finalizers = made(object, "metadata")
        .entry("finalizers")
        .or_insert(json!([]));
    if let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|known| known == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

fn protect_volume(volume: &mut Value, _: &dyn Others) -> Result<(), Failure> {
    protect(volume, "kubernetes.io/pv-protection");
    Ok(())
}

/// A claim that names no class gets the newest of those that are the default.
fn choose_class(claim: &mut Value, others: &dyn Others) {
    if claim.pointer("/spec/storageClassName").is_some() {
        return;
    }
    let classes = others.list("storageclasses.storage.k8s.io", None);
    let is_default = |class: &&Value| {
        let annotations = class.pointer("/metadata/annotations");
        annotations.is_some_and(|annotations| text(annotations, DEFAULT_CLASS) == "true")
    };
    let newest = classes.iter().filter(is_default).max_by(|one, other| {
        let made = |class| text_at(class, "/metadata/creationTimestamp");
        let name = |class| text_at(class, "/metadata/name");
        made(one).cmp(made(other)).then(name(other).cmp(name(one)))
    });
    if let Some(class) = newest {
        let name = text_at(class, "/metadata/name");
        made(claim, "spec").insert("storageClassName".to_owned(), name.into());
    }
}

/// Where a claim's content comes from can be said in two ways, and is then said in both.
fn same_sources(claim: &mut Value) {
    let spec = made(claim, "spec");
    let known = |source: &Value| {
        let place = (text(source, "apiGroup"), text(source, "kind"));
        matches!(
            place,
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    // the narrow way takes few kinds, and is silent about others
    if !spec.contains_key("dataSourceRef") && spec.get("dataSource").is_some_and(|it| !known(it)) {
        spec.remove("dataSource");
    }
    let (plain, wide) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    match (plain.cloned(), wide.cloned()) {
        (Some(plain), None) => _ = spec.insert("dataSourceRef".to_owned(), plain),
        (None, Some(wide)) if text(&wide, "namespace").is_empty() => {
            spec.insert("dataSource".to_owned(), wide);
        }
        _ => {}
    }
}

fn check_modes(spec: &Value, missing: &str, path: &Path, errors: &mut Errors) {
    let path = path.field("accessModes");
    let modes = items(spec, "accessModes");
    if modes.is_empty() {
        errors.required(&path, missing);
    }
    let modes: Vec<&str> = modes.iter().filter_map(Value::as_str).collect();
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(&path, mode, MODES);
    }
    let alone = |mode: &&&str| **mode == "ReadWriteOncePod";
    let other = |mode: &&&str| **mode != "ReadWriteOncePod" && MODES.contains(mode);
    if modes.iter().any(|mode| alone(&mode)) && modes.iter().any(|mode| other(&mode)) {
        errors.forbidden(
            &path,
            "may not use ReadWriteOncePod with other access modes",
        );
    }
}

fn check_positive(amount: &str, path: &Path, errors: &mut Errors) {
    let positive = |amount: Quantity| !amount.is_zero() && !amount.is_negative();
    if !Quantity::parse(amount).is_ok_and(positive) {
        errors.invalid(path, amount, "must be greater than zero");
    }
}

fn check_volume_mode(spec: &Value, path: &Path, errors: &mut Errors) {
    if let Some(mode) = spec.get("volumeMode").and_then(Value::as_str)
        && !VOLUME_MODES.contains(&mode)
    {
        errors.not_supported(&path.field("volumeMode"), mode, VOLUME_MODES);
    }
}

fn check_claim(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    check_modes(spec, "at least 1 access mode is required", &path, errors);
    if let Some(selector) = child(spec, "selector") {
        selectors::check(selector, &path.field("selector"), errors);
    }
    let resources = path.field("resources");
    match spec
        .pointer("/resources/requests/storage")
        .and_then(Value::as_str)
    {
        None => errors.required(&resources.key("storage"), ""),
        Some(size) => check_positive(size, &resources.key("storage"), errors),
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.subdomain(&path.field(field), name);
        }
    }
    check_volume_mode(spec, &path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        let Some(source) = child(spec, field) else {
            continue;
        };
        let path = path.field(field);
        for field in ["name", "kind"] {
            if text(source, field).is_empty() {
                errors.required(&path.field(field), "");
            }
        }
        let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
        if !group.is_empty() {
            errors.subdomain(&path.field("apiGroup"), group);
        } else if kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid(&path, kind, detail);
        }
    }
}

fn check_claim_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, was) = (&new["spec"], &old["spec"]);
    check_claim(spec, errors);
    let (mut now, mut before) = (spec.clone(), was.clone());
    if text(was, "volumeName").is_empty() {
        take_from(as_map(&mut before), spec, "volumeName");
    }
    if was.get("storageClassName").is_none() {
        take_from(as_map(&mut now), was, "storageClassName");
    }
    let path = Path::new("spec");
    let size = |spec: &Value| text_at(spec, "/resources/requests/storage").to_owned();
    if text_at(new, "/status/phase") == "Bound" {
        take_from(as_map(&mut now), was, "volumeAttributesClassName");
        if let Some(storage) = now.pointer_mut("/resources/requests/storage") {
            *storage = size(was).into();
        }
    }
    if now != before {
        let shown = internal::diff("PersistentVolumeClaimSpec", &before, &now);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{shown}"
        );
        errors.forbidden(&path, &detail);
    }
    let has = Quantity::parse(text_at(old, "/status/capacity/storage")).ok();
    let (wants, wanted) = (Quantity::parse(&size(spec)), Quantity::parse(&size(was)));
    if let (Ok(wants), Ok(wanted)) = (wants, wanted)
        && wants < wanted
        && has.is_some_and(|has| wants <= has)
    {
        let path = path.field("resources");
        let path = path.field("requests");
        let detail = "field can not be less than status.capacity";
        errors.forbidden(&path.field("storage"), detail);
    }
    let (mode, was_mode) = (spec.get("volumeMode"), was.get("volumeMode"));
    errors.fixed(&Path::new("volumeMode"), mode, was_mode);
}

/// What of a volume's spec is not where its content is.
const NOT_SOURCES: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn sources(spec: &Value) -> Value {
    let fields = spec.as_object().into_iter().flatten();
    fields
        .filter(|(field, _)| !NOT_SOURCES.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect()
}

fn check_volume(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    check_modes(spec, "", &path, errors);
    let capacity = path.field("capacity");
    let amounts = spec.get("capacity").cloned().unwrap_or_default();
    if entries(spec, "capacity").next().is_none() {
        errors.required(&capacity, "");
    }
    if amounts
        .as_object()
        .is_none_or(|it| it.len() != 1 || !it.contains_key("storage"))
    {
        errors.not_supported_value(&capacity, &amounts, &["storage"]);
    }
    for (name, amount) in entries(spec, "capacity") {
        check_positive(
            amount.as_str().unwrap_or_default(),
            &capacity.key(name),
            errors,
        );
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    let known = ["Delete", "Recycle", "Retain"];
    if !policy.is_empty() && !known.contains(&policy) {
        errors.not_supported(&path.field("persistentVolumeReclaimPolicy"), policy, &known);
    }
    let found = sources(spec);
    let mut found = found
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name);
    if found.next().is_none() {
        errors.required(&path, "must specify a volume type");
    }
    for more in found {
        errors.forbidden(&path.field(more), "may not specify more than 1 volume type");
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.subdomain(&path.field("storageClassName"), class);
    }
    check_volume_mode(spec, &path, errors);
}

fn check_volume_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, was) = (&new["spec"], &old["spec"]);
    check_volume(spec, errors);
    let (now, before) = (sources(spec), sources(was));
    if now != before {
        let shown = internal::diff("PersistentVolumeSource", &before, &now);
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{shown}");
        let path = Path::new("spec");
        errors.forbidden(&path.field("persistentvolumesource"), &detail);
    }
    let (mode, was_mode) = (spec.get("volumeMode"), was.get("volumeMode"));
    errors.fixed(&Path::new("volumeMode"), mode, was_mode);
}

fn check_class(class: &Value, errors: &mut Errors) {
    let path = Path::new("provisioner");
    match text(class, "provisioner") {
        "" => errors.required(&path, ""),
        name => errors.qualified_name(&path, &name.to_lowercase()),
    }
    for (key, _) in entries(class, "parameters").filter(|(key, _)| key.is_empty()) {
        errors.invalid(&Path::new("parameters"), key, "field can not be empty.");
    }
    let policy = text(class, "reclaimPolicy");
    if !policy.is_empty() && !["Delete", "Retain"].contains(&policy) {
        errors.not_supported(&Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode = text(class, "volumeBindingMode");
    let modes = ["Immediate", "WaitForFirstConsumer"];
    if !modes.contains(&mode) {
        errors.not_supported(&Path::new("volumeBindingMode"), mode, &modes);
    }
}
