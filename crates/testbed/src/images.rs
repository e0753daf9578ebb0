//! Images without a registry: an OCI layout in one tar file, imported into containerd.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::command::run;
use crate::paths::hex;

/// Changes whenever this module writes something else from the same busybox.
pub(crate) const LAYOUT: &str = "1";

/// The image of each pod's first container.
pub(crate) const PAUSE: &str = "docker.io/sandbar/pause:1";

/// Tags of the busybox image. Each has its tag in `/etc/image-version`, so that a test can see which one runs.
const BUSYBOX_TAGS: &[&str] = &["1.36", "v1", "v2", "v3"];

type Layer = Vec<u8>;

/// An image under construction.
pub struct Image {
    name: String,
    layers: Vec<Layer>,
    files: Vec<(String, u32, Vec<u8>)>,
    command: Vec<String>,
}

impl Image {
    /// An image with nothing in it, for programs that need nothing. `name` is complete, such as
    /// `docker.io/sandbar/runtime:test`.
    pub fn empty(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            layers: Vec::new(),
            files: Vec::new(),
            command: Vec::new(),
        }
    }

    pub(crate) fn busybox(name: &str, busybox: &Path) -> Result<Self> {
        let mut image = Self::empty(name).command(&["/bin/sh"]);
        image.layers.push(busybox_layer(busybox)?);
        Ok(image)
    }

    /// Adds a file at an absolute path.
    #[must_use]
    pub fn file(mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        let path = path.trim_start_matches('/').to_owned();
        self.files.push((path, mode, content.into()));
        self
    }

    /// What a container runs that does not say otherwise.
    #[must_use]
    pub fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|&c| c.to_owned()).collect();
        self
    }

    /// Writes the image as an OCI layout in a tar file.
    pub fn write(&self, target: &Path) -> Result<()> {
        let mut archive = Archive::new(target)?;
        archive.image(self)?;
        archive.finish()
    }

    fn all_layers(&self) -> Result<Vec<Layer>> {
        let mut layers = self.layers.clone();
        if !self.files.is_empty() {
            layers.push(layer(|tar| {
                self.files
                    .iter()
                    .try_for_each(|(path, mode, content)| append_file(tar, path, *mode, content))
            })?);
        }
        Ok(layers)
    }
}

/// Writes all images that a fresh node knows into one tar file.
pub(crate) fn write_base_images(busybox: &Path, target: &Path) -> Result<()> {
    let mut archive = Archive::new(target)?;
    // pid 1 of a container ignores signals it does not handle, and pods end this one with SIGKILL anyway
    let pause = Image::busybox(PAUSE, busybox)?.command(&["/bin/busybox", "sleep", "2147483647"]);
    archive.image(&pause)?;
    for tag in BUSYBOX_TAGS {
        let name = format!("docker.io/library/busybox:{tag}");
        let image = Image::busybox(&name, busybox)?.file("/etc/image-version", 0o644, *tag);
        archive.image(&image)?;
    }
    archive.finish()
}

fn busybox_layer(busybox: &Path) -> Result<Layer> {
    let program = fs::read(busybox).with_context(|| format!("reading {}", busybox.display()))?;
    let applets = run(
        Command::new(busybox).arg("--list"),
        "listing the applets of busybox",
    )?;
    layer(|tar| {
        for dir in ["bin", "dev", "etc", "proc", "root", "sys", "tmp", "var"] {
            let mode = if dir == "tmp" { 0o1777 } else { 0o755 };
            append(
                tar,
                &format!("{dir}/"),
                EntryType::Directory,
                mode,
                None,
                &[],
            )?;
        }
        append_file(tar, "bin/busybox", 0o755, &program)?;
        for applet in applets.lines().filter(|a| !a.is_empty() && *a != "busybox") {
            append(
                tar,
                &format!("bin/{applet}"),
                EntryType::Symlink,
                0o777,
                Some("busybox"),
                &[],
            )?;
        }
        append_file(tar, "etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
        append_file(tar, "etc/group", 0o644, b"root:x:0:\n")
    })
}

fn layer(fill: impl FnOnce(&mut Builder<Vec<u8>>) -> Result<()>) -> Result<Layer> {
    let mut tar = Builder::new(Vec::new());
    fill(&mut tar)?;
    tar.into_inner().context("finishing a layer")
}

fn append_file<W: std::io::Write>(
    tar: &mut Builder<W>,
    path: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    append(tar, path, EntryType::Regular, mode, None, content)
}

fn append<W: std::io::Write>(
    tar: &mut Builder<W>,
    path: &str,
    kind: EntryType,
    mode: u32,
    link: Option<&str>,
    content: &[u8],
) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    // equal input gives equal digests
    header.set_mtime(0);
    let result = match link {
        Some(link) => tar.append_link(&mut header, path, link),
        None => tar.append_data(&mut header, path, content),
    };
    result.with_context(|| format!("adding {path} to an archive"))
}

/// An OCI image layout under construction.
struct Archive {
    tar: Builder<File>,
    written: BTreeSet<String>,
    manifests: Vec<Value>,
}

impl Archive {
    fn new(target: &Path) -> Result<Self> {
        let file =
            File::create(target).with_context(|| format!("creating {}", target.display()))?;
        Ok(Self {
            tar: Builder::new(file),
            written: BTreeSet::new(),
            manifests: Vec::new(),
        })
    }

    fn image(&mut self, image: &Image) -> Result<()> {
        let layer_type = "application/vnd.oci.image.layer.v1.tar";
        let layers: Vec<Value> = image
            .all_layers()?
            .iter()
            .map(|l| self.blob(layer_type, l))
            .collect::<Result<_>>()?;
        let config = json!({
            "architecture": go_architecture(),
            "os": "linux",
            "config": {
                "Env": ["PATH=/bin"],
                "Cmd": image.command,
                // without it two images with equal content would be one, with one of the two names
                "Labels": {"sandbar.dev/image": image.name},
            },
            // the layers are not compressed, so the digest of each blob is its diff id
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|l| &l["digest"]).collect::<Vec<_>>()},
        });
        let config = self.blob(
            "application/vnd.oci.image.config.v1+json",
            &serde_json::to_vec(&config)?,
        )?;
        let manifest_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": config,
            "layers": layers,
        });
        let mut manifest = self.blob(manifest_type, &serde_json::to_vec(&manifest)?)?;
        manifest["annotations"] = json!({"io.containerd.image.name": image.name});
        self.manifests.push(manifest);
        Ok(())
    }

    /// Adds a blob once and returns its descriptor.
    fn blob(&mut self, media_type: &str, content: &[u8]) -> Result<Value> {
        let digest = hex(&Sha256::digest(content));
        if self.written.insert(digest.clone()) {
            append_file(
                &mut self.tar,
                &format!("blobs/sha256/{digest}"),
                0o644,
                content,
            )?;
        }
        Ok(json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": content.len(),
        }))
    }

    fn finish(mut self) -> Result<()> {
        let index = json!({"schemaVersion": 2, "manifests": self.manifests});
        append_file(
            &mut self.tar,
            "index.json",
            0o644,
            &serde_json::to_vec(&index)?,
        )?;
        append_file(
            &mut self.tar,
            "oci-layout",
            0o644,
            br#"{"imageLayoutVersion":"1.0.0"}"#,
        )?;
        self.tar.into_inner().context("finishing the images")?;
        Ok(())
    }
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{append_file, layer};

    #[test]
    fn the_same_content_gives_the_same_layer() {
        let make = || layer(|tar| append_file(tar, "etc/image-version", 0o644, b"v1")).unwrap();
        assert_eq!(make(), make());
    }
}
