//! The image that brings the daemon of sandboxes into other containers, as a file for clusters: a base of the user's choice, which
//! brings the shell, and one layer above it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};
use oci_spec::distribution::Reference;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::built_in::{self, Content};
use super::digest::Digest;
use super::document::{DocumentError, MANIFESTS, Platform};
use super::error::Error;
use super::import::{Found, checked_config, find};
use super::meter::{self, Limits, Packing};
use super::source::{Source, blob};
use super::{Daemon, key};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// Writes the image as an OCI layout in one file. `base` is one, too, or the output of `docker save`, for this platform.
pub fn write_runtime_image(
    base: &Path,
    name: &Reference,
    daemon: Daemon,
    output: &Path,
) -> Result<(), Error> {
    let unfinished = beside(output, "unfinished");
    let written = write(base, name, daemon, &unfinished);
    let moved = written.and_then(|()| {
        fs::rename(&unfinished, output).map_err(|source| Error::io("write", output, source))
    });
    if moved.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    moved
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    name.into()
}

fn write(base: &Path, name: &Reference, daemon: Daemon, output: &Path) -> Result<(), Error> {
    let source = Source::open(base, &beside(output, "expanded"), Limits::default())?;
    let mut images = find(&source)?;
    let found = match (images.pop(), images.len()) {
        (Some(found), 0) => found,
        (_, others) => {
            return Err(Error::Several {
                path: base.to_owned(),
                count: others + 1,
            });
        }
    };
    let failed = |error: io::Error| Error::io("write", output, error);
    let mut layout = Layout::create(output).map_err(failed)?;
    let mut layers = Vec::new();
    for (at, layer) in found.layers.iter().enumerate() {
        let digest = match &layer.digest {
            Some(digest) => digest.clone(),
            None => {
                let content = source.needed(&layer.part)?.content;
                meter::hashed(content).finish().map_err(failed)?
            }
        };
        let is_first_time = !found.layers[..at]
            .iter()
            .any(|other| other.part == layer.part);
        let part = source.needed(&layer.part)?;
        let kind = kind(source.needed(&layer.part)?.content).map_err(failed)?;
        layers.push(descriptor(&kind, &digest, part.length));
        if is_first_time {
            layout
                .copy(&digest, part.length, part.content)
                .map_err(failed)?;
        }
    }
    let (diff_id, own) = own_layer(daemon).map_err(failed)?;
    layers.push(
        layout
            .blob(&format!("{LAYER}+gzip"), &own)
            .map_err(failed)?,
    );
    let config = config(&found, &diff_id, base)?;
    let config = layout.blob(CONFIG, config.to_string().as_bytes());
    let config = config.map_err(failed)?;
    let for_docker = for_docker(&config, &layers, name);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFESTS[0],
        "config": config,
        "layers": layers,
    });
    let manifest = layout.blob(MANIFESTS[0], manifest.to_string().as_bytes());
    let mut manifest = manifest.map_err(failed)?;
    manifest["annotations"] = json!({"io.containerd.image.name": key(name)});
    layout.finish(&manifest, &for_docker).map_err(failed)
}

/// The same as the output of `docker save` has it: without its own description of it, Docker takes no layout.
fn for_docker(config: &Value, layers: &[Value], name: &Reference) -> Value {
    let path = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let layers: Vec<String> = layers.iter().map(path).collect();
    json!([{"Config": path(config), "RepoTags": [key(name)], "Layers": layers}])
}

/// The type of a layer, which not every source tells, by its first bytes.
fn kind(content: impl Read) -> io::Result<String> {
    Ok(match Packing::of(&meter::head(content)?) {
        Some(Packing::Gzip) => format!("{LAYER}+gzip"),
        Some(Packing::Zstd) => format!("{LAYER}+zstd"),
        None => LAYER.to_owned(),
    })
}

/// The base's config with our layer and our command.
fn config(found: &Found, diff_id: &Digest, base: &Path) -> Result<Value, Error> {
    let about = base.display().to_string();
    checked_config(&found.config, found.layers.len(), &about)?;
    let unreadable = |source| {
        Error::document(&about)(DocumentError::Json {
            what: "config",
            source,
        })
    };
    let mut config: Value = serde_json::from_slice(&found.config).map_err(unreadable)?;
    let ours = built_in::runtime_config();
    let Platform { os, architecture } = Platform::here();
    config["os"] = json!(os);
    config["architecture"] = json!(architecture);
    config["config"]["Entrypoint"] = json!(ours.entrypoint);
    config["config"]["Cmd"] = Value::Null;
    config["config"]["WorkingDir"] = json!(ours.working_dir);
    if let Some(layers) = config["rootfs"]["diff_ids"].as_array_mut() {
        layers.push(json!(diff_id));
    }
    if let Some(history) = config["history"].as_array_mut() {
        history.push(json!({"created_by": "sandbar image runtime"}));
    }
    Ok(config)
}

/// What it unpacks to, and the layer, compressed.
fn own_layer(Daemon(program): Daemon) -> io::Result<(Digest, Vec<u8>)> {
    let mut tar = Builder::new(Vec::new());
    let workspace = format!("{}/", built_in::WORKSPACE.trim_start_matches('/'));
    tar.append_data(
        &mut header(EntryType::Directory, 0o755, 0),
        workspace,
        io::empty(),
    )?;
    for (path, content) in built_in::runtime_files(program) {
        let path = path.trim_start_matches('/');
        match content {
            Content::Program(bytes) => {
                let mut header = header(EntryType::Regular, 0o755, bytes.len() as u64);
                tar.append_data(&mut header, path, bytes)?;
            }
            Content::Link(to) => {
                tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, to)?;
            }
            Content::Directory => {
                let mut header = header(EntryType::Directory, 0o755, 0);
                tar.append_data(&mut header, path, io::empty())?;
            }
        }
    }
    let tar = tar.into_inner()?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&tar)?;
    Ok((Digest::of(&tar), packed.finish()?))
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    // equal content gives equal digests
    header.set_mtime(0);
    header
}

fn descriptor(kind: &str, digest: &Digest, size: u64) -> Value {
    json!({"mediaType": kind, "digest": digest, "size": size})
}

/// An OCI layout under construction.
struct Layout(Builder<BufWriter<File>>);

impl Layout {
    fn create(path: &Path) -> io::Result<Self> {
        let mut layout = Self(Builder::new(BufWriter::new(File::create(path)?)));
        layout.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(layout)
    }

    fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        let mut header = header(EntryType::Regular, 0o644, content.len() as u64);
        self.0.append_data(&mut header, path, content)
    }

    fn blob(&mut self, kind: &str, content: &[u8]) -> io::Result<Value> {
        let digest = Digest::of(content);
        self.file(&blob(&digest), content)?;
        Ok(descriptor(kind, &digest, content.len() as u64))
    }

    /// Copies a blob, and looks whether it is the one that it is said to be.
    fn copy(&mut self, digest: &Digest, length: u64, content: impl Read) -> io::Result<()> {
        let mut hashed = meter::hashed(content);
        let mut header = header(EntryType::Regular, 0o644, length);
        self.0.append_data(&mut header, blob(digest), &mut hashed)?;
        match hashed.finish()? == *digest {
            true => Ok(()),
            false => Err(io::Error::other(format!("{digest} of the base is damaged"))),
        }
    }

    fn finish(mut self, manifest: &Value, for_docker: &Value) -> io::Result<()> {
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        self.file("index.json", index.to_string().as_bytes())?;
        self.file("manifest.json", for_docker.to_string().as_bytes())?;
        self.0.into_inner()?.into_inner()?.sync_all()
    }
}
