//! The hashes that the controllers we take over from have recorded, computed as they compute them.
//!
//! Each is nothing if the template could not have been read by its controller.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::go_json::{encode, encode_untyped};
use crate::json::Object;

/// The hash of a name in labels of the `agents.x-k8s.io` family.
pub fn name_hash(name: &str) -> String {
    format!("{:08x}", fnv1a(name.as_bytes()))
}

/// What agent-sandbox records for a blueprint.
pub fn blueprint_hash(blueprint: &Value) -> Option<String> {
    encode(blueprint, "Blueprint")
        .ok()
        .map(|json| name_hash(&json))
}

/// What agent-sandbox records for the pod template of a blueprint alone.
pub fn pod_template_hash(pod_template: &Value) -> Option<String> {
    let json = encode(pod_template, "SandboxPodTemplate").ok()?;
    Some(name_hash(&json))
}

/// What OpenKruise Agents records for the template of a sandbox.
pub fn kruise_sandbox_revision(template: &Value) -> Option<String> {
    encode(template, "PodTemplateSpec")
        .ok()
        .map(|json| short_sha(&json))
}

/// What OpenKruise Agents records for a sandbox that only refers to a template.
pub fn kruise_reference_revision(reference: &Value) -> Option<String> {
    let json = encode(reference, "TemplateReference").ok()?;
    Some(short_sha(&json))
}

/// What OpenKruise Agents records of a template apart from metadata, images and resources.
pub fn kruise_immutable_part(template: &Value) -> Option<String> {
    let mut part = template.clone();
    if let Some(metadata) = part.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("labels");
        metadata.remove("annotations");
    }
    for list in ["containers", "initContainers"] {
        let containers = part.pointer_mut(&format!("/spec/{list}"));
        let containers = containers
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.remove("image");
            container.remove("resources");
        }
    }
    kruise_sandbox_revision(&part)
}

/// What OpenKruise Agents records for the members of a set, newest way first. The argument has the fields `template`,
/// `volumeClaimTemplates`, `persistentContents`, `runtimes` and `pauseStrategy` of the set.
pub fn kruise_set_revisions(set: &Value) -> Vec<String> {
    let current = encode(set, "SandboxSetRevision")
        .ok()
        .map(|json| fnv1_encoded(&json));
    let template = set.get("template").filter(|template| template.is_object());
    let older = template.map(legacy_set_revisions).unwrap_or_default();
    current.into_iter().chain(older).collect()
}

/// The way of v0.3.0. Libraries before 0.34 also wrote a null where a template has no time of creation.
fn legacy_set_revisions(template: &Value) -> Vec<String> {
    let Ok(json) = encode(template, "PodTemplateSpec") else {
        return Vec::new();
    };
    let Ok(Value::Object(template)) = serde_json::from_str(&json) else {
        return Vec::new();
    };
    let hash = |mut template: Object| {
        template.insert("$patch".to_owned(), "replace".into());
        fnv1_encoded(&encode_untyped(&json!({"spec": {"template": template}})))
    };
    let mut with_null = template.clone();
    if let Some(Value::Object(metadata)) = with_null.get_mut("metadata") {
        metadata.entry("creationTimestamp").or_insert(Value::Null);
    }
    vec![hash(template), hash(with_null)]
}

const FNV_START: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(FNV_START, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

/// Multiplies first, unlike its younger sister.
fn fnv1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(FNV_START, |hash, byte| {
        hash.wrapping_mul(FNV_PRIME) ^ u32::from(*byte)
    })
}

fn fnv1_encoded(json: &str) -> String {
    encoded(&fnv1(json.as_bytes()).to_string())
}

fn short_sha(json: &str) -> String {
    let digest = Sha256::digest(json.as_bytes());
    let hex: String = digest
        .iter()
        .take(5)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    encoded(&hex[..9])
}

/// In letters that make no words.
fn encoded(text: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |byte: u8| char::from(LETTERS[usize::from(byte) % LETTERS.len()]);
    text.bytes().map(letter).collect()
}
