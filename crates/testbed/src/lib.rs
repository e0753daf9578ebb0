//! A real single-node Kubernetes for tests.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let bed = testbed::Testbed::shared().await?;
//! let namespace = bed.namespace("example").await?;
//! let pods = namespace.api::<k8s_openapi::api::core::v1::Pod>();
//! # Ok(()) }
//! ```
//!
//! Clusters are kept alive by file locks that test processes hold and the kernel releases: however a test dies,
//! its cluster ends too.

mod account;
mod audit;
mod binaries;
mod cgroups;
#[doc(hidden)]
pub mod cli;
mod cluster;
mod command;
mod files;
mod hold;
mod images;
mod lifecycle;
mod lock;
mod mounts;
mod namespace;
mod node;
mod paths;
mod pki;
mod plan;
mod processes;
mod program;
mod programs;
mod progress;
mod slots;
mod stages;
mod supervise;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};

use lock::FileLock;
use paths::Instance;
use plan::{Net, Status};

pub use audit::{Mark, Write, Writes};
pub use images::Image;
pub use namespace::Namespace;

/// The path of the kubectl that [`Testbed::kubectl`] runs, for a server that is no testbed. It needs no cluster and no
/// root; the first call on a machine may build it.
pub fn kubectl() -> Result<PathBuf> {
    binaries::kubectl()
}

/// The newest kubectl that is served, which is that of [`kubectl`], and the oldest.
pub fn kubectls() -> Result<[PathBuf; 2]> {
    let old = binaries::old_kubectl(&mut progress::Progress::new(true))?;
    Ok([kubectl()?, old])
}

/// The path of a registry of images (`distribution`), for whoever pulls from one. It needs no cluster and no root; the
/// first call on a machine may build it.
pub fn registry() -> Result<PathBuf> {
    binaries::registry(&mut progress::Progress::new(true))
}

/// How long the shared cluster outlives its last user: the next test binary of one `cargo test` may follow.
const GRACE: Duration = Duration::from_secs(3);

/// A running cluster and a client for it.
pub struct Testbed {
    instance: Instance,
    net: Net,
    kubectl: PathBuf,
    client: kube::Client,
    /// Absent for the shared cluster, whose lease belongs to the process.
    lease: Option<FileLock>,
}

/// What a cluster of one's own consists of. The default is the least: etcd and an API server.
#[derive(Debug, Clone, Default)]
pub struct OwnOptions {
    /// A real node: kubelet, containerd, kube-proxy, and with them the scheduler.
    pub kubelet: bool,
    /// Service accounts, garbage collection, namespace deletion, deployments.
    pub controller_manager: bool,
    /// Nodes whose pods only pretend to run, and a scheduler.
    pub fake_nodes: u32,
    /// How long a pod on a fake node takes to become ready; the pod annotation
    /// `testbed.sandbar.dev/start-delay` overrides it.
    pub pod_start_delay: Duration,
    /// How long a fake node takes to answer a change in place.
    pub pod_restart_delay: Duration,
    /// Record writes, for [`Testbed::writes`].
    pub audit: bool,
    /// Let etcd wait for the disk, as it does in production; for measurements.
    pub fsync: bool,
}

impl Testbed {
    /// The full cluster with a real node that all test processes of this checkout share. The first caller waits
    /// for its start; it ends a few seconds after the last process that used it.
    pub async fn shared() -> Result<Self> {
        static STARTED: OnceLock<Result<(Instance, FileLock), String>> = OnceLock::new();
        let started = tokio::task::spawn_blocking(|| {
            // a failure is kept too: each test would otherwise wait for its own
            STARTED.get_or_init(|| start_shared().map_err(|e| format!("{e:#}")))
        });
        match started.await.context("waiting for the shared cluster")? {
            Ok((instance, _lease)) => Self::attach(instance.clone(), None).await,
            Err(error) => bail!("the shared cluster did not start: {error}"),
        }
    }

    /// A cluster that nobody else uses. It ends when the handle is dropped or the process dies.
    pub async fn own(options: OwnOptions) -> Result<Self> {
        let start = tokio::task::spawn_blocking(move || start_own(&options));
        let (instance, lease) = start.await.context("waiting for an own cluster")??;
        Self::attach(instance, Some(lease)).await
    }

    /// A client is bound to the runtime it was made in, and each test has its own: so every handle gets one.
    async fn attach(instance: Instance, lease: Option<FileLock>) -> Result<Self> {
        let status = Status::load(&instance.dir())?;
        if let Some(reason) = &status.reason {
            bail!("{} has failed: {reason}", instance.name);
        }
        let slot = status
            .slot
            .with_context(|| format!("{} has no slot", instance.name))?;
        let client = cluster::client(&instance.kubeconfig()).await?;
        Ok(Self {
            net: Net(slot),
            kubectl: status.kubectl,
            client,
            instance,
            lease,
        })
    }

    /// A client with all rights.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// A kubeconfig with all rights; it needs no other file.
    pub fn kubeconfig(&self) -> PathBuf {
        self.instance.kubeconfig()
    }

    /// The kubectl of the server's version, set up for this cluster.
    pub fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.env("KUBECONFIG", self.kubeconfig());
        kubectl.env("KUBECACHEDIR", self.instance.kubectl_cache());
        kubectl
    }

    /// The host's address on the link to the cluster. What a test listens on there, pods and the API server reach.
    pub fn host_address(&self) -> IpAddr {
        IpAddr::V4(self.net.host())
    }

    /// The node's address: the API server on port 6443, and node ports.
    pub fn node_address(&self) -> Ipv4Addr {
        self.net.node()
    }

    /// The name by which the `testbed` program knows this cluster.
    pub fn name(&self) -> &str {
        &self.instance.name
    }

    /// Where each program of the cluster logs, as `<program>.log`.
    pub fn logs(&self) -> PathBuf {
        self.instance.logs()
    }

    /// A fresh namespace whose name begins with `prefix`, usable at once.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace> {
        let accounts = Status::load(&self.instance.dir())?.spec.controller_manager;
        Namespace::create(self.client(), self.kubeconfig(), prefix, accounts).await
    }

    /// Makes the images in a tar file (OCI layout or `docker save`) known to the real node.
    pub async fn import_image(&self, file: &Path) -> Result<()> {
        let (instance, file) = (self.instance.clone(), file.to_owned());
        let import = tokio::task::spawn_blocking(move || node::import_image(&instance, &file));
        import.await.context("waiting for an image import")?
    }

    /// An image with a shell and the usual tools, to which a test adds its own files. The cluster must have a real
    /// node.
    pub fn busybox_image(&self, name: &str) -> Result<Image> {
        let order = hold::Order::load(&self.instance.dir())?;
        let node = order
            .tools
            .node
            .context("only a cluster with a real node runs images")?;
        Image::busybox(name, &node.busybox)
    }

    /// Makes an image known to the real node.
    pub async fn import(&self, image: &Image) -> Result<()> {
        let file = tempfile::NamedTempFile::new().context("creating a file for an image")?;
        image.write(file.path())?;
        self.import_image(file.path()).await
    }

    /// All writes so far; the cluster must have been started with `audit`.
    pub fn writes(&self) -> Result<Writes> {
        self.writes_since(Mark::default())
    }

    /// The writes after a place in the audit log.
    pub fn writes_since(&self, mark: Mark) -> Result<Writes> {
        Writes::read(&self.audit_log(), mark)
    }

    /// The place in the audit log after all writes so far.
    pub fn mark(&self) -> Result<Mark> {
        Mark::end(&self.audit_log())
    }

    fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }

    /// Ends an own cluster and waits until nothing of it is left. Dropping the handle ends it too, without waiting.
    pub async fn stop(mut self) -> Result<()> {
        let Some(lease) = self.lease.take() else {
            bail!("the shared cluster ends with its last user, not before");
        };
        drop(lease);
        let dir = self.instance.dir();
        let wait = tokio::task::spawn_blocking(move || {
            let give_up = Instant::now() + Duration::from_secs(60);
            while dir.exists() || !processes::find(processes::HOLD, &dir).is_empty() {
                if Instant::now() > give_up {
                    bail!("{} does not end", dir.display());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        });
        wait.await.context("waiting for a cluster to end")?
    }
}

fn start_shared() -> Result<(Instance, FileLock)> {
    let instance = Instance::new(&format!(
        "{}-shared",
        paths::name_for(&program::workspace())
    ))?;
    let full = OwnOptions {
        kubelet: true,
        controller_manager: true,
        ..OwnOptions::default()
    };
    start(instance, &full, GRACE, false)
}

fn start_own(options: &OwnOptions) -> Result<(Instance, FileLock)> {
    let checkout = paths::name_for(&program::workspace());
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let hash = paths::short_hash([
        now.as_nanos().to_le_bytes().as_slice(),
        &std::process::id().to_le_bytes(),
        &COUNTER.fetch_add(1, Ordering::Relaxed).to_le_bytes(),
    ]);
    start(
        Instance::new(&format!("{checkout}{}{hash}", paths::OWN))?,
        options,
        Duration::ZERO,
        true,
    )
}

/// Takes the lease first, then has the `testbed` program bring the instance up: the daemon that holds the cluster
/// must not be a child of the test process.
fn start(
    instance: Instance,
    options: &OwnOptions,
    grace: Duration,
    single_use: bool,
) -> Result<(Instance, FileLock)> {
    let lease = FileLock::shared(&instance.lease_file())?;
    let mut up = Command::new(program::path()?);
    up.args(["up", "--quiet", "--name", &instance.name]);
    up.arg("--lease").arg(instance.lease_file());
    up.arg(format!("--grace-ms={}", grace.as_millis()));
    up.args(options.arguments());
    if single_use {
        up.arg("--single-use");
    }
    let output = up.output().context("running testbed up")?;
    if !output.status.success() {
        return Err(anyhow!(
            "{}",
            String::from_utf8_lossy(&output.stderr).trim().to_owned()
        ));
    }
    Ok((instance, lease))
}

impl OwnOptions {
    fn arguments(&self) -> Vec<String> {
        // without `..`: a new option must find its way to the command line
        let Self {
            kubelet,
            controller_manager,
            fake_nodes,
            pod_start_delay,
            pod_restart_delay,
            audit,
            fsync,
        } = self;
        let mut arguments = vec![
            format!("--fake-nodes={fake_nodes}"),
            format!("--pod-start-delay={}ms", pod_start_delay.as_millis()),
            format!("--pod-restart-delay={}ms", pod_restart_delay.as_millis()),
        ];
        for (wanted, flag) in [
            (!kubelet, "--no-kubelet"),
            (!controller_manager, "--no-controller-manager"),
            (*audit, "--audit"),
            (*fsync, "--fsync"),
        ] {
            if wanted {
                arguments.push(flag.to_owned());
            }
        }
        arguments
    }
}
