//! `sandbar up`: API, node, controllers and a warm pool in one process.

mod definitions;
mod isolation;
mod limits;
mod network;
mod pool;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use controller::sigs;
use local::{
    Cluster,
    image::{self, Images},
    node::{self, Node, inside::Inside},
    serve::{self, Home, Running},
    store::Location,
};
use tokio::{
    runtime::Runtime,
    task::{JoinHandle, spawn_blocking},
};

use isolation::Isolation;
use network::Range;
use pool::Stock;

use crate::{
    api::{Door, default_directory, say, with_remedy},
    daemon::DAEMON,
    signals::asked_to_stop,
};

/// How this program is asked to be the process that forks.
pub(crate) const HELPER: &str = "container-helper";
/// The same for sandboxes that are not isolated.
pub(crate) const PLAIN_HELPER: &str = "plain-container-helper";
/// How this program is asked to try whether sandboxes can be isolated.
pub(crate) const PROBE: &str = "isolation-probe";
/// How this program is asked to try whether sandboxes can have users of their own, for files in directories that are named.
pub(crate) const USERS_PROBE: &str = "users-probe";
/// How this program is asked to reach into a pod.
pub(crate) const INSIDE: &str = "inside-a-pod";

/// Run everything on this machine: a Kubernetes API, a node, the controllers and a warm pool
///
/// Nothing else has to be installed. Sandboxes are Linux containers on this machine; as root they have addresses of their own and
/// NetworkPolicies are enforced, as an ordinary user they have no network but their loopback.
///
/// Ctrl-C or SIGTERM stops the sandboxes, each in its own time, and then the rest; a second one stops at once and leaves the
/// sandboxes running. Objects and volumes stay, and the next `sandbar up` goes on with them. `sandbar down` removes every trace.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where everything is kept; two directories are two independent instances [default: ~/.sandbar]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    door: Door,
    #[command(flatten)]
    stock: Stock,
    #[command(flatten)]
    range: Range,
    /// Leave the sandboxes running when this stops; the next `sandbar up` takes them up
    #[arg(long)]
    keep_running: bool,
    /// A directory of this machine that sandboxes may have as a hostPath volume; can be repeated
    #[arg(long, value_name = "DIR")]
    allow_host_path: Vec<PathBuf>,
    /// A registry to ask without TLS, such as registry.example:5000; can be repeated, and those on loopback always are
    #[arg(long, value_name = "REGISTRY")]
    insecure_registry: Vec<String>,
    /// Where sandboxes cannot be isolated, run them all the same: as plain processes that may read and change all that you may
    #[arg(long)]
    insecure_no_isolation: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        container::descriptors::raise();
        let directory = match &self.data_dir {
            Some(directory) => directory.clone(),
            None => default_directory()?,
        };
        let isolation = Isolation::find(&directory, self.insecure_no_isolation)?;
        let runtime = Runtime::new().context("starting threads")?;
        runtime.block_on(self.up(directory, isolation))
    }

    async fn up(self, directory: PathBuf, isolation: Isolation) -> Result<()> {
        let begun = Instant::now();
        let asked = asked_to_stop().context("waiting for signals")?;
        let home = Home::open(directory).map_err(with_remedy)?;
        let (directory, store) = (home.path().to_owned(), home.store());
        // first of all: who cannot have the port leaves nothing behind
        let door = serve::listen(home, self.door.options()).await;
        let door = door.map_err(with_remedy)?;
        let cluster = Cluster::open(local::Options::at(Location::Directory(store))).await?;
        definitions::install(&cluster.client()).await?;
        let (node, ways) = self.start_node(&cluster, &directory, isolation).await?;
        cluster.set_streams(node::NAME, node.streams());
        let mut controllers = control(&cluster);
        let client = cluster.client();
        let stock = self.stock.make(&client, &directory, isolation).await?;
        let running = match door.serve(cluster.service()) {
            Ok(running) => running,
            Err(error) => {
                node.leave().await;
                return Err(with_remedy(error));
            }
        };
        tell(&self.introduction(&running, &directory, &ways, &stock, begun));
        let asked = tokio::select! {
            _ = asked => Ok(()),
            ended = &mut controllers => Err(anyhow!("the controllers have ended: {ended:?}")),
        };
        asked.and(self.end(node, controllers, running, cluster).await)
    }

    async fn start_node(
        &self,
        cluster: &Cluster,
        directory: &Path,
        isolation: Isolation,
    ) -> Result<(Node, String)> {
        let place = node_directory(directory);
        let images = self.open_images(directory, isolation)?;
        let network = self.range.open(isolation, directory, &place).await?;
        let is_root = rustix::process::geteuid().is_root();
        let ways = match (network.range(), isolation, is_root) {
            (Some(range), _, _) => format!("addresses from {range}, policies enforced"),
            (None, Isolation::None, _) => {
                "NO ISOLATION, ports are those of this machine".to_owned()
            }
            (None, _, true) => "no network: this process may not manage links and rules".to_owned(),
            (None, _, false) => "no network: you are not root".to_owned(),
        };
        let inside = match (isolation, is_root) {
            (Isolation::None, _) => Inside::loopback(),
            (Isolation::Namespaces, true) => Inside::directly(),
            (Isolation::Namespaces, false) => Inside::through(Path::new(OWN), [INSIDE]),
        };
        let options = node::Options {
            directory: place,
            images,
            network,
            helper: Box::new(move || isolation.helper()),
            inside,
            host_paths: self.host_paths()?,
            is_isolated: isolation == Isolation::Namespaces,
        };
        let node = Node::start(cluster.client(), options).await?;
        Ok((node, ways))
    }

    fn host_paths(&self) -> Result<Vec<PathBuf>> {
        let paths = self.allow_host_path.iter().map(|path| {
            let whole = std::path::absolute(path);
            whole.with_context(|| format!("--allow-host-path {}", path.display()))
        });
        paths.collect()
    }

    fn open_images(&self, directory: &Path, isolation: Isolation) -> Result<Images> {
        let options = image::Options {
            insecure_registries: self.insecure_registry.clone(),
            // without a network of its own, no sandbox could have the daemon's port but one
            daemon: (isolation == Isolation::Namespaces).then_some(DAEMON),
            ..image::Options::default()
        };
        let images = Images::open_with(&directory.join("images"), options)?;
        let base = image::reference(pool::IMAGE)?;
        let made = images.clone();
        spawn_blocking(move || {
            // what fails is told when a pod wants it
            let _ = made.get(&base);
            // by now it is in the image
            allocator::put_away(DAEMON.0);
        });
        Ok(images)
    }

    fn introduction(
        &self,
        running: &Running,
        directory: &Path,
        ways: &str,
        stock: &str,
        begun: Instant,
    ) -> String {
        let here = match &self.data_dir {
            Some(_) => format!(" --data-dir {}", directory.display()),
            None => String::new(),
        };
        format!(
            "Kubernetes API: {}\n\
             kubeconfig:     {}\n\
             data:           {}\n\
             node:           {}, {ways}\n\
             warm pool:      {stock}\n\
             ready after {} ms; try `sandbar get sandboxes -A{here}`, `sandbar exec{here} -it sandbox/NAME -- sh`\n",
            running.url(),
            running.kubeconfig().display(),
            directory.display(),
            node::NAME,
            begun.elapsed().as_millis(),
        )
    }

    async fn end(
        self,
        node: Node,
        controllers: JoinHandle<()>,
        running: Running,
        cluster: Cluster,
    ) -> Result<()> {
        controllers.abort();
        let rested = if self.keep_running {
            tell("stopping; the sandboxes go on\n");
            node.leave().await;
            Ok(())
        } else {
            tell("stopping the sandboxes; once more to stop at once\n");
            node.rest().await.map(drop)
        };
        running.stop().await;
        cluster.close().await;
        rested.context("removing the network of the node")
    }
}

/// This very program, even if its file has been replaced.
pub(crate) const OWN: &str = "/proc/self/exe";

/// Where the node keeps its pods, volumes and network.
pub(crate) fn node_directory(data: &Path) -> PathBuf {
    data.join("node")
}

/// All controllers, until they are told to stop.
fn control(cluster: &Cluster) -> JoinHandle<()> {
    let (client, clock) = (cluster.client(), controller::clock::Clock::system());
    tokio::spawn(sigs::run(client, clock, sigs::Options::default()))
}

/// What nobody reads does not matter: the sandboxes do.
fn tell(text: &str) {
    let _ = say(text);
}
