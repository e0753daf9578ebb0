//! The inner half of an instance: starts the programs in the order of their dependencies, waits until the cluster
//! is usable, and from then on watches that nothing ends.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::command::last_lines;
use crate::mounts::{self, INSIDE};
use crate::plan::{Phase, Plan, Status};
use crate::{files, pki, programs, slots};

/// How long a cluster may take before its start counts as failed. Warm it takes seconds; the rest is for machines
/// that are busy with something else.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs until something fails; the failure is in the status then.
pub(crate) fn supervise(dir: &Path) -> Result<()> {
    let result = enter(dir).and_then(Supervisor::run);
    // before the mounts changed the directory was elsewhere
    let dir = if Path::new(INSIDE).join("status.json").exists() {
        Path::new(INSIDE)
    } else {
        dir
    };
    if let Err(error) = &result {
        Status::record_failure(dir, &format!("{error:#}"))?;
    }
    result
}

fn enter(dir: &Path) -> Result<Supervisor> {
    let mut plan = Plan::load(dir)?;
    plan.tools = mounts::enter(dir, &plan.tools)?;
    let status = Status::load(Path::new(INSIDE))?;
    Ok(Supervisor {
        plan,
        status,
        running: Vec::new(),
        give_up: Instant::now() + PATIENCE,
    })
}

struct Supervisor {
    plan: Plan,
    status: Status,
    running: Vec<(&'static str, Child)>,
    give_up: Instant,
}

impl Supervisor {
    fn run(mut self) -> Result<()> {
        self.start()?;
        self.status.phase = Phase::Ready;
        self.step("ready")?;
        loop {
            std::thread::sleep(Duration::from_millis(200));
            self.check()?;
        }
    }

    fn start(&mut self) -> Result<()> {
        let dir = Path::new(INSIDE);
        let net = self.plan.net();
        self.step("configuring the network")?;
        slots::configure_node(net)?;
        if let Some(node) = &mut self.plan.tools.node {
            programs::choose_iptables(node)?;
        }
        pki::write(dir, net)?;
        files::write(dir, &self.plan)?;

        self.step("starting etcd")?;
        if let Some(node) = self.plan.tools.node.clone() {
            self.spawn("containerd", programs::containerd(&node)?)?;
        }
        self.spawn("etcd", programs::etcd(&self.plan)?)?;
        self.wait("etcd", || Ok(listens(Ipv4Addr::LOCALHOST, 2379)))?;
        self.step("starting the API server")?;
        self.spawn("kube-apiserver", programs::apiserver(&self.plan)?)?;
        let import = self.import_images()?;
        let mut cluster = Cluster::connect(&dir.join("kubeconfig"))?;
        self.wait("the API server", || Ok(cluster.is_ready()))?;

        self.start_controllers()?;
        self.step("creating the cluster's objects")?;
        cluster.create_objects(&self.plan.spec)?;
        if let Some(import) = import {
            self.finish_import(import)?;
        }
        self.await_cluster(&mut cluster)
    }

    fn start_controllers(&mut self) -> Result<()> {
        if self.plan.spec.controller_manager {
            self.step("starting the controllers")?;
            self.spawn(
                "kube-controller-manager",
                programs::controller_manager(&self.plan)?,
            )?;
        }
        if self.plan.spec.scheduler() {
            self.spawn("kube-scheduler", programs::scheduler(&self.plan)?)?;
        }
        if self.plan.spec.kwok() {
            self.spawn("kwok", programs::kwok(&self.plan)?)?;
        }
        if let Some(node) = self.plan.tools.node.clone() {
            self.step("starting the node")?;
            self.spawn("kubelet", programs::kubelet(&self.plan, &node)?)?;
            self.spawn("kube-proxy", programs::kube_proxy(&self.plan, &node)?)?;
        }
        Ok(())
    }

    /// Starts the import of the base images and lets it run beside the API server's start.
    fn import_images(&mut self) -> Result<Option<Child>> {
        let Some(node) = self.plan.tools.node.clone() else {
            return Ok(None);
        };
        self.wait("containerd", || {
            Ok(Path::new("/run/containerd/containerd.sock").exists())
        })?;
        let mut ctr = programs::ctr(&node)?;
        // later imports come from the host, which does not know the paths in here
        let links = Path::new(INSIDE).join("bin");
        fs::create_dir_all(&links).context("creating a directory for links")?;
        std::os::unix::fs::symlink(ctr.get_program(), links.join("ctr")).context("linking ctr")?;
        ctr.args(["images", "import"]).arg(&node.images);
        let import = to_log(&mut ctr, "import")?
            .spawn()
            .context("starting the image import")?;
        Ok(Some(import))
    }

    fn finish_import(&mut self, mut import: Child) -> Result<()> {
        self.step("importing the base images")?;
        let mut outcome = None;
        self.wait("the import of the base images", || {
            outcome = import.try_wait().context("waiting for ctr")?;
            Ok(outcome.is_some())
        })?;
        match outcome {
            Some(status) if !status.success() => {
                bail!(
                    "importing the base images ended with {status}: {}",
                    log_end("import")
                )
            }
            _ => Ok(()),
        }
    }

    fn await_cluster(&mut self, cluster: &mut Cluster) -> Result<()> {
        let spec = self.plan.spec.clone();
        if spec.controller_manager {
            self.step("waiting for the default service account")?;
            self.wait("the default service account", || {
                cluster.has_default_account()
            })?;
        }
        if spec.scheduler() {
            self.step("waiting for the nodes")?;
            let nodes = spec.fake_nodes as usize + usize::from(spec.kubelet);
            self.wait("the nodes to become ready", || {
                Ok(cluster.ready_nodes()? >= nodes)
            })?;
        }
        if spec.kubelet {
            self.step("waiting for the service network")?;
            let service = self.plan.net().api_service();
            self.wait("the service network", || Ok(listens(service, 443)))?;
        }
        Ok(())
    }

    fn step(&mut self, name: &str) -> Result<()> {
        name.clone_into(&mut self.status.step);
        self.status.save(Path::new(INSIDE))
    }

    fn spawn(&mut self, name: &'static str, mut command: Command) -> Result<()> {
        let child = to_log(&mut command, name)?
            .spawn()
            .with_context(|| format!("starting {name} ({})", command.get_program().display()))?;
        self.status.programs.push(name.to_owned());
        self.running.push((name, child));
        Ok(())
    }

    /// Fails if a program has ended: none of them ever should.
    fn check(&mut self) -> Result<()> {
        for (name, child) in &mut self.running {
            if let Some(status) = child
                .try_wait()
                .with_context(|| format!("waiting for {name}"))?
            {
                bail!(
                    "{name} ended with {status}; its last lines:\n{}",
                    log_end(name)
                );
            }
        }
        Ok(())
    }

    fn wait(&mut self, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        while !done()? {
            self.check()?;
            if Instant::now() > self.give_up {
                bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn listens(address: Ipv4Addr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((address, port)), Duration::from_secs(1)).is_ok()
}

fn to_log<'a>(command: &'a mut Command, name: &str) -> Result<&'a mut Command> {
    let path = Path::new(INSIDE).join("logs").join(format!("{name}.log"));
    let open = || -> Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("opening {}", path.display()))
    };
    Ok(command.stdin(Stdio::null()).stdout(open()?).stderr(open()?))
}

fn log_end(name: &str) -> String {
    let path = Path::new(INSIDE).join("logs").join(format!("{name}.log"));
    let bytes = fs::read(path).unwrap_or_default();
    last_lines(&String::from_utf8_lossy(&bytes), 15)
}
