//! What members are made of.

use std::collections::BTreeMap;

use api::sigs::shared::Blueprint;
use engine::{member::Intent, revision::name_hash};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    member::{Fence, KIND},
    view::Pool,
};
use crate::{
    merge,
    sigs::{blueprint, names, sandbox::view::Sandbox, template::view::Template},
};

/// What a new member is to be: of the template as it is now, or of an older revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) template: String,
    pub(super) blueprint: Blueprint,
}

impl Pattern {
    pub(super) fn new(pool: &Pool, template: &Template, is_evictable: bool) -> Self {
        let hash = name_hash(&pool.meta.key.name);
        let labels = blueprint::pool_labels(&hash, template);
        let mut blueprint = template.blueprint.clone();
        let metadata = blueprint.pod_template.metadata.as_ref();
        let own = metadata.and_then(|metadata| metadata.annotations.as_ref());
        let is_own = own.is_some_and(|own| own.contains_key(names::SAFE_TO_EVICT));
        let evictable =
            (is_evictable && !is_own).then(|| (names::SAFE_TO_EVICT.to_owned(), "true".to_owned()));
        let metadata = blueprint::pod_metadata(metadata, labels.clone(), evictable);
        blueprint.pod_template.metadata = Some(metadata);
        Self {
            labels,
            template: template.meta.key.name.to_string(),
            blueprint,
        }
    }

    /// Another one like this member.
    pub(super) fn like(member: &Sandbox) -> Option<Self> {
        const CARRIED: [&str; 4] = [
            names::WARM_POOL,
            names::TEMPLATE_REF_HASH,
            names::TEMPLATE_HASH,
            names::POD_TEMPLATE_HASH,
        ];
        let labels = member.meta.labels.iter();
        let labels = labels.filter(|(key, _)| CARRIED.contains(key));
        let template = member.meta.annotations.get(names::TEMPLATE_REF);
        Some(Self {
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            template: template.unwrap_or_default().to_owned(),
            blueprint: member.blueprint().ok()?,
        })
    }

    /// A new member. Its name is ours to choose, so that a creation whose answer was lost can be repeated, and so that its
    /// pod is named from the start.
    pub(super) fn member(&self, pool: &Pool, name: &str, is_for_rollout: bool) -> Value {
        let mut labels = self.labels.clone();
        labels.insert(names::LAUNCH_TYPE.to_owned(), names::WARM.to_owned());
        labels.insert(names::CREATED_BY.to_owned(), "controller".to_owned());
        let mut annotations = json!({
            names::TEMPLATE_REF: self.template,
            names::POD_NAME: name,
        });
        if is_for_rollout {
            annotations[names::FOR_ROLLOUT] = json!("true");
        }
        json!({
            "metadata": {
                "name": name,
                "generateName": format!("{}-", pool.meta.key.name),
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [pool.meta.as_owner(names::EXTENSIONS_API_VERSION, KIND)],
            },
            "spec": self.blueprint,
        })
    }

    /// The one write that takes a member out of stock and changes it. A claim that comes first makes it fail, and
    /// one that comes later finds the fence.
    pub(super) fn update(
        &self,
        member: &Sandbox,
        intent: &Intent,
        now: Timestamp,
    ) -> Option<Value> {
        let old: Value = serde_json::from_str(&member.blueprint).ok()?;
        let new = serde_json::to_value(&self.blueprint).ok()?;
        let deadline = i64::try_from(intent.deadline.0).ok()?;
        let fence = Fence {
            target: intent.target.to_string(),
            since: now,
            deadline: Timestamp::from_millisecond(deadline).ok()?,
        };
        let mut patch = json!({"metadata": {
            "labels": self.labels,
            "annotations": {
                names::FENCE: serde_json::to_string(&fence).ok()?,
                names::TEMPLATE_REF: self.template,
            },
        }});
        if let Some(changes) = merge::patch(&old["podTemplate"], &new["podTemplate"]) {
            patch["spec"] = json!({"podTemplate": changes});
        }
        Some(patch)
    }
}

/// The write that gives a member back to the stock.
pub(super) fn release() -> Value {
    json!({"metadata": {"annotations": {names::FENCE: null}}})
}

/// The write that takes in a member that has no owner.
pub(super) fn adoption(pool: &Pool) -> Value {
    json!({"metadata": {
        "labels": {names::LAUNCH_TYPE: names::WARM},
        "ownerReferences": [pool.meta.as_owner(names::EXTENSIONS_API_VERSION, KIND)],
    }})
}

/// A name as the API server generates them.
pub(super) fn generated_name(pool: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    const RANDOM: usize = 5;
    const LONGEST: usize = 63 - RANDOM;
    let mut name: String = format!("{pool}-").chars().take(LONGEST).collect();
    let random = Uuid::new_v4().into_bytes();
    // the last bytes of such an id are all random
    let letters = random.iter().rev().take(RANDOM);
    name.extend(letters.map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])));
    name
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Pattern, Pool, Template};
    use crate::testing::view;

    #[test]
    fn members_may_be_evicted_unless_their_template_or_the_operator_says_otherwise() {
        let key = "cluster-autoscaler.kubernetes.io/safe-to-evict";
        let pool = json!({
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
            "kind": "SandboxWarmPool",
            "metadata": {"name": "pool"},
            "spec": {"sandboxTemplateRef": {"name": "one"}},
        });
        let pool: Pool = view(pool, &json!({}));
        let said = |annotations: Value, is_evictable| {
            let template = json!({
                "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
                "kind": "SandboxTemplate",
                "metadata": {"name": "one"},
                "spec": {"podTemplate": {
                    "metadata": {"annotations": annotations}, "spec": {"containers": []},
                }},
            });
            let template: Template = view(template, &json!({}));
            let blueprint = Pattern::new(&pool, &template, is_evictable).blueprint;
            let metadata = blueprint.pod_template.metadata.unwrap_or_default();
            metadata.annotations.and_then(|all| all.get(key).cloned())
        };
        assert_eq!(said(json!({}), true).as_deref(), Some("true"));
        assert_eq!(said(json!({}), false), None);
        assert_eq!(said(json!({key: "false"}), true).as_deref(), Some("false"));
    }
}
