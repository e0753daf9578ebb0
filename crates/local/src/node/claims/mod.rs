//! Volumes of claims: directories. In a cluster of one node nobody else makes volumes, so the node makes and binds them.
//!
//! `step` decides; here both kinds are watched and requests are sent, one at a time for each claim.

mod directories;
mod step;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{Event, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use uuid::Uuid;

use super::kept::Kept;
use crate::kubelet::act::retry_after;
use crate::kubelet::roster::version;
use step::{Act, claim_uid, directory, step};

pub(crate) use directories::directories;

/// Everything is looked at again so often, for what no watch tells.
const PATROL: Duration = Duration::from_secs(60);
const PROVISIONER: &str = "sandbar-node";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("cannot {doing} {path}: {source}")]
    Directory {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// Keeps claims and volumes in step, and their directories below `root`, until it is dropped.
pub(crate) async fn keep(client: Client, root: PathBuf, trouble: watch::Sender<Option<String>>) {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut claims = pin!(watcher(claims, watcher::Config::default()).default_backoff());
    let mut volumes = pin!(watcher(volumes, watcher::Config::default()).default_backoff());
    let mut patrol = tokio::time::interval(PATROL);
    let mut keeper = Keeper::new(client, root, trouble);
    loop {
        tokio::select! {
            Some(event) = claims.next() => match event {
                Ok(event) => {
                    let changed = keeper.claims.take(&event);
                    keeper.changed(changed).await;
                }
                Err(error) => keeper.complain(&error),
            },
            Some(event) = volumes.next() => match event {
                Ok(event) => {
                    let changed = keeper.volumes.take(&event);
                    keeper.changed(changed).await;
                }
                Err(error) => keeper.complain(&error),
            },
            Some(landed) = keeper.flights.next() => keeper.landed(landed),
            _ = patrol.tick() => keeper.consider_all(),
        }
    }
}

struct Keeper {
    client: Client,
    root: PathBuf,
    trouble: watch::Sender<Option<String>>,
    /// Both by the uid of the claim.
    claims: Kept<PersistentVolumeClaim, PersistentVolumeClaim>,
    volumes: Kept<PersistentVolume, PersistentVolume>,
    is_swept: bool,
    /// Claims that something is being done about, and how often it failed in a row.
    flying: BTreeSet<String>,
    failures: BTreeMap<String, u32>,
    /// Claims that somebody was told will get no volume.
    refused: BTreeSet<String>,
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
}

struct Landed {
    uid: String,
    result: Result<Done, Error>,
}

/// What a request left behind. It is looked at again when the watch has told as much.
enum Done {
    Claim(u64),
    NewVolume,
    Volume(u64),
    Said,
}

impl Keeper {
    fn new(client: Client, root: PathBuf, trouble: watch::Sender<Option<String>>) -> Self {
        Self {
            client,
            root,
            trouble,
            claims: Kept::new(|claim| claim.uid(), |claim| Some(claim.clone())),
            volumes: Kept::new(claim_uid, |volume| Some(volume.clone())),
            is_swept: false,
            flying: BTreeSet::new(),
            failures: BTreeMap::new(),
            refused: BTreeSet::new(),
            flights: FuturesUnordered::new(),
        }
    }

    fn complain(&self, error: &dyn std::error::Error) {
        self.trouble.send_replace(Some(error.to_string()));
    }

    async fn changed(&mut self, uids: BTreeSet<String>) {
        if self.is_swept {
            uids.iter().for_each(|uid| self.consider(uid));
        } else if self.claims.is_listed() && self.volumes.is_listed() {
            self.sweep().await;
            self.is_swept = true;
            self.consider_all();
        }
    }

    /// Removes the directories that belong to nothing. No directory is made before.
    async fn sweep(&mut self) {
        let root = self.root.clone();
        let known = self.claims.all().keys().chain(self.volumes.all().keys());
        let known: BTreeSet<String> = known.cloned().collect();
        let swept = on_disk(move || sweep(&root, &known)).await;
        if let Err(error) = swept {
            self.complain(&error);
        }
    }

    fn consider_all(&mut self) {
        if self.is_swept {
            let all = self.claims.all().keys().chain(self.volumes.all().keys());
            let all: BTreeSet<String> = all.cloned().collect();
            all.iter().for_each(|uid| self.consider(uid));
        }
    }

    fn consider(&mut self, uid: &str) {
        if self.flying.contains(uid) {
            return;
        }
        let (claim, volume) = (self.claims.get(uid), self.volumes.get(uid));
        let Some(act) = step(claim, volume, &self.root) else {
            self.failures.remove(uid);
            if claim.is_none() {
                self.refused.remove(uid);
            }
            return;
        };
        if let Act::Refuse(_) = act
            && self.refused.contains(uid)
        {
            return;
        }
        let doing = Doing {
            client: self.client.clone(),
            directory: directory(&self.root, uid),
            claim: claim.cloned(),
            volume: volume.cloned(),
        };
        let failures = self.failures.get(uid).copied().unwrap_or_default();
        self.flying.insert(uid.to_owned());
        let uid = uid.to_owned();
        let flight = async move {
            if failures > 0 {
                tokio::time::sleep(retry_after(failures)).await;
            }
            let result = doing.act(act).await;
            Landed { uid, result }
        };
        self.flights.push(flight.boxed());
    }

    fn landed(&mut self, landed: Landed) {
        let Landed { uid, result } = landed;
        self.flying.remove(&uid);
        let is_old = match result {
            Ok(done) => {
                self.failures.remove(&uid);
                match done {
                    Done::Claim(wrote) => seen(&self.claims, &uid) < wrote,
                    Done::NewVolume => self.volumes.get(&uid).is_none(),
                    Done::Volume(wrote) => seen(&self.volumes, &uid) < wrote,
                    Done::Said => {
                        self.refused.insert(uid.clone());
                        false
                    }
                }
            }
            Err(error) => {
                // others write, too, and then there is news soon
                if !is(&error, 409) && !is(&error, 404) {
                    self.complain(&error);
                }
                *self.failures.entry(uid.clone()).or_default() += 1;
                false
            }
        };
        if !is_old {
            self.consider(&uid);
        }
    }
}

/// The version that the watch told of. What it no longer has is newer than all that was written.
fn seen<K>(kept: &Kept<K, K>, uid: &str) -> u64
where
    K: kube::Resource + PartialEq,
{
    kept.get(uid).map_or(u64::MAX, version)
}

fn is(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(kube::Error::Api(status)) if status.code == code)
}

/// One act, on what it was decided on.
struct Doing {
    client: Client,
    directory: PathBuf,
    claim: Option<PersistentVolumeClaim>,
    volume: Option<PersistentVolume>,
}

impl Doing {
    async fn act(self, act: Act) -> Result<Done, Error> {
        let params = PatchParams::default();
        let (claims, volumes) = (self.claims(), self.volumes());
        let (claim, volume) = (name(self.claim.as_ref()), name(self.volume.as_ref()));
        let patched_claim = |claim: PersistentVolumeClaim| Done::Claim(version(&claim));
        let patched_volume = |volume: PersistentVolume| Done::Volume(version(&volume));
        Ok(match act {
            Act::CreateVolume(new) => {
                self.make_directory().await?;
                volumes.create(&PostParams::default(), &new).await?;
                Done::NewVolume
            }
            Act::PatchVolume(patch) => {
                let patch = Patch::Merge(patch);
                patched_volume(volumes.patch(&volume, &params, &patch).await?)
            }
            Act::PatchVolumeStatus(patch) => {
                let patch = Patch::Merge(patch);
                patched_volume(volumes.patch_status(&volume, &params, &patch).await?)
            }
            Act::PatchClaim(patch) => {
                let patch = Patch::Merge(patch);
                patched_claim(claims.patch(&claim, &params, &patch).await?)
            }
            Act::PatchClaimStatus(patch) => {
                let patch = Patch::Merge(patch);
                patched_claim(claims.patch_status(&claim, &params, &patch).await?)
            }
            Act::RemoveDirectoryAndPatchVolumeStatus(patch) => {
                self.remove_directory().await?;
                let patch = Patch::Merge(patch);
                patched_volume(volumes.patch_status(&volume, &params, &patch).await?)
            }
            Act::RemoveDirectoryAndDeleteVolume => {
                self.remove_directory().await?;
                volumes.delete(&volume, &self.precondition()).await?;
                // its end, or that it is going, is still to be told
                Done::Volume(u64::MAX)
            }
            Act::Refuse(reason) => {
                self.say(reason).await?;
                Done::Said
            }
        })
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        let namespace = self.claim.as_ref().and_then(|claim| claim.namespace());
        Api::namespaced(self.client.clone(), &namespace.unwrap_or_default())
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    fn precondition(&self) -> DeleteParams {
        let meta = self.volume.as_ref().map(|volume| &volume.metadata);
        DeleteParams {
            preconditions: meta.map(|meta| Preconditions {
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
            }),
            ..DeleteParams::default()
        }
    }

    async fn make_directory(&self) -> Result<(), Error> {
        let path = self.directory.clone();
        on_disk(move || make(&path).map_err(failing("make", &path))).await
    }

    async fn remove_directory(&self) -> Result<(), Error> {
        let path = self.directory.clone();
        on_disk(move || container::remove_tree(&path).map_err(failing("remove", &path))).await
    }

    /// The event has a name of its own, so that it is there once whoever says it.
    async fn say(&self, message: &str) -> Result<(), Error> {
        let Some(claim) = &self.claim else {
            return Ok(());
        };
        let event = refusal(claim, message, Timestamp::now());
        let namespace = claim.namespace().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            said => Ok(said.map(drop)?),
        }
    }
}

fn name<K: kube::Resource>(object: Option<&K>) -> String {
    object.map(|object| object.name_any()).unwrap_or_default()
}

fn refusal(claim: &PersistentVolumeClaim, message: &str, now: Timestamp) -> Event {
    let uid = claim.uid().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("provisioning-failed.{uid}")),
            namespace: claim.namespace(),
            ..ObjectMeta::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some("ProvisioningFailed".to_owned()),
        message: Some(format!("failed to provision volume for claim: {message}")),
        action: Some("Provisioning".to_owned()),
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            name: claim.metadata.name.clone(),
            namespace: claim.metadata.namespace.clone(),
            uid: Some(uid),
            ..ObjectReference::default()
        },
        event_time: Some(MicroTime(now)),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        reporting_component: Some(PROVISIONER.to_owned()),
        reporting_instance: Some(PROVISIONER.to_owned()),
        ..Event::default()
    }
}

fn failing(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Directory {
        doing,
        path,
        source,
    }
}

async fn on_disk(work: impl FnOnce() -> Result<(), Error> + Send + 'static) -> Result<(), Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let nowhere = Path::new("");
        Err(failing("work on", nowhere)(io::Error::other(error)))
    })
}

/// Any user of a container may write there; nobody else gets past the directory of all of them.
fn make(path: &Path) -> io::Result<()> {
    if let Some(root) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(root)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o777))),
    }
}

/// Only what has a name as claims give it is removed.
fn sweep(root: &Path, known: &BTreeSet<String>) -> Result<(), Error> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failing("read", root))?,
    };
    for entry in entries {
        let entry = entry.map_err(failing("read", root))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if Uuid::parse_str(&name).is_ok() && !known.contains(&name) {
            let path = entry.path();
            container::remove_tree(&path).map_err(failing("remove", &path))?;
        }
    }
    Ok(())
}
