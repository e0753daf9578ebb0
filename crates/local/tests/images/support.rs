//! Layers and images, written byte by byte: no library would write some of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use local::image::layer::{Expected, LayerError, Report, unpack};
use local::image::{Digest, Images, Limits, Platform};
use serde_json::{Value, json};
use tar::{EntryType, Header};
use tempfile::TempDir;

use crate::process::scratch;

/// An archive under construction.
#[derive(Clone, Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    /// Any entry, with a long name where it is one.
    pub(crate) fn entry(
        mut self,
        header: &Header,
        path: &[u8],
        link: &[u8],
        content: &[u8],
    ) -> Self {
        if path.len() > 100 {
            self = self.long(b'L', path);
        }
        if link.len() > 100 {
            self = self.long(b'K', link);
        }
        let mut header = header.clone();
        let old = header.as_old_mut();
        let put = |field: &mut [u8; 100], text: &[u8]| {
            let length = text.len().min(100);
            field[..length].copy_from_slice(&text[..length]);
        };
        put(&mut old.name, path);
        put(&mut old.linkname, link);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.padded(content)
    }

    fn long(self, kind: u8, text: &[u8]) -> Self {
        let mut header = plain(EntryType::new(kind));
        header.set_size(text.len() as u64 + 1);
        let text = [text, b"\0"].concat();
        self.entry(&header, b"././@LongLink", b"", &text)
    }

    pub(crate) fn padded(mut self, content: &[u8]) -> Self {
        self.0.extend_from_slice(content);
        let end = self.0.len().next_multiple_of(512);
        self.0.resize(end, 0);
        self
    }

    pub(crate) fn file(self, path: &str, content: &str) -> Self {
        let mut header = plain(EntryType::Regular);
        header.set_size(content.len() as u64);
        self.entry(&header, path.as_bytes(), b"", content.as_bytes())
    }

    pub(crate) fn directory(self, path: &str, mode: u32) -> Self {
        let mut header = plain(EntryType::Directory);
        header.set_mode(mode);
        self.entry(&header, path.as_bytes(), b"", b"")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        let header = plain(EntryType::Symlink);
        self.entry(&header, path.as_bytes(), target.as_bytes(), b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        let header = plain(EntryType::Link);
        self.entry(&header, path.as_bytes(), target.as_bytes(), b"")
    }

    /// The entry after it has these attributes.
    pub(crate) fn pax(self, records: &[(&str, &str)]) -> Self {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = format!(" {key}={value}\n");
            let length =
                (1..).find(|length: &usize| length.to_string().len() + rest.len() == *length);
            text.extend_from_slice(format!("{}{rest}", length.unwrap()).as_bytes());
        }
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        self.entry(&header, b"pax", b"", &text)
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

/// A header whose owner is root; a test in a name space has no other.
pub(crate) fn plain(kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_000_000_000);
    header.set_size(0);
    header
}

/// A directory to unpack into, with something beside it that must not change.
pub(crate) struct Stage {
    pub(crate) directory: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let directory = scratch();
        fs::create_dir(directory.path().join("layer")).unwrap();
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.directory.path().join("layer").join(inside)
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    pub(crate) fn unpack(&self, tar: Tar) -> Result<Report, LayerError> {
        self.unpack_with(&tar.finish(), Limits::default())
    }

    pub(crate) fn unpack_with(&self, blob: &[u8], limits: Limits) -> Result<Report, LayerError> {
        let before = snapshot(&self.outside());
        let result = unpack(blob, &Expected::default(), &self.path(""), limits);
        assert_eq!(snapshot(&self.outside()), before);
        result
    }
}

/// Everything about the files of a directory.
pub(crate) fn snapshot(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut rest = vec![directory.to_owned()];
    while let Some(path) = rest.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            rest.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        let content = match about.is_file() {
            true => fs::read(&path).unwrap(),
            false => Vec::new(),
        };
        let text = format!(
            "{:o} {}:{} {} {} {}.{} {content:?}",
            about.mode(),
            about.uid(),
            about.gid(),
            about.ino(),
            about.nlink(),
            about.mtime(),
            about.mtime_nsec(),
        );
        found.insert(path, text);
    }
    found
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// An OCI layout under construction.
#[derive(Clone, Default)]
pub(crate) struct Layout {
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    pub(crate) manifests: Vec<Value>,
}

/// A layer and how it is stored.
pub(crate) struct Layer {
    pub(crate) archive: Vec<u8>,
    pub(crate) blob: Vec<u8>,
    pub(crate) kind: &'static str,
}

impl Layer {
    pub(crate) fn plain(tar: Tar) -> Self {
        let archive = tar.finish();
        Self {
            blob: archive.clone(),
            archive,
            kind: "application/vnd.oci.image.layer.v1.tar",
        }
    }

    pub(crate) fn gzipped(tar: Tar) -> Self {
        let archive = tar.finish();
        Self {
            blob: gzip(&archive),
            archive,
            kind: "application/vnd.docker.image.rootfs.diff.tar.gzip",
        }
    }

    pub(crate) fn zstd(tar: Tar) -> Self {
        let archive = tar.finish();
        Self {
            blob: zstd::encode_all(archive.as_slice(), 3).unwrap(),
            archive,
            kind: "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

impl Layout {
    pub(crate) fn blob(&mut self, kind: &str, content: &[u8]) -> Value {
        let digest = Digest::of(content);
        self.blobs.insert(digest.hex().to_owned(), content.to_vec());
        json!({"mediaType": kind, "digest": digest.to_string(), "size": content.len()})
    }

    /// Adds an image and returns the descriptor of its manifest.
    pub(crate) fn image(&mut self, config: &Value, layers: &[Layer]) -> Value {
        let diff_ids: Vec<String> = layers
            .iter()
            .map(|layer| Digest::of(&layer.archive).to_string())
            .collect();
        let platform = Platform::here();
        let file = json!({
            "os": platform.os,
            "architecture": platform.architecture,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = self.blob(
            "application/vnd.oci.image.config.v1+json",
            file.to_string().as_bytes(),
        );
        let layers: Vec<Value> = layers
            .iter()
            .map(|layer| self.blob(layer.kind, &layer.blob))
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": layers,
        });
        self.blob(MANIFEST, manifest.to_string().as_bytes())
    }

    /// Adds an image under a name.
    pub(crate) fn named(mut self, name: &str, layers: &[Layer]) -> Self {
        let mut entry = self.image(&json!({"Cmd": ["/bin/true"]}), layers);
        entry["annotations"] = json!({"io.containerd.image.name": name});
        self.manifests.push(entry);
        self
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": self.manifests});
        let mut files = vec![
            (
                "oci-layout".to_owned(),
                br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
            ),
            ("index.json".to_owned(), index.to_string().into_bytes()),
        ];
        for (hex, content) in &self.blobs {
            files.push((format!("blobs/sha256/{hex}"), content.clone()));
        }
        files
    }

    pub(crate) fn directory(&self, path: &Path) -> PathBuf {
        for (name, content) in self.files() {
            let path = path.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        path.to_owned()
    }

    pub(crate) fn archive(&self) -> Vec<u8> {
        archive(&self.files())
    }
}

pub(crate) fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = Tar::default();
    for (name, content) in files {
        let mut header = plain(EntryType::Regular);
        header.set_size(content.len() as u64);
        tar = tar.entry(&header, name.as_bytes(), b"", content);
    }
    tar.finish()
}

/// A directory of images, and what is in it by name.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
    pub(crate) images: Images,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = scratch();
        let images = Images::open(&directory.path().join("images")).unwrap();
        Self { directory, images }
    }

    pub(crate) fn import(
        &self,
        layout: &Layout,
    ) -> Result<Vec<local::image::Imported>, local::image::Error> {
        let file = self.directory.path().join("archive.tar");
        fs::write(&file, layout.archive()).unwrap();
        self.images.import(&file, None, |_| {})
    }

    /// How many files of a part of the directory there are.
    pub(crate) fn count(&self, part: &str) -> usize {
        let path = self.directory.path().join("images").join(part);
        fs::read_dir(path).unwrap().count()
    }

    /// What processes have under construction.
    pub(crate) fn unfinished(&self) -> usize {
        let work = self.directory.path().join("images/work");
        let entries = fs::read_dir(work)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .filter(|path| path.is_dir())
            .map(|path| fs::read_dir(path).unwrap().count())
            .sum()
    }
}
