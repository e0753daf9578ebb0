//! Which cluster a command speaks to.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// That of a kubeconfig, or the one that kubectl would take; in a pod, the pod's own.
pub(crate) async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    Ok(match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path);
            let kubeconfig = read.with_context(|| format!("cannot read {}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await?
        }
        None if context.is_some() => Config::from_kubeconfig(&options).await?,
        None => Config::infer()
            .await
            .context("no cluster to talk to: set KUBECONFIG or give --kubeconfig")?,
    })
}
