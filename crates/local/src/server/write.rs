//! Bodies of requests and who sends them.

use api::structural::{FieldError, in_order_of, strict_message, unknown_field};
use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::Answer;
use super::media::{self, Decoded, Expected, PatchKind};
use super::metadata;
use super::options::{FieldValidation, Query, WriteOptions};
use super::resource::Resource;
use super::route::Target;
use super::update::{By, Edited};
use super::{Server, Warnings};
use crate::kinds::Part;
use crate::status::Failure;
use crate::store::WriteError;

/// Who writes.
pub(super) struct Caller<'a> {
    /// From the query, or from the user agent.
    pub(super) manager: std::borrow::Cow<'a, str>,
    pub(super) patches: bool,
    /// Controllers read none.
    pub(super) warnings: Option<&'a Warnings>,
    /// Where it is another one than the part that is written.
    pub(super) subresource: Option<&'static str>,
}

impl Caller<'_> {
    pub(super) fn warn(&self, warning: &str) {
        if let Some(warnings) = self.warnings {
            warnings.add(warning);
        }
    }
}

/// The body of a request.
pub(super) struct Body<'a> {
    pub(super) bytes: &'a Bytes,
    pub(super) content_type: Option<&'a str>,
}

impl Body<'_> {
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes).unwrap_or_default()
    }

    pub(super) fn patch(
        &self,
        kind: PatchKind,
        options: &WriteOptions,
    ) -> Result<Decoded, Failure> {
        media::decode_patch(kind, self.bytes, options.validates())
    }

    /// An object that is sent to a subresource and never stored.
    pub(super) fn part(&self, kind: &str, api_version: &str) -> Result<Value, Failure> {
        let expected = Expected {
            api_version,
            kind,
            custom: false,
        };
        let encoding = media::body_encoding(self.content_type)?;
        let mut value = media::decode_object(self.bytes, encoding, expected, false)?.value;
        api::decode::decode(&mut value, api_version, kind).map_err(Failure::bad_request)?;
        Ok(value)
    }

    /// The options of a delete, if there are any.
    pub(super) fn options(&self) -> Result<Option<Value>, Failure> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let encoding = media::body_encoding(self.content_type)?;
        let mut options = media::decode_options(self.bytes, encoding)?;
        api::decode::decode(&mut options, "v1", "DeleteOptions").map_err(Failure::bad_request)?;
        Ok(Some(options))
    }

    /// An object of the kind, as it was sent.
    fn object(
        &self,
        resource: &Resource,
        options: &WriteOptions,
        caller: &Caller<'_>,
    ) -> Result<Decoded, Failure> {
        let encoding = media::body_encoding(self.content_type)?;
        let expected = resource.expected();
        let validate = options.validates();
        let mut decoded = media::decode_object(self.bytes, encoding, expected, validate)
            .inspect_err(|_| self.warn_of_other_version(resource, caller))?;
        same_kind(resource, &decoded.value)?;
        decoded.value["apiVersion"] = json!(resource.api_version);
        decoded.value["kind"] = json!(resource.kind);
        if decoded.value["metadata"].is_null() {
            decoded.value["metadata"] = json!({});
        }
        Ok(decoded)
    }
}

impl Body<'_> {
    /// To the real server all fields of a version that does not exist are unknown.
    fn warn_of_other_version(&self, resource: &Resource, caller: &Caller<'_>) {
        let sent: Value = serde_json::from_slice(self.bytes).unwrap_or_default();
        warn_of_other_version(resource, &sent, caller);
    }
}

pub(super) fn warn_of_other_version(resource: &Resource, object: &Value, caller: &Caller<'_>) {
    let sent = object["apiVersion"].as_str().unwrap_or_default();
    let same_group = sent.split('/').next() == Some(resource.group.as_str());
    if resource.custom().is_none() || !same_group || sent == resource.api_version {
        return;
    }
    let fields = object.as_object().into_iter().flatten().map(|(key, _)| key);
    let known = ["apiVersion", "kind", "metadata"];
    for field in fields.filter(|field| !known.contains(&field.as_str())) {
        caller.warn(&unknown_field(field));
    }
}

/// A custom object of another kind is only noticed late by the real server, and so refused in other words.
pub(super) fn same_kind(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let kind = object["kind"].as_str().unwrap_or_default();
    if resource.custom().is_none() || kind == resource.kind {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let detail = format!("must be {}", resource.kind);
    let error = FieldError::invalid("kind", &json!(kind), &detail);
    Err(Failure::invalid(&resource.group, kind, name, &[error]))
}

/// What the store did not take; a fault of the disk names the object.
pub(super) fn refused(error: WriteError, target: &Target, name: &str) -> Failure {
    let of_disk = matches!(error, WriteError::Storage(_));
    let failure = Failure::from(error);
    match of_disk {
        true => failure.of(target.resource.qualified(), name),
        false => failure,
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict { key, .. } => {
                Failure::unexpected(format!("{key} was changed meanwhile"))
            }
            WriteError::Storage(problem) => Failure::not_stored(&problem.to_string()),
            WriteError::Closed => Failure::unavailable("the server is shutting down"),
        }
    }
}

impl Server {
    pub(super) async fn post(
        &self,
        target: &Target,
        caller: &Caller<'_>,
        query: &Query,
        body: &Body<'_>,
    ) -> Result<Answer, Failure> {
        let options = WriteOptions::read(query, "CreateOptions", false)?;
        let resource = &target.resource;
        let decoded = body.object(resource, &options, caller)?;
        let mut object = read_strictly(resource, caller, &options, body, decoded)?;
        metadata::place_in_namespace(&mut object, target.namespace.as_deref().unwrap_or_default())?;
        if let Some(warning) = metadata::keep_owners_once(&mut object, false) {
            caller.warn(&warning);
        }
        self.create(target, caller, &options, object, None).await
    }

    pub(super) async fn put(
        &self,
        target: &Target,
        part: Part,
        caller: &Caller<'_>,
        query: &Query,
        body: &Body<'_>,
    ) -> Result<Answer, Failure> {
        let options = WriteOptions::read(query, "UpdateOptions", false)?;
        let resource = &target.resource;
        let decoded = body.object(resource, &options, caller)?;
        let mut object = read_strictly(resource, caller, &options, body, decoded)?;
        metadata::check_name_in_path(&object, target.name.as_deref().unwrap_or_default())?;
        metadata::place_in_namespace(&mut object, target.namespace.as_deref().unwrap_or_default())?;
        self.change(target, part, caller, &options, |old| {
            has_version(target, &object)?;
            same_uid(target, &object, old.object)?;
            Ok(Edited {
                object: object.clone(),
                by: By::Client,
            })
        })
        .await
    }
}

/// Some kinds are only replaced by who has seen what is replaced.
fn has_version(target: &Target, new: &Value) -> Result<(), Failure> {
    let resource = &target.resource;
    let careful = resource.custom().is_some()
        || matches!(
            resource.kind.as_str(),
            "Lease" | "PodDisruptionBudget" | "CustomResourceDefinition"
        );
    let version = new["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    if !careful || !matches!(version, "" | "0") {
        return Ok(());
    }
    let detail = "must be specified for an update";
    let error = FieldError::invalid("metadata.resourceVersion", &json!(0), detail);
    let name = target.name.as_deref().unwrap_or_default();
    Err(Failure::invalid(
        &resource.group,
        &resource.plural,
        name,
        &[error],
    ))
}

/// A replace that names a uid means that very object.
pub(super) fn same_uid(target: &Target, new: &Value, old: &Value) -> Result<(), Failure> {
    let uid = |object: &Value| {
        object["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let (sent, stored) = (uid(new), uid(old));
    if sent.is_empty() || sent == stored {
        return Ok(());
    }
    let resource = &target.resource;
    let place: Vec<&str> = [target.namespace.as_deref(), target.name.as_deref()]
        .into_iter()
        .flatten()
        .collect();
    let folder = match resource.custom() {
        Some(_) => format!("{}/{}", resource.group, resource.plural),
        None => resource.plural.clone(),
    };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{folder}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}",
        place.join("/")
    );
    let name = target.name.as_deref().unwrap_or_default();
    Err(Failure::conflict(resource.qualified(), name, &why))
}

/// Reads the object as its kind; unknown and duplicate fields are an error, warnings, or nothing.
fn read_strictly(
    resource: &Resource,
    caller: &Caller<'_>,
    options: &WriteOptions,
    body: &Body<'_>,
    decoded: Decoded,
) -> Result<Value, Failure> {
    let Decoded {
        value: mut object,
        duplicates,
    } = decoded;
    let mut unknown = resource.admit(&mut object)?;
    if !options.validates() {
        return Ok(object);
    }
    in_order_of(body.text(), &mut unknown);
    let strict = options.validation == FieldValidation::Strict;
    let twice = match strict {
        true => duplicates.problems(),
        false => duplicates.warnings().to_vec(),
    };
    let unknown = unknown.iter().map(|path| unknown_field(path)).collect();
    // the two kinds of kinds are read by different readers
    let faults = match resource.custom() {
        Some(_) => [twice, unknown].concat(),
        None => [unknown, twice].concat(),
    };
    if strict && !faults.is_empty() {
        let message = strict_message(&resource.kind, &resource.version, &faults);
        return Err(Failure::bad_request(message));
    }
    faults.iter().for_each(|fault| caller.warn(fault));
    Ok(object)
}
