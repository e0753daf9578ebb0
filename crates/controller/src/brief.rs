//! Objects as controllers read them.

use std::{collections::BTreeMap, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// In an `impl Resource`: what stands for an object of a kind is addressed like one.
macro_rules! as_kind {
    ($kind:ident) => {
        type DynamicType = $kind::DynamicType;
        type Scope = $kind::Scope;

        fn kind(of: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
            $kind::kind(of)
        }

        fn group(of: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
            $kind::group(of)
        }

        fn version(of: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
            $kind::version(of)
        }

        fn plural(of: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
            $kind::plural(of)
        }
    };
}
pub(crate) use as_kind;

/// A `K` without the record of who manages which field. That is half of the text of many objects, no controller asks for
/// it, and to read it costs more than all the rest.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound(deserialize = "Spec: Deserialize<'de>, Status: Deserialize<'de>"))]
pub struct Brief<K, Spec, Status> {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    pub spec: Spec,
    pub status: Option<Status>,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource, Spec, Status> Resource for Brief<K, Spec, Status> {
    as_kind!(K);

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What `Meta` is made of.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

pub(crate) fn metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let read = Metadata::deserialize(from)?;
    Ok(ObjectMeta {
        namespace: read.namespace,
        name: read.name,
        uid: read.uid,
        resource_version: read.resource_version,
        generation: read.generation,
        creation_timestamp: read.creation_timestamp,
        deletion_timestamp: read.deletion_timestamp,
        labels: read.labels,
        annotations: read.annotations,
        owner_references: read.owner_references,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
    use kube::Resource as _;

    use super::Brief;
    use crate::meta::Meta;

    const POD: &str = r#"{
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "1", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-11-16T12:00:00Z", "deletionTimestamp": "2026-11-16T13:00:00Z",
            "labels": {"a": "b"}, "annotations": {"c": "d"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "2", "controller": true}],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {}}}]
        },
        "spec": {"containers": [], "nodeName": "n"},
        "status": {"phase": "Running"}
    }"#;

    #[test]
    fn all_that_controllers_ask_for_is_read_and_the_managers_are_not() {
        let brief: Brief<Pod, PodSpec, PodStatus> = serde_json::from_str(POD).unwrap();
        let whole: Pod = serde_json::from_str(POD).unwrap();
        assert_eq!(brief.meta().managed_fields, None);
        assert_eq!(
            Meta::from(brief.metadata),
            Meta::from(whole.metadata.clone())
        );
        assert_eq!((Some(brief.spec), brief.status), (whole.spec, whole.status));
    }

    #[test]
    fn its_address_is_that_of_the_kind() {
        type BriefPod = Brief<Pod, PodSpec, PodStatus>;
        let of = (BriefPod::kind(&()), BriefPod::url_path(&(), Some("ns")));
        assert_eq!(of, (Pod::kind(&()), Pod::url_path(&(), Some("ns"))));
    }
}
