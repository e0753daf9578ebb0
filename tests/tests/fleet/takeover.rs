//! Controllers that were put in the place of the reference's and have nothing but the rights that it had.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use http::{Request, StatusCode};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Pod, ServiceAccount},
        rbac::v1::{Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Client, Config, Resource, ResourceExt as _, api::PostParams, client::Body,
    config::KubeConfigOptions,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testbed::{Namespace, Testbed};

use crate::fleet::{Fleet, pod_spec, pool};
use crate::ground::Ground;

const ACCOUNT: &str = "agent-sandbox-controller";
const QUIET: Duration = Duration::from_secs(20);

/// The requests that were answered with 403.
#[derive(Clone, Default)]
struct Forbidden(Arc<Mutex<Vec<String>>>);

impl Forbidden {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn about(&self, resource: &str) -> usize {
        let all = self.all();
        all.iter().filter(|one| one.contains(resource)).count()
    }

    /// The same client, listened to.
    fn listen(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let forbidden = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, forbidden) = (client.clone(), forbidden.clone());
            async move {
                let asked = format!("{} {}", request.method(), request.uri().path());
                let answer = client.send(request).await;
                let is_forbidden = |code: StatusCode| code == StatusCode::FORBIDDEN;
                if answer.as_ref().is_ok_and(|it| is_forbidden(it.status())) {
                    forbidden.0.lock().unwrap().push(asked);
                }
                answer
            }
        });
        Client::new(service, namespace)
    }
}

/// What the reference's two ClusterRoles say of a namespace.
fn rules() -> Value {
    let full = [
        "create", "delete", "get", "list", "patch", "update", "watch",
    ];
    let part = ["get", "patch", "update"];
    let extensions = ["sandboxclaims", "sandboxtemplates", "sandboxwarmpools"];
    let parts = extensions.map(|kind| [format!("{kind}/status"), format!("{kind}/finalizers")]);
    let rule = |groups: &[&str], resources: Value, verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    json!([
        rule(
            &[""],
            json!(["pods", "services", "persistentvolumeclaims"]),
            &full
        ),
        rule(
            &["", "events.k8s.io"],
            json!(["events"]),
            &["create", "patch"]
        ),
        rule(&["agents.x-k8s.io"], json!(["sandboxes"]), &full),
        rule(
            &["agents.x-k8s.io"],
            json!(["sandboxes/status", "sandboxes/finalizers"]),
            &part,
        ),
        rule(&["extensions.agents.x-k8s.io"], json!(extensions), &full),
        rule(
            &["extensions.agents.x-k8s.io"],
            json!(parts.concat()),
            &part
        ),
        rule(&["networking.k8s.io"], json!(["networkpolicies"]), &full),
        rule(&["coordination.k8s.io"], json!(["leases"]), &full),
    ])
}

async fn make<K>(namespace: &Namespace, object: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    let api = namespace.api::<K>();
    drop(api.create(&PostParams::default(), &object).await.unwrap());
}

/// A client with the reference's rights in this namespace, and no others.
async fn with_its_rights(bed: &Testbed, namespace: &Namespace) -> Client {
    let metadata = json!({"name": ACCOUNT});
    make::<ServiceAccount>(namespace, json!({"metadata": metadata})).await;
    make::<Role>(namespace, json!({"metadata": metadata, "rules": rules()})).await;
    let subject = json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace.name()});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT});
    let binding = json!({"metadata": metadata, "subjects": [subject], "roleRef": role});
    make::<RoleBinding>(namespace, binding).await;
    let paths = [
        "/api/v1/namespaces/{}/pods",
        "/apis/agents.x-k8s.io/v1beta1/namespaces/{}/sandboxes",
        "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{}/sandboxclaims",
        "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    ];
    let paths = paths.map(|path| path.replace("{}", namespace.name()));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let kubeconfig = bed.kubeconfig_of(namespace.name(), ACCOUNT, &paths).await;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig.unwrap(), &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

fn sized(image: &str, cpu: &str) -> Value {
    let mut spec = pod_spec(image);
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": cpu, "memory": "16Mi"}});
    json!({"spec": {"podTemplate": {"spec": spec}}})
}

fn cpu(sandbox: &Sandbox) -> Value {
    let spec = sandbox.spec.blueprint.pod_template.spec.json();
    spec["containers"][0]["resources"]["requests"]["cpu"].clone()
}

async fn pods(fleet: &Fleet) -> BTreeSet<String> {
    let pods: Vec<Pod> = fleet.list().await;
    pods.iter().filter_map(|pod| pod.uid()).collect()
}

async fn until_history_is_not_kept(fleet: &Fleet) -> Condition {
    let probe = async || {
        let pool: SandboxWarmPool = fleet.api().get("pool").await.unwrap();
        let conditions = pool.status?.conditions?;
        conditions
            .into_iter()
            .find(|one| one.type_ == "HistoryKept")
    };
    fleet.until("it says that no history is kept", probe).await
}

async fn until_rolled_out(fleet: &Fleet) {
    let probe = async || {
        let pool: SandboxWarmPool = fleet.api().get("pool").await.unwrap();
        let status = pool.status?;
        let is_done = status.updated_available_replicas == Some(2)
            && status.current_revision == status.update_revision
            && status.observed_generation == pool.metadata.generation;
        is_done.then_some(())
    };
    fleet.until("the rollout is complete", probe).await;
}

#[tokio::test]
async fn the_rights_of_the_reference_suffice_for_all_but_history_and_resizes() {
    let forbidden = Forbidden::default();
    let client = async |bed: &Testbed, namespace: &Namespace| {
        forbidden.listen(with_its_rights(bed, namespace).await)
    };
    let ground = Ground::run_by("takeover", client).await;
    let mut fleet = Fleet { ground };
    let mut template = sized("busybox:v1", "10m");
    template["metadata"] = json!({"name": "one"});
    fleet.create::<SandboxTemplate>(template).await;
    let rolling = json!({
        "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    });
    fleet
        .create::<SandboxWarmPool>(pool("one", 2, rolling))
        .await;
    let members = fleet.until_stocked(2, "busybox:v1").await;

    let given = fleet.claim("mine", json!({})).await;
    assert!(members.iter().any(|member| member.uid() == given.uid()));
    fleet.delete::<SandboxClaim>("mine").await;
    let gone = async || {
        let found = fleet.api::<Pod>().get_opt(&given.name_any()).await.unwrap();
        found.is_none().then_some(())
    };
    fleet.until("the pod is gone with its claim", gone).await;
    fleet.until_stocked(2, "busybox:v1").await;
    let condition = until_history_is_not_kept(&fleet).await;
    let told = (condition.status.as_str(), condition.reason.as_str());
    assert_eq!(told, ("False", "Forbidden"));
    assert!(
        condition.message.contains("controllerrevisions"),
        "{condition:?}"
    );

    // an image is changed in place
    let before = pods(&fleet).await;
    fleet
        .patch::<SandboxTemplate>("one", sized("busybox:v2", "10m"))
        .await;
    fleet.until_stocked(2, "busybox:v2").await;
    until_rolled_out(&fleet).await;
    assert_eq!(pods(&fleet).await, before);
    assert_eq!(forbidden.about("/resize"), 0);

    // a size is not: each member is replaced when its time is over
    fleet
        .patch::<SandboxTemplate>("one", sized("busybox:v2", "20m"))
        .await;
    let resized = async || {
        let members = fleet.until_stocked(2, "busybox:v2").await;
        members.iter().all(|one| cpu(one) == "20m").then_some(())
    };
    fleet.until("all members have the new size", resized).await;
    until_rolled_out(&fleet).await;
    let replaced = async || pods(&fleet).await.is_disjoint(&before).then_some(());
    fleet.until("the old pods are gone", replaced).await;
    assert_eq!(forbidden.about("/resize"), 2, "{:#?}", forbidden.all());

    // one for each revision
    assert_eq!(
        forbidden.about("/controllerrevisions"),
        3,
        "{:#?}",
        forbidden.all()
    );
    assert_eq!(forbidden.all().len(), 5, "{:#?}", forbidden.all());
    tokio::time::sleep(QUIET).await;
    assert_eq!(forbidden.all().len(), 5, "{:#?}", forbidden.all());

    // whoever comes next asks once and says the same
    fleet.ground.restart();
    fleet.claim("next", json!({})).await;
    let asked = async || (forbidden.about("/controllerrevisions") > 3).then_some(());
    fleet.until("the next one has asked", asked).await;
    fleet.until_stocked(2, "busybox:v2").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    until_history_is_not_kept(&fleet).await;
    assert_eq!(forbidden.all().len(), 6, "{:#?}", forbidden.all());
}
