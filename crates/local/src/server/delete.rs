//! Deletion: of one object or many, with grace, finalizers and what becomes of dependents.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use super::answer::{Answer, Listed};
use super::encode;
use super::metadata::{FOREGROUND, ORPHAN};
use super::options::{DeleteOptions, ListOptions, Propagation};
use super::resource::Resource;
use super::route::Target;
use super::write::refused;
use crate::crd;
use crate::status::{Failure, Qualified};
use crate::store::{Entry, WriteError};

/// Namespaces without which the cluster makes no sense.
const PERMANENT: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What a delete did.
enum Deleted {
    /// It is gone; this was its last state.
    Gone(Value),
    /// It stays until somebody has done something.
    Ending(Arc<Entry>),
}

impl Server {
    pub(super) async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Answer, Failure> {
        let resource = &target.resource;
        if resource.is_core("Namespace") {
            self.may_end_namespace(target)?;
        }
        match self.delete_object(target, options).await? {
            Deleted::Ending(entry) => Ok(Answer::stored(entry)),
            Deleted::Gone(object) if resource.answers_with_deleted() => Ok(Answer::ok(object)),
            Deleted::Gone(object) => Ok(Answer::Status {
                status: success(resource, &object),
                code: 200,
            }),
        }
    }

    fn may_end_namespace(&self, target: &Target) -> Result<(), Failure> {
        let name = target.name.as_deref().unwrap_or_default();
        match PERMANENT.contains(&name) {
            false => Ok(()),
            true => Err(Failure::forbidden(
                target.resource.qualified(),
                name,
                "this namespace may not be deleted",
            )),
        }
    }

    async fn delete_object(
        &self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, Failure> {
        let resource = &target.resource;
        loop {
            let entry = self.find(target)?;
            let old = resource.read(&entry)?;
            check_preconditions(resource, &old, options)?;
            let owners = encode::owners(&entry.value);
            let whole = |mut last: Value| {
                owners.put(&mut last);
                last
            };
            let plan = Plan::new(resource, &old, options, self.clock.now());
            if options.dry_run {
                return Ok(match plan {
                    Plan::Remove(last) => Deleted::Gone(whole(last)),
                    Plan::Nothing | Plan::Mark(_) => Deleted::Ending(entry),
                });
            }
            let done = match plan {
                Plan::Nothing => return Ok(Deleted::Ending(entry)),
                Plan::Remove(mut last) => self.remove(&entry).await.map(|gone| {
                    last["metadata"]["resourceVersion"] = json!(gone.revision.to_string());
                    Deleted::Gone(whole(last))
                }),
                Plan::Mark(new) => {
                    let encoded = self.encoded(resource, &new, &owners)?;
                    let written = self.put_encoded(&entry, encoded).await;
                    written.map(Deleted::Ending)
                }
            };
            match done {
                Ok(done) => {
                    self.after_write(resource).await;
                    return Ok(done);
                }
                // somebody else wrote: what is to be done may differ now
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => {
                    return Err(refused(
                        error,
                        target,
                        target.name.as_deref().unwrap_or_default(),
                    ));
                }
            }
        }
    }

    pub(super) async fn delete_collection(
        &self,
        target: &Target,
        list: ListOptions,
        options: &DeleteOptions,
    ) -> Result<Answer, Failure> {
        let Answer::List(listed) = self.list(target, list)? else {
            return Err(Failure::internal("a list that is none"));
        };
        for entry in &listed.items {
            let (namespace, name) = (entry.key.namespace(), entry.key.name());
            let one = Target::object(&target.resource, namespace, name);
            match self.delete_object(&one, options).await {
                Err(failure) if failure.code() != 404 => return Err(failure),
                _ => {}
            }
        }
        Ok(Answer::List(Listed {
            revision: self.store.revision(),
            ..listed
        }))
    }
}

/// What a delete does to an object.
enum Plan {
    /// It is being deleted already, and no faster than before.
    Nothing,
    Remove(Value),
    Mark(Value),
}

impl Plan {
    fn new(
        resource: &Resource,
        old: &Value,
        options: &DeleteOptions,
        now: k8s_openapi::jiff::Timestamp,
    ) -> Self {
        if resource.defines() {
            return Self::end_definition(old, now);
        }
        let mut new = old.clone();
        let ending = !old["metadata"]["deletionTimestamp"].is_null();
        let grace = resource.grace(old, options);
        let finalizers_changed = set_finalizers(&mut new, options.propagation);
        let was_grace = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let shortened = ending && was_grace.is_some_and(|was| grace < was);
        if !ending || shortened {
            let seconds = k8s_openapi::jiff::SignedDuration::from_secs(grace);
            let at = now.checked_add(seconds).unwrap_or(now);
            new["metadata"]["deletionTimestamp"] = json!(crate::clock::rfc3339_seconds(at));
            new["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        if !ending && let Some(generation) = old["metadata"]["generation"].as_i64() {
            new["metadata"]["generation"] = json!(generation.saturating_add(1));
        }
        let is_namespace = resource.is_core("Namespace");
        if is_namespace {
            new["status"]["phase"] = json!("Terminating");
        }
        let kept = !is_empty(&new["metadata"]["finalizers"])
            || (is_namespace && !is_empty(&new["spec"]["finalizers"]));
        let effective = new["metadata"]["deletionGracePeriodSeconds"].as_i64();
        match (kept, effective.unwrap_or(0) > 0) {
            // only kinds with grace are shown marked once they are gone
            (false, false) if resource.is_core("Pod") => Plan::Remove(new),
            (false, false) => Plan::Remove(old.clone()),
            _ if ending && !shortened && !finalizers_changed => Plan::Nothing,
            _ => Plan::Mark(new),
        }
    }
}

impl Plan {
    /// A definition goes when its objects have gone.
    fn end_definition(old: &Value, now: k8s_openapi::jiff::Timestamp) -> Self {
        let mut new = old.clone();
        crd::begin_deletion(&mut new, &crate::clock::rfc3339_seconds(now));
        match new == *old {
            true => Plan::Nothing,
            false => Plan::Mark(new),
        }
    }
}

/// Puts in or takes out the finalizers that propagation policies stand for. Returns whether anything changed.
fn set_finalizers(object: &mut Value, propagation: Option<Propagation>) -> bool {
    let Some(propagation) = propagation else {
        return false;
    };
    let wanted = match propagation {
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Background => None,
    };
    let list = object["metadata"]["finalizers"].as_array();
    let before: Vec<String> = list
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let mut after: Vec<String> = before
        .iter()
        .filter(|name| {
            !matches!(name.as_str(), FOREGROUND | ORPHAN) || Some(name.as_str()) == wanted
        })
        .cloned()
        .collect();
    if let Some(wanted) = wanted
        && !after.iter().any(|name| name == wanted)
    {
        after.push(wanted.to_owned());
    }
    if before == after {
        return false;
    }
    match after.is_empty() {
        true => {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("finalizers");
            }
        }
        false => object["metadata"]["finalizers"] = json!(after),
    }
    true
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

fn check_preconditions(
    resource: &Resource,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Failure> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    let refuse = |why: String| {
        // the real server names the kind here, not the resource
        let kind = Qualified {
            group: &resource.group,
            plural: &resource.kind,
        };
        Err(Failure::conflict(kind, name, &why))
    };
    if let Some(uid) = &options.uid
        && uid != text("uid")
    {
        return refuse(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            text("uid")
        ));
    }
    if let Some(version) = &options.version
        && version != text("resourceVersion")
    {
        return refuse(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            text("resourceVersion")
        ));
    }
    Ok(())
}

impl Resource {
    /// Whether objects of this kind define others.
    pub(super) fn defines(&self) -> bool {
        &*self.stored_as == super::definitions::STORED_AS
    }

    pub(super) fn is_core(&self, kind: &str) -> bool {
        self.group.is_empty() && self.kind == kind
    }

    /// Some kinds answer a delete with the object that is gone.
    fn answers_with_deleted(&self) -> bool {
        self.is_core("Pod")
            || self.is_core("Namespace")
            || self.is_core("Service")
            || self.is_core("PersistentVolumeClaim")
            || self.is_core("PersistentVolume")
            || self.is_core("ServiceAccount")
            || self.kind == "StorageClass"
    }

    /// How long an object may take to end: only pods that run somewhere need time.
    fn grace(&self, object: &Value, options: &DeleteOptions) -> i64 {
        if !self.is_core("Pod") {
            return 0;
        }
        let asked = options.grace;
        let own = object["spec"]["terminationGracePeriodSeconds"].as_i64();
        let unscheduled = object["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .is_empty();
        let over = matches!(
            object["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        );
        match asked.or(own).unwrap_or(30) {
            _ if unscheduled || over => 0,
            // the kubelet needs at least a moment, unless force is meant
            negative if negative < 0 => 1,
            grace => grace,
        }
    }
}

fn success(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({
        "name": object["metadata"]["name"],
        "kind": resource.plural,
        "uid": object["metadata"]["uid"],
    });
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
