//! `sandbar controller` in the place of the reference's, on a real API server and with nothing but the rights that the
//! reference's ClusterRoles give.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{collections::BTreeSet, fmt::Debug, path::PathBuf, time::Duration};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Pod, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use support::{
    replica::{LEASE, Replica},
    until,
};
use tempfile::TempDir;
use testbed::{OwnOptions, Testbed};

const NAME: &str = "agent-sandbox-controller";
const HOME: &str = "agent-sandbox-system";
const FULL: [&str; 7] = [
    "create", "delete", "get", "list", "patch", "update", "watch",
];
const READ: [&str; 3] = ["get", "list", "watch"];
const PART: [&str; 3] = ["get", "patch", "update"];

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The role of the reference without its extensions.
fn core() -> Value {
    let mut definitions = rule(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &PART,
    );
    definitions["resourceNames"] = json!([
        "sandboxes.agents.x-k8s.io",
        "sandboxclaims.extensions.agents.x-k8s.io",
        "sandboxtemplates.extensions.agents.x-k8s.io",
        "sandboxwarmpools.extensions.agents.x-k8s.io",
    ]);
    let leases = [&["create"][..], &READ, &PART].concat();
    json!([
        rule("", &["pods", "services", "persistentvolumeclaims"], &FULL),
        rule("", &["events"], &["create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule("agents.x-k8s.io", &["sandboxes"], &FULL),
        rule(
            "agents.x-k8s.io",
            &["sandboxes/status", "sandboxes/finalizers"],
            &PART
        ),
        definitions,
        rule("coordination.k8s.io", &["leases"], &leases),
    ])
}

/// What comes on top of it with them.
fn extensions() -> Value {
    let group = "extensions.agents.x-k8s.io";
    let kinds = ["sandboxclaims", "sandboxtemplates", "sandboxwarmpools"];
    let parts = kinds.map(|kind| [format!("{kind}/status"), format!("{kind}/finalizers")]);
    let parts = parts.concat();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let pods = [&READ[..], &PART].concat();
    json!([
        rule("", &["pods"], &pods),
        rule("", &["events"], &["create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule("agents.x-k8s.io", &["sandboxes"], &FULL),
        rule(group, &kinds, &FULL),
        rule(group, &parts, &PART),
        rule("networking.k8s.io", &["networkpolicies"], &FULL),
        rule("coordination.k8s.io", &["leases"], &FULL),
    ])
}

async fn make<K>(api: Api<K>, object: Value)
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    drop(api.create(&PostParams::default(), &object).await.unwrap());
}

/// A kubeconfig of an account that has these rights and no others.
async fn account(bed: &Testbed, directory: &TempDir) -> PathBuf {
    let client = bed.client();
    make::<Namespace>(
        Api::all(client.clone()),
        json!({"metadata": {"name": HOME}}),
    )
    .await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), HOME);
    make(accounts, json!({"metadata": {"name": NAME}})).await;
    let more = format!("{NAME}-extensions");
    for (name, rules) in [(NAME, core()), (more.as_str(), extensions())] {
        let metadata = json!({"name": name});
        let role = json!({"metadata": metadata, "rules": rules});
        make::<ClusterRole>(Api::all(client.clone()), role).await;
        let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": HOME});
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let binding = json!({"metadata": metadata, "subjects": [subject], "roleRef": role});
        make::<ClusterRoleBinding>(Api::all(client.clone()), binding).await;
    }
    // one of the first role, and one of the second
    let readable = [
        "/api/v1/services",
        "/apis/extensions.agents.x-k8s.io/v1beta1/sandboxclaims",
    ];
    let kubeconfig = bed.kubeconfig_of(HOME, NAME, &readable).await.unwrap();
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, json!(kubeconfig).to_string()).unwrap();
    path
}

/// A namespace that the controller is told nothing of.
struct Place {
    client: Client,
    namespace: String,
}

impl Place {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn pool(&self) -> Value {
        let pool: SandboxWarmPool = self.api().get("pool").await.unwrap();
        json!(pool)
    }

    /// Edits the template; which revision was rolled out before.
    async fn set(&self, image: &str, cpu: &str) -> Value {
        let before = self.pool().await["status"]["updateRevision"].clone();
        let patch = Patch::Merge(json!({"spec": blueprint(image, cpu)}));
        let templates: Api<SandboxTemplate> = self.api();
        let params = PatchParams::default();
        drop(templates.patch("one", &params, &patch).await.unwrap());
        before
    }

    /// Waits until the pool says that both members are as they should be, and no longer of this revision.
    async fn until_rolled(&self, before: &Value) {
        until("both members are new", async || {
            let status = self.pool().await["status"].clone();
            let counts = [
                "replicas",
                "readyReplicas",
                "updatedReplicas",
                "updatedAvailableReplicas",
            ];
            let is_full = counts.iter().all(|count| status[*count] == 2);
            let [current, update] = ["currentRevision", "updateRevision"].map(|one| &status[one]);
            let is_done = is_full && current == update && update != before;
            (is_done && self.are_members_new().await).then_some(())
        })
        .await;
    }

    /// Whether the members are what the template asks for.
    async fn are_members_new(&self) -> bool {
        let template: SandboxTemplate = self.api().get("one").await.unwrap();
        let wanted = json!(template)["spec"]["podTemplate"]["spec"]["containers"].clone();
        let sandboxes = self.api::<Sandbox>().list(&ListParams::default()).await;
        let sandboxes = sandboxes.unwrap().items;
        let members = sandboxes.iter().filter(|one| {
            let owner = one.owner_references().first();
            owner.is_some_and(|owner| owner.kind == "SandboxWarmPool")
        });
        let mut members = members.map(|one| json!(one));
        members.all(|one| one["spec"]["podTemplate"]["spec"]["containers"] == wanted)
    }

    async fn pods(&self) -> Vec<String> {
        let pods = self
            .api::<Pod>()
            .list(&ListParams::default())
            .await
            .unwrap();
        let mut uids: Vec<_> = pods.items.iter().filter_map(|pod| pod.uid()).collect();
        uids.sort();
        uids
    }
}

fn blueprint(image: &str, cpu: &str) -> Value {
    let requests = json!({"cpu": cpu, "memory": "16Mi"});
    let container = json!({"name": "main", "image": image, "resources": {"requests": requests}});
    json!({"podTemplate": {"spec": {"containers": [container]}}})
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// How many requests were answered with 403, as the program counts them.
async fn refusals(replica: &Replica) -> u64 {
    let text = replica.metrics().await;
    let lines = text.lines().filter(|line| {
        line.starts_with("rest_client_requests_total{") && line.contains("code=\"403\"")
    });
    let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

/// The same as the server tells it, of what would have been a write: to what it was, however often.
fn refused(bed: &Testbed) -> BTreeSet<String> {
    let writes = bed.writes().unwrap().0.into_iter();
    let user = format!("system:serviceaccount:{HOME}:{NAME}");
    let refused = writes.filter(|write| write.code == 403 && write.user == user);
    refused
        .map(|write| format!("{} {} {}", write.verb, write.resource, write.name))
        .collect()
}

impl Place {
    /// A pool of two and its template.
    async fn make_pool(&self) {
        let metadata = json!({"name": "one"});
        let template = json!({
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxTemplate",
            "metadata": metadata, "spec": blueprint("app:1", "10m"),
        });
        make::<SandboxTemplate>(self.api(), template).await;
        let rolling = json!({
            "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        });
        let pool = json!({
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
            "metadata": {"name": "pool"},
            "spec": {
                "replicas": 2, "sandboxTemplateRef": {"name": "one"}, "updateStrategy": rolling,
            },
        });
        make::<SandboxWarmPool>(self.api(), pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_does_its_work_with_the_rights_of_the_reference() {
    let options = OwnOptions {
        controller_manager: true,
        fake_nodes: 1,
        audit: true,
        ..OwnOptions::default()
    };
    let bed = Testbed::own(options).await.unwrap();
    support::install(&bed.client()).await;
    let directory = TempDir::new().unwrap();
    let kubeconfig = account(&bed, &directory).await;
    let home = format!("--leader-election-namespace={HOME}");
    let replica = Replica::start(&kubeconfig, &[&home]);
    replica.until_ready().await;
    replica.until_leading().await;
    let leases: Api<Lease> = Api::namespaced(bed.client(), HOME);
    let lease = leases.get(LEASE).await.unwrap();
    assert!(lease.spec.unwrap().holder_identity.is_some());
    assert_eq!(refusals(&replica).await, 0);

    let namespace = bed.namespace("rights").await.unwrap();
    let place = Place {
        client: bed.client(),
        namespace: namespace.name().to_owned(),
    };
    place.make_pool().await;
    place.until_rolled(&json!(null)).await;
    let claim = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": {"name": "mine"}, "spec": {"warmPoolRef": {"name": "pool"}},
    });
    make::<SandboxClaim>(place.api(), claim).await;
    until("the claim is Ready", async || {
        let claim: SandboxClaim = place.api().get("mine").await.unwrap();
        is_ready(&json!(claim)).then_some(())
    })
    .await;
    until("the pool is full again", async || {
        let sandboxes = place.api::<Sandbox>().list(&ListParams::default()).await;
        let sandboxes = sandboxes.unwrap().items.into_iter().map(|one| json!(one));
        (sandboxes.filter(is_ready).count() == 3).then_some(())
    })
    .await;
    let told = until("it says that no history is kept", async || {
        let conditions = place.pool().await["status"]["conditions"].clone();
        let mut conditions = conditions.as_array()?.clone().into_iter();
        conditions.find(|one| one["type"] == "HistoryKept")
    })
    .await;
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("False"), &json!("Forbidden"))
    );

    // an image comes in place, and a size by replacement
    let before = place.pods().await;
    let first = place.set("app:2", "10m").await;
    place.until_rolled(&first).await;
    assert_eq!(place.pods().await, before);
    let second = place.set("app:2", "20m").await;
    place.until_rolled(&second).await;
    until("only the claimed one is left", async || {
        let pods = place.pods().await;
        let common = pods.iter().filter(|pod| before.contains(pod)).count();
        (pods.len() == 3 && common == 1).then_some(())
    })
    .await;

    // each member is tried, history is asked for once for each revision, and then no more
    until("everything was refused", async || {
        (refused(&bed).len() >= 2 && refusals(&replica).await >= 5).then_some(())
    })
    .await;
    let (objects, count) = (refused(&bed), refusals(&replica).await);
    assert_eq!(objects.len(), 2, "{objects:?}");
    let is_resize = |one: &String| one.starts_with("patch pods/resize ");
    assert!(objects.iter().all(is_resize), "{objects:?}");
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(refused(&bed), objects);
    assert_eq!(refusals(&replica).await, count);
}
