//! Claims on the embedded cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, from_value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::step::{claim_uid, directory, step, volume_name};
use super::{Doing, directories, keep};
use crate::{Cluster, Options};

struct Stage {
    _cluster: Cluster,
    client: Client,
    scratch: TempDir,
}

impl Stage {
    async fn new() -> Self {
        let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
        Self {
            client: cluster.client(),
            _cluster: cluster,
            scratch: tempfile::tempdir().unwrap(),
        }
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("claims")
    }

    fn keep(&self) -> tokio::task::JoinHandle<()> {
        let trouble = watch::Sender::new(None);
        tokio::spawn(keep(self.client.clone(), self.root(), trouble))
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    async fn claim(&self, name: &str, more: Value) -> String {
        let mut claim = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        for (key, value) in more.as_object().unwrap() {
            claim["spec"][key] = value.clone();
        }
        let claim = from_value(claim).unwrap();
        let made = self.claims().create(&PostParams::default(), &claim).await;
        made.unwrap().uid().unwrap()
    }

    /// Both as they are now.
    async fn seen(&self, uid: &str) -> (Option<PersistentVolumeClaim>, Option<PersistentVolume>) {
        let claims = self.claims().list(&ListParams::default()).await.unwrap();
        let claim = claims.into_iter().find(|it| it.uid().unwrap() == uid);
        let volume = self.volumes().get_opt(&volume_name(uid)).await.unwrap();
        (claim, volume)
    }

    /// Acts until there is nothing left to do; says how often.
    async fn settle(&self, uid: &str) -> usize {
        for acts in 0..20 {
            let (claim, volume) = self.seen(uid).await;
            let Some(act) = step(claim.as_ref(), volume.as_ref(), &self.root()) else {
                return acts;
            };
            self.doing(uid, claim, volume).act(act).await.unwrap();
            // the finalizers of what is deleted are others' work
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("there is always something to do");
    }

    fn doing(
        &self,
        uid: &str,
        claim: Option<PersistentVolumeClaim>,
        volume: Option<PersistentVolume>,
    ) -> Doing {
        Doing {
            client: self.client.clone(),
            directory: directory(&self.root(), uid),
            claim,
            volume,
        }
    }

    async fn retain(&self, uid: &str) {
        let keep = Patch::Merge(json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
        let (volumes, params) = (self.volumes(), PatchParams::default());
        let patched = volumes.patch(&volume_name(uid), &params, &keep).await;
        patched.unwrap();
    }

    async fn delete(&self, claim: &str) {
        let deleted = self.claims().delete(claim, &DeleteParams::default()).await;
        deleted.unwrap();
    }
}

async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen in a minute");
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    let status = claim.status.as_ref();
    status
        .and_then(|it| it.phase.as_deref())
        .unwrap_or_default()
}

fn volume_phase(volume: &PersistentVolume) -> String {
    let status = volume.status.clone().unwrap_or_default();
    status.phase.unwrap_or_default()
}

#[tokio::test]
async fn a_claim_is_bound_to_a_directory_and_both_go_with_it() {
    let stage = Stage::new().await;
    let keeper = stage.keep();
    let uid = stage
        .claim("data", json!({"storageClassName": "fast"}))
        .await;
    let bound = async || {
        stage
            .seen(&uid)
            .await
            .0
            .filter(|claim| phase(claim) == "Bound")
    };
    let claim = eventually(bound).await;
    let status = claim.status.unwrap();
    assert_eq!(status.capacity.unwrap()["storage"].0, "1Gi");
    assert_eq!(status.access_modes.unwrap(), ["ReadWriteOnce"]);
    let volume = stage.volumes().get(&volume_name(&uid)).await.unwrap();
    assert_eq!(volume_phase(&volume), "Bound");
    let spec = volume.spec.unwrap();
    assert_eq!(spec.storage_class_name.as_deref(), Some("fast"));
    let place = directory(&stage.root(), &uid);
    assert_eq!(Path::new(&spec.host_path.unwrap().path), place);
    std::fs::write(place.join("file"), "kept").unwrap();
    stage.delete("data").await;
    eventually(async || {
        let (claim, volume) = stage.seen(&uid).await;
        (claim.is_none() && volume.is_none()).then_some(())
    })
    .await;
    assert!(!place.exists());
    keeper.abort();
}

#[tokio::test]
async fn every_act_can_be_the_last_before_a_crash() {
    let stage = Stage::new().await;
    let uid = stage.claim("data", json!({})).await;
    // volume, its status, the claim, its status: each decided on nothing but what is stored
    assert_eq!(stage.settle(&uid).await, 4);
    assert_eq!(stage.settle(&uid).await, 0);
    let (claim, volume) = stage.seen(&uid).await;
    assert_eq!(phase(&claim.unwrap()), "Bound");
    assert_eq!(volume_phase(&volume.unwrap()), "Bound");
    stage.delete("data").await;
    eventually(async || stage.seen(&uid).await.0.is_none().then_some(())).await;
    assert_eq!(stage.settle(&uid).await, 2);
    assert!(stage.seen(&uid).await.1.is_none());
    assert!(!directory(&stage.root(), &uid).exists());
}

#[tokio::test]
async fn an_act_on_what_has_changed_meanwhile_changes_nothing() {
    let stage = Stage::new().await;
    let uid = stage.claim("data", json!({})).await;
    stage.settle(&uid).await;
    stage.delete("data").await;
    eventually(async || stage.seen(&uid).await.0.is_none().then_some(())).await;
    let (_, old) = stage.seen(&uid).await;
    let act = step(None, old.as_ref(), &stage.root()).unwrap();
    stage.retain(&uid).await;
    assert!(stage.doing(&uid, None, old).act(act).await.is_err());
    let (_, volume) = stage.seen(&uid).await;
    assert_eq!(volume_phase(&volume.unwrap()), "Bound");
}

#[tokio::test]
async fn a_volume_that_is_to_be_kept_is_only_released() {
    let stage = Stage::new().await;
    let uid = stage.claim("data", json!({})).await;
    stage.settle(&uid).await;
    stage.retain(&uid).await;
    stage.delete("data").await;
    eventually(async || stage.seen(&uid).await.0.is_none().then_some(())).await;
    assert_eq!(stage.settle(&uid).await, 1);
    let (_, volume) = stage.seen(&uid).await;
    assert_eq!(volume_phase(&volume.unwrap()), "Released");
    assert!(directory(&stage.root(), &uid).exists());
}

#[tokio::test]
async fn a_claim_that_grows_has_what_it_wants() {
    let stage = Stage::new().await;
    let uid = stage.claim("data", json!({})).await;
    stage.settle(&uid).await;
    let more = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    let (claims, params) = (stage.claims(), PatchParams::default());
    claims.patch("data", &params, &more).await.unwrap();
    assert_eq!(stage.settle(&uid).await, 2);
    let (claim, _) = stage.seen(&uid).await;
    let capacity = claim.unwrap().status.unwrap().capacity.unwrap();
    assert_eq!(capacity["storage"].0, "2Gi");
}

#[tokio::test]
async fn what_no_directory_can_be_is_refused_once_and_said() {
    let stage = Stage::new().await;
    let keeper = stage.keep();
    let source = json!({"kind": "PersistentVolumeClaim", "name": "other"});
    for (name, more) in [
        (
            "selecting",
            json!({"selector": {"matchLabels": {"a": "b"}}}),
        ),
        ("copying", json!({"dataSource": source})),
        ("raw", json!({"volumeMode": "Block"})),
    ] {
        stage.claim(name, more).await;
    }
    let events: Api<Event> = Api::namespaced(stage.client.clone(), "default");
    let said = eventually(async || {
        let said = events.list(&ListParams::default()).await.unwrap().items;
        (said.len() >= 3).then_some(said)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        events
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        3
    );
    for event in said {
        assert_eq!(event.reason.as_deref(), Some("ProvisioningFailed"));
        let about = event.involved_object;
        assert_eq!(about.kind.as_deref(), Some("PersistentVolumeClaim"));
    }
    assert!(
        stage
            .volumes()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    keeper.abort();
}

#[tokio::test]
async fn directories_of_nobody_are_swept_and_no_others() {
    let stage = Stage::new().await;
    let uid = stage.claim("data", json!({})).await;
    stage.settle(&uid).await;
    let orphan = stage.root().join("0b6f1c9a-52a3-4a0e-9d0f-3f7f5c8f1f55");
    let foreign = stage.root().join("notes");
    std::fs::create_dir(&orphan).unwrap();
    std::fs::write(orphan.join("file"), "").unwrap();
    std::fs::create_dir(&foreign).unwrap();
    let keeper = stage.keep();
    eventually(async || (!orphan.exists()).then_some(())).await;
    assert!(foreign.exists() && directory(&stage.root(), &uid).exists());
    keeper.abort();
}

fn pod(volume: &Value) -> Pod {
    from_value(json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "1"},
        "spec": {"containers": [], "volumes": [volume]},
    }))
    .unwrap()
}

#[tokio::test]
async fn a_pod_finds_its_claims_once_they_are_bound() {
    let stage = Stage::new().await;
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
    let pod = pod(&volume);
    let (client, root) = (&stage.client, &stage.root());
    let missing = directories(client, &pod, root).await.unwrap_err();
    assert_eq!(missing.message, r#"persistentvolumeclaim "data" not found"#);
    let uid = stage.claim("data", json!({})).await;
    assert!(directories(client, &pod, root).await.unwrap().is_empty());
    stage.settle(&uid).await;
    let found = directories(client, &pod, root).await.unwrap();
    assert_eq!(found["data"], directory(root, &uid));
    assert!(found["data"].is_dir());
}

#[tokio::test]
async fn a_claim_that_lives_as_long_as_a_pod_is_made_for_it_and_taken_from_no_other() {
    let stage = Stage::new().await;
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
    let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}});
    let (client, root) = (&stage.client, &stage.root());
    let mut given = pod(&volume);
    given.spec.as_mut().unwrap().containers =
        from_value(json!([{"name": "c", "image": "i"}])).unwrap();
    given.metadata.uid = None;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let mut pod = pods.create(&PostParams::default(), &given).await.unwrap();
    assert!(directories(client, &pod, root).await.unwrap().is_empty());
    let claim = stage.claims().get("p-v").await.unwrap();
    assert_eq!(claim.labels()["a"], "b");
    stage.settle(&claim.uid().unwrap()).await;
    let found = directories(client, &pod, root).await.unwrap();
    assert_eq!(found["p-v"], directory(root, &claim.uid().unwrap()));
    pod.metadata.uid = Some("another".to_owned());
    let refused = directories(client, &pod, root).await.unwrap_err();
    assert!(
        refused.message.contains("pod is not the owner"),
        "{refused:?}"
    );
}

#[test]
fn what_somebody_wrote_into_a_volume_never_becomes_a_path() {
    let uid = "6f1e1c1e-2a43-4b0c-9f0e-0d7f5b1a2c3d";
    for (name, uid, is_ours) in [
        (format!("pvc-{uid}"), uid, true),
        ("pvc-/home".to_owned(), "/home", false),
        ("pvc-../pods".to_owned(), "../pods", false),
        ("pvc-".to_owned(), "", false),
        ("other".to_owned(), uid, false),
    ] {
        let volume: PersistentVolume = from_value(json!({
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "sandbar.dev/directory"}},
            "spec": {"claimRef": {"uid": uid}},
        }))
        .unwrap();
        assert_eq!(claim_uid(&volume).is_some(), is_ours, "{name}");
    }
}
