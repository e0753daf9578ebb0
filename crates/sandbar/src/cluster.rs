//! Which cluster a command speaks to.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::api::default_directory;

/// That of a kubeconfig, or the one that kubectl would take; in a pod, the pod's own; and where there is none, that of `sandbar up`.
pub(crate) async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    match kubeconfig {
        Some(path) => read(path, &options).await,
        None if context.is_some() => Ok(Config::from_kubeconfig(&options).await?),
        None => match (Config::infer().await, own()) {
            (Ok(config), _) => Ok(config),
            (Err(_), Some(path)) => read(&path, &options).await,
            (Err(error), None) => Err(error)
                .context("no cluster to talk to: set KUBECONFIG, give --kubeconfig, or start one with `sandbar up`"),
        },
    }
}

async fn read(path: &Path, options: &KubeConfigOptions) -> Result<Config> {
    let read = Kubeconfig::read_from(path);
    let kubeconfig = read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, options).await?)
}

/// The kubeconfig of the instance in the default directory.
pub(crate) fn own() -> Option<PathBuf> {
    kubeconfig_in(&default_directory().ok()?).ok()
}

/// The kubeconfig of the instance in a directory.
pub(crate) fn kubeconfig_in(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("kubeconfig");
    ensure!(
        path.exists(),
        "nothing has run with the data directory {} yet: start it with `sandbar up --data-dir {0}`",
        directory.display()
    );
    Ok(path)
}
