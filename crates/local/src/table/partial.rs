//! Objects reduced to their metadata.

use serde_json::{Value, json};

/// The version of `meta.k8s.io` that a client asks for. Only the name differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The `PartialObjectMetadata` of an object.
pub fn partial(object: &Value, version: MetaVersion) -> Value {
    reduced("PartialObjectMetadata", object, version)
}

/// The `PartialObjectMetadataList` of a list.
pub fn partial_list(list: &Value, version: MetaVersion) -> Value {
    let mut reduced = reduced("PartialObjectMetadataList", list, version);
    let items = list["items"].as_array().map(Vec::as_slice);
    reduced["items"] = items
        .unwrap_or_default()
        .iter()
        .map(|item| partial(item, version))
        .collect();
    reduced
}

fn reduced(kind: &str, object: &Value, version: MetaVersion) -> Value {
    let metadata = object.get("metadata").cloned();
    let mut reduced = json!({"kind": kind, "apiVersion": version.api_version()});
    reduced["metadata"] = metadata.unwrap_or_else(|| json!({}));
    reduced
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MetaVersion, partial, partial_list};

    #[test]
    fn only_metadata_is_left_of_an_object_and_of_the_items_of_a_list() {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
        let reduced = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}});
        assert_eq!(partial(&object, MetaVersion::V1), reduced);
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [object]});
        assert_eq!(
            partial_list(&list, MetaVersion::V1),
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": "7"}, "items": [reduced],
            })
        );
    }

    #[test]
    fn the_beta_version_names_itself_in_the_items_too() {
        let list = json!({"metadata": {}, "items": [{"metadata": {"name": "a"}}]});
        let reduced = partial_list(&list, MetaVersion::V1Beta1);
        assert_eq!(reduced["apiVersion"], "meta.k8s.io/v1beta1");
        assert_eq!(reduced["items"][0]["apiVersion"], "meta.k8s.io/v1beta1");
    }
}
