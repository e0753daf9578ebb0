//! etcd and kube-apiserver, as the testbed starts them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use testbed::{OwnOptions, Testbed};

use crate::client::Access;
use crate::process;
use crate::table::progress;

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
        let address = format!("--advertise-address={}\0", bed.node_address());
        let server =
            process::find(|line| line.contains("kube-apiserver\0") && line.contains(&address))?;
        let server = *server
            .first()
            .context("kube-apiserver is not to be found")?;
        let parent = process::parent(server)?;
        let etcd = process::find(|line| line.contains("etcd\0") && line.contains("--data-dir="))?;
        let etcd = etcd
            .into_iter()
            .find(|pid| process::parent(*pid).ok() == Some(parent));
        let side = Side {
            name: "etcd + kube-apiserver",
            access: Access::read(&bed.kubeconfig()).await?,
            pids: vec![server, etcd.context("etcd is not to be found")?],
        };
        Ok(Self { bed, side })
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.bed.stop().await
    }
}
