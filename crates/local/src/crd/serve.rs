//! What the API serves because of a CRD.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use api::patch::types;
use api::structural::{FieldError, Place, Scale, Schema};
use serde_json::{Value, json};

use super::{items, text, versions};
use crate::server::resource::{Column, Conversion, Custom, Origin, Resource, Subresource};
use crate::table::json_path::JsonPath;

const VERBS: &[&str] = &["get", "patch", "update"];

/// The groups whose versions Sandbar converts itself.
const OWN_GROUPS: &[&str] = &["agents.x-k8s.io", "extensions.agents.x-k8s.io"];

/// One resource for every served version; `since` is the revision of the definition. A definition that was accepted once always compiles.
pub fn resources(definition: &Value, since: u64) -> Result<Vec<Resource>, Vec<FieldError>> {
    let served = versions(definition).iter().enumerate();
    served
        .filter(|(_, version)| version["served"] == true)
        .map(|(index, version)| resource(definition, version, index, since))
        .collect()
}

fn resource(
    definition: &Value,
    version: &Value,
    index: usize,
    since: u64,
) -> Result<Resource, Vec<FieldError>> {
    let spec = &definition["spec"];
    // names that are not accepted yet are taken from what was asked for
    let names = match definition.pointer("/status/acceptedNames") {
        Some(accepted) if !text(Some(accepted), "kind").is_empty() => accepted,
        _ => &spec["names"],
    };
    let owned = |name: &str| text(Some(names), name).to_owned();
    let list = |name: &str| items(names.get(name)).iter().filter_map(Value::as_str);
    let (group, kind) = (text(Some(spec), "group"), owned("kind"));
    let name = text(Some(version), "name");
    let plural = text(spec.get("names"), "plural").to_owned();
    let custom = Custom {
        since,
        ..custom(definition, version, index)?
    };
    Ok(Resource {
        group: group.to_owned(),
        version: name.to_owned(),
        api_version: format!("{group}/{name}"),
        list_kind: owned("listKind"),
        singular: owned("singular"),
        short_names: list("shortNames").map(str::to_owned).collect(),
        categories: list("categories").map(str::to_owned).collect(),
        namespaced: spec["scope"] == "Namespaced",
        subresources: subresources(&custom, &kind),
        stored_as: format!("{plural}.{group}").into(),
        origin: Origin::Custom(Arc::new(custom)),
        plural,
        kind,
    })
}

fn custom(definition: &Value, version: &Value, index: usize) -> Result<Custom, Vec<FieldError>> {
    let open_api = version
        .pointer("/schema/openAPIV3Schema")
        .unwrap_or(&Value::Null);
    let status = version.pointer("/subresources/status").is_some();
    let place = Place {
        path: format!("spec.versions[{index}].schema.openAPIV3Schema"),
        status_subresource: status,
    };
    let scale = version.pointer("/subresources/scale").map(scale);
    let schema = Schema::compile_at(open_api, &place)?;
    let schema = match scale.clone() {
        Some(scale) => schema.with_scale(scale),
        None => schema,
    };
    let group = text(definition.get("spec"), "group");
    let api_version = |version: &Value| format!("{group}/{}", text(Some(version), "name"));
    let all = versions(definition);
    let stored = all.iter().find(|version| version["storage"] == true);
    let own = OWN_GROUPS.contains(&group) && all.len() > 1;
    Ok(Custom {
        crd: text(definition.get("metadata"), "name").to_owned(),
        types: types::Schema::of_crd(open_api),
        schema,
        open_api: open_api.to_string().into(),
        stored_api_version: api_version(stored.unwrap_or(version)),
        api_versions: all.iter().map(api_version).collect(),
        status,
        scale,
        columns: columns(version, index)?,
        selectable: selectable(version, index)?,
        warning: warning(definition, version),
        conversion: if own {
            Conversion::Own
        } else {
            Conversion::None
        },
        since: 0,
        id: Custom::new_id(),
    })
}

fn scale(scale: &Value) -> Scale {
    let path = |name: &str| text(Some(scale), name).to_owned();
    let selector = path("labelSelectorPath");
    Scale {
        spec_replicas: path("specReplicasPath"),
        status_replicas: path("statusReplicasPath"),
        label_selector: (!selector.is_empty()).then_some(selector),
    }
}

fn subresources(custom: &Custom, kind: &str) -> Vec<Subresource> {
    let status = custom.status.then(|| Subresource {
        name: "status".to_owned(),
        kind: kind.to_owned(),
        group_version: None,
        verbs: VERBS,
    });
    let scale = custom.scale.as_ref().map(|_| Subresource {
        name: "scale".to_owned(),
        kind: "Scale".to_owned(),
        group_version: Some(("autoscaling".to_owned(), "v1".to_owned())),
        verbs: VERBS,
    });
    status.into_iter().chain(scale).collect()
}

fn parsed(path: &str, field: String) -> Result<JsonPath, Vec<FieldError>> {
    JsonPath::parse(path)
        .map_err(|error| vec![FieldError::invalid(field, &json!(path), &error.to_string())])
}

/// The columns that the version names. None means that the server shows the age.
fn columns(version: &Value, index: usize) -> Result<Vec<Column>, Vec<FieldError>> {
    let columns = items(version.get("additionalPrinterColumns"));
    let column = |(place, column): (usize, &Value)| {
        let owned = |name: &str| text(Some(column), name).to_owned();
        let field = format!("spec.versions[{index}].additionalPrinterColumns[{place}].jsonPath");
        Ok(Column {
            name: owned("name"),
            column_type: owned("type"),
            format: owned("format"),
            description: owned("description"),
            priority: column["priority"].as_i64().unwrap_or_default(),
            path: parsed(&owned("jsonPath"), field)?,
        })
    };
    columns.iter().enumerate().map(column).collect()
}

fn selectable(version: &Value, index: usize) -> Result<Vec<(String, JsonPath)>, Vec<FieldError>> {
    let fields = items(version.get("selectableFields")).iter().enumerate();
    fields
        .map(|(place, field)| {
            let path = text(Some(field), "jsonPath");
            let field = format!("spec.versions[{index}].selectableFields[{place}].jsonPath");
            Ok((path.to_owned(), parsed(path, field)?))
        })
        .collect()
}

/// What is said with every answer in a deprecated version.
fn warning(definition: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(said) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(said.to_owned());
    }
    let spec = &definition["spec"];
    let (group, kind) = (text(Some(spec), "group"), text(spec.get("names"), "kind"));
    let name = text(Some(version), "name");
    let better = versions(definition)
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(Some(other), "name"))
        .filter(|other| newest_first(other, name) == Ordering::Less)
        .min_by(|one, two| newest_first(one, two));
    let mut said = format!("{group}/{name} {kind} is deprecated");
    if let Some(better) = better {
        said.push_str(&format!("; use {group}/{better} {kind}"));
    }
    Some(said)
}

/// The order of versions by what they promise: `v2`, `v1`, `v1beta1`, `v1alpha2`, `other`.
pub fn newest_first(one: &str, two: &str) -> Ordering {
    match (rank(one), rank(two)) {
        (Some(one), Some(two)) => Reverse(one).cmp(&Reverse(two)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(two),
    }
}

/// Stability, number, and number of the preview; none for names of another form.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let number = |text: &str| {
        let valid = text.starts_with(|c: char| ('1'..='9').contains(&c));
        text.parse::<u64>().ok().filter(|_| valid)
    };
    let rest = version.strip_prefix('v')?;
    for (word, stability) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}
