//! The scale subresource: a number of replicas, whatever the kind.

use api::patch::{self, PatchError};
use api::structural::FieldError;
use serde_json::{Value, json};

use super::answer::Answer;
use super::media::PatchKind;
use super::options::WriteOptions;
use super::resource::{Origin, Resource};
use super::route::Target;
use super::update::{By, Edited};
use super::write::Caller;
use super::{Asked, Server};
use crate::kinds::Part;
use crate::status::Failure;

/// Where a kind keeps its numbers, as paths of field names.
struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Option<Vec<String>>,
}

impl Server {
    pub(super) async fn scale(
        &self,
        target: &Target,
        asked: &Asked<'_>,
    ) -> Result<Answer, Failure> {
        let Some(paths) = Paths::of(&target.resource) else {
            return Err(Failure::unknown_path());
        };
        match asked.method.as_str() {
            "GET" => {
                let object = target.resource.read(&*self.find(target)?)?;
                Ok(Answer::Scale(scale_of(&object, &paths)))
            }
            "PUT" => {
                let sent = asked.body().part("Scale", "autoscaling/v1");
                let sent = sent.map_err(|failure| other_scale(target, failure))?;
                self.set_scale(target, asked, "UpdateOptions", &paths, |_| Ok(sent.clone()))
                    .await
            }
            "PATCH" => {
                let kind = asked.patch_kind(target)?;
                let options =
                    WriteOptions::read(asked.query, "PatchOptions", kind == PatchKind::Apply)?;
                let patch = asked.body().patch(kind, &options)?.value;
                self.set_scale(target, asked, "PatchOptions", &paths, |scale| {
                    let mut scale = patched(scale, kind, &patch)?;
                    api::decode::decode(&mut scale, "autoscaling/v1", "Scale")
                        .map_err(Failure::bad_request)?;
                    Ok(scale)
                })
                .await
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn set_scale(
        &self,
        target: &Target,
        asked: &Asked<'_>,
        options: &str,
        paths: &Paths,
        make: impl Fn(Value) -> Result<Value, Failure>,
    ) -> Result<Answer, Failure> {
        let applies = asked.patch_kind(target).ok() == Some(PatchKind::Apply);
        let options = WriteOptions::read(asked.query, options, applies)?;
        let caller = Caller {
            subresource: Some("scale"),
            ..asked.caller()
        };
        let answer = self
            .change(target, Part::Main, &caller, &options, |old| {
                let scale = make(scale_of(old.object, paths))?;
                check(target, &scale)?;
                let mut new = old.object.clone();
                set(&mut new, &paths.spec, scale["spec"]["replicas"].clone());
                carry_preconditions(&mut new, &scale);
                Ok(Edited {
                    object: new,
                    by: By::Client,
                })
            })
            .await?;
        let object = match answer {
            Answer::Stored { entry, .. } => target.resource.read(&entry)?,
            Answer::Object { object, .. } => object,
            _ => return Err(Failure::internal("a write answered with no object")),
        };
        Ok(Answer::Scale(scale_of(&object, paths)))
    }
}

/// What is no scale is refused in other words by custom kinds.
fn other_scale(target: &Target, failure: Failure) -> Failure {
    let other = failure
        .message()
        .contains(" cannot be handled as a Scale: ");
    match other && target.resource.custom().is_some() {
        true => Failure::bad_request(
            "no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        false => failure,
    }
}

fn patched(scale: Value, kind: PatchKind, patch: &Value) -> Result<Value, PatchError> {
    match kind {
        PatchKind::Json => patch::json::apply(scale, patch),
        PatchKind::Merge | PatchKind::Strategic | PatchKind::Apply => {
            patch::merge::apply(scale, patch)
        }
    }
}

/// A scale that names a version or a uid means exactly that object.
fn carry_preconditions(new: &mut Value, scale: &Value) {
    for key in ["resourceVersion", "uid"] {
        if let Some(metadata) = new["metadata"].as_object_mut() {
            match scale["metadata"][key].as_str() {
                Some(value) => _ = metadata.insert(key.to_owned(), json!(value)),
                None => _ = metadata.remove(key),
            }
        }
    }
}

fn check(target: &Target, scale: &Value) -> Result<(), Failure> {
    let name = target.name.as_deref().unwrap_or_default();
    super::metadata::check_name_in_path(scale, name)?;
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    // custom kinds are judged by their schemas
    if replicas < 0 && target.resource.custom().is_none() {
        let detail = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", &json!(replicas), detail);
        return Err(Failure::invalid("autoscaling", "Scale", name, &[error]));
    }
    Ok(())
}

fn scale_of(object: &Value, paths: &Paths) -> Value {
    let mut metadata = json!({});
    for key in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(key) {
            metadata[key] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = get(object, &paths.spec).filter(|replicas| **replicas != json!(0)) {
        spec["replicas"] = replicas.clone();
    }
    let replicas = get(object, &paths.status).cloned();
    let mut status = json!({"replicas": replicas.unwrap_or_else(|| json!(0))});
    if let Some(path) = &paths.selector {
        let selector = match get(object, path) {
            Some(Value::String(text)) => text.clone(),
            Some(selector @ Value::Object(_)) => selector_text(selector),
            _ => String::new(),
        };
        if !selector.is_empty() {
            status["selector"] = json!(selector);
        }
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    })
}

/// A label selector as text: `app=x,tier in (a,b)`.
pub(super) fn selector_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object();
    let equal = labels.into_iter().flatten();
    let mut terms: Vec<(String, String)> = equal
        .map(|(key, value)| {
            (
                key.clone(),
                format!("{key}={}", value.as_str().unwrap_or_default()),
            )
        })
        .collect();
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        let term = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        };
        terms.push((key.to_owned(), term));
    }
    terms.sort();
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

impl Paths {
    fn of(resource: &Resource) -> Option<Self> {
        let path = |text: &str| -> Vec<String> {
            text.split('.')
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        match &resource.origin {
            Origin::BuiltIn(_) => Some(Self {
                spec: path(".spec.replicas"),
                status: path(".status.replicas"),
                selector: Some(path(".spec.selector")),
            }),
            Origin::Custom(custom) => {
                let scale = custom.scale.as_ref()?;
                Some(Self {
                    spec: path(&scale.spec_replicas),
                    status: path(&scale.status_replicas),
                    selector: scale.label_selector.as_deref().map(path),
                })
            }
        }
    }
}

fn get<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let mut place = object;
    for key in path {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key.as_str()];
    }
    *place = if value.is_null() { json!(0) } else { value };
}
