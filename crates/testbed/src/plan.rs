//! What an instance consists of (`Plan`, written once by the holder) and how far it has come (`Status`, written
//! by the supervisor). Both are files in the instance's directory.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::binaries::Tools;
use crate::paths::write_atomically;

/// What the user asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// A real node: kubelet, containerd, kube-proxy.
    pub(crate) kubelet: bool,
    pub(crate) controller_manager: bool,
    /// Nodes whose pods kwok only pretends to run.
    pub(crate) fake_nodes: u32,
    /// How long a pod on a fake node takes to become ready.
    pub(crate) pod_start_delay: Duration,
    /// How long a fake node takes to answer an image change in place.
    pub(crate) pod_restart_delay: Duration,
    pub(crate) audit: bool,
    /// Whether etcd waits for the disk. Off is right for tests, on for figures.
    pub(crate) fsync: bool,
}

impl Spec {
    pub(crate) fn scheduler(&self) -> bool {
        self.kubelet || self.fake_nodes > 0
    }

    pub(crate) fn kwok(&self) -> bool {
        self.fake_nodes > 0
    }
}

/// Everything the processes inside the namespaces need to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) spec: Spec,
    pub(crate) slot: u8,
    pub(crate) tools: Tools,
    pub(crate) cgroup: String,
}

/// The addresses that belong to a slot. Each slot has its own, so that instances run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Net(pub(crate) u8);

impl Net {
    /// The host's end of the link; what a test listens on so that pods and the API server reach it.
    pub(crate) fn host(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 89, self.0, 1)
    }

    /// The node: API server, kubelet.
    pub(crate) fn node(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 89, self.0, 2)
    }

    /// The `kubernetes` service, by which pods reach the API.
    pub(crate) fn api_service(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 91, self.0, 1)
    }

    pub(crate) fn link(self) -> String {
        format!("10.89.{}.0/30", self.0)
    }

    pub(crate) fn pods(self) -> String {
        format!("10.90.{}.0/24", self.0)
    }

    pub(crate) fn services(self) -> String {
        format!("10.91.{}.0/24", self.0)
    }

    /// The interface on the host.
    pub(crate) fn host_link(self) -> String {
        format!("sbtb{}h", self.0)
    }

    pub(crate) fn server(self) -> String {
        format!("https://{}:6443", self.node())
    }
}

impl Plan {
    pub(crate) fn net(&self) -> Net {
        Net(self.slot)
    }

    pub(crate) fn load(dir: &Path) -> Result<Self> {
        read_json(&dir.join("plan.json"))
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        write_json(&dir.join("plan.json"), self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Starting,
    Ready,
    Failed,
}

/// How far the instance has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) phase: Phase,
    pub(crate) step: String,
    /// Why it failed.
    pub(crate) reason: Option<String>,
    pub(crate) spec: Spec,
    pub(crate) slot: Option<u8>,
    /// Seconds since 1970.
    pub(crate) started: u64,
    /// Names of the programs that were started.
    pub(crate) programs: Vec<String>,
    /// The kubectl of the right version.
    pub(crate) kubectl: PathBuf,
}

impl Status {
    pub(crate) fn starting(spec: Spec, kubectl: PathBuf) -> Self {
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        Self {
            phase: Phase::Starting,
            step: "starting the namespaces".to_owned(),
            reason: None,
            spec,
            slot: None,
            started,
            programs: Vec::new(),
            kubectl,
        }
    }

    pub(crate) fn load(dir: &Path) -> Result<Self> {
        read_json(&dir.join("status.json"))
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        write_json(&dir.join("status.json"), self)
    }

    /// Records a failure unless one is recorded already: the first is the cause, the others are consequences.
    pub(crate) fn record_failure(dir: &Path, reason: &str) -> Result<()> {
        let mut status = Self::load(dir)?;
        if status.phase != Phase::Failed {
            status.phase = Phase::Failed;
            status.reason = Some(reason.to_owned());
            status.save(dir)?;
        }
        Ok(())
    }
}

pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("understanding {}", path.display()))
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    write_atomically(path, &serde_json::to_vec_pretty(value)?)
}
