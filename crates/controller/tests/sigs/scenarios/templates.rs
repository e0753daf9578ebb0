//! The network policy of a template.

use api::sigs::v1beta1::SandboxTemplate;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::stage::Stage;

/// The hash of `tools`.
const HASH: &str = "ef46255c";
const POLICY: &str = "tools-network-policy";

fn template(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxTemplate",
        "metadata": {"name": "tools"},
        "spec": spec,
    });
    object["spec"]["podTemplate"] =
        json!({"spec": {"containers": [{"name": "main", "image": "app:1"}]}});
    object
}

async fn create(stage: &Stage, spec: Value) -> SandboxTemplate {
    stage.create(template(spec)).await
}

async fn edit(stage: &Stage, spec: Value) {
    let patch = json!({"spec": spec});
    stage.patch::<SandboxTemplate>("tools", patch).await;
}

fn selector() -> Value {
    json!({"matchLabels": {"agents.x-k8s.io/sandbox-template-ref-hash": HASH}})
}

fn built_in() -> Value {
    json!({
        "podSelector": selector(),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}},
            "podSelector": {"matchLabels": {"app": "sandbox-router"}},
        }]}],
        "egress": [{"to": [
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": [
                "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
            ]}},
            {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
        ]}],
    })
}

/// Waits until there is a policy with this spec and no other.
async fn until_policy_is(stage: &Stage, spec: &Value) -> NetworkPolicy {
    let is = |policies: &Vec<NetworkPolicy>| {
        let [policy] = &policies[..] else {
            return false;
        };
        policy.name_any() == POLICY && json!(policy.spec) == *spec
    };
    let list = async || stage.list::<NetworkPolicy>().await;
    stage.until("policy", list, is).await.remove(0)
}

async fn until_labelled(stage: &Stage) {
    let labels = async || {
        let object: SandboxTemplate = stage.api().get("tools").await.unwrap();
        object.labels().len()
    };
    stage.until("labelled", labels, |count| *count == 1).await;
}

async fn until_no_policy(stage: &Stage) {
    let list = async || stage.list::<NetworkPolicy>().await;
    stage.until("no policy", list, Vec::is_empty).await;
}

pub(crate) async fn a_template_gets_its_label_and_the_built_in_policy(stage: &Stage) {
    let object = create(stage, json!({})).await;
    let policy = until_policy_is(stage, &built_in()).await;
    let owner = json!([{
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxTemplate",
        "name": "tools", "uid": object.uid(), "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(json!(policy.owner_references()), owner);
    let object: SandboxTemplate = stage.api().get("tools").await.unwrap();
    let label = "agents.x-k8s.io/sandbox-template-ref-hash";
    assert_eq!(object.labels()[label], HASH);
}

pub(crate) async fn a_policy_follows_the_rules_of_its_template(stage: &Stage) {
    let rules = json!({
        "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 8080}]}],
        "egress": [{}],
    });
    create(stage, json!({"networkPolicy": rules})).await;
    let kept = json!({
        "podSelector": selector(),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 8080, "protocol": "TCP"}]}],
        "egress": [{}],
    });
    let uid = until_policy_is(stage, &kept).await.uid();

    let none = json!({"networkPolicy": {"ingress": [], "egress": []}});
    edit(stage, none).await;
    let kept = json!({"podSelector": selector(), "policyTypes": ["Ingress", "Egress"]});
    until_policy_is(stage, &kept).await;

    edit(stage, json!({"networkPolicy": null})).await;
    let policy = until_policy_is(stage, &built_in()).await;
    assert_eq!(policy.uid(), uid);
}

pub(crate) async fn an_unmanaged_template_has_no_policy(stage: &Stage) {
    create(stage, json!({})).await;
    until_policy_is(stage, &built_in()).await;
    edit(stage, json!({"networkPolicyManagement": "Unmanaged"})).await;
    until_no_policy(stage).await;
    edit(stage, json!({"networkPolicyManagement": "Managed"})).await;
    until_policy_is(stage, &built_in()).await;
}

pub(crate) async fn a_policy_that_somebody_changes_is_mended(stage: &Stage) {
    create(stage, json!({})).await;
    let first = until_policy_is(stage, &built_in()).await;
    let opened = json!({"spec": {
        "podSelector": {"matchLabels": {"app": "other"}},
        "policyTypes": ["Ingress"], "ingress": [{}], "egress": null,
    }});
    stage.patch::<NetworkPolicy>(POLICY, opened).await;
    let mended = until_policy_is(stage, &built_in()).await;
    assert_eq!(mended.uid(), first.uid());
    stage.delete::<NetworkPolicy>(POLICY).await;
    until_policy_is(stage, &built_in()).await;
}

pub(crate) async fn a_foreign_policy_is_left_alone_until_it_is_gone(stage: &Stage) {
    let foreign = json!({"metadata": {"name": POLICY}, "spec": {"podSelector": {}}});
    let foreign = stage.create::<NetworkPolicy>(foreign).await;
    create(stage, json!({})).await;
    until_labelled(stage).await;
    edit(stage, json!({"networkPolicy": {}})).await;
    // templates are looked at one after the other
    let mut other = template(json!({}));
    other["metadata"]["name"] = json!("other");
    stage.create::<SandboxTemplate>(other).await;
    let list = async || stage.list::<NetworkPolicy>().await.len();
    stage.until("another", list, |count| *count == 2).await;
    let same: NetworkPolicy = stage.api().get(POLICY).await.unwrap();
    assert_eq!(same.resource_version(), foreign.resource_version());
    let message =
        format!("NetworkPolicy {POLICY:?} exists and is not controlled by this SandboxTemplate");
    stage
        .until_warned("NetworkPolicyNotOwned", 1, &message)
        .await;

    stage.delete::<SandboxTemplate>("other").await;
    stage.delete::<NetworkPolicy>(POLICY).await;
    let kept = json!({"podSelector": selector(), "policyTypes": ["Ingress", "Egress"]});
    until_policy_is(stage, &kept).await;
}

pub(crate) async fn rules_that_the_server_refuses_are_told_and_mended(stage: &Stage) {
    let bad = json!({"networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "nonsense"}}]}]}});
    create(stage, bad).await;
    until_labelled(stage).await;
    stage
        .until_warned("NetworkPolicyRefused", 1, "nonsense")
        .await;
    assert_eq!(stage.list::<NetworkPolicy>().await, []);
    edit(stage, json!({"networkPolicy": null})).await;
    until_policy_is(stage, &built_in()).await;
    stage.until_warned("NetworkPolicyRefused", 1, "").await;
}

pub(crate) async fn metadata_that_is_reserved_is_told(stage: &Stage) {
    let metadata = |labels: Value| json!({"podTemplate": {"metadata": {"labels": labels}}});
    let key = "agents.x-k8s.io/claim-uid";
    create(stage, json!({})).await;
    until_policy_is(stage, &built_in()).await;
    edit(stage, metadata(json!({key: "mine", "app": "agent"}))).await;
    stage.until_warned("ReservedMetadata", 1, key).await;
    stage.is_quiet().await;
    edit(stage, metadata(json!({key: null}))).await;
    stage.settle().await;
    stage.until_warned("ReservedMetadata", 1, key).await;
    edit(stage, metadata(json!({key: "again"}))).await;
    stage.until_warned("ReservedMetadata", 2, key).await;
}

pub(crate) async fn a_deleted_template_takes_its_policy_along(stage: &Stage) {
    create(stage, json!({})).await;
    until_policy_is(stage, &built_in()).await;
    stage.delete::<SandboxTemplate>("tools").await;
    until_no_policy(stage).await;
}
