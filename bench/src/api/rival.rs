//! etcd and kube-apiserver, as the testbed starts them.

use std::time::Duration;

use anyhow::Result;
use testbed::{OwnOptions, Testbed};

use bench::client::Access;
use bench::process;
use bench::servers::Servers;
use bench::times::progress;

/// A server under measurement.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) access: Access,
    pub(crate) pids: Vec<u32>,
}

impl Side {
    pub(crate) fn cpu(&self) -> Result<Duration> {
        process::cpu(&self.pids)
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.name == "sandbar"
    }
}

pub(crate) struct Rival {
    bed: Testbed,
    pub(crate) side: Side,
}

impl Rival {
    pub(crate) async fn start() -> Result<Self> {
        progress("starting etcd and kube-apiserver");
        let options = OwnOptions {
            fsync: true,
            ..OwnOptions::default()
        };
        let bed = Testbed::own(options).await?;
        let servers = Servers::of(&bed)?;
        let side = Side {
            name: "etcd + kube-apiserver",
            access: Access::read(&bed.kubeconfig()).await?,
            pids: vec![servers.api_server, servers.etcd],
        };
        Ok(Self { bed, side })
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.bed.stop().await
    }
}
