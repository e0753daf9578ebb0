//! What sandboxes are made from.

use std::collections::BTreeMap;

use api::{
    open::known,
    sigs::{
        shared::{Blueprint, NetworkPolicyManagement, PodMetadata},
        v1beta1::SandboxTemplateSpec,
    },
};
use serde_json::{Value, json};

use super::{names, template::view::Template};

/// The template's own blueprint, with what makes a sandbox secure where the template says nothing: no token of a service
/// account and, behind the built-in network policy, which hides the cluster's DNS, public name servers.
pub fn secured(template: &SandboxTemplateSpec) -> Blueprint {
    let mut blueprint = template.blueprint.clone();
    let mut spec = blueprint.pod_template.spec.json().clone();
    let is_unset = |spec: &Value, field: &str| matches!(spec.get(field), None | Some(Value::Null));
    if is_unset(&spec, "automountServiceAccountToken") {
        spec["automountServiceAccountToken"] = json!(false);
    }
    let policies = &template.policies;
    let is_managed =
        known(&policies.network_policy_management) != Some(NetworkPolicyManagement::Unmanaged);
    let has_dns = !is_unset(&spec, "dnsPolicy") && spec["dnsPolicy"] != json!("");
    if is_managed && policies.network_policy.is_none() && !has_dns {
        spec["dnsPolicy"] = json!("None");
        spec["dnsConfig"] = json!({"nameservers": ["8.8.8.8", "1.1.1.1"]});
    }
    blueprint.pod_template.spec = spec.into();
    blueprint
}

/// The labels by which a member is known to its pool, on the sandbox and on its pod.
pub fn pool_labels(pool_hash: &str, template: &Template) -> BTreeMap<String, String> {
    let pairs = [
        (names::WARM_POOL, Some(pool_hash.to_owned())),
        (
            names::TEMPLATE_REF_HASH,
            Some(template.name_hash.to_string()),
        ),
        (
            names::TEMPLATE_HASH,
            Some(template.wanted.revision().to_string()),
        ),
        (
            names::POD_TEMPLATE_HASH,
            template.pod_template_hash.as_deref().map(str::to_owned),
        ),
    ];
    let given = pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    given.collect()
}

/// The template's pod metadata with more labels and annotations, which win.
pub fn pod_metadata(
    template: Option<&PodMetadata>,
    labels: impl IntoIterator<Item = (String, String)>,
    annotations: impl IntoIterator<Item = (String, String)>,
) -> PodMetadata {
    let mut metadata = template.cloned().unwrap_or_default();
    let merged = |map: Option<BTreeMap<String, String>>, more: &mut dyn Iterator<Item = _>| {
        let mut map = map.unwrap_or_default();
        map.extend(more);
        Some(map).filter(|map| !map.is_empty())
    };
    metadata.labels = merged(metadata.labels.take(), &mut labels.into_iter());
    metadata.annotations = merged(metadata.annotations.take(), &mut annotations.into_iter());
    metadata
}
