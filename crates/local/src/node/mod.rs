//! The node that runs pods: on this machine, in Linux containers.
//!
//! It knows the cluster through a client only. What it has in common with every node is in `kubelet`; containers are `container`'s,
//! images `image`'s, links and rules `network`'s. Here a pod's spec becomes their settings, and what they tell becomes its status.
//!
//! `worker` looks after one pod: it keeps the `facts`, asks the `plan` what to do, and has it done (`acts`). `report` makes a status
//! of the facts, which `keep` hands to the node's engine. Both are pure, and neither remembers anything: a node that comes back
//! finds its pods by their directories (`recover`), and goes on from what their shims tell.

mod acts;
mod admission;
mod claims;
mod command;
mod dial;
mod documents;
mod end;
mod events;
mod facts;
mod greed;
mod hooks;
mod ids;
pub mod inside;
mod keep;
mod kept;
mod machine;
mod place;
mod plan;
mod pressure;
mod probes;
mod record;
mod recover;
mod report;
mod room;
mod settings;
mod site;
mod storage;
mod streams;
mod tenants;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trouble;
mod volumes;
mod ways;
mod worker;
mod works;

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};

use crate::{
    clock::Clock,
    image::Images,
    kubelet::run::Engine,
    network::{Forwarding, Network, NetworkError},
    server::streams::PodStreams,
};
use dial::Dialer;
use events::Events;
use ids::Ids;
use inside::Inside;
use keep::{Crew, Landlord, evict};
use pressure::Gauge;
use site::{Helpers, Pulls, Site};
use streams::Doorman;
use tenants::Tenants;
use ways::Ways;

/// How the node is called. It is the same whatever the machine is called, because pods are bound to it by this name.
pub const NAME: &str = "sandbar";

pub struct Options {
    /// Where pods and volumes have their directories.
    pub directory: PathBuf,
    pub images: Images,
    pub network: Network,
    /// Starts the program as the helper that forks: `container::helper::run`.
    pub helper: Box<dyn Fn() -> Command + Send + Sync>,
    /// How pods are reached by who is not root.
    pub inside: Inside,
    /// Directories of this machine that pods may have as `hostPath` volumes.
    pub host_paths: Vec<PathBuf>,
    /// Whether containers are kept apart from the machine. Without it they are plain processes of this user, the helper is
    /// `container::helper::run_plain`, and nothing of a container is protected from another, nor the machine from any.
    pub is_isolated: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the node cannot use {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the node cannot list its pods: {0}")]
    List(kube::Error),
    #[error("the network of the node: {0}")]
    Network(#[from] NetworkError),
}

/// A running node. Dropped, it looks after its pods no more, and they go on.
pub struct Node {
    site: Arc<Site>,
    crew: Crew,
    streams: Arc<Doorman>,
    claims: JoinHandle<()>,
    greed: JoinHandle<()>,
    pressure: JoinHandle<()>,
    trouble: watch::Receiver<Option<String>>,
    engine: JoinHandle<()>,
}

impl Node {
    /// Takes up the pods that an earlier process has left, and whatever is bound to this node from now on. Must be called
    /// within a Tokio runtime.
    pub async fn start(client: Client, options: Options) -> Result<Self, StartError> {
        let Options {
            directory,
            images,
            network,
            helper,
            inside,
            host_paths,
            is_isolated,
        } = options;
        let is_root = rustix::process::geteuid().is_root();
        let memory = machine::memory(&directory, is_root);
        let (pods, volumes) = (directory.join("pods"), directory.join("volumes"));
        for path in [&pods, &volumes, &memory] {
            make_private(path).map_err(|source| StartError::Directory {
                path: path.clone(),
                source,
            })?;
        }
        let clock = Clock::system();
        let dialer: Dialer = Arc::new(inside);
        let (complain, trouble) = watch::channel(None);
        let ways = Ways::open(&client, network, complain.clone()).await;
        let tenants = Tenants::default();
        let site = Arc::new(Site {
            events: Events::new(client.clone(), clock.clone(), NAME),
            client: client.clone(),
            clock: clock.clone(),
            allocatable: machine::capacity(&directory),
            cgroup_parent: machine::cgroup(&directory),
            claims: volumes.clone(),
            dialer: Arc::clone(&dialer),
            helpers: Helpers::new(helper),
            measuring: Semaphore::new(1),
            ids: Ids::new(&machine::cgroup(&directory)),
            pulls: Pulls::default(),
            tenants: tenants.clone(),
            host_paths,
            images,
            is_isolated,
            is_root,
            memory,
            pods,
            ways,
        });
        let pods = sweep(&site).await?;
        let crew = Crew::default();
        let (gauge, pressure) = Gauge::new(directory);
        let landlord = Landlord::new(Arc::clone(&site), crew.clone(), pressure);
        landlord.take_up(&pods).await;
        let machine = machine::describe(&site);
        let engine = Engine::new(
            client.clone(),
            clock,
            landlord,
            vec![machine],
            true,
            complain.clone(),
        );
        Ok(Self {
            engine: tokio::spawn(engine.run()),
            claims: tokio::spawn(claims::keep(client, volumes, complain)),
            greed: tokio::spawn(greed::watch(Arc::clone(&site), crew.clone())),
            pressure: tokio::spawn(gauge.watch(Arc::clone(&site))),
            streams: Arc::new(Doorman::new(tenants, dialer)),
            site,
            crew,
            trouble,
        })
    }

    /// What lets clients reach the containers of its pods.
    pub fn streams(&self) -> Arc<dyn PodStreams> {
        Arc::<Doorman>::clone(&self.streams)
    }

    /// The last error of the API server that was neither a conflict nor an object's absence.
    pub fn last_error(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// Looks after the pods no more. They go on, and a node that is started in the same directory takes them up.
    pub async fn leave(mut self) {
        self.stop_engine().await;
        self.crew.leave();
        self.site.ways.leave().await;
    }

    /// Ends all pods, each in its own time, and the network. Their objects stay: a node that is started in the same directory
    /// starts them again.
    pub async fn rest(mut self) -> Result<Forwarding, NetworkError> {
        self.stop_engine().await;
        self.crew.rest().await;
        self.site.ways.close().await
    }
}

impl Node {
    /// Waits for its end: whoever is just being told of a pod would begin to look after it.
    async fn stop_engine(&mut self) {
        self.engine.abort();
        let _ = (&mut self.engine).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.engine.abort();
        self.claims.abort();
        self.greed.abort();
        self.pressure.abort();
    }
}

/// Removes what is left of pods that are no more, and tells which are.
async fn sweep(site: &Arc<Site>) -> Result<Vec<Pod>, StartError> {
    let pods: Api<Pod> = Api::all(site.client.clone());
    let listed = pods.list(&ListParams::default()).await;
    let listed = listed.map_err(StartError::List)?;
    let known: BTreeSet<String> = listed.items.iter().filter_map(Pod::uid).collect();
    let left = directories(&site.pods);
    let gone = left.iter().filter(|uid| !known.contains(*uid));
    join_all(gone.map(|uid| evict(site, uid))).await;
    for holder in site.images.holds().unwrap_or_default().into_keys() {
        let is_known = holder
            .split_once('.')
            .is_some_and(|(uid, _)| known.contains(uid));
        if !is_known {
            // it is kept too long at worst
            let _ = site.images.release(&holder);
        }
    }
    site.ways.sweep(&known).await?;
    Ok(listed.items)
}

fn directories(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Makes a directory that is nobody else's. One that somebody else has made, where others may, is refused.
fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    let found = fs::symlink_metadata(path)?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
        let what = "it belongs to somebody else, or others may use it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// Removes every trace of a node that no process runs: its pods, its network, its directory.
pub async fn remove(directory: &Path) -> Result<Removed, StartError> {
    machine::remove(directory).await
}

/// What was there to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub pods: usize,
}
