//! What to do next about a claim and its volume. Pure, and safe to be asked again after every act, done or not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use quantity::Quantity;
use serde_json::{Value, json};
use uuid::Uuid;

/// Who made a volume is said under this key.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONER: &str = "sandbar.dev/directory";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

#[derive(Debug, PartialEq)]
pub(super) enum Act {
    /// With its directory, which comes first.
    CreateVolume(Box<PersistentVolume>),
    /// These are merge patches that fail if the object has changed.
    PatchVolume(Value),
    PatchVolumeStatus(Value),
    PatchClaim(Value),
    PatchClaimStatus(Value),
    RemoveDirectoryAndPatchVolumeStatus(Value),
    RemoveDirectoryAndDeleteVolume,
    /// Says why there will be no volume.
    Refuse(&'static str),
}

/// The name of the volume that a claim gets.
pub(super) fn volume_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}

pub(super) fn directory(root: &Path, claim_uid: &str) -> PathBuf {
    root.join(claim_uid)
}

/// Which claim a volume is for, if the volume was made here. What others write into a volume must not become a path.
pub(super) fn claim_uid(volume: &PersistentVolume) -> Option<String> {
    let annotations = volume.metadata.annotations.as_ref()?;
    let is_ours = annotations.get(PROVISIONED_BY)? == PROVISIONER;
    let uid = volume.spec.as_ref()?.claim_ref.as_ref()?.uid.clone()?;
    let is_uid = Uuid::parse_str(&uid).is_ok();
    let is_named = volume.metadata.name == Some(volume_name(&uid));
    (is_ours && is_uid && is_named).then_some(uid)
}

/// About a claim and the volume that was made for it here, as far as they are there.
pub(super) fn step(
    claim: Option<&PersistentVolumeClaim>,
    volume: Option<&PersistentVolume>,
    root: &Path,
) -> Option<Act> {
    match (claim, volume) {
        (None, None) => None,
        (None, Some(volume)) => let_go(volume),
        (Some(claim), volume) => {
            let uid = claim.metadata.uid.as_deref()?;
            let bound_to = bound_to(claim);
            let is_elsewhere = bound_to.is_some_and(|name| name != volume_name(uid));
            match volume {
                Some(volume) if is_elsewhere => let_go(volume),
                _ if is_elsewhere || claim.metadata.deletion_timestamp.is_some() => None,
                Some(volume) => bind(claim, volume),
                None => match refusal(claim) {
                    Some(reason) => Some(Act::Refuse(reason)),
                    None => Some(Act::CreateVolume(Box::new(new_volume(claim, uid, root)?))),
                },
            }
        }
    }
}

fn bound_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref();
    name.filter(|name| !name.is_empty())
}

fn refusal(claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let spec = claim.spec.as_ref()?;
    let block = spec.volume_mode.as_deref() == Some("Block");
    let copies = spec.data_source.is_some() || spec.data_source_ref.is_some();
    if spec.selector.is_some() {
        Some("claim.Spec.Selector is not supported: volumes are directories made for one claim")
    } else if copies {
        Some("a data source is not supported: volumes begin as empty directories")
    } else if block {
        Some("volumeMode Block is not supported: volumes are directories")
    } else {
        None
    }
}

fn new_volume(claim: &PersistentVolumeClaim, uid: &str, root: &Path) -> Option<PersistentVolume> {
    let spec = claim.spec.as_ref()?;
    let path = directory(root, uid).to_str()?.to_owned();
    let annotation = (PROVISIONED_BY.to_owned(), PROVISIONER.to_owned());
    Some(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume_name(uid)),
            annotations: Some(BTreeMap::from([annotation])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes.clone(),
            capacity: Some(BTreeMap::from([("storage".to_owned(), wanted(claim)?)])),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                name: claim.metadata.name.clone(),
                namespace: claim.metadata.namespace.clone(),
                uid: Some(uid.to_owned()),
                ..ObjectReference::default()
            }),
            host_path: Some(HostPathVolumeSource {
                path,
                type_: Some("Directory".to_owned()),
            }),
            persistent_volume_reclaim_policy: Some("Delete".to_owned()),
            storage_class_name: spec.storage_class_name.clone(),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

fn bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Act> {
    let spec = volume.spec.as_ref()?;
    if volume_phase(volume) != "Bound" {
        // one that is going gives way to a new one
        let is_going = volume.metadata.deletion_timestamp.is_some();
        let patch = patch(volume, json!({"status": {"phase": "Bound"}}));
        return (!is_going).then_some(Act::PatchVolumeStatus(patch));
    }
    let annotations = claim.metadata.annotations.as_ref();
    let completed = annotations.is_some_and(|all| all.contains_key(BIND_COMPLETED));
    if bound_to(claim).is_none() || !completed {
        let change = json!({
            "metadata": {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}},
            "spec": {"volumeName": volume.metadata.name},
        });
        return Some(Act::PatchClaim(patch(claim, change)));
    }
    let (has, wants) = (storage(spec.capacity.as_ref()), wanted(claim)?);
    if has.is_none_or(|has| parsed(has) < parsed(&wants)) {
        // a directory is as large as anybody wants
        let change = json!({"spec": {"capacity": {"storage": wants}}});
        return Some(Act::PatchVolume(patch(volume, change)));
    }
    let status = claim.status.clone().unwrap_or_default();
    let is_told = status.phase.as_deref() == Some("Bound")
        && storage(status.capacity.as_ref()).map(parsed) == has.map(parsed)
        && status.access_modes == spec.access_modes;
    let change = json!({"status": {
        "phase": "Bound",
        "accessModes": spec.access_modes,
        "capacity": spec.capacity,
    }});
    (!is_told).then(|| Act::PatchClaimStatus(patch(claim, change)))
}

/// About a volume whose claim is gone. A volume that somebody deletes waits only until it is no longer bound: its directory has
/// to go before that.
fn let_go(volume: &PersistentVolume) -> Option<Act> {
    let policy = volume
        .spec
        .as_ref()?
        .persistent_volume_reclaim_policy
        .as_deref();
    let is_released = volume_phase(volume) == "Released";
    let is_going = volume.metadata.deletion_timestamp.is_some();
    let released = || patch(volume, json!({"status": {"phase": "Released"}}));
    match policy == Some("Delete") {
        true if !is_released => Some(Act::RemoveDirectoryAndPatchVolumeStatus(released())),
        true if !is_going => Some(Act::RemoveDirectoryAndDeleteVolume),
        false if !is_released => Some(Act::PatchVolumeStatus(released())),
        _ => None,
    }
}

fn volume_phase(volume: &PersistentVolume) -> &str {
    let status = volume.status.as_ref();
    status
        .and_then(|it| it.phase.as_deref())
        .unwrap_or_default()
}

fn wanted(claim: &PersistentVolumeClaim) -> Option<Amount> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    storage(resources.requests.as_ref()).cloned()
}

fn storage(amounts: Option<&BTreeMap<String, Amount>>) -> Option<&Amount> {
    amounts?.get("storage")
}

fn parsed(amount: &Amount) -> Option<Quantity> {
    Quantity::parse(&amount.0).ok()
}

/// That only the object takes which this was decided on.
fn patch(object: &impl Resource, mut change: Value) -> Value {
    let meta = object.meta();
    change["metadata"]["uid"] = json!(meta.uid);
    change["metadata"]["resourceVersion"] = json!(meta.resource_version);
    change
}
