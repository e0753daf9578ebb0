//! The servers of a testbed as processes.

use anyhow::{Context as _, Result};
use testbed::Testbed;

use crate::process;

pub struct Servers {
    pub api_server: u32,
    pub etcd: u32,
}

impl Servers {
    pub fn of(bed: &Testbed) -> Result<Self> {
        let address = format!("--advertise-address={}\0", bed.node_address());
        let found =
            process::find(|line| line.contains("kube-apiserver\0") && line.contains(&address))?;
        let api_server = *found.first().context("kube-apiserver is not to be found")?;
        let parent = process::parent(api_server)?;
        let etcd = process::find(|line| line.contains("etcd\0") && line.contains("--data-dir="))?;
        let etcd = etcd
            .into_iter()
            .find(|pid| process::parent(*pid).ok() == Some(parent));
        Ok(Self {
            api_server,
            etcd: etcd.context("etcd is not to be found")?,
        })
    }
}
