//! What is checked in the metadata of every object, whatever its kind, and what happens to it before that.

mod owners;

use api::patch::apply::Managed;
use api::structural::{FieldError, names};
use serde_json::{Map, Value, json};

use super::resource::{Origin, Resource};
use crate::kinds::NameRule;
use crate::status::Failure;
pub(crate) use owners::keep_owners_once;

/// How much of a prefix stays in a generated name.
const LONGEST_PREFIX: usize = 58;
const RANDOM_LETTERS: usize = 5;
/// Letters of generated names: without vowels, and without digits that look like letters.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Of all keys and values together, in bytes.
const MOST_ANNOTATIONS: usize = 256 * 1024;
const LONGEST_MANAGER: usize = 128;
const LONGEST_SUBRESOURCE: usize = 256;
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", ORPHAN, FOREGROUND];
pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// How often the rules of a kind look at metadata. The server tells a fault as often as it finds it.
#[derive(Clone, Copy)]
struct Care {
    /// Whether names follow the rule of the kind, and not only that of paths.
    names: bool,
    /// Whether finalizers without a prefix must be known ones.
    finalizers: bool,
    /// How often an update checks the new object as if it were created.
    object: usize,
    /// How often an update compares the new object with the old one.
    change: usize,
}

const USUAL: Care = Care {
    names: true,
    finalizers: true,
    object: 1,
    change: 1,
};
const CHANGE_ONLY: Care = Care { object: 0, ..USUAL };
const CUSTOM: Care = Care {
    finalizers: false,
    ..CHANGE_ONLY
};
const NONE: Care = Care {
    names: false,
    change: 0,
    ..CUSTOM
};

impl Care {
    fn of(resource: &Resource) -> Self {
        let Origin::BuiltIn(built_in) = &resource.origin else {
            return CUSTOM;
        };
        match (built_in.group, built_in.kind) {
            ("", "Event") | (_, "PodDisruptionBudget") => NONE,
            ("", "PersistentVolume") => Care {
                object: 2,
                change: 0,
                ..USUAL
            },
            (_, "Service" | "Deployment" | "NetworkPolicy" | "Event") => CHANGE_ONLY,
            (_, "Lease" | "CustomResourceDefinition") => CUSTOM,
            _ => USUAL,
        }
    }
}

/// Makes a name from `generateName` if the object has none. `random` gives letters' indices; it is asked only if a
/// name is made.
pub(crate) fn generate_name(object: &mut Value, mut random: impl FnMut() -> usize) {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    let prefix = text("generateName");
    if prefix.is_empty() || !text("name").is_empty() {
        return;
    }
    let cut = prefix.floor_char_boundary(LONGEST_PREFIX);
    let mut name = prefix[..cut].to_owned();
    for _ in 0..RANDOM_LETTERS {
        name.push(char::from(ALPHABET[random() % ALPHABET.len()]));
    }
    object["metadata"]["name"] = name.into();
}

/// Sets the namespace of an object to that of the request; empty for objects of the cluster.
pub(crate) fn place_in_namespace(object: &mut Value, namespace: &str) -> Result<(), Failure> {
    let metadata = metadata_mut(object);
    let named = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match (named, namespace) {
        (named, wanted) if named == wanted => {}
        (_, "") => _ = metadata.remove("namespace"),
        ("", wanted) => _ = metadata.insert("namespace".to_owned(), wanted.into()),
        _ => {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// Whether an object has the name that the path of the request has.
pub(crate) fn check_name_in_path(object: &Value, name: &str) -> Result<(), Failure> {
    match object["metadata"]["name"].as_str().unwrap_or_default() {
        "" => Err(Failure::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        own if own != name => Err(Failure::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// Puts what an update cannot change, or need not repeat, into the new object.
pub(crate) fn carry_over(new: &mut Value, old: &Value) {
    let old = &old["metadata"];
    let metadata = metadata_mut(new);
    for name in ["generation", "creationTimestamp", "deletionTimestamp"] {
        match old.get(name) {
            Some(value) => _ = metadata.insert(name.to_owned(), value.clone()),
            None if name == "generation" => _ = metadata.remove(name),
            None => {}
        }
    }
    for name in ["uid", "deletionGracePeriodSeconds"] {
        if let (None, Some(value)) = (metadata.get(name), old.get(name)) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
}

/// Shows the owners to validation if one of them has a name that is too long: all else about them is right.
pub(crate) fn show_long_names(object: &mut Value, owners: &Managed) {
    let too_long = |(manager, subresource): (&str, &str)| {
        manager.len() > LONGEST_MANAGER || subresource.len() > LONGEST_SUBRESOURCE
    };
    if owners.names().any(too_long) {
        owners.put(object);
    }
}

/// What is wrong with the metadata of a new object.
pub(crate) fn validate_create(object: &Value, resource: &Resource) -> Vec<FieldError> {
    let care = Care::of(resource);
    let mut errors = Vec::new();
    let metadata = Metadata(&object["metadata"]);
    metadata.check(care.names.then(|| rule(resource)), resource, &mut errors);
    if care.finalizers {
        metadata.check_known_finalizers(&mut errors);
    }
    errors
}

/// What is wrong with the metadata of a changed object, after [`carry_over`].
pub(crate) fn validate_update(new: &Value, old: &Value, resource: &Resource) -> Vec<FieldError> {
    let care = Care::of(resource);
    let mut errors = Vec::new();
    let old = Metadata(&old["metadata"]);
    let new = Metadata(&new["metadata"]);
    new.check(None, resource, &mut errors);
    new.check_change(old, &mut errors);
    for _ in 0..care.change {
        new.check_change(old, &mut errors);
        if care.finalizers {
            new.check_known_finalizers(&mut errors);
        }
    }
    for _ in 0..care.object {
        new.check(Some(rule(resource)), resource, &mut errors);
        if care.finalizers {
            new.check_known_finalizers(&mut errors);
        }
    }
    errors
}

fn rule(resource: &Resource) -> NameRule {
    match &resource.origin {
        Origin::BuiltIn(built_in) => built_in.rules.name,
        Origin::Custom(_) => NameRule::Subdomain,
    }
}

fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(metadata) => metadata,
        other => unreachable!("metadata that was just made is an object: {other}"),
    }
}

/// What is wrong with a name; without a rule it only has to fit into a path.
fn name_problems(name: &str, rule: Option<NameRule>, prefix: bool) -> Vec<String> {
    let Some(rule) = rule else {
        return names::path_segment_problems(name, prefix);
    };
    // letters follow a prefix, so a dash at its end, and the letter before, are not looked at
    let masked = name.strip_suffix('-').and_then(|rest| {
        let last = rest.chars().next_back().filter(char::is_ascii)?;
        Some(format!("{}a", rest.strip_suffix(last)?))
    });
    let name = masked.as_deref().filter(|_| prefix).unwrap_or(name);
    match rule {
        NameRule::Subdomain => names::subdomain_problems(name),
        NameRule::Label => names::label_problems(name),
        NameRule::LetterLabel => names::letter_label_problems(name),
    }
}

/// Metadata of an object; errors name fields below `metadata`.
#[derive(Clone, Copy)]
struct Metadata<'a>(&'a Value);

impl<'a> Metadata<'a> {
    fn text(self, name: &str) -> &'a str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn items(self, name: &str) -> &'a [Value] {
        let items = self.0.get(name).and_then(Value::as_array);
        items.map(Vec::as_slice).unwrap_or_default()
    }

    fn entries(self, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let entries = self.0.get(name).and_then(Value::as_object);
        entries
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    fn finalizers(self) -> impl Iterator<Item = &'a str> {
        self.items("finalizers").iter().filter_map(Value::as_str)
    }

    fn check(self, rule: Option<NameRule>, resource: &Resource, errors: &mut Vec<FieldError>) {
        let prefix = self.text("generateName");
        if !prefix.is_empty() {
            let problems = name_problems(prefix, rule, true);
            invalid("metadata.generateName", prefix, problems, errors);
        }
        let name = self.text("name");
        if name.is_empty() {
            let detail = "name or generateName is required";
            errors.push(FieldError::required("metadata.name", detail));
        } else {
            let problems = name_problems(name, rule, false);
            invalid("metadata.name", name, problems, errors);
        }
        let namespace = self.text("namespace");
        match (resource.namespaced, namespace) {
            (true, "") => errors.push(FieldError::required("metadata.namespace", "")),
            (true, namespace) => {
                let problems = names::label_problems(namespace);
                invalid("metadata.namespace", namespace, problems, errors);
            }
            (false, "") => {}
            (false, _) => {
                let detail = "not allowed on this type";
                errors.push(FieldError::forbidden("metadata.namespace", detail));
            }
        }
        if let Some(generation) = self.0.get("generation").filter(|g| g.as_i64() < Some(0)) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(
                "metadata.generation",
                generation,
                detail,
            ));
        }
        self.check_labels(errors);
        self.check_owners(errors);
        self.check_finalizers(errors);
        self.check_managers(errors);
    }

    fn check_labels(self, errors: &mut Vec<FieldError>) {
        for (key, value) in self.entries("labels") {
            let problems = names::qualified_name_problems(key);
            invalid("metadata.labels", key, problems, errors);
            let problems = names::label_value_problems(value);
            invalid("metadata.labels", value, problems, errors);
        }
        let mut size = 0;
        for (key, value) in self.entries("annotations") {
            size += key.len() + value.len();
            let problems = names::qualified_name_problems(&key.to_lowercase());
            invalid("metadata.annotations", key, problems, errors);
        }
        if size > MOST_ANNOTATIONS {
            let most = i64::try_from(MOST_ANNOTATIONS).unwrap_or(i64::MAX);
            errors.push(FieldError::too_long("metadata.annotations", most));
        }
    }

    fn check_finalizers(self, errors: &mut Vec<FieldError>) {
        for finalizer in self.finalizers() {
            let problems = names::qualified_name_problems(finalizer);
            invalid("metadata.finalizers", finalizer, problems, errors);
        }
        let has = |wanted| self.finalizers().any(|finalizer| finalizer == wanted);
        if has(ORPHAN) && has(FOREGROUND) {
            let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
            let all = Value::Array(self.items("finalizers").to_vec());
            errors.push(FieldError::invalid("metadata.finalizers", &all, &detail));
        }
    }

    fn check_known_finalizers(self, errors: &mut Vec<FieldError>) {
        for (index, finalizer) in self.finalizers().enumerate() {
            if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
                let field = format!("metadata.finalizers[{index}]");
                let detail = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(FieldError::invalid(field, &json!(finalizer), detail));
            }
        }
    }

    fn check_managers(self, errors: &mut Vec<FieldError>) {
        for (index, entry) in self.items("managedFields").iter().enumerate() {
            let entry = Metadata(entry);
            let field = |name: &str| format!("metadata.managedFields[{index}].{name}");
            let mut wrong = |name: &str, detail: &str| {
                let value = json!(entry.text(name));
                errors.push(FieldError::invalid(field(name), &value, detail));
            };
            if !matches!(entry.text("operation"), "Apply" | "Update") {
                wrong("operation", "must be `Apply` or `Update`");
            }
            if !matches!(entry.text("fieldsType"), "" | "FieldsV1") {
                wrong("fieldsType", "must be `FieldsV1`");
            }
            for (name, most) in [
                ("manager", LONGEST_MANAGER),
                ("subresource", LONGEST_SUBRESOURCE),
            ] {
                if entry.text(name).len() > most {
                    let most = i64::try_from(most).unwrap_or(i64::MAX);
                    errors.push(FieldError::too_long(field(name), most));
                }
            }
        }
    }

    fn check_change(self, old: Metadata<'_>, errors: &mut Vec<FieldError>) {
        if old.0.get("deletionTimestamp").is_some() {
            self.check_new_finalizers(old, errors);
        }
        let generation = |metadata: Metadata| metadata.0.get("generation").and_then(Value::as_i64);
        if generation(self).unwrap_or_default() < generation(old).unwrap_or_default() {
            let value = json!(generation(self).unwrap_or_default());
            let detail = "must not be decremented";
            errors.push(FieldError::invalid("metadata.generation", &value, detail));
        }
        for name in [
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            if self.0.get(name) != old.0.get(name) {
                let texts = matches!(name, "name" | "namespace" | "uid");
                let unset = if texts { json!("") } else { Value::Null };
                let value = self.0.get(name).unwrap_or(&unset);
                let field = format!("metadata.{name}");
                errors.push(FieldError::invalid(field, value, "field is immutable"));
            }
        }
        self.check_labels(errors);
        self.check_owners(errors);
        self.check_managers(errors);
    }

    /// What is being deleted gets no new finalizers.
    fn check_new_finalizers(self, old: Metadata<'_>, errors: &mut Vec<FieldError>) {
        let known = |finalizer: &&str| old.finalizers().any(|known| known == *finalizer);
        let mut added: Vec<&str> = self.finalizers().filter(|f| !known(f)).collect();
        if added.is_empty() {
            return;
        }
        added.sort_unstable();
        added.dedup();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{{{}}}",
            quoted(&added)
        );
        errors.push(FieldError::forbidden("metadata.finalizers", &detail));
    }
}

fn quoted(texts: &[&str]) -> String {
    let texts: Vec<_> = texts.iter().map(|text| format!("{text:?}")).collect();
    texts.join(", ")
}

fn invalid(field: &str, value: &str, problems: Vec<String>, errors: &mut Vec<FieldError>) {
    for problem in problems {
        errors.push(FieldError::invalid(field, &json!(value), &problem));
    }
}

#[cfg(test)]
mod tests;
