//! The JSON documents of an image: index, manifest and config, as OCI and Docker write them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use super::digest::Digest;

/// The most bytes that any of these documents may have.
pub(super) const LONGEST: u64 = 4 << 20;

/// Overlays of more layers cannot be mounted everywhere, and nobody builds them.
const MOST_LAYERS: usize = 127;

pub(super) const INDEXES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
pub(super) const MANIFESTS: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
const LAYERS: [&str; 8] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
    "application/vnd.docker.image.rootfs.foreign.diff.tar.zstd",
];

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("its {what} is not understood: {source}")]
    Json {
        what: &'static str,
        source: serde_json::Error,
    },
    #[error("it is of the type {0:?}, which is no image")]
    Type(String),
    #[error("its layer {digest} is of the type {kind:?}, which cannot be unpacked")]
    Layer { digest: Digest, kind: String },
    #[error(
        "it is not made for {}: it is there for {}",
        Platform::here(),
        list(.0)
    )]
    Platform(Vec<Platform>),
    #[error("its manifest lists {layers} layers and its config {diffs}")]
    Layers { layers: usize, diffs: usize },
    #[error("it has {0} layers, more than {MOST_LAYERS}")]
    TooMany(usize),
}

fn list(platforms: &[Platform]) -> String {
    let names: BTreeSet<String> = platforms.iter().map(ToString::to_string).collect();
    match names.len() {
        0 => "no platform".to_owned(),
        _ => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}

/// An operating system and a processor, as Go calls them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
}

impl Platform {
    /// This machine.
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
        }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |text: &str| text.chars().take(40).collect::<String>();
        write!(f, "{}/{}", short(&self.os), short(&self.architecture))
    }
}

/// Where a document or a layer is.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    #[serde(default)]
    pub(super) size: u64,
    pub(super) platform: Option<Platform>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Index {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) layers: Vec<Descriptor>,
}

/// A document that a reference leads to.
#[derive(Debug)]
pub(super) enum Document {
    Index(Index),
    Manifest(Manifest),
}

impl Document {
    /// Reads a document. `kind` is the type that the transport says, if it says one; the document's own comes first.
    pub(super) fn parse(text: &[u8], kind: &str) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Outline {
            media_type: Option<String>,
            manifests: Option<serde_json::Value>,
        }
        let outline: Outline = parse(text, "manifest")?;
        let kind = outline.media_type.as_deref().unwrap_or(kind);
        let is_index = match kind {
            kind if INDEXES.contains(&kind) => true,
            kind if MANIFESTS.contains(&kind) => false,
            "" => outline.manifests.is_some(),
            other => return Err(DocumentError::Type(other.chars().take(120).collect())),
        };
        match is_index {
            true => parse(text, "index").map(Self::Index),
            false => parse(text, "manifest").map(Self::Manifest),
        }
    }
}

impl Index {
    /// The manifest for this machine.
    pub(super) fn choose(&self) -> Result<&Descriptor, DocumentError> {
        let here = Platform::here();
        let fits = |one: &&Descriptor| one.platform.as_ref() == Some(&here);
        if let Some(found) = self.manifests.iter().find(fits) {
            return Ok(found);
        }
        // an index of one image need not say what it is for: the config does
        match self.manifests.as_slice() {
            [only] if only.platform.is_none() => Ok(only),
            _ => {
                let all = self.manifests.iter().filter_map(|one| one.platform.clone());
                // what is attached to images, such as proofs of their origin, is for no platform
                let real = all.filter(|platform| platform.os != "unknown");
                Err(DocumentError::Platform(real.collect()))
            }
        }
    }
}

impl Manifest {
    /// The layers, bottom first.
    pub(super) fn layers(&self) -> Result<&[Descriptor], DocumentError> {
        for layer in &self.layers {
            let kind = layer.media_type.as_str();
            let plain = kind.split_once('+').map_or(kind, |(plain, _)| plain);
            let packing = kind.strip_prefix(plain).unwrap_or_default();
            if !LAYERS.contains(&plain) || !matches!(packing, "" | "+gzip" | "+zstd") {
                return Err(DocumentError::Layer {
                    digest: layer.digest.clone(),
                    kind: kind.chars().take(120).collect(),
                });
            }
        }
        Ok(&self.layers)
    }
}

/// The config blob as a whole.
#[derive(Debug, Deserialize)]
pub(super) struct ConfigFile {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) config: Config,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    #[serde(default, deserialize_with = "or_default")]
    diff_ids: Vec<Digest>,
}

impl ConfigFile {
    pub(super) fn parse(text: &[u8]) -> Result<Self, DocumentError> {
        let file: Self = parse(text, "config")?;
        let layers = file.diff_ids().len();
        if layers > MOST_LAYERS {
            return Err(DocumentError::TooMany(layers));
        }
        Ok(file)
    }

    /// The layers, bottom first, by what they unpack to.
    pub(super) fn diff_ids(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }

    /// Refuses an image for another platform.
    pub(super) fn check_platform(&self) -> Result<(), DocumentError> {
        let here = Platform::here();
        let other = |said: &str, here: &str| !said.is_empty() && said != here;
        if other(&self.os, &here.os) || other(&self.architecture, &here.architecture) {
            return Err(DocumentError::Platform(vec![Platform {
                os: self.os.clone(),
                architecture: self.architecture.clone(),
            }]));
        }
        Ok(())
    }
}

/// What an image says about how to run it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    /// `NAME=value`.
    #[serde(default, deserialize_with = "or_default")]
    pub env: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    /// `user[:group]`, names or numbers; empty is root.
    #[serde(default, deserialize_with = "or_default")]
    pub user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub working_dir: String,
    /// Such as `SIGTERM` or `15`; empty if it does not say.
    #[serde(default, deserialize_with = "or_default")]
    pub stop_signal: String,
    #[serde(default, deserialize_with = "keys")]
    pub volumes: BTreeSet<String>,
    /// Such as `8080/tcp`.
    #[serde(default, deserialize_with = "keys")]
    pub exposed_ports: BTreeSet<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

/// Docker writes `null` for what is empty.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Sets are objects with empty values.
fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    let map: Option<BTreeMap<String, serde_json::Value>> = Option::deserialize(deserializer)?;
    Ok(map.unwrap_or_default().into_keys().collect())
}

pub(super) fn parse<'a, T: Deserialize<'a>>(
    text: &'a [u8],
    what: &'static str,
) -> Result<T, DocumentError> {
    serde_json::from_slice(text).map_err(|source| DocumentError::Json { what, source })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ConfigFile, Digest, Document, DocumentError, Platform};

    fn index(platforms: &[(&str, &str)]) -> Vec<u8> {
        let manifests = platforms.iter().map(|(os, architecture)| {
            json!({
                "mediaType": super::MANIFESTS[0],
                "digest": Digest::of(architecture.as_bytes()).to_string(),
                "size": 1,
                "platform": {"os": os, "architecture": architecture},
            })
        });
        let manifests: Vec<_> = manifests.collect();
        serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": manifests})).unwrap()
    }

    fn chosen(text: &[u8]) -> Result<Digest, DocumentError> {
        match Document::parse(text, "")? {
            Document::Index(index) => index.choose().map(|found| found.digest.clone()),
            Document::Manifest(_) => panic!("an index was given"),
        }
    }

    #[test]
    fn the_manifest_for_this_machine_is_chosen() {
        let here = Platform::here().architecture;
        let text = index(&[("linux", "s390x"), ("windows", &here), ("linux", &here)]);
        assert_eq!(chosen(&text).unwrap(), Digest::of(here.as_bytes()));
    }

    #[test]
    fn without_one_the_error_names_the_platforms_there_are() {
        let text = index(&[
            ("linux", "s390x"),
            ("windows", "amd64"),
            ("unknown", "unknown"),
        ]);
        let error = chosen(&text).unwrap_err().to_string();
        let here = Platform::here();
        assert_eq!(
            error,
            format!("it is not made for {here}: it is there for linux/s390x, windows/amd64")
        );
    }

    #[test]
    fn a_document_of_another_type_is_refused() {
        let text = br#"{"mediaType": "application/vnd.example+json"}"#;
        let error = Document::parse(text, "").unwrap_err();
        assert!(matches!(error, DocumentError::Type(kind) if kind.contains("example")));
    }

    #[test]
    fn null_is_empty_in_a_config() {
        let text = br#"{"config": {"Env": null, "Cmd": ["a"], "Volumes": {"/data": {}}, "ExposedPorts": null},
            "rootfs": {"type": "layers", "diff_ids": null}}"#;
        let config = ConfigFile::parse(text).unwrap().config;
        assert_eq!(config.cmd, ["a"]);
        assert_eq!(config.env, Vec::<String>::new());
        assert!(config.volumes.contains("/data"));
    }
}
