//! Where the claims of a pod have their content.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};

use super::step::{directory, volume_name};
use crate::node::trouble::Trouble;

/// The directories of a pod's claims that are bound, by the names of the claims. A claim that is to live as long as the pod is
/// made if it is not there.
pub(crate) async fn directories(
    client: &Client,
    pod: &Pod,
    root: &Path,
) -> Result<BTreeMap<String, PathBuf>, Trouble> {
    let namespace = pod.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten();
    let wanted: Vec<_> = volumes.filter_map(|volume| wanted(pod, volume)).collect();
    let mut found = BTreeMap::new();
    for (name, own) in wanted {
        let claim = claim(&claims, &name, own.as_ref()).await?;
        if own.is_some() && !is_of(&claim, pod) {
            let pod = format!("{namespace}/{}", pod.name_any());
            return Err(Trouble::config(format!(
                "PVC {namespace}/{name} was not created for pod {pod} (pod is not the owner)"
            )));
        }
        found.extend(place(&claim, &name, root)?.map(|place| (name, place)));
    }
    Ok(found)
}

/// The name of the claim of a volume, and the claim if it is made for the pod.
fn wanted(pod: &Pod, volume: &Volume) -> Option<(String, Option<PersistentVolumeClaim>)> {
    if let Some(named) = &volume.persistent_volume_claim {
        return Some((named.claim_name.clone(), None));
    }
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let name = format!("{}-{}", pod.name_any(), volume.name);
    let given = template.metadata.clone().unwrap_or_default();
    let claim = PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: given.labels,
            annotations: given.annotations,
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod.name_any(),
                uid: pod.uid().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    };
    Some((name, Some(claim)))
}

fn is_of(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let mut owners = claim.owner_references().iter();
    owners.any(|owner| {
        owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref()
    })
}

async fn claim(
    claims: &Api<PersistentVolumeClaim>,
    name: &str,
    own: Option<&PersistentVolumeClaim>,
) -> Result<PersistentVolumeClaim, Trouble> {
    let trouble = |doing: &str, error: kube::Error| {
        Trouble::config(format!("{doing} persistentvolumeclaim \"{name}\": {error}"))
    };
    let found = claims.get_opt(name).await;
    if let Some(found) = found.map_err(|error| trouble("reading", error))? {
        return Ok(found);
    }
    let Some(own) = own else {
        let message = format!("persistentvolumeclaim \"{name}\" not found");
        return Err(Trouble::config(message));
    };
    let made = claims.create(&PostParams::default(), own).await;
    made.map_err(|error| trouble("creating", error))
}

/// None if the claim has no volume yet.
fn place(
    claim: &PersistentVolumeClaim,
    name: &str,
    root: &Path,
) -> Result<Option<PathBuf>, Trouble> {
    if claim.metadata.deletion_timestamp.is_some() {
        let message = format!("can't start pod because PVC '{name}' is being deleted");
        return Err(Trouble::config(message));
    }
    let spec = claim.spec.as_ref();
    let bound_to = spec.and_then(|spec| spec.volume_name.as_deref());
    let Some(volume) = bound_to.filter(|volume| !volume.is_empty()) else {
        return Ok(None);
    };
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    if volume != volume_name(uid) {
        return Err(Trouble::config(format!(
            "persistentvolumeclaim \"{name}\" wants the volume \"{volume}\", which this node did not make"
        )));
    }
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    Ok((phase == Some("Bound")).then(|| directory(root, uid)))
}
