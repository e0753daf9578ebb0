//! A sandbox as a member of its pool.

use std::{collections::HashMap, sync::Arc};

use engine::member::{Failure, Intent, Labels, Member, Node, Revision, State, Time, Uid};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::{FINISHED, READY, RECONCILER_ERROR},
    sigs::{
        names,
        sandbox::{
            CANNOT_UPDATE,
            view::{Pod, Sandbox},
        },
        template::view::Template,
    },
    store::Store,
};

pub const KIND: &str = "SandboxWarmPool";

/// What the fence of a member says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    pub target: String,
    pub since: Timestamp,
    pub deadline: Timestamp,
}

/// Whether a claim may have it, as far as its labels and its owner say. One without an owner could be anybody's.
pub fn is_adoptable(sandbox: &Sandbox) -> bool {
    let meta = &sandbox.meta;
    let has = |label: &str| meta.labels.get(label).is_some();
    !meta.is_deleting
        && has(names::WARM_POOL)
        && has(names::TEMPLATE_REF_HASH)
        && meta.is_controlled_by_a(names::EXTENSIONS, KIND)
}

/// What it was made from: the template's name and its content.
pub fn revision(sandbox: &Sandbox) -> Revision {
    let label = |key: &str| sandbox.meta.labels.get(key).unwrap_or_default();
    revision_of(label(names::TEMPLATE_REF_HASH), label(names::TEMPLATE_HASH))
}

/// What members are made from now.
pub fn target(template: &Template) -> Revision {
    let content = template.wanted.revision().to_string();
    revision_of(&template.name_hash, &content)
}

/// A revision by the hashes of its template's name and content, as labels have them.
pub fn revision_of(template: &str, content: &str) -> Revision {
    Revision::from(format!("{template}-{content}").as_str())
}

pub fn fence(sandbox: &Sandbox) -> Option<Fence> {
    let text = sandbox.meta.annotations.get(names::FENCE)?;
    serde_json::from_str(text).ok()
}

/// Whether a claim may have it now.
pub fn is_on_offer(sandbox: &Sandbox) -> bool {
    let member = member(sandbox);
    member.state.is_ready() && member.intent.is_none() && is_adoptable(sandbox)
}

/// Claims and rollouts look at the same member.
pub fn member(sandbox: &Sandbox) -> Member {
    explained(sandbox, || None)
}

/// The same, and if it is not Ready its pod may tell why, or why there is none.
pub fn member_and_pod(sandbox: &Sandbox, pods: &Store<Pod>) -> Member {
    explained(sandbox, || match pods.owned_by(&sandbox.meta.uid).first() {
        Some(pod) => pod.failure(),
        None => refusal(sandbox).map(|why| match is_for_a_quota(&why) {
            true => Failure::Quota,
            false => Failure::Refused,
        }),
    })
}

/// Whether these are the words with which a server says that a ResourceQuota is used up.
pub fn is_for_a_quota(refusal: &str) -> bool {
    refusal.contains("exceeded quota")
}

/// What went wrong when it was last looked after, in the words of the server. Its name is left out, because each member has
/// another one.
pub fn refusal(sandbox: &Sandbox) -> Option<String> {
    let ready = sandbox.status.find(READY)?;
    let is_refused = !ready.is_true() && ready.reason() == RECONCILER_ERROR;
    is_refused.then(|| ready.whole().message.replace(sandbox.name(), "…"))
}

fn explained(sandbox: &Sandbox, failure: impl FnOnce() -> Option<Failure>) -> Member {
    let fence = fence(sandbox);
    Member {
        uid: Uid::from(&*sandbox.meta.uid),
        revision: revision(sandbox),
        node: sandbox.status.node_name.as_deref().map(Node::from),
        created: time(sandbox.meta.created),
        state: state(sandbox, fence.is_some(), failure),
        // the fence and the change are one write
        intent: fence.map(|fence| {
            Box::new(Intent {
                target: Revision::from(fence.target.as_str()),
                deadline: deadline(sandbox, &fence),
                begun: true,
            })
        }),
        labels: None,
        for_rollout: sandbox.meta.annotations.get(names::FOR_ROLLOUT).is_some(),
        reserved: false,
    }
}

/// Whether all that has happened to a member is that it is there now.
pub fn has_only_come_up(before: &Sandbox, after: &Sandbox) -> bool {
    let [was, is] = [before, after].map(member);
    let is_idle = was.intent.is_none() && is.intent.is_none();
    is_idle
        && !was.state.is_ready()
        && is.state.is_ready()
        && before.meta.owner == after.meta.owner
        && before.meta.generation == after.meta.generation
}

/// The labels that ordering strategies look at: those of a member's pod, and over them those of the member itself. Members
/// of a pool have their pod templates in common, and each is read once.
#[derive(Default)]
pub struct Labelling(HashMap<*const u8, Labels>);

impl Labelling {
    pub fn of(&mut self, sandbox: &Sandbox) -> Arc<Labels> {
        let of_pod = self.0.entry(sandbox.blueprint.as_ptr());
        let mut labels = of_pod.or_insert_with(|| pod_labels(sandbox)).clone();
        let own = sandbox.meta.labels.iter();
        labels.extend(own.map(|(key, value)| (key.into(), value.into())));
        Arc::new(labels)
    }
}

fn pod_labels(sandbox: &Sandbox) -> Labels {
    let blueprint = sandbox.blueprint().ok();
    let metadata = blueprint.and_then(|blueprint| blueprint.pod_template.metadata);
    let labels = metadata.and_then(|metadata| metadata.labels);
    let labels = labels.into_iter().flatten();
    labels
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

fn state(sandbox: &Sandbox, is_fenced: bool, failure: impl FnOnce() -> Option<Failure>) -> State {
    if sandbox.meta.is_deleting {
        return State::Terminating;
    }
    if sandbox.status.is_true(FINISHED) {
        return State::Dead;
    }
    let has_ips = sandbox.status.pod_ips.iter().flatten().next().is_some();
    let ready = sandbox.status.find(READY).filter(|ready| ready.is_true());
    if let Some(ready) = ready.filter(|_| has_ips) {
        let observed = ready.generation.unwrap_or_default();
        // Ready from before the change is not Ready after it
        if !is_fenced || observed >= sandbox.meta.generation {
            let since = time(ready.since);
            return State::Ready { since };
        }
        return State::Pending;
    }
    failure().map_or(State::Pending, State::Failed)
}

/// Nobody waits for an update that will not be.
fn deadline(sandbox: &Sandbox, fence: &Fence) -> Time {
    let given_up = sandbox.status.find(READY).filter(|ready| {
        let observed = ready.generation.unwrap_or_default();
        ready.reason() == CANNOT_UPDATE && observed >= sandbox.meta.generation
    });
    let deadline = time(fence.deadline);
    given_up.map_or(deadline, |ready| time(ready.since).min(deadline))
}

pub fn time(at: Timestamp) -> Time {
    Time(u64::try_from(at.as_millisecond()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{is_on_offer, member, time};
    use crate::{sigs::sandbox::view::Sandbox, testing::view};

    #[test]
    fn an_update_that_cannot_be_made_is_given_up_at_once() {
        let fence = json!({
            "target": "x", "since": "2026-11-16T12:00:00Z", "deadline": "2026-11-16T12:10:00Z",
        });
        let deadline = |reason: &str, observed: i64| {
            let ready = json!({
                "type": "Ready", "status": "False", "reason": reason, "message": "no",
                "lastTransitionTime": "2026-11-16T12:01:00Z", "observedGeneration": observed,
            });
            let fenced = json!({
                "metadata": {
                    "name": "a", "generation": 2,
                    "annotations": {"sandbar.dev/update": fence.to_string()},
                },
                "spec": {"podTemplate": {"spec": {"containers": []}}},
                "status": {"conditions": [ready]},
            });
            let fenced: Sandbox = view(fenced, &json!({}));
            member(&fenced).intent.map(|intent| intent.deadline)
        };
        let at = |text: &str| text.parse().ok().map(time);
        let (told, last) = (at("2026-11-16T12:01:00Z"), at("2026-11-16T12:10:00Z"));
        assert_eq!(deadline("InPlaceUpdateImpossible", 2), told);
        assert_eq!(deadline("InPlaceUpdateImpossible", 1), last);
        assert_eq!(deadline("DependenciesNotReady", 2), last);
    }

    #[test]
    fn a_member_that_changes_in_place_is_not_on_offer_though_it_is_ready() {
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "",
            "lastTransitionTime": "2026-11-16T12:01:00Z", "observedGeneration": 2,
        });
        let member = json!({
            "metadata": {
                "name": "a", "generation": 2,
                "labels": {
                    "agents.x-k8s.io/warm-pool-sandbox": "pool",
                    "agents.x-k8s.io/sandbox-template-ref-hash": "template",
                },
                "ownerReferences": [{
                    "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
                    "name": "pool", "uid": "pool", "controller": true,
                }],
            },
            "spec": {"podTemplate": {"spec": {"containers": []}}},
            "status": {"podIPs": ["10.0.0.1"], "conditions": [ready]},
        });
        let fence = json!({
            "target": "x", "since": "2026-11-16T12:00:00Z", "deadline": "2026-11-16T12:10:00Z",
        });
        let fenced =
            json!({"metadata": {"annotations": {"sandbar.dev/update": fence.to_string()}}});
        assert!(is_on_offer(&view(member.clone(), &json!({}))));
        assert!(!is_on_offer(&view(member, &fenced)));
    }
}
