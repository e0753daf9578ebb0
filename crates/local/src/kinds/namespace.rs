//! Namespaces.

use serde_json::{Value, json};

use super::access::{as_map, fill_text, items, made, made_in, take_from, text_at};
use super::check::{Errors, Path};
use super::{NameRule, Part, Rules, keep_all_but_status, keep_status};

const LABEL: &str = "kubernetes.io/metadata.name";
/// Finalizers that need no prefix.
const STANDARD: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

pub(super) const RULES: Rules = Rules {
    name: NameRule::Label,
    default,
    prepare_create,
    validate: |namespace| Errors::of(|errors| check_finalizers(namespace, false, errors)),
    prepare_update,
    validate_update: |new, _, part| Errors::of(|errors| check_update(new, part, errors)),
    fields: &[("status.phase", |namespace| {
        text_at(namespace, "/status/phase").to_owned()
    })],
    ..Rules::PLAIN
};

/// A namespace is labelled with its name; whoever says otherwise is not heard.
fn label(namespace: &mut Value) {
    let name = text_at(namespace, "/metadata/name").to_owned();
    if !name.is_empty() {
        let labels = made_in(made(namespace, "metadata"), "labels");
        labels.insert(LABEL.to_owned(), name.into());
    }
}

fn default(namespace: &mut Value) {
    label(namespace);
    fill_text(made(namespace, "status"), "phase", "Active");
}

fn prepare_create(namespace: &mut Value) {
    label(namespace);
    let finalizers = made(namespace, "spec")
        .entry("finalizers")
        .or_insert(json!([]));
    if let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|finalizer| finalizer == "kubernetes")
    {
        finalizers.push("kubernetes".into());
    }
    as_map(namespace).insert("status".to_owned(), json!({"phase": "Active"}));
}

fn prepare_update(new: &mut Value, old: &Value, part: Part) {
    match part {
        Part::Status => keep_all_but_status(new, old),
        Part::Finalize => keep_status(new, old),
        Part::Main | Part::Resize | Part::EphemeralContainers => {
            keep_status(new, old);
            take_from(made(new, "spec"), &old["spec"], "finalizers");
        }
    }
}

fn check_update(namespace: &Value, part: Part, errors: &mut Errors) {
    match part {
        Part::Status => check_phase(namespace, errors),
        part => check_finalizers(namespace, part == Part::Finalize, errors),
    }
}

fn check_phase(namespace: &Value, errors: &mut Errors) {
    let ends = !text_at(namespace, "/metadata/deletionTimestamp").is_empty();
    let phase = text_at(namespace, "/status/phase");
    let status = Path::new("status");
    let detail = match (ends, phase) {
        (false, "Active") | (true, "Terminating") => return,
        (false, _) => "may only be 'Active' if `deletionTimestamp` is empty",
        (true, _) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
    };
    errors.invalid(&status.field("Phase"), phase, detail);
}

fn check_finalizers(namespace: &Value, indexed: bool, errors: &mut Errors) {
    let spec = Path::new("spec");
    let list = spec.field("finalizers");
    let finalizers = items(&namespace["spec"], "finalizers");
    for (index, finalizer) in finalizers.iter().enumerate() {
        let path = if indexed { list.index(index) } else { list };
        let name = finalizer.as_str().unwrap_or_default();
        errors.qualified_name(&path, name);
        if !name.contains('/') && !STANDARD.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&path, name, detail);
        }
    }
}
