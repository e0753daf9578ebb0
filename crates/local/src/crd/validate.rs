//! What is wrong with a CRD.
//!
//! The API server checks a form of its own in which what all versions have in common stands once, above them. Its
//! errors name the fields of that form: `spec.validation`, `spec.additionalPrinterColumns`, `spec.subresources`.

use std::collections::BTreeSet;

use api::structural::{FieldError, Place, Schema, names};
use serde_json::{Value, json};

use super::{approval, conversion, fields, items, shown, text, versions};
use crate::kinds::Part;

const IMMUTABLE: &str = "field is immutable";

pub(super) fn create(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    own_name(definition, &mut errors);
    spec(definition, None, &mut errors);
    after_spec(definition, None, &mut errors);
    errors
}

pub(super) fn update(new: &Value, old: &Value, part: Part) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if part == Part::Status {
        accepted_names(new, &mut errors);
        return errors;
    }
    spec(new, Some(old), &mut errors);
    let established = items(old.pointer("/status/conditions"))
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    let fixed: &[&str] = match established {
        true => &["scope", "names/kind", "group", "names/plural"],
        false => &["group", "names/plural"],
    };
    for path in fixed {
        let value = |definition: &Value| definition.pointer(&format!("/spec/{path}")).cloned();
        if value(new) != value(old) {
            let field = format!("spec.{}", path.replace('/', "."));
            let value = value(new).unwrap_or_else(|| json!(""));
            errors.push(FieldError::invalid(field, &value, IMMUTABLE));
        }
    }
    after_spec(new, Some(old), &mut errors);
    errors
}

/// The name is made of the plural and the group; the rest of its rules hold for all objects.
fn own_name(definition: &Value, errors: &mut Vec<FieldError>) {
    let spec = definition.get("spec");
    let plural = text(spec.and_then(|spec| spec.get("names")), "plural");
    let wanted = format!("{plural}.{}", text(spec, "group"));
    for name in ["generateName", "name"] {
        let value = text(definition.get("metadata"), name);
        if !value.is_empty() && value != wanted {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            let field = format!("metadata.{name}");
            errors.push(FieldError::invalid(field, &json!(value), detail));
        }
    }
}

fn after_spec(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    accepted_names(new, errors);
    stored_versions(new, errors);
    approval::check(new, old, errors);
    let preserves = |definition: &Value| definition["spec"]["preserveUnknownFields"] == true;
    if preserves(new) && !old.is_some_and(preserves) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        let field = "spec.preserveUnknownFields";
        errors.push(FieldError::invalid(field, &json!(true), detail));
    }
}

fn accepted_names(definition: &Value, errors: &mut Vec<FieldError>) {
    let accepted = definition.pointer("/status/acceptedNames");
    let accepted = accepted.unwrap_or(&Value::Null);
    check_names(accepted, "status.acceptedNames", errors);
}

fn stored_versions(definition: &Value, errors: &mut Vec<FieldError>) {
    let field = "status.storedVersions";
    let stored = definition.pointer("/status/storedVersions");
    let mut left: Vec<(usize, &Value)> = items(stored).iter().enumerate().collect();
    if left.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid(field, &Value::Null, detail));
        return;
    }
    for version in versions(definition) {
        let name = &version["name"];
        match left.iter().position(|(_, stored)| *stored == name) {
            Some(found) => _ = left.remove(found),
            None if version["storage"] == true => {
                let detail = format!(
                    "must have the storage version {}",
                    text(Some(version), "name")
                );
                let all = stored.unwrap_or(&Value::Null);
                errors.push(FieldError::invalid(field, all, &detail));
            }
            None => {}
        }
    }
    for (index, name) in left {
        let shown = name.as_str().unwrap_or_default();
        let detail = format!(
            "missing from spec.versions; {shown} was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in {shown} and removes {shown} from \
             status.storedVersions"
        );
        errors.push(FieldError::invalid(
            format!("{field}[{index}]"),
            name,
            &detail,
        ));
    }
}

fn check_names(names: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let of = |name: &str| text(Some(names), name);
    let mut label = |field: String, value: &str| {
        let problems = names::letter_label_problems(value);
        if !value.is_empty() && !problems.is_empty() {
            errors.push(FieldError::invalid(
                field,
                &json!(value),
                &problems.join(","),
            ));
        }
    };
    label(format!("{path}.plural"), of("plural"));
    label(format!("{path}.singular"), of("singular"));
    for list in ["shortNames", "categories"] {
        for (index, name) in items(names.get(list)).iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            label(format!("{path}.{list}[{index}]"), name);
        }
    }
    for name in ["kind", "listKind"] {
        if let Some(problem) = names::kind_problem(of(name)).filter(|_| !of(name).is_empty()) {
            let field = format!("{path}.{name}");
            errors.push(FieldError::invalid(field, &names[name], &problem));
        }
    }
    if !of("kind").is_empty() && of("kind") == of("listKind") {
        let detail = "kind and listKind may not be the same";
        let field = format!("{path}.listKind");
        errors.push(FieldError::invalid(field, &names["listKind"], detail));
    }
}

fn spec(definition: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &definition["spec"];
    group_and_scope(spec, errors);
    let shared = Shared::of(definition);
    for (index, version) in versions(definition).iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
        }
    }
    if spec["preserveUnknownFields"] == true && versions(definition).iter().any(has_defaults) {
        let detail = "must be false in order to use defaults in the schema";
        let field = "spec.preserveUnknownFields";
        errors.push(FieldError::invalid(field, &json!(true), detail));
    }
    for (index, version) in versions(definition).iter().enumerate() {
        check_version(version, index, errors);
        shared.check_apart(version, index, old, errors);
    }
    version_set(definition, &shared, errors);
    let names = spec.get("names").unwrap_or(&Value::Null);
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(Some(names), name).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
    check_names(names, "spec.names", errors);
    shared.check_together(definition, old, errors);
    conversion::check(spec, old.and_then(|old| old.get("spec")), errors);
}

fn group_and_scope(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = text(Some(spec), "group");
    let problems = names::subdomain_problems(group);
    let wrong = |detail: &str| FieldError::invalid("spec.group", &json!(group), detail);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !problems.is_empty() {
        errors.push(wrong(&problems.join(",")));
    } else if !group.contains('.') {
        errors.push(wrong("should be a domain with at least one dot"));
    }
    match text(Some(spec), "scope") {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            let known = ["Cluster", "Namespaced"].map(str::to_owned);
            errors.push(FieldError::not_supported(
                "spec.scope",
                &json!(other),
                &known,
            ));
        }
    }
}

fn check_version(version: &Value, index: usize, errors: &mut Vec<FieldError>) {
    let name = text(Some(version), "name");
    let problems = names::letter_label_problems(name).join(",");
    if !problems.is_empty() {
        let field = format!("spec.versions[{index}].name");
        errors.push(FieldError::invalid(field, &json!(name), &problems));
        if index == 0 && !name.is_empty() {
            // the server's own form repeats the first version here
            errors.push(FieldError::invalid("spec.version", &json!(name), &problems));
        }
    }
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else {
        return;
    };
    let mut wrong = |detail: &str| {
        let field = format!("spec.versions[{index}].deprecationWarning");
        errors.push(FieldError::invalid(field, &json!(warning), detail));
    };
    if version["deprecated"] != true {
        return wrong("can only be set for deprecated versions");
    }
    if warning.len() > 256 {
        wrong("must be <= 256 characters long");
    }
    if warning.is_empty() {
        wrong("must not be an empty string");
    }
    if let Some((place, _)) = warning
        .char_indices()
        .find(|(_, letter)| letter.is_control())
    {
        wrong(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {place}"
        ));
    }
}

fn version_set(definition: &Value, shared: &Shared, errors: &mut Vec<FieldError>) {
    let all = versions(definition);
    let names: BTreeSet<&str> = all.iter().map(|v| text(Some(v), "name")).collect();
    let stored = all.iter().filter(|v| v["storage"] == true).count();
    let mut wrong = |detail: &str| {
        let shown = shown::versions(all, shared);
        errors.push(FieldError::with_shown("spec.versions", shown, detail));
    };
    if names.len() != all.len() {
        wrong("must contain unique version names");
    }
    if stored != 1 {
        wrong("must have exactly one version marked as storage version");
    }
}

fn has_defaults(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key("default") || fields.values().any(has_defaults)
        }
        Value::Array(items) => items.iter().any(has_defaults),
        _ => false,
    }
}

fn has_status(version: &Value) -> bool {
    version.pointer("/subresources/status").is_some()
}

/// What all versions have in common, which the server keeps above them.
pub(super) struct Shared {
    pub(super) schemas: bool,
    pub(super) subresources: bool,
    pub(super) columns: bool,
    pub(super) selectable: bool,
}

impl Shared {
    fn of(definition: &Value) -> Self {
        let all = versions(definition);
        let same = |name: &str| {
            let mut values = all.iter().map(|version| version.get(name));
            let first = values.next();
            values.all(|value| Some(value) == first)
        };
        Self {
            schemas: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }

    /// What a version has for itself.
    fn check_apart(
        &self,
        version: &Value,
        index: usize,
        old: Option<&Value>,
        errors: &mut Vec<FieldError>,
    ) {
        let path = |name: &str| format!("spec.versions[{index}].{name}");
        if !self.schemas {
            let path = path("schema.openAPIV3Schema");
            schema(version, has_status(version), path, old, errors);
        }
        if !self.subresources {
            fields::subresources(&version["subresources"], &path("subresources"), errors);
        }
        if !self.columns {
            let columns = &version["additionalPrinterColumns"];
            fields::columns(columns, &path("additionalPrinterColumns"), errors);
        }
        let selectable = items(version.get("selectableFields"));
        if !self.selectable && !selectable.is_empty() {
            // where versions differ in this only, their schema is not to be found in them
            match version.pointer("/schema/openAPIV3Schema") {
                Some(schema) if !self.schemas => {
                    fields::selectable(selectable, schema, &path("selectableFields"), errors);
                }
                _ => {
                    let detail =
                        "may only be set when `version.schema.openAPIV3Schema` is not included";
                    let field = path("selectableFields");
                    errors.push(FieldError::invalid(field, &json!(""), detail));
                }
            }
        }
    }

    /// What all versions share.
    fn check_together(
        &self,
        definition: &Value,
        old: Option<&Value>,
        errors: &mut Vec<FieldError>,
    ) {
        let Some(version) = versions(definition).first() else {
            return;
        };
        if self.schemas {
            let path = "spec.validation.openAPIV3Schema".to_owned();
            let status = versions(definition).iter().any(has_status);
            schema(version, status, path, old, errors);
        }
        if self.subresources {
            fields::subresources(&version["subresources"], "spec.subresources", errors);
        }
        if self.columns {
            let columns = &version["additionalPrinterColumns"];
            fields::columns(columns, "spec.additionalPrinterColumns", errors);
        }
        let selectable = items(version.get("selectableFields"));
        if self.selectable && !selectable.is_empty() {
            match version.pointer("/schema/openAPIV3Schema") {
                Some(schema) if self.schemas => {
                    fields::selectable(selectable, schema, "spec.selectableFields", errors);
                }
                _ => {
                    let detail = "may only be set when validations.schema is included";
                    let field = "spec.selectableFields";
                    errors.push(FieldError::invalid(field, &json!(""), detail));
                }
            }
        }
    }
}

/// A schema that the old definition had is not checked again: what was accepted stays accepted.
fn schema(
    version: &Value,
    status_subresource: bool,
    path: String,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
        return;
    };
    let known = old.is_some_and(|old| {
        let same = |before: &Value| {
            before.get("schema") == version.get("schema")
                && (has_status(before) || !status_subresource)
        };
        versions(old).iter().any(same)
    });
    if known {
        return;
    }
    let place = Place {
        path,
        status_subresource,
    };
    if let Err(problems) = Schema::compile_at(schema, &place) {
        errors.extend(problems);
    }
}
