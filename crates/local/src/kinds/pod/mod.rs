//! Pods.

mod admit;
mod containers;
mod defaults;
mod handlers;
mod qos;
mod resize;
mod resources;
mod security;
#[cfg(test)]
mod tests;
mod update;
mod validate;
mod volumes;

use api::structural::names;
use serde_json::{Value, json};

use super::access::{as_map, flag, int, items, made, text_at};
use super::check::Errors;
use super::{NameRule, Rules};
pub(crate) use admit::TOKEN_PATH;
pub(super) use containers::PROTOCOLS;
pub(super) use defaults::pod_spec as default_spec;
pub(super) use resources::check_amount;
pub(super) use validate::check_spec;

pub(super) const RULES: Rules = Rules {
    name: NameRule::Subdomain,
    generation: true,
    default: defaults::pod,
    prepare_create,
    admit: admit::admit,
    validate: |pod| {
        let mut errors = Errors::default();
        validate::check_new(pod, &mut errors);
        errors.into_vec()
    },
    prepare_update: update::prepare,
    validate_update: |new, old, part| update::check(new, old, part).into_vec(),
    warnings,
    fields: &[
        ("spec.host", |pod| text_at(pod, "/spec/nodeName").to_owned()),
        ("spec.hostNetwork", |pod| {
            flag(&pod["spec"], "hostNetwork").to_string()
        }),
        ("spec.nodeName", |pod| {
            text_at(pod, "/spec/nodeName").to_owned()
        }),
        ("spec.restartPolicy", |pod| {
            text_at(pod, "/spec/restartPolicy").to_owned()
        }),
        ("spec.schedulerName", |pod| {
            text_at(pod, "/spec/schedulerName").to_owned()
        }),
        ("spec.serviceAccountName", |pod| {
            text_at(pod, "/spec/serviceAccountName").to_owned()
        }),
        ("status.nominatedNodeName", |pod| {
            text_at(pod, "/status/nominatedNodeName").to_owned()
        }),
        ("status.phase", |pod| {
            text_at(pod, "/status/phase").to_owned()
        }),
        ("status.podIP", pod_ip),
        ("status.podIPs", pod_ip),
    ],
};

/// Names that are no labels are fine for pods but not for the hosts they become.
fn warnings(pod: &Value, old: Option<&Value>) -> Vec<String> {
    let problems = names::label_problems(text_at(pod, "/metadata/name"));
    if old.is_some() || problems.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        problems.join(" ")
    )]
}

fn pod_ip(pod: &Value) -> String {
    text_at(pod, "/status/podIP").to_owned()
}

fn prepare_create(pod: &mut Value) {
    let grace = "terminationGracePeriodSeconds";
    if int(&pod["spec"], grace).is_some_and(|grace| grace < 0) {
        made(pod, "spec").insert(grace.to_owned(), 1.into());
    }
    let mut status = json!({"phase": "Pending", "qosClass": qos::class(&pod["spec"])});
    if !items(&pod["spec"], "schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "lastProbeTime": null,
            "lastTransitionTime": pod.pointer("/metadata/creationTimestamp"),
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "reason": "SchedulingGated",
            "status": "False",
            "type": "PodScheduled",
        }]);
    }
    as_map(pod).insert("status".to_owned(), status);
}
