//! Package `csi.v1`: what a volume is mounted by. Of its messages only what mounting here depends on; the rest is skipped.

use std::collections::BTreeMap;

use prost::Message;
use serde::Deserialize;

use super::Empty;

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodePublishVolumeRequest {
    #[prost(string, tag = "4")]
    #[serde(alias = "target_path")]
    pub target_path: String,
    #[prost(message, optional, tag = "5")]
    #[serde(alias = "volume_capability")]
    pub volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "6")]
    pub readonly: bool,
    #[prost(btree_map = "string, string", tag = "8")]
    #[serde(alias = "volume_context")]
    pub volume_context: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct VolumeCapability {
    #[prost(message, optional, tag = "1")]
    pub block: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    pub mount: Option<MountVolume>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MountVolume {
    #[prost(string, repeated, tag = "2")]
    #[serde(alias = "mount_flags")]
    pub mount_flags: Vec<String>,
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use serde_json::json;

    use super::NodePublishVolumeRequest;

    /// A field whose value has a length.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let length = u8::try_from(value.len()).unwrap();
        [&[number << 3 | 2, length], value].concat()
    }

    #[test]
    fn fields_have_the_numbers_and_names_of_csi() {
        let flags = field(2, &[field(1, b"ext4"), field(2, b"nosuid")].concat());
        let access_mode = field(3, &[1 << 3, 5]);
        let attribute = [field(1, b"path"), field(2, b"/data")].concat();
        let secret = [field(1, b"token"), field(2, b"secret")].concat();
        let message = [
            field(1, b"pv-1-abcdef"),
            field(4, b"/mnt/x"),
            field(5, &[flags, access_mode].concat()),
            vec![6 << 3, 1],
            field(7, &secret),
            field(8, &attribute),
        ];
        let asked = NodePublishVolumeRequest::decode(&*message.concat()).unwrap();
        let same = json!({
            "volumeId": "pv-1-abcdef",
            "targetPath": "/mnt/x",
            "volumeCapability": {
                "mount": {"fsType": "ext4", "mountFlags": ["nosuid"]},
                "accessMode": {"mode": "MULTI_NODE_MULTI_WRITER"},
            },
            "readonly": true,
            "secrets": {"token": "secret"},
            "volumeContext": {"path": "/data"},
        });
        assert_eq!(asked, serde_json::from_value(same).unwrap());
        assert_eq!(asked.target_path, "/mnt/x");
        assert_eq!(asked.volume_context["path"], "/data");
        let block = NodePublishVolumeRequest::decode(&*field(5, &field(1, b""))).unwrap();
        assert!(block.volume_capability.unwrap().block.is_some());
    }
}
