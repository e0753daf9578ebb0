//! The pure code against what a real kube-apiserver said to the same objects (`record-schema-cases` records it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use api::{
    crds::{Conversion, Family, Versions, render},
    structural::{
        FieldError, Place, Scale, Schema, Verdict, duplicate_field, duplicate_fields,
        invalid_message, invalid_status, strict_message, undecodable_message, unknown_field,
    },
};
use serde_json::{Value, json};

const GROUP: &str = "cases.sandbar.dev";

/// Cases in which we differ from the server, and know it.
const KNOWN_DIFFERENCES: &[&str] = &[
    // the cost of rules is not estimated
    "a rule that costs too much",
    "oldSelf within a set",
    "oldSelf within an atomic list",
    // the server shows its internal form of the schema, ours shows the schema
    "status beside anyOf",
    // the interpreter does not know them, so such rules are refused
    "[1, 2].all(i, v, v > 0)",
    "[3, 1].sortBy(x, x) == [1, 3]",
    "format.named('dns1123Label').hasValue()",
    "int('5') == 5 && string(5) == '5' && double('1.5') == 1.5 && uint('5') == 5u && string(true) == 'true'",
    // an integer never equals a float for the interpreter
    "dyn(1) == 1 && dyn(1) == 1.0",
    // refused as well, in other words
    "'abc'.substring(5) == ''",
    "url('::') == url('a')",
];

struct File {
    stem: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($stem:literal),* $(,)?) => {
        &[$(File {
            stem: $stem,
            text: include_str!(concat!("fixtures/structural/", $stem, ".json")),
        }),*]
    };
}

const FILES: &[File] = files![
    "collections",
    "defaults",
    "duplicates",
    "formats",
    "pruning",
    "ratchets",
    "rules",
    "scalars",
    "statuses",
    "transitions",
    "unions",
];

fn cases(content: &Value) -> &Vec<Value> {
    content["cases"].as_array().unwrap()
}

fn capital(stem: &str) -> String {
    stem[..1].to_ascii_uppercase() + &stem[1..]
}

/// The whole object of a case, as the recorder sent it.
fn whole(stem: &str, index: usize, fields: &Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": capital(stem),
        "metadata": {"name": format!("case-{index}")},
    });
    let object_fields = object.as_object_mut().unwrap();
    for (name, value) in fields.as_object().unwrap() {
        match (object_fields.get_mut(name), value) {
            (Some(Value::Object(there)), Value::Object(more)) => there.extend(more.clone()),
            _ => _ = object_fields.insert(name.clone(), value.clone()),
        }
    }
    object
}

/// What our code says: the stored object or the Status, the warnings, and the strict error.
struct Said {
    object: Value,
    failure: Option<Failure>,
    warnings: Vec<String>,
    strict: Option<String>,
}

enum Failure {
    Undecodable(String),
    Invalid(Vec<FieldError>),
}

/// How an object comes in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    /// At the resource; with the status subresource the status is not looked at.
    Main { status: bool },
    /// At the status subresource.
    Status,
}

fn say(schema: &Schema, text: &str, old: Option<&Value>, door: Door) -> Said {
    let mut object: Value = serde_json::from_str(text).unwrap();
    let kind = object["kind"].as_str().unwrap().to_owned();
    let version = object["apiVersion"]
        .as_str()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    let mut warnings: Vec<_> = duplicate_fields(text)
        .iter()
        .map(|path| duplicate_field(path))
        .collect();
    match schema.admit(&mut object) {
        Ok(unknown) => warnings.extend(unknown.iter().map(|path| unknown_field(path))),
        Err(error) => {
            let message = undecodable_message(&kind, &version, &error.to_string());
            return Said {
                object,
                failure: Some(Failure::Undecodable(message)),
                warnings,
                strict: None,
            };
        }
    }
    let strict = (!warnings.is_empty()).then(|| strict_message(&kind, &version, &warnings));
    let errors = match old {
        None => {
            if door == (Door::Main { status: true }) {
                object.as_object_mut().unwrap().remove("status");
            }
            schema.validate(&object)
        }
        Some(old) => {
            let mut old = old.clone();
            schema.admit(&mut old).unwrap();
            if door == Door::Status {
                let status = object["status"].take();
                object = old.clone();
                object["status"] = status;
            }
            let verdict = verdict(schema, &object, &old, door);
            judge_in_part(schema, &object, &old, door, &verdict);
            if verdict.errors.is_empty() {
                warnings.extend(verdict.warnings.iter().map(ToString::to_string));
            }
            verdict.errors
        }
    };
    let failure = (!errors.is_empty()).then_some(Failure::Invalid(errors));
    Said {
        object,
        failure,
        warnings,
        strict,
    }
}

fn verdict(schema: &Schema, new: &Value, old: &Value, door: Door) -> Verdict {
    match door {
        Door::Main { .. } => schema.validate_update(new, old),
        Door::Status => schema.validate_status(new, old),
    }
}

/// If it is good without what it leaves alone, a change is good.
fn judge_in_part(schema: &Schema, new: &Value, old: &Value, door: Door, of_all: &Verdict) {
    let patch = patch_between(old, new);
    let (mut new, mut old) = (new.clone(), old.clone());
    schema.set_aside(&mut new, &patch);
    schema.set_aside(&mut old, &patch);
    let of_rest = verdict(schema, &new, &old, door);
    if of_rest.errors.is_empty() {
        assert_eq!(of_all.errors, vec![], "{old:#} becomes {new:#}");
        assert_eq!(of_all.warnings, of_rest.warnings, "{old:#} becomes {new:#}");
    }
}

fn patch_between(old: &Value, new: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return new.clone();
    };
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let gone = gone.map(|name| (name.clone(), Value::Null));
    let changed = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(value));
    let changed = changed.map(|(name, value)| {
        let patch = before
            .get(name)
            .map_or_else(|| value.clone(), |old| patch_between(old, value));
        (name.clone(), patch)
    });
    gone.chain(changed).collect()
}

/// Numbers compare by value: Go writes 3.0 as 3.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_i64().is_none() => match number.as_f64() {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "small numbers of the fixtures"
            )]
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => json!(float as i64),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Compares with what the server said; the order of errors under one map is random there.
fn differences(said: &Said, expected: &Value) -> Option<String> {
    let wanted: Vec<String> = match expected.get("warnings") {
        Some(Value::Array(texts)) => texts
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect(),
        _ => Vec::new(),
    };
    if said.warnings != wanted {
        return Some(format!("warnings {:#?}, not {wanted:#?}", said.warnings));
    }
    if let Some(strict) = expected.get("strict")
        && said.strict.as_deref() != strict.as_str()
    {
        return Some(format!("strict {:?}, not {strict}", said.strict));
    }
    match (
        &said.failure,
        expected.get("stored"),
        expected.get("status"),
    ) {
        (None, Some(stored), _) => {
            let (mut ours, mut stored) = (plain(&said.object), stored.clone());
            ours["metadata"] = json!({});
            stored["metadata"] = json!({});
            (ours != stored).then(|| format!("{ours:#}\nnot\n{stored:#}"))
        }
        (Some(Failure::Undecodable(message)), _, Some(status)) => (status["message"] != **message
            || status["code"] != 400)
            .then(|| format!("{message}\nnot\n{status:#}")),
        (Some(Failure::Invalid(errors)), _, Some(status)) => invalid(errors, status),
        (Some(Failure::Invalid(errors)), _, _) => Some(format!("refused: {errors:#?}")),
        (Some(Failure::Undecodable(message)), ..) => Some(format!("refused: {message}")),
        (None, ..) => Some(format!("accepted, not {expected:#}")),
    }
}

fn invalid(errors: &[FieldError], status: &Value) -> Option<String> {
    let details = &status["details"];
    let text = |name: &str| details[name].as_str().unwrap_or_default();
    let causes = details["causes"].as_array().cloned().unwrap_or_default();
    let mut left: Vec<_> = errors.to_vec();
    let mut ordered = Vec::new();
    for cause in &causes {
        if let Some(index) = left.iter().position(|error| error.cause() == *cause) {
            ordered.push(left.remove(index));
        }
    }
    ordered.extend(left);
    let ours = invalid_status(text("kind"), text("group"), text("name"), &ordered);
    (ours != *status).then(|| {
        let message = invalid_message(text("kind"), text("group"), text("name"), errors);
        let ours: Vec<_> = errors.iter().map(FieldError::cause).collect();
        format!(
            "{message}\nnot\n{}\n{ours:#?}\nnot\n{causes:#?}",
            status["message"]
        )
    })
}

fn compiled(schema: &Value) -> Schema {
    Schema::compile(schema).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// Reports all differences at once, and known ones that are none.
fn report(differences: BTreeMap<String, Option<String>>) {
    let mut problems = Vec::new();
    let count = differences.len();
    for (name, difference) in differences {
        let known = KNOWN_DIFFERENCES.contains(&name.as_str());
        match (difference, known) {
            (Some(difference), false) => problems.push(format!("{name}: {difference}")),
            (None, true) => problems.push(format!("{name}: no longer a difference")),
            _ => {}
        }
    }
    assert!(
        problems.is_empty(),
        "{} of {count}:\n{}",
        problems.len(),
        problems.join("\n\n")
    );
}

#[test]
fn every_object_is_stored_or_refused_as_the_server_does() {
    let mut found = BTreeMap::new();
    for file in FILES {
        let content: Value = serde_json::from_str(file.text).unwrap();
        let mut schema = compiled(&content["schema"]);
        let scale = &content["subresources"]["scale"];
        if let Some(path) = scale.get("specReplicasPath") {
            schema = schema.with_scale(Scale {
                spec_replicas: path.as_str().unwrap().to_owned(),
                status_replicas: scale["statusReplicasPath"].as_str().unwrap().to_owned(),
                label_selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
            });
        }
        let before = content.get("before").map(compiled);
        for (index, case) in cases(&content).iter().enumerate() {
            let text = match case.get("text") {
                Some(text) => text.as_str().unwrap().to_owned(),
                None => whole(file.stem, index, &case["object"]).to_string(),
            };
            let old = case.get("old").map(|old| {
                let mut old = whole(file.stem, index, old);
                before.as_ref().unwrap_or(&schema).admit(&mut old).unwrap();
                old
            });
            let door = match case.get("of") {
                Some(_) => Door::Status,
                None => Door::Main {
                    status: content["subresources"].get("status").is_some(),
                },
            };
            let said = say(&schema, &text, old.as_ref(), door);
            let name = format!("{}: {}", file.stem, case["does"].as_str().unwrap());
            found.insert(name, differences(&said, &case["said"]));
        }
    }
    assert!(found.len() > 400);
    report(found);
}

/// Each expression is the only rule of a schema: one that we refuse must not hide the others.
#[test]
fn functions_of_rules_mean_the_same() {
    let content: Value =
        serde_json::from_str(include_str!("fixtures/structural/functions.json")).unwrap();
    let properties = &content["schema"]["properties"]["spec"]["properties"];
    let mut found = BTreeMap::new();
    for (index, case) in cases(&content).iter().enumerate() {
        let (name, _) = case["object"]["spec"]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {(name): properties[name]}},
        }});
        let difference = match Schema::compile(&schema) {
            Ok(schema) => {
                let object = whole("functions", index, &case["object"]);
                let said = say(
                    &schema,
                    &object.to_string(),
                    None,
                    Door::Main { status: false },
                );
                differences(&said, &case["said"])
            }
            Err(errors) => Some(format!("refused: {errors:#?}")),
        };
        found.insert(case["does"].as_str().unwrap().to_owned(), difference);
    }
    assert!(found.len() > 90);
    report(found);
}

#[test]
fn our_own_kinds_are_checked_as_the_server_checks_them() {
    let content: Value =
        serde_json::from_str(include_str!("fixtures/structural/own.json")).unwrap();
    let schemas = own_schemas();
    let mut found = BTreeMap::new();
    for case in cases(&content) {
        let object = &case["object"];
        let kind = format!(
            "{} {}",
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap()
        );
        let said = say(
            &schemas[&kind],
            &object.to_string(),
            case.get("old"),
            Door::Main { status: true },
        );
        found.insert(
            case["does"].as_str().unwrap().to_owned(),
            differences(&said, &case["said"]),
        );
    }
    assert!(found.len() > 90);
    report(found);
}

fn own_schemas() -> BTreeMap<String, Schema> {
    [
        (Family::Sigs, Versions::V1alpha1),
        (Family::Sigs, Versions::V1beta1),
        (Family::Kruise, Versions::V1beta1),
    ]
    .into_iter()
    .flat_map(|(family, versions)| render(&[family], versions, Conversion::None).unwrap())
    .map(|crd| {
        let version = &crd.spec.versions[0];
        let name = format!(
            "{}/{} {}",
            crd.spec.group, version.name, crd.spec.names.kind
        );
        let schema = serde_json::to_value(&version.schema).unwrap()["openAPIV3Schema"].take();
        let scale = version
            .subresources
            .as_ref()
            .and_then(|all| all.scale.clone());
        let schema = match scale {
            Some(scale) => compiled(&schema).with_scale(Scale {
                spec_replicas: scale.spec_replicas_path,
                status_replicas: scale.status_replicas_path,
                label_selector: scale.label_selector_path,
            }),
            None => compiled(&schema),
        };
        (name, schema)
    })
    .collect()
}

#[test]
fn every_schema_is_accepted_or_refused_as_the_server_does() {
    let content: Value =
        serde_json::from_str(include_str!("fixtures/structural/crds.json")).unwrap();
    let mut found = BTreeMap::new();
    for case in cases(&content) {
        let path = match case.get("second") {
            Some(_) => "spec.versions[0].schema.openAPIV3Schema",
            None => "spec.validation.openAPIV3Schema",
        };
        let place = Place {
            path: path.to_owned(),
            status_subresource: case.get("status").is_some(),
        };
        let said = Schema::compile_at(&case["schema"], &place);
        let difference = match (said, case["said"].get("status")) {
            (Ok(_), None) => None,
            (Ok(_), Some(status)) => Some(format!("accepted, not {}", status["message"])),
            (Err(errors), None) => Some(format!("refused: {errors:#?}")),
            (Err(errors), Some(status)) => invalid(&errors, status),
        };
        found.insert(case["does"].as_str().unwrap().to_owned(), difference);
    }
    assert!(found.len() > 80);
    report(found);
}
