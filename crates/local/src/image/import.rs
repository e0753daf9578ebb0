//! Images from files: OCI layouts and what `docker save` writes.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use oci_spec::distribution::Reference;
use serde::Deserialize;

use super::built_in::BuiltIn;
use super::digest::Digest;
use super::document::{
    ConfigFile, Descriptor, Document, DocumentError, INDEXES, Index, LONGEST, MANIFESTS, Manifest,
    parse,
};
use super::error::Error;
use super::layer::{Expected, LayerError, Report, unpack};
use super::meter::Limits;
use super::source::{Source, blob};
use super::store::{Commit, Prepared, Staged, Store, remove};
use super::{Imported, Options, Progress, key, reference};

/// How often the layers are unpacked anew if somebody removes them meanwhile.
const ATTEMPTS: usize = 3;

/// One image of a source.
pub(super) struct Found {
    id: Digest,
    pub(super) config: Vec<u8>,
    digest: Option<Digest>,
    pub(super) layers: Vec<Blob>,
    names: Vec<Reference>,
}

/// A layer as it is stored.
pub(super) struct Blob {
    pub(super) part: String,
    pub(super) digest: Option<Digest>,
}

/// One image in the `manifest.json` of Docker.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

pub(super) fn import(
    store: &Arc<Store>,
    from: &Path,
    name: Option<&Reference>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Imported>, Error> {
    let limits = options.limits;
    let source = Source::open(from, &store.scratch(), limits)?;
    let mut images = find(&source)?;
    if let Some(name) = name {
        let [image] = images.as_mut_slice() else {
            return Err(Error::Several {
                path: from.to_owned(),
                count: images.len(),
            });
        };
        image.names = vec![name.clone()];
    }
    if let Some(image) = images.iter().find(|image| image.names.is_empty()) {
        return Err(Error::Unnamed {
            path: from.to_owned(),
            id: image.id.clone(),
        });
    }
    let is_built_in = |name: &&Reference| BuiltIn::of(name, options.daemon).is_some();
    let mut names = images.iter().flat_map(|image| &image.names);
    if let Some(name) = names.find(is_built_in) {
        return Err(Error::BuiltIn(key(name)));
    }
    images
        .iter()
        .map(|image| take(store, &source, image, limits, on_progress))
        .collect()
}

/// The images of a source that are for this machine.
pub(super) fn find(source: &Source) -> Result<Vec<Found>, Error> {
    match source.part("index.json")? {
        Some(_) => layout(source),
        None if source.part("manifest.json")?.is_some() => saved(source),
        None => Err(Error::NoImage(source.path().to_owned())),
    }
}

/// The images of an OCI layout that are for this machine.
fn layout(source: &Source) -> Result<Vec<Found>, Error> {
    let path = source.path().display().to_string();
    let text = source.text("index.json", LONGEST)?;
    let index: Index = parse(&text, "index").map_err(Error::document(&path))?;
    let tags = match source.part("manifest.json")? {
        Some(_) => tags(source)?,
        None => BTreeMap::new(),
    };
    let mut images = Vec::new();
    let mut others = Vec::new();
    for entry in &index.manifests {
        if let Some(platform) = &entry.platform
            && *platform != super::document::Platform::here()
            && !INDEXES.contains(&entry.media_type.as_str())
        {
            others.push(platform.clone());
            continue;
        }
        images.push(layout_image(source, entry, &tags)?);
    }
    if images.is_empty() {
        let reason = DocumentError::Platform(others);
        return Err(Error::Document {
            image: path,
            reason,
        });
    }
    Ok(images)
}

fn layout_image(
    source: &Source,
    entry: &Descriptor,
    tags: &BTreeMap<String, Vec<String>>,
) -> Result<Found, Error> {
    let about = entry.digest.to_string();
    let text = source.document(&entry.digest, LONGEST)?;
    let document = Document::parse(&text, &entry.media_type).map_err(Error::document(&about))?;
    let manifest = match document {
        Document::Manifest(manifest) => manifest,
        Document::Index(index) => chosen(source, &index, &about)?,
    };
    let config = source.document(&manifest.config.digest, LONGEST)?;
    let layers = manifest.layers().map_err(Error::document(&about))?;
    let id = manifest.config.digest.clone();
    let names = match annotated(entry)? {
        Some(name) => vec![name],
        None => {
            let tags = tags.get(id.hex()).into_iter().flatten();
            tags.map(|tag| reference(tag)).collect::<Result<_, _>>()?
        }
    };
    Ok(Found {
        config,
        digest: Some(entry.digest.clone()),
        layers: layers
            .iter()
            .map(|layer| Blob {
                part: blob(&layer.digest),
                digest: Some(layer.digest.clone()),
            })
            .collect(),
        names,
        id,
    })
}

fn chosen(source: &Source, index: &Index, about: &str) -> Result<Manifest, Error> {
    let entry = index.choose().map_err(Error::document(about))?;
    let text = source.document(&entry.digest, LONGEST)?;
    match Document::parse(&text, MANIFESTS[0]).map_err(Error::document(about))? {
        Document::Manifest(manifest) => Ok(manifest),
        Document::Index(_) => Err(Error::document(about)(DocumentError::Type(
            INDEXES[0].to_owned(),
        ))),
    }
}

/// The name that whoever wrote the layout gave the image.
fn annotated(entry: &Descriptor) -> Result<Option<Reference>, Error> {
    let get = |key: &str| entry.annotations.get(key).map(String::as_str);
    let whole = get("io.containerd.image.name");
    // this one is often the tag alone
    let name = whole.or_else(|| {
        get("org.opencontainers.image.ref.name").filter(|name| name.contains([':', '/']))
    });
    name.map(reference).transpose()
}

fn saved_list(source: &Source) -> Result<Vec<Saved>, Error> {
    let text = source.text("manifest.json", LONGEST)?;
    let path = source.path().display().to_string();
    parse(&text, "manifest.json").map_err(Error::document(&path))
}

/// The tags that Docker notes beside a layout, by the id of the image.
fn tags(source: &Source) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let images = saved_list(source)?.into_iter().map(|image| {
        let file = image.config.rsplit('/').next().unwrap_or_default();
        let id = file.trim_end_matches(".json").to_owned();
        (id, image.repo_tags.unwrap_or_default())
    });
    Ok(images.collect())
}

/// The images that an older `docker save` wrote.
fn saved(source: &Source) -> Result<Vec<Found>, Error> {
    let read = |image: Saved| {
        let config = source.text(&image.config, LONGEST)?;
        let tags = image.repo_tags.unwrap_or_default();
        let layers = image.layers.unwrap_or_default().into_iter();
        Ok(Found {
            id: Digest::of(&config),
            config,
            digest: None,
            layers: layers.map(|part| Blob { part, digest: None }).collect(),
            names: tags
                .iter()
                .map(|tag| reference(tag))
                .collect::<Result<_, _>>()?,
        })
    };
    saved_list(source)?.into_iter().map(read).collect()
}

fn take(
    store: &Arc<Store>,
    source: &Source,
    image: &Found,
    limits: Limits,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Imported, Error> {
    let names: Vec<String> = image.names.iter().map(key).collect();
    let about = names.join(", ");
    let mut left_out = Vec::new();
    for _ in 0..ATTEMPTS {
        left_out.clear();
        let staged = stage(
            store,
            source,
            image,
            &about,
            limits,
            &mut left_out,
            on_progress,
        )?;
        let prepared = Prepared {
            id: image.id.clone(),
            config: image.config.clone(),
            digest: image.digest.clone(),
            names: names.clone(),
            staged,
        };
        if store.commit(&prepared)? == Commit::Done {
            return Ok(Imported {
                names,
                id: image.id.to_string(),
                left_out,
            });
        }
    }
    Err(Error::Vanished(about))
}

/// Unpacks the layers that are not there.
fn stage(
    store: &Arc<Store>,
    source: &Source,
    image: &Found,
    about: &str,
    limits: Limits,
    left_out: &mut Vec<String>,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Staged, Error> {
    let config = checked_config(&image.config, image.layers.len(), about)?;
    let mut parts = Vec::new();
    for blob in &image.layers {
        parts.push(source.needed(&blob.part)?);
    }
    let total = parts.iter().map(|part| part.length).sum();
    let mut done = 0;
    let mut stager = Stager::new(store, about, limits);
    let layers = image.layers.iter().zip(config.diff_ids()).zip(parts);
    for ((layer, diff_id), part) in layers {
        let length = part.length;
        let counted = Counted {
            inner: part.content,
            done,
            total,
            on_progress,
        };
        let report = stager.layer(counted, layer.digest.as_ref(), diff_id)?;
        left_out.extend(report.left_out);
        done += length;
    }
    Ok(stager.staged)
}

/// The config of an image that can run here.
pub(super) fn checked_config(text: &[u8], layers: usize, about: &str) -> Result<ConfigFile, Error> {
    let config = ConfigFile::parse(text).map_err(Error::document(about))?;
    config.check_platform().map_err(Error::document(about))?;
    let diffs = config.diff_ids().len();
    match layers == diffs {
        true => Ok(config),
        false => Err(Error::document(about)(DocumentError::Layers {
            layers,
            diffs,
        })),
    }
}

/// Unpacks the layers of one image, within the limits for all of them together.
pub(super) struct Stager {
    store: Arc<Store>,
    about: String,
    limits: Limits,
    left: Limits,
    pub(super) staged: Staged,
}

impl Stager {
    pub(super) fn new(store: &Arc<Store>, about: &str, limits: Limits) -> Self {
        Self {
            store: Arc::clone(store),
            about: about.to_owned(),
            limits,
            left: limits,
            staged: Staged::default(),
        }
    }

    pub(super) fn has(&self, diff_id: &Digest) -> bool {
        self.staged.0.contains_key(diff_id) || self.store.has_layer(diff_id)
    }

    /// Removes what was unpacked of a layer.
    pub(super) fn forget(&mut self, diff_id: &Digest) {
        if let Some((path, _)) = self.staged.0.remove(diff_id) {
            let _ = remove(&path);
        }
    }

    /// Unpacks a layer unless it is there.
    pub(super) fn layer(
        &mut self,
        blob: impl Read,
        digest: Option<&Digest>,
        diff_id: &Digest,
    ) -> Result<Report, Error> {
        if self.has(diff_id) {
            return Ok(Report::default());
        }
        let path = self.store.scratch_directory()?;
        self.staged.0.insert(diff_id.clone(), (path.clone(), 0));
        let expected = Expected {
            digest: digest.cloned(),
            diff_id: Some(diff_id.clone()),
        };
        let report = unpack(blob, &expected, &path, self.left).map_err(|reason| {
            let reason = match reason {
                LayerError::Full => return Error::io("unpack", &path, io::ErrorKind::StorageFull),
                // what is said is the limit for the image, not what was left of it
                LayerError::Bytes(_) => LayerError::Bytes(self.limits.bytes),
                LayerError::Entries(_) => LayerError::Entries(self.limits.entries),
                other => other,
            };
            Error::Layer {
                image: self.about.clone(),
                layer: digest.unwrap_or(diff_id).clone(),
                reason,
            }
        })?;
        self.left.bytes = self.left.bytes.saturating_sub(report.bytes);
        self.left.entries = self.left.entries.saturating_sub(report.entries);
        self.staged.0.insert(diff_id.clone(), (path, report.bytes));
        Ok(report)
    }
}

/// Tells how far a layer is.
struct Counted<'a, R> {
    inner: R,
    done: u64,
    total: u64,
    on_progress: &'a mut dyn FnMut(Progress),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.done += count as u64;
        (self.on_progress)(Progress {
            done: self.done,
            total: self.total,
        });
        Ok(count)
    }
}
