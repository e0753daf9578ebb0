//! Images from registries. Blobs are fetched to files, so that what broke off goes on where it was.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use oci_spec::distribution::Reference;
use reqwest::{Response, StatusCode};
use tokio::io::AsyncWriteExt as _;

use super::auth::Auth;
use super::digest::Digest;
use super::document::{Document, DocumentError, INDEXES, Manifest};
use super::error::Error;
use super::import::{Stager, checked_config};
use super::layer::LayerError;
use super::registry::{Registry, header};
use super::store::{Commit, Prepared, Store};
use super::{Options, Progress, key};

/// Layers that are fetched at a time.
const AT_ONCE: usize = 3;

/// How often a download goes on that brings nothing, before it is given up.
const ATTEMPTS: u32 = 5;

/// How long to wait before the first of these.
const PAUSE: Duration = Duration::from_millis(200);

/// A layer that is not here.
#[derive(Clone)]
struct Wanted {
    digest: Digest,
    diff_id: Digest,
    size: u64,
}

/// A blob on this disk. Whoever has it holds the lock on its file.
struct Blob {
    path: PathBuf,
    file: File,
    /// Part of it was there before, and may be anything.
    was_resumed: bool,
}

impl Drop for Blob {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Tells how much of all layers is here.
struct Told<F> {
    state: Mutex<(u64, F)>,
    total: u64,
}

impl<F: FnMut(Progress)> Told<F> {
    fn add(&self, bytes: i64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = state.0.saturating_add_signed(bytes);
        let progress = Progress {
            done: state.0,
            total: self.total,
        };
        (state.1)(progress);
    }
}

pub(super) async fn pull(
    store: &Arc<Store>,
    options: &Options,
    reference: &Reference,
    auth: &Auth,
    on_progress: impl FnMut(Progress) + Send,
) -> Result<(), Error> {
    let about = reference.whole();
    let registry = Registry::new(reference, auth, &options.insecure_registries)?;
    let (manifest, digest) = manifest(&registry, &about).await?;
    let text = registry.config(&manifest.config.digest).await?;
    let layers = manifest.layers().map_err(Error::document(&about))?;
    let config = checked_config(&text, layers.len(), &about)?;
    let all: Vec<Wanted> = layers
        .iter()
        .zip(config.diff_ids())
        .map(|(layer, diff_id)| Wanted {
            digest: layer.digest.clone(),
            diff_id: diff_id.clone(),
            size: layer.size,
        })
        .collect();
    if let Some(layer) = all.iter().find(|layer| layer.size > options.limits.bytes) {
        return Err(Error::Layer {
            image: about,
            layer: layer.digest.clone(),
            reason: LayerError::Bytes(options.limits.bytes),
        });
    }
    let told = Told {
        total: all.iter().map(|layer| layer.size).sum(),
        state: Mutex::new((0, on_progress)),
    };
    for _ in 0..ATTEMPTS {
        let stager = Stager::new(store, &about, options.limits);
        let stager = stage(stager, store, &registry, &all, &told).await?;
        let prepared = Prepared {
            id: manifest.config.digest.clone(),
            config: text.clone(),
            digest: Some(digest.clone()),
            names: vec![key(reference)],
            staged: stager.staged,
        };
        let store = Arc::clone(store);
        if blocking(move || store.commit(&prepared)).await? == Commit::Done {
            return Ok(());
        }
    }
    Err(Error::Vanished(about))
}

/// The manifest for this machine, and the digest of what the reference led to.
async fn manifest(registry: &Registry, about: &str) -> Result<(Manifest, Digest), Error> {
    let first = registry.manifest(None).await?;
    let digest = Digest::of(&first.text);
    let parsed = Document::parse(&first.text, &first.kind).map_err(Error::document(about))?;
    let index = match parsed {
        Document::Manifest(manifest) => return Ok((manifest, digest)),
        Document::Index(index) => index,
    };
    let chosen = index.choose().map_err(Error::document(about))?;
    let second = registry.manifest(Some(&chosen.digest)).await?;
    match Document::parse(&second.text, &second.kind).map_err(Error::document(about))? {
        Document::Manifest(manifest) => Ok((manifest, digest)),
        Document::Index(_) => Err(Error::document(about)(DocumentError::Type(
            INDEXES[0].to_owned(),
        ))),
    }
}

/// Fetches and unpacks the layers that are not here.
async fn stage<F: FnMut(Progress) + Send>(
    mut stager: Stager,
    store: &Arc<Store>,
    registry: &Registry,
    all: &[Wanted],
    told: &Told<F>,
) -> Result<Stager, Error> {
    let mut missing: Vec<Wanted> = Vec::new();
    for layer in all {
        let is_there = store.has_layer(&layer.diff_id);
        match is_there || missing.iter().any(|other| other.diff_id == layer.diff_id) {
            true => told.add(signed(layer.size)),
            false => missing.push(layer.clone()),
        }
    }
    let fetches = missing.into_iter().map(|layer| async move {
        let path = store.download(&layer.digest);
        let blob = fetch(registry, &layer, &path, told).await?;
        Ok::<_, Error>((layer, blob))
    });
    let mut fetched = futures::stream::iter(fetches).buffered(AT_ONCE);
    while let Some(next) = fetched.next().await {
        let (layer, blob) = next?;
        let (back, was_resumed, result) = unpack(stager, blob, &layer).await?;
        stager = back;
        match result {
            // what was left of an earlier attempt may have been damaged
            Err(Error::Layer {
                reason: LayerError::Digest { .. } | LayerError::Archive(_),
                ..
            }) if was_resumed => {
                told.add(-signed(layer.size));
                let blob = fetch(registry, &layer, &store.download(&layer.digest), told).await?;
                let (back, _, result) = unpack(stager, blob, &layer).await?;
                stager = back;
                result?;
            }
            result => result?,
        }
    }
    Ok(stager)
}

/// Unpacks a blob, and removes it whether or not that succeeds.
async fn unpack(
    mut stager: Stager,
    mut blob: Blob,
    layer: &Wanted,
) -> Result<(Stager, bool, Result<(), Error>), Error> {
    let layer = layer.clone();
    blocking(move || {
        let was_resumed = blob.was_resumed;
        let result = blob
            .file
            .rewind()
            .map_err(|source| Error::io("read", &blob.path, source))
            .and_then(|()| stager.layer(&blob.file, Some(&layer.digest), &layer.diff_id));
        if result.is_err() {
            stager.forget(&layer.diff_id);
        }
        fs::remove_file(&blob.path).map_err(|source| Error::io("remove", &blob.path, source))?;
        drop(blob);
        Ok((stager, was_resumed, result.map(drop)))
    })
    .await
}

/// Fetches a blob, or what is missing of it. Its digest is for whoever reads it.
async fn fetch<F: FnMut(Progress)>(
    registry: &Registry,
    layer: &Wanted,
    path: &Path,
    told: &Told<F>,
) -> Result<Blob, Error> {
    let failed = |source: io::Error| Error::io("write", path, source);
    let file = locked(path).await?;
    let mut have = file.metadata().map_err(failed)?.len();
    let was_resumed = have > 0;
    let blob = Blob {
        path: path.to_owned(),
        file,
        was_resumed,
    };
    let copy = blob.file.try_clone().map_err(failed)?;
    let mut writer = tokio::fs::File::from_std(copy);
    told.add(signed(have.min(layer.size)));
    let mut attempts = 0;
    while have != layer.size {
        let before = have;
        let asked = ask(registry, layer, &mut have).await;
        let result = match asked {
            Ok(response) => {
                told.add(signed(have) - signed(before.min(layer.size)));
                let sought = writer.set_len(have).await;
                sought.map_err(failed)?;
                let sought = tokio::io::AsyncSeekExt::seek(&mut writer, io::SeekFrom::Start(have));
                sought.await.map_err(failed)?;
                receive(
                    registry,
                    response,
                    layer,
                    &mut writer,
                    &mut have,
                    path,
                    told,
                )
                .await
            }
            Err(error) => Err(error),
        };
        writer.flush().await.map_err(failed)?;
        let reason = match result {
            Ok(()) if have == layer.size => break,
            Ok(()) => "it ended early".to_owned(),
            Err(Error::Unreachable { reason, .. }) => reason,
            Err(Error::Status { status, .. }) if status >= 500 => format!("status {status}"),
            Err(error) => return Err(error),
        };
        attempts = if have > before { 1 } else { attempts + 1 };
        if attempts > ATTEMPTS {
            return Err(Error::Interrupted {
                reference: registry.reference(),
                registry: registry.name(),
                digest: layer.digest.clone(),
                times: attempts,
                reason,
            });
        }
        tokio::time::sleep(PAUSE * 2_u32.pow(attempts - 1)).await;
    }
    Ok(blob)
}

/// Asks for what is missing of a blob. `have` becomes where the answer begins.
async fn ask(registry: &Registry, layer: &Wanted, have: &mut u64) -> Result<Response, Error> {
    if *have > layer.size {
        *have = 0;
    }
    let response = registry.blob(&layer.digest, *have).await?;
    match response.status() {
        StatusCode::PARTIAL_CONTENT => {
            let range = header(response.headers(), "content-range").unwrap_or_default();
            let begin = format!("bytes {have}-");
            if !range.starts_with(&begin) {
                return Err(registry.protocol("it sends another part of a blob than was asked for"));
            }
        }
        StatusCode::RANGE_NOT_SATISFIABLE if *have > 0 => {
            *have = 0;
            let response = registry.blob(&layer.digest, 0).await?;
            return registry.successful(response).await;
        }
        StatusCode::NOT_FOUND => {
            return Err(registry.protocol(&format!("it lacks the blob {}", layer.digest)));
        }
        _ => *have = 0,
    }
    registry.successful(response).await
}

/// Writes what comes, until it ends.
async fn receive<F: FnMut(Progress)>(
    registry: &Registry,
    mut response: Response,
    layer: &Wanted,
    writer: &mut tokio::fs::File,
    have: &mut u64,
    path: &Path,
    told: &Told<F>,
) -> Result<(), Error> {
    loop {
        let chunk = response.chunk().await;
        let Some(chunk) = chunk.map_err(|error| registry.unreachable(&error))? else {
            return Ok(());
        };
        if *have + chunk.len() as u64 > layer.size {
            let reason = format!("the blob {} is longer than its manifest says", layer.digest);
            return Err(registry.protocol(&reason));
        }
        let written = writer.write_all(&chunk).await;
        written.map_err(|source| Error::io("write", path, source))?;
        *have += chunk.len() as u64;
        told.add(signed(chunk.len() as u64));
    }
}

/// Opens the file of a download and waits until nobody else writes it.
async fn locked(path: &Path) -> Result<File, Error> {
    let failed = |source: io::Error| Error::io("open", path, source);
    loop {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // whoever had it has removed it when it was done
        let mine = file.metadata().map_err(failed)?.ino();
        if fs::metadata(path).is_ok_and(|there| there.ino() == mine) {
            return Ok(file);
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Runs what waits for the disk where it does not stop others.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
