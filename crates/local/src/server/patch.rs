//! The four kinds of patches.

use api::patch::apply::{self, Live, Managed};
use api::patch::go::cannot_unmarshal;
use api::patch::{self, PatchError};
use api::structural::{FieldError, strict_message, unknown_field};
use serde_json::{Value, json};

use super::Server;
use super::answer::Answer;
use super::kind::Owned;
use super::media::{self, Decoded, Duplicates, PatchKind};
use super::metadata;
use super::options::{FieldValidation, WriteOptions};
use super::route::Target;
use super::update::{By, Edited};
use super::write::{Body, Caller, same_kind, warn_of_other_version};
use crate::kinds::Part;
use crate::status::Failure;

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Self {
        Failure::of_status(error.status())
    }
}

impl Server {
    pub(super) async fn patch(
        &self,
        target: &Target,
        part: Part,
        caller: &Caller<'_>,
        options: &WriteOptions,
        kind: PatchKind,
        body: &Body<'_>,
    ) -> Result<Answer, Failure> {
        if kind == PatchKind::Apply {
            return self.apply(target, part, caller, options, body).await;
        }
        let resource = &target.resource;
        let Decoded {
            value: patch,
            duplicates,
        } = body.patch(kind, options)?;
        let with_owners = kind == PatchKind::Json && may_touch_owners(&patch);
        let touched = (kind == PatchKind::Merge).then_some(&patch);
        self.change_by(target, part, caller, options, touched, |old| {
            let whole = |with_owners: bool| match with_owners {
                true => patched(target, kind, old.whole(), &patch),
                false => patched(target, kind, old.object.clone(), &patch),
            };
            let mut new = whole(with_owners)?;
            // only errors show it, and few patches have one
            let shown = || match kind {
                PatchKind::Strategic => go_map(&patch),
                _ => whole(true).unwrap_or_default().to_string(),
            };
            read_patched(target, caller, &mut new, &shown)?;
            let unknown = resource
                .admit_change(&mut new, old.is_of_today.then_some(old.object))
                .map_err(|_| undecodable(target, kind, &new, &shown()))?;
            judged(caller, options, &unknown, &duplicates, &shown)?;
            Ok(Edited {
                object: new,
                by: By::Client,
            })
        })
        .await
    }

    async fn apply(
        &self,
        target: &Target,
        part: Part,
        caller: &Caller<'_>,
        options: &WriteOptions,
        body: &Body<'_>,
    ) -> Result<Answer, Failure> {
        let resource = &target.resource;
        let Decoded {
            value: applied,
            duplicates,
        } = body.patch(PatchKind::Apply, options)?;
        let name = target.name.as_deref().unwrap_or_default();
        let registry = self.registry();
        let now = self.now();
        let lives = self.store.get(&target.key()).is_some();
        if !(lives && applied["metadata"]["name"].is_null()) {
            metadata::check_name_in_path(&applied, name)?;
        }
        let namespace = target.namespace.as_deref().unwrap_or_default();
        // errors of the merge name the object as it was sent, so the namespace is put into the result
        let sent = &applied["metadata"]["namespace"];
        metadata::place_in_namespace(&mut json!({"metadata": {"namespace": sent}}), namespace)?;
        let edit = |live: Option<Live<'_>>| -> Result<(Value, Managed), Failure> {
            let kind = Owned::new(resource, &registry, part);
            let writer = caller.writer(resource, part, &now);
            let (mut object, owners) = apply::apply(&kind, live, &applied, writer, options.force)?;
            metadata::place_in_namespace(&mut object, namespace)?;
            let admitted = live.filter(|live| live.fits).map(|live| live.object);
            let unknown = resource.admit_change(&mut object, admitted)?;
            judged_apply(target, caller, options, &unknown, &duplicates)?;
            Ok((object, owners))
        };
        if part == Part::Main && !lives {
            if applied["metadata"]["uid"].is_string() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    applied["metadata"]["uid"].as_str().unwrap_or_default()
                );
                return Err(Failure::conflict(resource.qualified(), name, &why));
            }
            let (mut object, owners) = edit(None)?;
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            let created = self
                .create(target, caller, options, object, Some(owners))
                .await;
            match created {
                // somebody else has just created it, so it is there to be changed
                Err(failure)
                    if failure.code() == 409 && self.store.get(&target.key()).is_some() => {}
                created => return created,
            }
        }
        self.change(target, part, caller, options, |old| {
            let (object, owners) = edit(Some(old.live()))?;
            Ok(Edited {
                object,
                by: By::Apply(owners),
            })
        })
        .await
    }
}

/// Whether a JSON patch reads or writes `metadata.managedFields`.
fn may_touch_owners(patch: &Value) -> bool {
    let operations = patch.as_array().into_iter().flatten();
    let pointers = operations.flat_map(|operation| [&operation["path"], &operation["from"]]);
    pointers.filter_map(Value::as_str).any(|pointer| {
        let owners = "/metadata/managedFields";
        owners.starts_with(pointer) || pointer.starts_with(owners)
    })
}

fn patched(
    target: &Target,
    kind: PatchKind,
    object: Value,
    patch: &Value,
) -> Result<Value, Failure> {
    let new = match kind {
        PatchKind::Json => patch::json::apply(object, patch),
        PatchKind::Merge => patch::merge::apply(object, patch),
        PatchKind::Strategic => match target.resource.strategic_type() {
            Some(schema) => patch::strategic::apply(object, patch, schema),
            None => return Err(Failure::unsupported_patch()),
        },
        PatchKind::Apply => return Err(Failure::internal("an apply is no edit")),
    };
    Ok(new?)
}

/// What became of the object must still be one of the kind, and the same one.
fn read_patched(
    target: &Target,
    caller: &Caller<'_>,
    new: &mut Value,
    shown: &impl Fn() -> String,
) -> Result<(), Failure> {
    let resource = &target.resource;
    if !new.is_object() {
        return Err(no_object(new, &shown()));
    }
    let text = |new: &Value, key: &str| new[key].as_str().unwrap_or_default().to_owned();
    if resource.custom().is_none() {
        for (key, own) in [
            ("kind", &resource.kind),
            ("apiVersion", &resource.api_version),
        ] {
            if text(new, key).is_empty() {
                new[key] = json!(own);
            }
        }
        let said = (text(new, "apiVersion"), text(new, "kind"));
        if let Some(problem) = media::other_kind(resource.expected(), &said.0, &said.1) {
            return Err(refused_patch(&shown(), &problem));
        }
    }
    if new["metadata"].is_null() {
        new["metadata"] = json!({});
    }
    same_kind(resource, new)?;
    if text(new, "apiVersion") != resource.api_version {
        warn_of_other_version(resource, new, caller);
        let name = target.name.as_deref().unwrap_or_default();
        let sent = text(new, "apiVersion");
        let detail = format!("must be {}", resource.api_version);
        let error = FieldError::invalid("apiVersion", &json!(sent), &detail);
        return Err(Failure::invalid(
            &resource.group,
            &resource.kind,
            name,
            &[error],
        ));
    }
    if new["metadata"].is_object() {
        metadata::check_name_in_path(new, target.name.as_deref().unwrap_or_default())?;
        metadata::place_in_namespace(new, target.namespace.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

fn undecodable(target: &Target, kind: PatchKind, new: &Value, shown: &str) -> Failure {
    let resource = &target.resource;
    let mut copy = new.clone();
    match api::decode::decode(&mut copy, &resource.api_version, &resource.kind) {
        Err(problem) if kind == PatchKind::Strategic => {
            refused_patch(shown, &not_restored(&problem))
        }
        Err(problem) => refused_patch(shown, &problem),
        Ok(_) => refused_patch(shown, "the object cannot be read"),
    }
}

/// What a strategic merge makes is read by another reader, with other words for a wrong type:
/// `json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec` becomes `cannot restore struct from: string`.
fn not_restored(problem: &str) -> String {
    let parts = problem
        .strip_prefix("json: cannot unmarshal ")
        .and_then(|rest| rest.split_once(" into "))
        .and_then(|(found, rest)| Some((found, rest.rsplit_once(" of type ")?.1)));
    let Some((found, wanted)) = parts else {
        return problem.to_owned();
    };
    let found = match found.split(' ').next().unwrap_or_default() {
        "array" => "slice",
        "object" => "map",
        "number" => "int64",
        other => other,
    };
    match wanted {
        // Go can turn any whole number into a letter, and then refuses to
        "string" if found == "int64" => format!("cannot convert {found} to {wanted}"),
        list if list.starts_with("[]") => format!("cannot restore slice from {found}"),
        map if map.starts_with("map[") => format!("cannot restore map from {found}"),
        "string" | "bool" | "int32" | "int64" | "float64" => format!("unrecognized type: {wanted}"),
        _ => format!("cannot restore struct from: {found}"),
    }
}

/// What is left of an object is none.
fn no_object(new: &Value, shown: &str) -> Failure {
    match new {
        Value::Array(_) => {
            let problem = cannot_unmarshal(new, media::TYPE_META);
            let problem = format!("couldn't get version/kind; json parse error: {problem}");
            refused_patch(shown, &problem)
        }
        other => PatchError::Unprocessable(other.to_string()).into(),
    }
}

/// How the real server refuses what a patch makes of an object.
fn refused_patch(shown: &str, problem: &str) -> Failure {
    let error = FieldError::invalid("patch", &json!(shown), problem);
    Failure::invalid("", "", "", &[error])
}

/// Unknown and duplicate fields of a patch: an error, warnings, or nothing.
fn judged(
    caller: &Caller<'_>,
    options: &WriteOptions,
    unknown: &[String],
    duplicates: &Duplicates,
    shown: &impl Fn() -> String,
) -> Result<(), Failure> {
    let unknown: Vec<String> = unknown.iter().map(|path| unknown_field(path)).collect();
    match options.validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => {
            let faults = duplicates.warnings().iter().chain(&unknown);
            faults.for_each(|fault| caller.warn(fault));
        }
        FieldValidation::Strict => {
            let faults = [duplicates.problems(), unknown].concat();
            if !faults.is_empty() {
                let problem = format!("strict decoding error: {}", faults.join(", "));
                return Err(refused_patch(&shown(), &problem));
            }
        }
    }
    Ok(())
}

fn judged_apply(
    target: &Target,
    caller: &Caller<'_>,
    options: &WriteOptions,
    unknown: &[String],
    duplicates: &Duplicates,
) -> Result<(), Failure> {
    let faults: Vec<String> = unknown.iter().map(|path| unknown_field(path)).collect();
    match options.validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            let faults = faults.iter().chain(duplicates.warnings());
            faults.for_each(|fault| caller.warn(fault));
            Ok(())
        }
        FieldValidation::Strict => {
            let resource = &target.resource;
            if let Some(problem) = duplicates.problems().first() {
                return Err(Failure::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {problem}"
                )));
            }
            match faults.is_empty() {
                true => Ok(()),
                false => {
                    let message = strict_message(&resource.kind, &resource.version, &faults);
                    Err(Failure::bad_request(message))
                }
            }
        }
    }
}

/// A patch as Go prints a map.
fn go_map(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_map(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_map).collect();
            format!("[{}]", items.join(" "))
        }
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}
