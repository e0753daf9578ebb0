//! What only pods have: they are bound to nodes, and evicted.

use api::structural::FieldError;
use serde_json::{Value, json};

use super::act::selects;
use super::answer::Answer;
use super::encode::Encoded;
use super::options::{DeleteOptions, WriteOptions};
use super::route::Target;
use super::update::{By, Edited};
use super::write::same_uid;
use super::{Asked, Server};
use crate::kinds::Part;
use crate::status::Failure;
use crate::store::{Scope, WriteError};

impl Server {
    /// `POST pods/<name>/binding`.
    pub(super) async fn bind(&self, target: &Target, asked: &Asked<'_>) -> Result<Answer, Failure> {
        if asked.method != http::Method::POST {
            return Err(Failure::method_not_allowed());
        }
        let options = WriteOptions::read(asked.query, "CreateOptions", false)?;
        let binding = asked.body().part("Binding", "v1")?;
        check_binding(&binding)?;
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        let now = self.now();
        self.change(target, Part::Main, &asked.caller(), &options, |old| {
            may_bind(target, &binding, old.object)?;
            let mut new = old.object.clone();
            new["spec"]["nodeName"] = json!(node);
            for (key, value) in binding["metadata"]["annotations"]
                .as_object()
                .into_iter()
                .flatten()
            {
                new["metadata"]["annotations"][key.as_str()] = value.clone();
            }
            set_scheduled(&mut new, &now);
            Ok(Edited {
                object: new,
                by: By::Server,
            })
        })
        .await?;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Answer::Status { status, code: 201 })
    }

    /// `POST pods/<name>/eviction`: a delete that disruption budgets may forbid.
    pub(super) async fn evict(
        &self,
        target: &Target,
        asked: &Asked<'_>,
    ) -> Result<Answer, Failure> {
        if asked.method != http::Method::POST {
            return Err(Failure::method_not_allowed());
        }
        let query_options = WriteOptions::read(asked.query, "CreateOptions", false)?;
        let eviction = asked.body().part("Eviction", "policy/v1")?;
        let name = target.name.as_deref().unwrap_or_default();
        let sent = eviction["metadata"]["name"].as_str().unwrap_or_default();
        if sent != name {
            let message = "name in URL does not match name in Eviction object";
            return Err(Failure::bad_request(message));
        }
        let mut options = match &eviction["deleteOptions"] {
            Value::Null => DeleteOptions::default(),
            options => DeleteOptions::read(asked.query, Some(options))?,
        };
        options.dry_run |= query_options.dry_run;
        let pod = target.resource.read(&*self.find(target)?)?;
        if !is_over(&pod) {
            self.spend_budget(&pod, options.dry_run).await?;
        }
        // the pod that was looked at, and no other of its name
        options.uid = options
            .uid
            .or_else(|| pod["metadata"]["uid"].as_str().map(str::to_owned));
        self.delete(target, &options).await?;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(Answer::Status { status, code: 201 })
    }

    /// Takes one disruption from the budget that covers the pod.
    async fn spend_budget(&self, pod: &Value, dry_run: bool) -> Result<(), Failure> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let scope = Scope::namespaced("poddisruptionbudgets.policy", namespace);
        let snapshot = self.store.snapshot();
        let budgets = snapshot.list(&scope).filter_map(|entry| {
            let budget: Value = serde_json::from_slice(entry.value.rest()).ok()?;
            let covers = selects(&budget["spec"]["selector"])(pod);
            covers.then_some((entry, budget))
        });
        let covering: Vec<_> = budgets.collect();
        let (entry, mut budget) = match covering.len() {
            0 => return Ok(()),
            1 => covering
                .into_iter()
                .next()
                .ok_or_else(Failure::unknown_path)?,
            _ => {
                return Err(Failure::unexpected(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        may_disrupt(&budget)?;
        if dry_run {
            return Ok(());
        }
        let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        budget["status"]["disruptedPods"][name] = json!(self.now());
        match self
            .put_encoded(entry, Encoded::owned_as(&budget, &entry.value))
            .await
        {
            Ok(_) => Ok(()),
            Err(WriteError::Conflict { .. }) => Err(unsettled(&budget)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a budget has a disruption to give.
fn may_disrupt(budget: &Value) -> Result<(), Failure> {
    let status = |key: &str| budget["status"][key].as_i64().unwrap_or(0);
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if status("observedGeneration") < generation {
        return Err(unsettled(budget));
    }
    if status("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let (desired, healthy) = (status("desiredHealthy"), status("currentHealthy"));
    let cause = format!(
        "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    );
    Err(budget_failure(&cause, None))
}

/// The budget is just being counted.
fn unsettled(budget: &Value) -> Failure {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let cause = format!("The disruption budget {name} is still being processed by the server.");
    budget_failure(&cause, Some(10))
}

fn budget_failure(cause: &str, retry: Option<u64>) -> Failure {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let causes = json!([{"reason": "DisruptionBudget", "message": cause}]);
    let failure = Failure::too_many_requests(message).caused_by(causes);
    match retry {
        Some(seconds) => failure.retrying_after(seconds),
        None => failure,
    }
}

fn is_over(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    ) || !pod["metadata"]["deletionTimestamp"].is_null()
}

fn check_binding(binding: &Value) -> Result<(), Failure> {
    let mut errors = Vec::new();
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        let supported = ["Node".to_owned(), "<empty>".to_owned()];
        errors.push(FieldError::not_supported(
            "target.kind",
            &json!(kind),
            &supported,
        ));
    }
    if binding["target"]["name"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        errors.push(FieldError::required("target.name", ""));
    }
    match errors.is_empty() {
        true => Ok(()),
        // the real server does not expect a scheduler to make mistakes
        false => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Err(Failure::unexpected(errors.join(", ")))
        }
    }
}

fn may_bind(target: &Target, binding: &Value, pod: &Value) -> Result<(), Failure> {
    let name = target.name.as_deref().unwrap_or_default();
    let refuse = |why: &str| Err(Failure::conflict(pods_binding(), name, why));
    same_uid(target, binding, pod)?;
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return refuse(&format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    if let Some(node) = pod["spec"]["nodeName"]
        .as_str()
        .filter(|node| !node.is_empty())
    {
        return refuse(&format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        return refuse(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn pods_binding() -> crate::status::Qualified<'static> {
    crate::status::Qualified {
        group: "",
        plural: "pods/binding",
    }
}

fn set_scheduled(pod: &mut Value, now: &str) {
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(conditions) = conditions.as_array_mut() {
        match conditions
            .iter_mut()
            .find(|condition| condition["type"] == "PodScheduled")
        {
            Some(condition) => *condition = scheduled,
            None => conditions.push(scheduled),
        }
    }
}
