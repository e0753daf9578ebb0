//! The controllers of the embedded cluster, on its API.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use local::clock::Clock;
use local::server::Server;
use local::store::{self, Store};
use local::{Cluster, Options};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(20);

/// The API, with or without controllers behind it.
struct Api(Server);

impl Api {
    async fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let media = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .body(Full::new(body.into()))
            .unwrap();
        let response = self.0.handle(request).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn done(&self, method: &str, path: &str, body: Value) -> Value {
        let (code, answer) = self.call(method, path, &body).await;
        assert!(code < 300, "{method} {path}: {answer}");
        answer
    }

    async fn create(&self, collection: &str, object: Value) -> Value {
        self.done("POST", collection, object).await
    }

    /// Of the configmap.
    async fn uid(&self, name: &str) -> String {
        let map = self.get(&format!("{CONFIG_MAPS}/{name}")).await.unwrap();
        map["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// A configmap with finalizers, owned by others of which the end waits for it or not.
    async fn map(&self, name: &str, owners: &[(&str, bool)], finalizers: &[&str]) {
        let mut references = Vec::new();
        for (owner, blocks) in owners {
            let uid = self.uid(owner).await;
            references.push(reference(owner, &uid, *blocks));
        }
        let map = json!({"metadata": {
            "name": name, "ownerReferences": references, "finalizers": finalizers,
        }});
        self.create(CONFIG_MAPS, map).await;
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (code, object) = self.call("GET", path, &Value::Null).await;
        (code == 200).then_some(object)
    }

    async fn delete(&self, path: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        self.done("DELETE", path, options).await;
    }

    async fn release(&self, path: &str) {
        let patch = json!({"metadata": {"finalizers": null}});
        self.done("PATCH", path, patch).await;
    }

    /// The names of configmaps, without the one of the cluster.
    async fn maps(&self, namespace: &str) -> Vec<String> {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let list = self.get(&path).await.unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name != "kube-root-ca.crt").collect()
    }

    async fn until_gone(&self, path: &str) {
        until(&format!("{path} is gone"), async || {
            self.get(path).await.is_none()
        })
        .await;
    }

    async fn until_maps(&self, names: &[&str]) {
        let expected = format!("the configmaps are {names:?}");
        until(&expected, async || self.maps("default").await == names).await;
    }

    async fn until_ends(&self, path: &str) {
        until(&format!("{path} ends"), async || {
            let object = self.get(path).await;
            object.is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
    }

    /// Returns once nothing has been written for a while.
    async fn until_quiet(&self) {
        until("the cluster is quiet", async || {
            let revision = self.0.store().revision();
            tokio::time::sleep(Duration::from_millis(150)).await;
            self.0.store().revision() == revision
        })
        .await;
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waited).await;
    assert!(waited.is_ok(), "waited in vain until {what}");
}

fn reference(name: &str, uid: &str, blocks: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
        "blockOwnerDeletion": blocks,
    })
}

fn map(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

async fn cluster() -> (Cluster, Api) {
    let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
    let api = Api(cluster.service());
    (cluster, api)
}

async fn at(directory: &tempfile::TempDir) -> (Cluster, Api) {
    let options = Options {
        location: store::Location::Directory(directory.path().to_owned()),
        ..Options::ephemeral()
    };
    let cluster = Cluster::open(options).await.unwrap();
    let api = Api(cluster.service());
    (cluster, api)
}

/// The API of a cluster whose controllers do not run.
async fn without_controllers(directory: &tempfile::TempDir) -> Api {
    let store = Store::open(store::Options::directory(directory.path())).unwrap();
    let api = Api(Server::open(store, Clock::system()).await);
    let namespace = json!({"metadata": {"name": "default"}});
    api.create("/api/v1/namespaces", namespace).await;
    api
}

async fn new_namespace(api: &Api, name: &str) {
    let namespace = json!({"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}});
    api.create("/api/v1/namespaces", namespace).await;
    api.done("GET", &format!("/api/v1/namespaces/{name}"), Value::Null)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_go_with_their_owners_level_by_level() {
    let (_cluster, api) = cluster().await;
    api.map("a", &[], &[]).await;
    api.map("b", &[("a", false)], &[]).await;
    api.map("c", &[("b", false)], &[]).await;
    api.map("other", &[], &[]).await;
    api.delete(&map("a"), "Background").await;
    api.until_maps(&["other"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_deleted_in_the_foreground_waits_for_those_that_block_it() {
    let (_cluster, api) = cluster().await;
    api.map("a", &[], &[]).await;
    api.map("b", &[("a", true)], &[]).await;
    api.map("c", &[("b", true)], &["example.com/x"]).await;
    api.map("free", &[("a", false)], &["example.com/x"]).await;
    api.delete(&map("a"), "Foreground").await;
    api.until_ends(&map("c")).await;
    api.until_ends(&map("free")).await;
    api.until_quiet().await;
    assert_eq!(api.maps("default").await, ["a", "b", "c", "free"]);
    let b = api.get(&map("b")).await.unwrap();
    assert_eq!(b["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    api.release(&map("c")).await;
    api.until_maps(&["free"]).await;
    api.release(&map("free")).await;
    api.until_maps(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_forget_their_owner_and_stay() {
    let (_cluster, api) = cluster().await;
    api.map("a", &[], &[]).await;
    api.map("keeps", &[], &[]).await;
    api.map("b", &[("a", true), ("keeps", false)], &[]).await;
    api.map("c", &[("a", false)], &[]).await;
    api.delete(&map("a"), "Orphan").await;
    api.until_maps(&["b", "c", "keeps"]).await;
    api.until_quiet().await;
    let b = api.get(&map("b")).await.unwrap();
    assert_eq!(b["metadata"]["ownerReferences"][0]["name"], "keeps");
    let c = api.get(&map("c")).await.unwrap();
    assert!(c["metadata"]["ownerReferences"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_to_an_owner_that_is_gone_goes_while_another_owner_stays() {
    let (_cluster, api) = cluster().await;
    api.map("a", &[], &[]).await;
    api.map("b", &[], &[]).await;
    api.map("child", &[("a", true), ("b", true)], &[]).await;
    api.delete(&map("a"), "Foreground").await;
    api.until_maps(&["b", "child"]).await;
    let child = api.get(&map("child")).await.unwrap();
    let owners = child["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["name"], "b");
    api.delete(&map("b"), "Background").await;
    api.until_maps(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_in_a_circle_go_whatever_way_one_is_deleted() {
    for policy in ["Foreground", "Background"] {
        let (_cluster, api) = cluster().await;
        api.map("a", &[], &[]).await;
        api.map("b", &[("a", true)], &[]).await;
        api.map("c", &[("b", true)], &[]).await;
        let owner = reference("c", &api.uid("c").await, true);
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        api.done("PATCH", &map("a"), patch).await;
        api.until_quiet().await;
        assert_eq!(api.maps("default").await, ["a", "b", "c"]);
        api.delete(&map("b"), policy).await;
        api.until_maps(&[]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_looked_for_where_they_can_be() {
    let (_cluster, api) = cluster().await;
    new_namespace(&api, "elsewhere").await;
    api.map("owner", &[], &[]).await;
    let uid = api.uid("owner").await;
    let namespace = api.get("/api/v1/namespaces/elsewhere").await.unwrap();
    let child =
        |name: &str, owner: Value| json!({"metadata": {"name": name, "ownerReferences": [owner]}});
    let elsewhere = "/api/v1/namespaces/elsewhere/configmaps";
    api.create(
        elsewhere,
        child("stranger", reference("owner", &uid, false)),
    )
    .await;
    let of_cluster = json!({
        "apiVersion": "v1", "kind": "Namespace", "name": "elsewhere", "uid": namespace["metadata"]["uid"],
    });
    api.create(elsewhere, child("citizen", of_cluster)).await;
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "1"});
    api.create(elsewhere, child("unknown", unknown)).await;
    let other = reference("owner", "00000000-0000-0000-0000-000000000001", false);
    api.create(CONFIG_MAPS, child("mistaken", other)).await;
    api.until_maps(&["owner"]).await;
    api.until_gone(&format!("{elsewhere}/stranger")).await;
    api.until_quiet().await;
    assert_eq!(api.maps("elsewhere").await, ["citizen", "unknown"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_when_the_process_ended_is_collected_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let api = without_controllers(&directory).await;
    api.map("a", &[], &[]).await;
    api.map("b", &[("a", false)], &[]).await;
    api.map("c", &[("b", false)], &[]).await;
    api.map("orphaning", &[], &[]).await;
    api.map("orphan", &[("orphaning", false)], &[]).await;
    api.map("waiting", &[], &[]).await;
    api.map("blocking", &[("waiting", true)], &[]).await;
    api.delete(&map("a"), "Background").await;
    api.delete(&map("orphaning"), "Orphan").await;
    api.delete(&map("waiting"), "Foreground").await;
    drop(api);
    let (cluster, api) = at(&directory).await;
    api.until_maps(&["orphan"]).await;
    drop(api);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_dependents_are_collected() {
    let directory = tempfile::tempdir().unwrap();
    let (_cluster, api) = at(&directory).await;
    api.map("owner", &[], &[]).await;
    let owner = reference("owner", &api.uid("owner").await, true);
    let create = |index: usize| {
        let name = format!("child-{index}");
        let child = json!({"metadata": {"name": name, "ownerReferences": [owner.clone()]}});
        api.create(CONFIG_MAPS, child)
    };
    futures::future::join_all((0..1000).map(create)).await;
    assert_eq!(api.maps("default").await.len(), 1001);
    api.delete(&map("owner"), "Foreground").await;
    api.until_maps(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_when_what_is_in_it_is_gone() {
    let (_cluster, api) = cluster().await;
    new_namespace(&api, "busy").await;
    let maps = "/api/v1/namespaces/busy/configmaps";
    for (name, finalizers) in [("plain", json!([])), ("held", json!(["example.com/x"]))] {
        let object = json!({"metadata": {"name": name, "finalizers": finalizers}});
        api.create(maps, object).await;
    }
    api.done("DELETE", "/api/v1/namespaces/busy", Value::Null)
        .await;
    let content = "/api/v1/namespaces/busy";
    until("what is left is said", async || {
        let namespace = api.get(content).await.unwrap();
        namespace["status"]["conditions"][3]["status"] == "True"
            && api.maps("busy").await == ["held"]
    })
    .await;
    api.until_quiet().await;
    let namespace = api.get(content).await.unwrap();
    let conditions = &namespace["status"]["conditions"];
    assert_eq!(
        conditions[3]["message"],
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    assert_eq!(
        conditions[4]["message"],
        "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances"
    );
    api.release(&format!("{maps}/held")).await;
    api.until_gone(content).await;
    assert!(api.maps("busy").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_an_account_and_a_certificate_as_long_as_it_lives() {
    let options = Options {
        root_certificate: "PEM".to_owned(),
        ..Options::ephemeral()
    };
    let cluster = Cluster::open(options).await.unwrap();
    let api = Api(cluster.service());
    new_namespace(&api, "busy").await;
    let account = "/api/v1/namespaces/busy/serviceaccounts/default";
    let certificate = "/api/v1/namespaces/busy/configmaps/kube-root-ca.crt";
    let is_there = async |what: &str| {
        until("account and certificate are there", async || {
            let certificate = api.get(certificate).await;
            api.get(account).await.is_some()
                && certificate.is_some_and(|map| map["data"] == json!({"ca.crt": "PEM"}))
        })
        .await;
        api.until_quiet().await;
        assert!(api.get(account).await.is_some(), "{what}");
    };
    is_there("at first").await;
    for path in [account, certificate] {
        api.done("DELETE", path, Value::Null).await;
        is_there("after a delete").await;
    }
    let patch = json!({"data": {"ca.crt": "forged", "more": "x"}});
    api.done("PATCH", certificate, patch).await;
    is_there("after a change").await;
    api.done("DELETE", "/api/v1/namespaces/busy", Value::Null)
        .await;
    api.until_gone("/api/v1/namespaces/busy").await;
    api.until_quiet().await;
    assert_eq!(api.get(account).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_counts_its_healthy_pods() {
    let (_cluster, api) = cluster().await;
    until("pods can be made", async || {
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        api.get(account).await.is_some()
    })
    .await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let selector = json!({"matchLabels": {"app": "x"}});
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}});
    api.create(budgets, budget).await;
    let pods = "/api/v1/namespaces/default/pods";
    for (name, app) in [("one", "x"), ("two", "x"), ("other", "y")] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        api.create(pods, pod).await;
        let status = json!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        }});
        api.done("PATCH", &format!("{pods}/{name}/status"), status)
            .await;
    }
    let says = async |healthy: i64, allowed: i64| {
        until(
            &format!("{healthy} are healthy and {allowed} may go"),
            async || {
                let status = &api.get(&format!("{budgets}/b")).await.unwrap()["status"];
                status["currentHealthy"] == healthy && status["disruptionsAllowed"] == allowed
            },
        )
        .await;
    };
    says(2, 1).await;
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    api.create(&format!("{pods}/one/eviction"), eviction("one"))
        .await;
    says(1, 0).await;
    let path = format!("{pods}/two/eviction");
    let (code, _) = api.call("POST", &path, &eviction("two")).await;
    assert_eq!(code, 429);
    api.until_quiet().await;
    let status = &api.get(&format!("{budgets}/b")).await.unwrap()["status"];
    assert!(status["disruptedPods"].is_null(), "{status}");
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_kept_while_a_pod_uses_it() {
    let (_cluster, api) = cluster().await;
    until("pods can be made", async || {
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        api.get(account).await.is_some()
    })
    .await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    api.create(claims, claim).await;
    let claim = format!("{claims}/c");
    until("the claim is protected", async || {
        let finalizers = api.get(&claim).await.unwrap()["metadata"]["finalizers"].clone();
        finalizers == json!(["kubernetes.io/pvc-protection"])
    })
    .await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": "n", "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    }});
    api.create(pods, pod).await;
    api.done("DELETE", &claim, Value::Null).await;
    api.until_quiet().await;
    assert!(api.get(&claim).await.is_some());
    let now = json!({"gracePeriodSeconds": 0});
    api.done("DELETE", &format!("{pods}/p"), now).await;
    api.until_gone(&claim).await;
}

/// Until all objects have been shown, an owner seems to have fewer dependents than it has.
#[tokio::test(flavor = "multi_thread")]
async fn orphans_stay_though_the_process_died_before_they_were_freed() {
    let directory = tempfile::tempdir().unwrap();
    let api = without_controllers(&directory).await;
    api.map("a-owner", &[], &[]).await;
    for index in 0..700 {
        api.map(&format!("b-{index}"), &[], &[]).await;
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    let owner = reference("a-owner", &api.uid("a-owner").await, true);
    let secret = json!({"metadata": {"name": "orphan", "ownerReferences": [owner]}});
    api.create(secrets, secret).await;
    api.delete(&map("a-owner"), "Orphan").await;
    drop(api);
    let (cluster, api) = at(&directory).await;
    api.until_gone(&map("a-owner")).await;
    api.until_quiet().await;
    let orphan = api.get(&format!("{secrets}/orphan")).await.unwrap();
    assert!(orphan["metadata"]["ownerReferences"].is_null());
    drop(api);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_that_name_no_version_never_lose_a_race() {
    let directory = tempfile::tempdir().unwrap();
    let (cluster, api) = at(&directory).await;
    api.map("shared", &[], &[]).await;
    let mut racers = tokio::task::JoinSet::new();
    for index in 0..50 {
        let api = Api(cluster.service());
        let patch = json!({"data": {format!("k{index}"): "v"}});
        racers.spawn(async move { api.done("PATCH", &map("shared"), patch).await });
    }
    racers.join_all().await;
    let shared = api.get(&map("shared")).await.unwrap();
    assert_eq!(shared["data"].as_object().unwrap().len(), 50);
    cluster.close().await;
}

/// What was just written under one schema is looked at anew under the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_patch_after_a_change_of_the_definition_follows_the_new_one() {
    let (_cluster, api) = cluster().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = |color: Value| {
        let spec =
            json!({"type": "object", "properties": {"color": color, "size": {"type": "integer"}}});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({
            "metadata": {"name": "gadgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "gadgets", "kind": "Gadget"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    };
    api.create(definitions, definition(json!({"type": "string"})))
        .await;
    let gadgets = "/apis/example.com/v1/namespaces/default/gadgets";
    let gadget = json!({
        "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": 1},
    });
    api.create(gadgets, gadget).await;
    let colored = definition(json!({"type": "string", "default": "red"}));
    let path = format!("{definitions}/gadgets.example.com");
    api.done("PATCH", &path, json!({"spec": colored["spec"]}))
        .await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = api.done("PATCH", &format!("{gadgets}/g"), label).await;
    assert_eq!(patched["spec"], json!({"size": 1, "color": "red"}));
}

/// The controllers are ended as soon as something of theirs is on disk, until nothing is left to do. Writes that were
/// waiting together are on disk together, so how often they die differs from run to run.
#[tokio::test(flavor = "multi_thread")]
async fn controllers_that_die_again_and_again_still_finish() {
    let directory = tempfile::tempdir().unwrap();
    let api = without_controllers(&directory).await;
    new_namespace(&api, "busy").await;
    let object = json!({"metadata": {"name": "m"}});
    api.create("/api/v1/namespaces/busy/configmaps", object)
        .await;
    api.map("a", &[], &[]).await;
    api.map("b", &[("a", true)], &[]).await;
    api.map("c", &[("b", true)], &[]).await;
    api.map("d", &[("b", false)], &[]).await;
    api.map("orphaning", &[], &[]).await;
    api.map("orphan-1", &[("orphaning", true)], &[]).await;
    api.map("orphan-2", &[("orphaning", true)], &[]).await;
    api.delete(&map("a"), "Foreground").await;
    api.delete(&map("orphaning"), "Orphan").await;
    api.done("DELETE", "/api/v1/namespaces/busy", Value::Null)
        .await;
    drop(api);
    let mut deaths = 0;
    loop {
        let (cluster, api) = at(&directory).await;
        let revision = api.0.store().revision();
        let writes = async {
            while api.0.store().revision() == revision {
                tokio::task::yield_now().await;
            }
        };
        let wrote = tokio::time::timeout(Duration::from_millis(500), writes).await;
        let is_done = wrote.is_err() && api.get("/api/v1/namespaces/busy").await.is_none();
        cluster.close().await;
        if is_done {
            break;
        }
        deaths += 1;
        assert!(deaths < 200, "it goes on for ever");
    }
    assert!(deaths > 0, "nothing was done");
    let (cluster, api) = at(&directory).await;
    api.until_maps(&["orphan-1", "orphan-2"]).await;
    assert_eq!(api.get("/api/v1/namespaces/busy").await, None);
    for name in ["orphan-1", "orphan-2"] {
        until(&format!("{name} is nobody's"), async || {
            let orphan = api.get(&map(name)).await.unwrap();
            orphan["metadata"]["ownerReferences"].is_null()
        })
        .await;
    }
    api.until_quiet().await;
    assert_eq!(api.maps("default").await, ["orphan-1", "orphan-2"]);
    drop(api);
    cluster.close().await;
}
