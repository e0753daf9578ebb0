//! Replays recorded requests.

use std::{collections::BTreeMap, fmt};

use api::{
    crds::{Conversion, Family, Versions, render},
    patch::{
        PatchError,
        apply::{
            FieldSet, Fields, Kind, Live, Managed, OneVersion, Writer, apply,
            manager_from_user_agent, track,
        },
        json, merge, strategic,
        types::{Schema, TypeRef},
    },
};
use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Report {
    counts: BTreeMap<String, usize>,
    pub(crate) problems: Vec<String>,
}

impl Report {
    pub(crate) fn count(&self, verb: &str) -> usize {
        self.counts.get(verb).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "steps: {:?}, differing: {}",
            self.counts,
            self.problems.len()
        )
    }
}

struct Target<'f> {
    api_version: String,
    kind: String,
    custom: Option<&'f Schema>,
    base: &'f Value,
}

pub(crate) fn replay_file(name: &str, text: &str, report: &mut Report) {
    let file: Value = serde_json::from_str(text).unwrap();
    let custom = custom_schema(&file);
    for case in file["cases"].as_array().unwrap() {
        let word = |key: &str| {
            let own = case["place"][key].as_str().or(file[key].as_str());
            own.unwrap().to_owned()
        };
        let object = case["object"].as_str().unwrap();
        let mut before = file["first"].clone();
        let mut live: Option<Value> = None;
        for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let request = &step["request"];
            let target = Target {
                api_version: request["at"]
                    .as_str()
                    .map_or(word("apiVersion"), str::to_owned),
                kind: word("kind"),
                custom: custom.as_ref(),
                base: &file["base"],
            };
            if let Some(drift) = step.get("drift") {
                change(&mut before, drift);
                live = Some(before.clone());
            }
            let expected = match step.get("change") {
                Some(changes) => {
                    change(&mut before, changes);
                    Ok(before.clone())
                }
                None => Err(step["error"].clone()),
            };
            let now = format!("2026-01-01T00:00:{index:02}Z");
            let run = Step::new(&target, request, object, live.as_ref(), &now);
            let counted = match is_validation(&expected) {
                true => "skipped",
                false => run.verb,
            };
            *report.counts.entry(counted.to_owned()).or_default() += 1;
            if counted != "skipped"
                && let Err(problem) = run.check(&expected)
            {
                let case = case["name"].as_str().unwrap();
                let problem = format!("{name}: {case}, step {index}: {problem}");
                report.problems.push(problem);
            }
            live = expected.ok().or(live);
        }
    }
}

fn change(object: &mut Value, changes: &Value) {
    let changes: json_patch::Patch = serde_json::from_value(changes.clone()).unwrap();
    json_patch::patch(object, &changes).unwrap();
}

fn custom_schema(file: &Value) -> Option<Schema> {
    let schema =
        |crd: &Value| Schema::of_crd(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    if let Some(crd) = file.get("crd") {
        return Some(schema(crd));
    }
    if !file["apiVersion"].as_str()?.starts_with("agents.x-k8s.io") {
        return None;
    }
    let crds = render(&[Family::Sigs], Versions::V1beta1, Conversion::None).unwrap();
    let crds = crds.iter().map(|crd| serde_json::to_value(crd).unwrap());
    let mut of_kind = crds.filter(|crd| crd["spec"]["names"]["kind"] == file["kind"]);
    of_kind.next().as_ref().map(schema)
}

/// Whether the server refused the patched object for what it says; no part of patching.
fn is_validation(expected: &Result<Value, Value>) -> bool {
    expected.as_ref().is_err_and(|status| {
        status["message"]
            .as_str()
            .is_some_and(|text| text.contains(" is invalid: "))
            || status["code"] == 415
    })
}

/// A custom kind is served in two versions that differ by name alone.
struct Served<'s> {
    kind: OneVersion<'s>,
    both: bool,
}

impl Kind for Served<'_> {
    fn type_in(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let own = self.kind.type_in(api_version);
        own.or_else(|| {
            self.kind
                .type_in(other_version(api_version)?)
                .filter(|_| self.both)
        })
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        Ok(object)
    }

    fn reset_fields(&self, api_version: &str) -> &FieldSet {
        self.kind.reset_fields(api_version)
    }

    fn empty(&self, api_version: &str, kind: &str) -> Value {
        self.kind.empty(api_version, kind)
    }
}

fn other_version(api_version: &str) -> Option<&'static str> {
    match api_version {
        "test.dev/v1" => Some("test.dev/v2"),
        "test.dev/v2" => Some("test.dev/v1"),
        _ => None,
    }
}

struct Step<'a> {
    target: &'a Target<'a>,
    verb: &'static str,
    body: Value,
    request: &'a Value,
    live: Option<Value>,
    manager: String,
    subresource: &'a str,
    now: &'a str,
}

impl<'a> Step<'a> {
    fn new(
        target: &'a Target<'a>,
        request: &'a Value,
        object: &str,
        live: Option<&Value>,
        now: &'a str,
    ) -> Self {
        let mut live = live.cloned();
        if let Some(live) = &mut live {
            live["apiVersion"] = target.api_version.as_str().into();
        }
        let verb = ["create", "put", "strategic", "merge", "json", "apply"]
            .into_iter()
            .find(|verb| request.get(*verb).is_some())
            .unwrap();
        let mut body = match &request[verb] {
            Value::String(_) => target.base.clone(),
            other => other.clone(),
        };
        if matches!(verb, "create" | "put" | "apply") {
            let set = |body: &mut Value, key: &str, value: &str| {
                let fields = body.as_object_mut().unwrap();
                fields.entry(key).or_insert_with(|| value.into());
            };
            set(&mut body, "apiVersion", &target.api_version);
            set(&mut body, "kind", &target.kind);
            if body.get("metadata").is_none() {
                body["metadata"] = json!({});
            }
            set(&mut body["metadata"], "name", object);
        }
        let manager = match request["agent"].as_str() {
            Some(agent) => manager_from_user_agent(agent),
            None => request["as"].as_str().unwrap_or("creator").to_owned(),
        };
        Self {
            target,
            verb,
            body,
            request,
            live,
            manager,
            subresource: request["on"].as_str().unwrap_or_default(),
            now,
        }
    }

    fn check(&self, expected: &Result<Value, Value>) -> Result<(), String> {
        for form in [Form::Read, Form::AsText, Form::FitsAsText] {
            let checked = self.check_in(expected, form);
            checked.map_err(|problem| format!("{form:?}: {problem}"))?;
        }
        Ok(())
    }

    fn check_in(&self, expected: &Result<Value, Value>, form: Form) -> Result<(), String> {
        match (self.run(expected.as_ref().ok(), form), expected) {
            (Ok(ours), Ok(theirs)) => {
                let differs = match self.verb {
                    "create" => None,
                    _ => difference("", &body_of(&ours), &body_of(theirs)),
                };
                let owners = |object: &Value| object["metadata"]["managedFields"].clone();
                if let Some(differs) = differs {
                    return Err(differs);
                }
                if owners(&ours) != owners(theirs) {
                    return Err(format!(
                        "managedFields\n  ours   {}\n  theirs {}",
                        owners(&ours),
                        owners(theirs)
                    ));
                }
                Ok(())
            }
            (Err(ours), Err(theirs)) => {
                let (ours, theirs) = (sorted_causes(ours.status()), sorted_causes(theirs.clone()));
                match ours == theirs {
                    true => Ok(()),
                    false => Err(format!("error\n  ours   {ours}\n  theirs {theirs}")),
                }
            }
            (Ok(ours), Err(theirs)) => Err(format!("error\n  ours   {ours}\n  theirs {theirs}")),
            (Err(ours), Ok(_)) => Err(format!("unexpected error {ours}")),
        }
    }

    fn schema(&self) -> TypeRef<'_> {
        match self.target.custom {
            Some(schema) => schema.root(),
            None => TypeRef::of_kind(&self.target.api_version, &self.target.kind).unwrap(),
        }
    }

    fn kind(&self) -> Served<'_> {
        let reset: &[&[&str]] = match (self.subresource, self.target.kind.as_str()) {
            ("", "Pod" | "Deployment" | "Node" | "Service" | "Sandbox") => &[&["status"]],
            ("", "Namespace" | "PersistentVolume" | "PersistentVolumeClaim") => &[&["status"]],
            ("", "CustomResourceDefinition") => &[&["status"]],
            ("", _) => &[],
            (_, "Pod") => &[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
            (_, "Deployment") => &[&["spec"], &["metadata", "labels"]],
            (_, "Sandbox") => &[&["spec"], &["metadata"]],
            (_, _) => &[&["spec"]],
        };
        let version = self.target.api_version.as_str();
        let kind = match self.target.custom {
            Some(_) => OneVersion::custom(version, self.schema()),
            None => OneVersion::core(version, &self.target.kind).unwrap(),
        };
        Served {
            kind: kind.resetting(FieldSet::of_fields(reset)),
            both: self.target.custom.is_some(),
        }
    }

    /// What our code makes of the request. Defaults are the server's: they are taken from its answer.
    fn run(&self, theirs: Option<&Value>, form: Form) -> Result<Value, PatchError> {
        let writer = Writer {
            manager: &self.manager,
            api_version: &self.target.api_version,
            kind: &self.target.kind,
            subresource: self.subresource,
            now: self.now,
        };
        let live = || self.live.clone().unwrap_or_default();
        let mut bare = live();
        let owners = as_stored(&Managed::take(&mut bare).unwrap(), form);
        let stored = self.live.is_some().then_some(Live {
            object: &bare,
            owners: &owners,
            fits: form == Form::FitsAsText,
        });
        let patched = match self.verb {
            "apply" => {
                let force = self.request["force"] == true;
                let (out, now) = apply(&self.kind(), stored, &self.body, writer, force)?;
                let mut out = self.stored(out);
                let unchanged = stored.is_some() && out == bare && now.is_same_but_times(&owners);
                if unchanged { &owners } else { &now }.put(&mut out);
                return Ok(out);
            }
            "create" | "put" => self.body.clone(),
            "strategic" => strategic::apply(live(), &self.body, self.schema())?,
            "merge" => merge::apply(live(), &self.body)?,
            "json" => json::apply(live(), &self.body)?,
            other => unreachable!("{other}"),
        };
        let mut defaulted = theirs.cloned().unwrap_or_default();
        defaulted["metadata"]["managedFields"] = patched["metadata"]["managedFields"].clone();
        if self.live.is_none() {
            without_later_fields(&mut defaulted);
        }
        let now = track(&self.kind(), stored, &mut defaulted, writer);
        let mut out = self.stored(patched);
        let mut theirs = theirs.cloned().unwrap_or_default();
        Managed::take(&mut theirs).unwrap();
        let unchanged = stored.is_some() && theirs == bare && now.is_same_but_times(&owners);
        if unchanged { &owners } else { &now }.put(&mut out);
        Ok(out)
    }

    /// What the storage makes of the written object: each (sub)resource writes its own part.
    fn stored(&self, mut new: Value) -> Value {
        let Some(live) = &self.live else {
            return new;
        };
        let copy = |new: &mut Value, key: &str| match live.get(key) {
            Some(old) => new[key] = old.clone(),
            None => _ = new.as_object_mut().unwrap().remove(key),
        };
        match (self.subresource, self.target.kind.as_str()) {
            ("", "Widget") => {}
            ("", _) => copy(&mut new, "status"),
            (_, "Sandbox") => {
                copy(&mut new, "spec");
                copy(&mut new, "metadata");
            }
            (_, _) => copy(&mut new, "spec"),
        }
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        new
    }
}

/// How a stored object comes to be changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// With owners that were read, written under who knows which schema.
    Read,
    /// With owners as text.
    AsText,
    /// And written under the schema of today.
    FitsAsText,
}

fn as_stored(owners: &Managed, form: Form) -> Managed {
    if form == Form::Read {
        return owners.clone();
    }
    let entries = owners
        .each()
        .map(|(entry, fields)| (entry, Fields::Stored(fields.encode().into())));
    Managed::stored(entries).unwrap()
}

/// Fields that the real server sets after it has recorded the owners.
fn without_later_fields(object: &mut Value) {
    let later: &[(&str, &str)] = match object["kind"].as_str() {
        Some("Pod") => &[
            ("/spec", "tolerations"),
            ("/spec", "priority"),
            ("/spec", "preemptionPolicy"),
        ],
        Some("Service") => &[
            ("/spec", "clusterIPs"),
            ("/spec", "ipFamilies"),
            ("/spec", "ipFamilyPolicy"),
        ],
        Some("PersistentVolume" | "PersistentVolumeClaim") => &[("/metadata", "finalizers")],
        Some("Namespace") => &[("/spec", "finalizers")],
        _ => &[],
    };
    // Go writes these though nobody has set them
    if object["kind"] == "Event" {
        let fields = object.as_object_mut().unwrap();
        fields.retain(|_, value| !value.is_null() && value != "");
    }
    for (parent, field) in later {
        if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
            parent.remove(*field);
        }
    }
}

fn sorted_causes(mut status: Value) -> Value {
    if let Some(Value::Array(causes)) = status.pointer_mut("/details/causes") {
        causes.sort_by_key(Value::to_string);
    }
    status
}

/// The object without what is compared by itself or counts writes.
fn body_of(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for key in ["managedFields", "generation", "resourceVersion"] {
            metadata.remove(key);
        }
    }
    object
}

/// Fields that the server's defaults and admission fill in.
const FILLED_IN: &[&str] = &[
    "allocatable",
    "podCIDR",
    "podIPs",
    "clusterIPs",
    "creationTimestamp",
    "defaultMode",
    "dnsPolicy",
    "enableServiceLinks",
    "failureThreshold",
    "imagePullPolicy",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "mode",
    "namespace",
    "operatingMode",
    "periodSeconds",
    "preemptionPolicy",
    "priority",
    "progressDeadlineSeconds",
    "protocol",
    "replicas",
    "resources",
    "restartPolicy",
    "revisionHistoryLimit",
    "rollingUpdate",
    "schedulerName",
    "scheme",
    "securityContext",
    "service",
    "serviceAccount",
    "serviceAccountName",
    "sessionAffinity",
    "shutdownPolicy",
    "status",
    "strategy",
    "successThreshold",
    "targetPort",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "timeoutSeconds",
    "tolerations",
    "type",
    "uid",
];

/// The first place where ours is not theirs before defaults. Empty values are as good as none: typed
/// kinds do not keep them.
fn difference(path: &str, ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let more = theirs.keys().find(|key| {
                !ours.contains_key(*key)
                    && !FILLED_IN.contains(&key.as_str())
                    && !is_empty(&theirs[*key])
            });
            if let Some(key) = more {
                return Some(format!("{path}/{key} is missing"));
            }
            ours.iter().find_map(|(key, value)| {
                let path = format!("{path}/{key}");
                match theirs.get(key) {
                    Some(other) => difference(&path, value, other),
                    None if is_empty(value) => None,
                    None => Some(format!("{path} is too much: {value}")),
                }
            })
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => ours
            .iter()
            .zip(theirs)
            .enumerate()
            .find_map(|(index, (ours, theirs))| {
                difference(&format!("{path}/{index}"), ours, theirs)
            }),
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => None,
        _ if ours == theirs || (is_empty(ours) && is_empty(theirs)) => None,
        _ => Some(format!("{path}\n  ours   {ours}\n  theirs {theirs}")),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() || fields.values().all(is_empty),
        _ => false,
    }
}
