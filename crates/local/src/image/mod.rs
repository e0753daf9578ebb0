//! The images of the node: from files, from registries, and some that are built in.
//!
//! An image is its config and its layers, unpacked into directories that become the lower directories of an overlay.
//! Everything in an image is a stranger's: see [`layer`].

mod archive;
mod auth;
mod built_in;
mod digest;
mod document;
mod error;
mod import;
pub mod layer;
mod merged;
mod meter;
mod name;
mod policy;
mod pull;
mod registry;
mod root;
mod source;
mod store;
mod users;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use oci_spec::distribution::Reference;

pub use archive::write_runtime_image;
pub use auth::{Auth, Keyring};
pub use digest::{Digest, DigestError};
pub use document::{Config, DocumentError, Platform};
pub use error::Error;
pub use meter::Limits;
pub use policy::{Decision, Presence, PullPolicy};
pub use users::{User, UserError};

use built_in::BuiltIn;
use document::ConfigFile;
use store::{Record, Store};

/// How images are taken.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub limits: Limits,
    /// Registries that are asked without TLS, such as `registry.example:5000`. Those on this machine always are.
    pub insecure_registries: Vec<String>,
    /// What the built-in images carry.
    pub daemon: Option<Daemon>,
}

/// The program of the daemon of sandboxes, which needs nothing of the image it is put into.
#[derive(Clone, Copy)]
pub struct Daemon(pub &'static [u8]);

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a program of {} bytes", self.0.len())
    }
}

/// A directory of images. Clones share it, and other processes may use it, too.
#[derive(Debug, Clone)]
pub struct Images {
    store: Arc<Store>,
    options: Options,
    built_in: Arc<Mutex<BTreeMap<BuiltIn, Image>>>,
}

/// An image that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its whole name, such as `docker.io/library/busybox:latest`.
    pub name: String,
    /// The digest of its config.
    pub id: String,
    /// The digest by which a registry knows it.
    pub digest: Option<String>,
    pub config: Config,
    /// Lower directories of an overlay, bottom first, each once; never empty.
    pub layers: Vec<PathBuf>,
    /// Further overlays, inside of the first; only built-in images have them.
    pub overlays: Vec<Overlay>,
    /// Bytes of the archives that its layers were.
    pub bytes: u64,
    /// When it was taken, in seconds since 1970; 0 for a built-in image.
    pub taken: u64,
    pub is_built_in: bool,
}

/// An overlay inside of a container whose lower directory is not a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// Where it is in the container.
    pub at: PathBuf,
    /// Its lower directory on the host.
    pub lower: PathBuf,
}

/// An image that was taken from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub names: Vec<String>,
    pub id: String,
    /// The first device nodes that its layers have and that were not made.
    pub left_out: Vec<String>,
}

/// How far an import or a pull is, in bytes as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

/// Reads the name of an image as people write it: `busybox` is `docker.io/library/busybox:latest`.
pub fn reference(text: &str) -> Result<Reference, Error> {
    let short = || text.chars().take(300).collect();
    name::parse(text).map_err(|error| Error::Name(short(), error))
}

/// The name under which an image is kept: with a digest, the tag says nothing.
fn key(reference: &Reference) -> String {
    match reference.digest() {
        Some(digest) => reference.clone_with_digest(digest.to_owned()).whole(),
        None => reference.whole(),
    }
}

impl Images {
    /// Opens a directory, which is made if it is not there, and removes what dead processes have left in it.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Self::open_with(dir, Options::default())
    }

    pub fn open_with(dir: &Path, options: Options) -> Result<Self, Error> {
        Ok(Self {
            store: Arc::new(Store::open(dir)?),
            options,
            built_in: Arc::default(),
        })
    }

    /// Takes the images of an OCI layout (a directory or an archive) or of the output of `docker save`, also compressed.
    /// `name` is for a source with one image; else they have the names they come with.
    pub fn import(
        &self,
        from: &Path,
        name: Option<&Reference>,
        mut on_progress: impl FnMut(Progress),
    ) -> Result<Vec<Imported>, Error> {
        import::import(&self.store, from, name, &self.options, &mut on_progress)
    }

    /// Fetches an image from its registry, whether or not it is here. Layers that are here are not fetched.
    pub async fn pull(
        &self,
        reference: &Reference,
        auth: &Auth,
        on_progress: impl FnMut(Progress) + Send,
    ) -> Result<Image, Error> {
        if self.built_in(reference).is_none() {
            pull::pull(&self.store, &self.options, reference, auth, on_progress).await?;
        }
        let found = self.get(reference)?;
        found.ok_or_else(|| Error::Vanished(reference.whole()))
    }

    /// The image of a name. By digest, it is found whatever its tag is.
    pub fn get(&self, reference: &Reference) -> Result<Option<Image>, Error> {
        if let Some(which) = self.built_in(reference) {
            return self.make(which).map(Some);
        }
        let record = match (self.store.record(&key(reference))?, reference.digest()) {
            (Some(record), _) => Some(record),
            (None, None) => None,
            (None, Some(digest)) => self.by_digest(reference, digest)?,
        };
        record.map(|record| self.load(record)).transpose()
    }

    fn by_digest(&self, reference: &Reference, digest: &str) -> Result<Option<Record>, Error> {
        let fits = |record: &Record| {
            let is_same = record
                .digest
                .as_ref()
                .is_some_and(|one| one.to_string() == digest);
            is_same
                && name::parse(&record.name).is_ok_and(|name| {
                    name.registry() == reference.registry()
                        && name.repository() == reference.repository()
                })
        };
        Ok(self.store.records()?.into_iter().find(fits))
    }

    /// All images by name, the built-in ones among them.
    pub fn list(&self) -> Result<Vec<Image>, Error> {
        let built_in = BuiltIn::all(self.options.daemon).map(|which| self.make(which));
        let mut images: Vec<Image> = built_in.collect::<Result<_, _>>()?;
        for record in self.store.records()? {
            match self.load(record) {
                // another process was just removing it
                Err(Error::Vanished(_)) => {}
                image => images.push(image?),
            }
        }
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Takes a name away, and what only it needed. The bytes of the layers that went with it.
    pub fn remove(&self, reference: &Reference) -> Result<u64, Error> {
        if self.is_built_in(reference) {
            return Err(Error::BuiltIn(key(reference)));
        }
        let name = match self.store.record(&key(reference))? {
            Some(record) => record.name,
            None => match reference.digest() {
                Some(digest) => {
                    let found = self.by_digest(reference, digest)?;
                    found.map_or_else(|| key(reference), |record| record.name)
                }
                None => key(reference),
            },
        };
        self.store.remove(&name)
    }

    /// Notes that a container runs on an image: until [`Images::release`], it cannot be removed, by this process or
    /// another, and the note outlives both. An image that is gone since it was asked for is an error: ask again.
    pub fn hold(&self, container: &str, image: &Image) -> Result<(), Error> {
        let id: Digest = image
            .id
            .parse()
            .map_err(|_| Error::Vanished(image.name.clone()))?;
        self.store.hold(container, &id, image.is_built_in)
    }

    /// Forgets a container.
    pub fn release(&self, container: &str) -> Result<(), Error> {
        self.store.release(container)
    }

    /// The containers that hold images, and the ids of these: whoever finds one that runs no more releases it.
    pub fn holds(&self) -> Result<BTreeMap<String, String>, Error> {
        let holds = self.store.holds()?.into_iter();
        Ok(holds.map(|(holder, id)| (holder, id.to_string())).collect())
    }

    /// Whether a reference means an image that is always here.
    pub fn is_built_in(&self, reference: &Reference) -> bool {
        self.built_in(reference).is_some()
    }

    fn built_in(&self, reference: &Reference) -> Option<BuiltIn> {
        BuiltIn::of(reference, self.options.daemon)
    }

    fn make(&self, which: BuiltIn) -> Result<Image, Error> {
        let mut known = self.built_in.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&which) {
            // a newer program may have replaced it while no container ran on it
            Some(image) if image.layers[0].is_dir() => Ok(image.clone()),
            _ => {
                let image = which.image(&self.store, Path::new("/"), self.options.daemon)?;
                known.insert(which, image.clone());
                Ok(image)
            }
        }
    }

    fn load(&self, record: Record) -> Result<Image, Error> {
        let text = self.store.config(&record.id)?;
        let text = text.ok_or_else(|| Error::Vanished(record.name.clone()))?;
        let file = ConfigFile::parse(&text).map_err(Error::document(&record.name))?;
        let mut layers: Vec<PathBuf> = Vec::new();
        let mut bytes = 0;
        // from the top: of a layer that is there twice the upper one hides the lower, and an overlay takes it only once
        for diff_id in file.diff_ids().iter().rev() {
            let layer = self.store.layer(diff_id);
            if !layers.contains(&layer) {
                bytes += self.store.layer_bytes(diff_id);
                layers.push(layer);
            }
        }
        layers.reverse();
        if layers.is_empty() {
            layers.push(self.store.empty_layer()?);
        }
        Ok(Image {
            name: record.name,
            id: record.id.to_string(),
            digest: record.digest.map(|digest| digest.to_string()),
            config: file.config,
            layers,
            overlays: Vec::new(),
            bytes,
            taken: record.taken,
            is_built_in: false,
        })
    }
}

impl Image {
    /// Whom `user[:group]` means in this image. It reads the image's own files, which are a stranger's.
    pub fn user(&self, spec: &str) -> Result<User, UserError> {
        let read = |path: &'static str| {
            let text = merged::read(&self.layers, path, users::LONGEST);
            let text = text.map_err(|error| UserError::File {
                path,
                reason: error.to_string(),
            })?;
            Ok(String::from_utf8_lossy(&text.unwrap_or_default()).into_owned())
        };
        users::resolve(spec, &read("/etc/passwd")?, &read("/etc/group")?)
    }
}
