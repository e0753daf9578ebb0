//! The project's own definitions with lean schemas on the embedded API: served, converted, applied.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use api::crds::{Conversion, Family, Schemas, Versions, render};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Error,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use local::{Cluster, Options};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    client: Client,
    _cluster: Cluster,
}

impl World {
    async fn lean() -> Self {
        let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
        let client = cluster.client();
        let families = [Family::Sigs, Family::Kruise];
        let all = render(&families, Versions::Both, Conversion::Webhook);
        let all = Schemas::Lean.of(all.unwrap());
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in &all {
            crds.create(&PostParams::default(), crd).await.unwrap();
        }
        let begun = Instant::now();
        for crd in all {
            let name = crd.metadata.name.unwrap();
            while !is_established(&crds.get(&name).await.unwrap()) {
                assert!(begun.elapsed() < PATIENCE, "{name} is never established");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Self {
            client,
            _cluster: cluster,
        }
    }

    fn sandboxes(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("agents.x-k8s.io", version, "Sandbox");
        let resource = ApiResource::from_gvk_with_plural(&kind, "sandboxes");
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }

    async fn apply(&self, manager: &str, pod_spec: Value) -> Result<Value, Error> {
        let params = PatchParams::apply(manager);
        let object = sandbox("v1beta1", pod_spec);
        let sandboxes = self.sandboxes("v1beta1");
        let applied = sandboxes
            .patch("box", &params, &Patch::Apply(object))
            .await?;
        Ok(pod_spec_of(&applied))
    }
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let status = crd.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
}

fn sandbox(version: &str, pod_spec: Value) -> Value {
    json!({
        "apiVersion": format!("agents.x-k8s.io/{version}"),
        "kind": "Sandbox",
        "metadata": {"name": "box"},
        "spec": {"podTemplate": {"spec": pod_spec}},
    })
}

fn pod_spec_of(sandbox: &DynamicObject) -> Value {
    sandbox.data["spec"]["podTemplate"]["spec"].clone()
}

#[tokio::test]
async fn what_nobody_knows_comes_back_in_both_versions() {
    let world = World::lean().await;
    let pod_spec = json!({"containers": [{"name": "main", "novelty": {"deep": [1]}}], "notion": 5});
    let object = serde_json::from_value(sandbox("v1alpha1", pod_spec.clone())).unwrap();
    let old = world.sandboxes("v1alpha1");
    old.create(&PostParams::default(), &object).await.unwrap();
    for version in ["v1alpha1", "v1beta1"] {
        let read = world.sandboxes(version).get("box").await.unwrap();
        assert_eq!(pod_spec_of(&read), pod_spec, "{version}");
    }
}

#[tokio::test]
async fn a_sandbox_without_containers_is_refused() {
    let world = World::lean().await;
    let object = serde_json::from_value(sandbox("v1beta1", json!({"volumes": []}))).unwrap();
    let sandboxes = world.sandboxes("v1beta1");
    let refused = sandboxes.create(&PostParams::default(), &object).await;
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("spec.podTemplate.spec.containers: Required value"),
        "{error}"
    );
}

#[tokio::test]
async fn who_applies_a_field_of_a_container_leaves_the_others_to_their_owners() {
    let world = World::lean().await;
    let main = |fields: Value| {
        let mut container = json!({"name": "main"});
        container
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        json!({"containers": [container]})
    };
    let whole = main(json!({"image": "app:1", "env": [{"name": "A", "value": "1"}]}));
    world.apply("author", whole).await.unwrap();
    let both = world
        .apply(
            "sizer",
            main(json!({"resources": {"limits": {"cpu": "1"}}})),
        )
        .await
        .unwrap();
    let container = json!({
        "name": "main", "image": "app:1", "env": [{"name": "A", "value": "1"}],
        "resources": {"limits": {"cpu": "1"}},
    });
    assert_eq!(both, json!({"containers": [container]}));
    // the full schemas know variables by their names; here the list is one value
    let more = main(json!({"env": [{"name": "B", "value": "2"}]}));
    let conflict = world.apply("sizer", more).await.unwrap_err().to_string();
    assert!(
        conflict.contains(r#"containers[name="main"].env"#),
        "{conflict}"
    );
}
