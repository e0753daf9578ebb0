//! A cluster that the reference controller ran until now: what it has written stays as it is.
//!
//! All values are those that the reference writes, the hashes among them, and none is computed here.

use std::{collections::BTreeMap, time::Duration};

use api::sigs::v1beta1::{
    Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus,
};
use json_patch::merge;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{PersistentVolumeClaim, Pod, Service},
        networking::v1::NetworkPolicy,
    },
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{policies::until_given, pools::status};
use crate::stage::Stage;

const EXTENSIONS: &str = "extensions.agents.x-k8s.io/v1beta1";
/// FNV-1a of the names `one` and `pool`.
const ONE: &str = "ba2719ef";
const POOL: &str = "91dd7983";
/// FNV-1a of `{"podTemplate":…}` and of `{"spec":{"containers":[{"name":"main","image":"app:1","resources":{}}]},"metadata":{"labels":{"app":"agent"}}}`.
const BLUEPRINT: &str = "e86b28b7";
const POD_TEMPLATE: &str = "1375611c";
const LONG_AGO: &str = "2026-08-22T10:00:00Z";

/// The uid and the version of every object by its kind and name.
type Objects = BTreeMap<(String, String), (String, String)>;

async fn add<K>(stage: &Stage, objects: &mut Objects)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    for object in stage.list::<K>().await {
        let key = (K::kind(&()).into_owned(), object.name_any());
        let version = object.resource_version().unwrap();
        objects.insert(key, (object.uid().unwrap(), version));
    }
}

async fn objects(stage: &Stage) -> Objects {
    let mut objects = Objects::new();
    add::<Sandbox>(stage, &mut objects).await;
    add::<SandboxClaim>(stage, &mut objects).await;
    add::<SandboxTemplate>(stage, &mut objects).await;
    add::<SandboxWarmPool>(stage, &mut objects).await;
    add::<Pod>(stage, &mut objects).await;
    add::<Service>(stage, &mut objects).await;
    add::<PersistentVolumeClaim>(stage, &mut objects).await;
    add::<NetworkPolicy>(stage, &mut objects).await;
    objects
}

/// What there is when node and cluster have done their part.
async fn at_rest(stage: &Stage) -> Objects {
    let mut before = objects(stage).await;
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = objects(stage).await;
        if now == before {
            return now;
        }
        before = now;
    }
}

async fn tell<K>(stage: &Stage, name: &str, status: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned,
{
    let api: Api<K> = stage.api();
    let patch = Patch::Merge(json!({"status": status}));
    let params = PatchParams::default();
    drop(api.patch_status(name, &params, &patch).await.unwrap());
}

fn owned_by(version: &str, kind: &str, name: &str, uid: Option<String>) -> Value {
    json!([{
        "apiVersion": version, "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": LONG_AGO, "observedGeneration": 1,
    })
}

/// A sandbox, and the labels and annotations of its pod.
struct Left {
    name: &'static str,
    hash: &'static str,
    metadata: Value,
    spec: Value,
    pod: Value,
    ready: &'static str,
}

impl Left {
    /// A sandbox that was made from the template, with the secure defaults of the reference.
    fn of_template(name: &'static str, hash: &'static str, metadata: Value) -> Self {
        let spec = json!({
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "app:1"}],
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
        });
        let annotations = json!({
            "agents.x-k8s.io/sandbox-template-ref": "one",
            "agents.x-k8s.io/pod-name": name,
        });
        let mut own = json!({"annotations": annotations});
        merge(&mut own, &metadata);
        Self {
            name,
            hash,
            metadata: own,
            spec: json!({"podTemplate": {"spec": spec}}),
            pod: json!({
                "labels": {"app": "agent"},
                "annotations": {"agents.x-k8s.io/propagated-labels": "app"},
            }),
            ready: "Pod is Ready",
        }
    }

    fn member(name: &'static str, hash: &'static str, blueprint: &str, owner: Value) -> Self {
        let labels = json!({
            "agents.x-k8s.io/warm-pool-sandbox": POOL,
            "agents.x-k8s.io/sandbox-template-ref-hash": ONE,
            "agents.x-k8s.io/sandbox-template-hash": blueprint,
            "agents.x-k8s.io/sandbox-pod-template-hash": POD_TEMPLATE,
        });
        let own = json!({
            "agents.x-k8s.io/launch-type": "warm",
            "agents.x-k8s.io/created-by": "controller",
        });
        let mut left = Self::of_template(name, hash, json!({"ownerReferences": owner}));
        left.metadata["labels"] = labels.clone();
        merge(&mut left.metadata["labels"], &own);
        let evictable = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"});
        let template = &mut left.spec["podTemplate"];
        template["metadata"] = json!({"labels": labels, "annotations": evictable});
        template["metadata"]["labels"]["app"] = json!("agent");
        left.pod = pod_of_member();
        left
    }

    /// A sandbox that a claim has, of which a client called `python-client` made the claim.
    fn claimed(name: &'static str, hash: &'static str, launch: &str, claim: &SandboxClaim) -> Self {
        let (version, uid) = (EXTENSIONS, claim.uid());
        let labels = json!({
            "agents.x-k8s.io/claim-uid": uid,
            "agents.x-k8s.io/launch-type": launch,
            "agents.x-k8s.io/sandbox-template-ref-hash": ONE,
            "agents.x-k8s.io/created-by": "python-client",
        });
        let owner = owned_by(version, "SandboxClaim", &claim.name_any(), uid.clone());
        let metadata = json!({"labels": labels, "ownerReferences": owner});
        let mut left = Self::of_template(name, hash, metadata);
        left.spec["podTemplate"]["metadata"] = json!({"labels": {
            "app": "agent",
            "agents.x-k8s.io/claim-uid": uid,
            "agents.x-k8s.io/sandbox-template-ref-hash": ONE,
            "agents.x-k8s.io/created-by": "python-client",
        }});
        let labels = json!({
            "agents.x-k8s.io/sandbox-template-ref-hash": ONE,
            "agents.x-k8s.io/created-by": "python-client",
        });
        merge(&mut left.pod["labels"], &labels);
        left
    }

    async fn sandbox(&self, stage: &Stage) -> Sandbox {
        let mut object = json!({
            "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox",
            "metadata": {"name": self.name}, "spec": self.spec,
        });
        merge(&mut object["metadata"], &self.metadata);
        stage.create(object).await
    }

    /// The sandbox with its pod; says which addresses that has.
    async fn put(&self, stage: &Stage) -> Value {
        let sandbox = self.sandbox(stage).await;
        let mut metadata = json!({
            "name": self.name,
            "labels": {"agents.x-k8s.io/sandbox-name-hash": self.hash},
            "ownerReferences":
                owned_by("agents.x-k8s.io/v1beta1", "Sandbox", self.name, sandbox.uid()),
        });
        merge(&mut metadata, &self.pod);
        let mut spec = self.spec["podTemplate"]["spec"].clone();
        if self.spec.get("volumeClaimTemplates").is_some() {
            let claim = json!({"claimName": format!("data-{}", self.name)});
            spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": claim}]);
        }
        stage
            .create::<Pod>(json!({"metadata": metadata, "spec": spec}))
            .await;
        let look = async || json!(stage.api::<Pod>().get(self.name).await.unwrap());
        let runs = |pod: &Value| {
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let pod = stage.until("the pod runs", look, runs).await;
        let ips = json!([pod["status"]["podIP"]]);
        let status = json!({
            "selector": format!("agents.x-k8s.io/sandbox-name-hash={}", self.hash),
            "podIPs": ips,
            "nodeName": pod["spec"]["nodeName"],
            "conditions": [
                condition("Suspended", "False", "NotSuspended", "Sandbox is not suspended"),
                condition("PodScheduled", "True", "PodScheduled", ""),
                condition("Ready", "True", "DependenciesReady", self.ready),
            ],
        });
        tell::<Sandbox>(stage, self.name, status).await;
        ips
    }
}

fn pod_of_member() -> Value {
    let evictable = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    json!({
        "labels": {
            "app": "agent",
            "agents.x-k8s.io/warm-pool-sandbox": POOL,
            "agents.x-k8s.io/sandbox-template-ref-hash": ONE,
            "agents.x-k8s.io/created-by": "controller",
        },
        "annotations": {
            "agents.x-k8s.io/propagated-labels": "app",
            "agents.x-k8s.io/propagated-annotations": evictable,
            evictable: "true",
        },
    })
}

/// The template with its policy, and the pool with this status.
async fn template_and_pool(stage: &Stage, replicas: usize) -> Value {
    let template = json!({
        "apiVersion": EXTENSIONS, "kind": "SandboxTemplate",
        "metadata": {"name": "one", "labels": {"agents.x-k8s.io/sandbox-template-ref-hash": ONE}},
        "spec": {"podTemplate": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        }},
    });
    let template: SandboxTemplate = stage.create(template).await;
    let private = [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
    ];
    let policy = json!({
        "metadata": {
            "name": "one-network-policy",
            "ownerReferences": owned_by(EXTENSIONS, "SandboxTemplate", "one", template.uid()),
        },
        "spec": {
            "podSelector": {"matchLabels": {"agents.x-k8s.io/sandbox-template-ref-hash": ONE}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{
                "podSelector": {"matchLabels": {"app": "sandbox-router"}},
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"},
                },
            }]}],
            "egress": [{"to": [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": private}},
                {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
            ]}],
        },
    });
    stage.create::<NetworkPolicy>(policy).await;
    let pool = json!({
        "apiVersion": EXTENSIONS, "kind": "SandboxWarmPool", "metadata": {"name": "pool"},
        "spec": {
            "replicas": replicas, "sandboxTemplateRef": {"name": "one"},
            // the strategy under which a wrong verdict about a member costs its life
            "updateStrategy": {"type": "Recreate"},
        },
    });
    let pool: SandboxWarmPool = stage.create(pool).await;
    let status = json!({
        "replicas": replicas, "readyReplicas": replicas, "observedGeneration": 1,
        "selector": format!("agents.x-k8s.io/warm-pool-sandbox={POOL}"),
    });
    tell::<SandboxWarmPool>(stage, "pool", status).await;
    owned_by(EXTENSIONS, "SandboxWarmPool", "pool", pool.uid())
}

/// A claim that a client has made, with these annotations besides its own.
async fn claim(stage: &Stage, name: &str, annotations: Value, spec: Value) -> SandboxClaim {
    let mut object = json!({
        "apiVersion": EXTENSIONS, "kind": "SandboxClaim",
        "metadata": {
            "name": name,
            "labels": {"agents.x-k8s.io/created-by": "python-client"},
            "annotations": {
                "agents.x-k8s.io/client-first-requested-at": "2026-08-22T09:59:58.123456+00:00",
                "agents.x-k8s.io/controller-first-observed-at": "2026-08-22T11:59:58.5+02:00",
            },
        },
        "spec": {"warmPoolRef": {"name": "pool"}},
    });
    merge(&mut object["metadata"]["annotations"], &annotations);
    merge(&mut object["spec"], &spec);
    stage.create(object).await
}

fn stamped(mut annotations: Value) -> Value {
    annotations["agents.x-k8s.io/claim-first-ready-at"] = json!("2026-08-22T10:00:00.25Z");
    annotations
}

async fn answer(stage: &Stage, claim: &str, sandbox: Value, ready: Value) {
    let status = json!({"sandbox": sandbox, "conditions": [ready]});
    tell::<SandboxClaim>(stage, claim, status).await;
}

fn is_ready() -> Value {
    condition("Ready", "True", "DependenciesReady", "Pod is Ready")
}

/// Claims that have a member, one of them since before v1beta1.
async fn warm_claims(stage: &Stage) {
    for (name, sandbox, hash, version) in [
        ("warm", "pool-b6t3v", "5665d567", EXTENSIONS),
        (
            "older",
            "pool-v9d2f",
            "46fd7545",
            "extensions.agents.x-k8s.io/v1alpha1",
        ),
    ] {
        let named = stamped(json!({"agents.x-k8s.io/sandbox-name": sandbox}));
        let team = json!({"additionalPodMetadata": {"labels": {"sandbox.users.io/team": "one"}}});
        let claim = claim(stage, name, named, team).await;
        let mut left = Left::claimed(sandbox, hash, "warm", &claim);
        left.metadata["ownerReferences"][0]["apiVersion"] = json!(version);
        let label = json!({"sandbox.users.io/team": "one"});
        merge(&mut left.spec["podTemplate"]["metadata"]["labels"], &label);
        merge(&mut left.pod["labels"], &label);
        let propagated = json!("app,sandbox.users.io/team");
        left.pod["annotations"]["agents.x-k8s.io/propagated-labels"] = propagated;
        let ips = left.put(stage).await;
        let sandbox = json!({"name": sandbox, "podIPs": ips});
        answer(stage, name, sandbox, is_ready()).await;
    }
}

/// A claim that was started cold, one whose sandbox is suspended, and one that is over.
async fn other_claims(stage: &Stage) {
    let cold = claim(stage, "cold", stamped(json!({})), json!({})).await;
    let left = Left::claimed("cold", "ea44dd0f", "cold", &cold);
    let ips = left.put(stage).await;
    let sandbox = json!({"name": "cold", "podIPs": ips});
    answer(stage, "cold", sandbox, is_ready()).await;

    let resting = claim(stage, "resting", stamped(json!({})), json!({})).await;
    let mut left = Left::claimed("resting", "889f63e1", "cold", &resting);
    left.spec["operatingMode"] = json!("Suspended");
    left.metadata["annotations"] = json!({"agents.x-k8s.io/sandbox-template-ref": "one"});
    left.sandbox(stage).await;
    let suspended = "Pod has been terminated. Sandbox is suspended";
    let ready = condition("Ready", "False", "SandboxSuspended", "Sandbox is suspended");
    let status = json!({
        "selector": "agents.x-k8s.io/sandbox-name-hash=889f63e1",
        "conditions": [condition("Suspended", "True", "PodTerminated", suspended), ready],
    });
    tell::<Sandbox>(stage, "resting", status).await;
    answer(stage, "resting", json!({"name": "resting"}), ready).await;

    let gone = stamped(json!({"agents.x-k8s.io/sandbox-name": "pool-gone0"}));
    let lifecycle = json!({"lifecycle": {"shutdownTime": LONG_AGO, "shutdownPolicy": "Retain"}});
    claim(stage, "over", gone, lifecycle).await;
    let message = "Claim expired. Sandbox cleanup initiated.";
    let expired = condition("Ready", "False", "ClaimExpired", message);
    answer(stage, "over", json!(null), expired).await;
}

/// A sandbox that nobody claimed, with a service and a volume; one with a service that nobody asks for any more; and one
/// that has expired.
async fn plain_sandboxes(stage: &Stage) {
    for (name, hash, service) in [
        ("plain", "d3be3f67", json!(true)),
        ("kept", "e8614759", json!(null)),
    ] {
        let volume = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let port = json!({"containerPort": 8080, "protocol": "TCP"});
        let container = json!({
            "name": "main", "image": "app:1", "ports": [port],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        });
        let mut spec = json!({
            "podTemplate": {"spec": {"containers": [container]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": volume}],
        });
        merge(&mut spec, &json!({"service": service}));
        let left = Left {
            name,
            hash,
            metadata: json!({"annotations": {"agents.x-k8s.io/pod-name": name}}),
            spec,
            pod: json!({}),
            ready: "Pod is Ready; Service Exists",
        };
        left.put(stage).await;
        let sandbox: Sandbox = stage.api().get(name).await.unwrap();
        let owner = owned_by("agents.x-k8s.io/v1beta1", "Sandbox", name, sandbox.uid());
        let label = json!({"agents.x-k8s.io/sandbox-name-hash": hash});
        let metadata =
            |name: &str| json!({"name": name, "labels": label, "ownerReferences": owner});
        let ports =
            json!([{"name": "p-8080-tcp", "port": 8080, "protocol": "TCP", "targetPort": 8080}]);
        let service = json!({"clusterIP": "None", "selector": label, "ports": ports});
        stage
            .create::<Service>(json!({"metadata": metadata(name), "spec": service}))
            .await;
        let volume = json!({"metadata": metadata(&format!("data-{name}")), "spec": volume});
        stage.create::<PersistentVolumeClaim>(volume).await;
        let domain = format!("{name}.{}.svc.cluster.local", stage.namespace);
        tell::<Sandbox>(stage, name, json!({"service": name, "serviceFQDN": domain})).await;
    }
    let expired = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": "expired"},
        "spec": {
            "podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}},
            "shutdownTime": LONG_AGO, "shutdownPolicy": "Retain",
        },
    });
    stage.create::<Sandbox>(expired).await;
    let status = json!({"conditions": [
        condition("Suspended", "False", "NotSuspended", "Sandbox is not suspended"),
        condition("Ready", "False", "SandboxExpired", "Sandbox has expired"),
    ]});
    tell::<Sandbox>(stage, "expired", status).await;
}

/// All is as before but for what the pool says about itself.
async fn is_untouched(stage: &Stage, mut before: Objects) {
    let mut after = objects(stage).await;
    let pool = ("SandboxWarmPool".to_owned(), "pool".to_owned());
    let [was, is] = [&mut before, &mut after].map(|objects| objects.remove(&pool).unwrap());
    assert_eq!(was.0, is.0);
    assert_eq!(after, before, "{}", stage.story("something was touched"));
}

fn sorted(mut written: Vec<String>) -> Vec<String> {
    written.sort();
    written
}

pub(crate) async fn what_the_reference_left_is_left_alone(stage: &Stage) {
    let owner = template_and_pool(stage, 3).await;
    for (name, hash, blueprint) in [
        ("pool-4k8zt", "60a1e26f", BLUEPRINT),
        ("pool-x7q2m", "80564e03", BLUEPRINT),
        // another version encodes other fields
        ("pool-h5w9c", "213bc72e", "0badcafe"),
    ] {
        let member = Left::member(name, hash, blueprint, owner.clone());
        member.put(stage).await;
    }
    warm_claims(stage).await;
    other_claims(stage).await;
    plain_sandboxes(stage).await;
    let before = at_rest(stage).await;

    stage.begin();
    let told = async || status(stage).await;
    let is_known = |status: &SandboxWarmPoolStatus| status.updated_replicas == Some(3);
    stage
        .until("all members are as they should be", told, is_known)
        .await;
    stage.is_quiet().await;
    is_untouched(stage, before.clone()).await;
    let expected = [
        "PATCH sandboxwarmpools/pool/status",
        "POST controllerrevisions",
    ];
    if !stage.is_disturbed() {
        assert_eq!(sorted(stage.written()), expected);
    }

    // nor does anything begin when the pool is to be rolled from now on
    let rolling = json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}});
    let changed: SandboxWarmPool = stage.patch("pool", rolling).await;
    let generation = changed.metadata.generation;
    let is_seen = |status: &SandboxWarmPoolStatus| status.observed_generation == generation;
    stage.until("the strategy is known", told, is_seen).await;
    stage.is_quiet().await;
    is_untouched(stage, before).await;
    let told = status(stage).await;
    assert_eq!(
        (told.updated_replicas, told.ready_replicas),
        (Some(3), Some(3))
    );
}

/// The reference died between its writes: of one claim it had only said which member it gets, of another it had not said
/// yet that it has one.
pub(crate) async fn adoptions_that_the_reference_began_are_completed(stage: &Stage) {
    let owner = template_and_pool(stage, 2).await;
    let idle = Left::member("pool-4k8zt", "60a1e26f", BLUEPRINT, owner.clone());
    idle.put(stage).await;
    let promised = json!({"agents.x-k8s.io/sandbox-name": "pool-n2k4j"});
    claim(stage, "promised", promised, json!({})).await;
    let member = Left::member("pool-n2k4j", "1085c40d", BLUEPRINT, owner);
    member.put(stage).await;
    let unanswered = json!({"agents.x-k8s.io/sandbox-name": "pool-r8c7d"});
    let unanswered = claim(stage, "unanswered", unanswered, json!({})).await;
    let mut bound = Left::claimed("pool-r8c7d", "c74df69a", "warm", &unanswered);
    // its pod has not followed either
    bound.pod = pod_of_member();
    bound.put(stage).await;
    let before = at_rest(stage).await;

    stage.begin();
    for (name, sandbox) in [("promised", "pool-n2k4j"), ("unanswered", "pool-r8c7d")] {
        assert_eq!(until_given(stage, name).await.name_any(), sandbox);
        let look = async || stage.api::<Pod>().get(sandbox).await.unwrap();
        let follows = |pod: &Pod| {
            let labels = pod.labels();
            let client = labels.get("agents.x-k8s.io/created-by");
            !labels.contains_key("agents.x-k8s.io/warm-pool-sandbox")
                && client.is_some_and(|client| client == "python-client")
        };
        stage.until("its pod follows", look, follows).await;
    }
    let full = async || status(stage).await;
    let is_full = |status: &SandboxWarmPoolStatus| status.updated_available_replicas == Some(2);
    stage.until("the pool is full again", full, is_full).await;
    stage.is_quiet().await;

    let after = objects(stage).await;
    let idle = ("Sandbox".to_owned(), "pool-4k8zt".to_owned());
    if !stage.was_held() {
        assert_eq!(after.get(&idle), before.get(&idle));
    }
    // a member that a former leader makes late may be one too many, and then any idle one goes
    let is_same = |(key, (uid, _)): (&(String, String), &(String, String))| {
        let may_go = stage.was_held() && key.1 == idle.1;
        may_go || after.get(key).is_some_and(|(now, _)| now == uid)
    };
    let is_all_there = before.iter().all(is_same);
    assert!(is_all_there, "{}", stage.story("something is gone"));
    if !stage.is_disturbed() {
        let is_new = |name: &&(String, String)| name.0 == "Sandbox" && !before.contains_key(*name);
        let new: Vec<_> = after.keys().filter(is_new).collect();
        let written = stage.written().into_iter();
        let written = written
            .map(|write| write.replace(&new[0].1, "new"))
            .collect();
        let mut written = sorted(written);
        // counts are told when they have been different for a second
        written.dedup();
        let expected = [
            "PATCH pods/pool-n2k4j",
            "PATCH pods/pool-r8c7d",
            "PATCH sandboxclaims/promised",
            "PATCH sandboxclaims/promised/status",
            "PATCH sandboxclaims/unanswered",
            "PATCH sandboxclaims/unanswered/status",
            "PATCH sandboxes/new/status",
            "PATCH sandboxes/pool-n2k4j",
            "PATCH sandboxwarmpools/pool/status",
            "POST controllerrevisions",
            "POST events",
            "POST pods",
            "POST sandboxes",
        ];
        assert_eq!(written, expected);
    }
}
