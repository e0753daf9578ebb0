//! `sandbar rollout`: how a pool takes on a new template, told and steered.

mod history;
mod status;
mod undo;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use api::{
    open::Open,
    sigs::{
        rolling_update::UpdateStrategyType,
        v1beta1::{SandboxTemplate, SandboxWarmPool},
    },
};
use clap::Subcommand;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::cluster::{self, kubeconfig_in};

/// Follow and steer the rollout of a warm pool
///
/// Also a plugin of kubectl: link this program as `kubectl-sandbar` into a directory of PATH, then
/// `kubectl sandbar rollout status POOL`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show how far the rollout has come, and wait until it is complete
    ///
    /// Exits with 1 if the rollout misses its progress deadline, or if the time is over before it is complete.
    Status {
        #[command(flatten)]
        target: Target,
        /// Say how things are and do not wait
        #[arg(long)]
        no_watch: bool,
        /// Give up after this many seconds; wait for ever if left out
        #[arg(long, value_name = "SECONDS")]
        timeout: Option<u64>,
    },
    /// Replace and update nothing until the rollout is resumed; used up members are still renewed
    Pause {
        #[command(flatten)]
        target: Target,
    },
    /// Go on with a paused rollout
    Resume {
        #[command(flatten)]
        target: Target,
    },
    /// List the revisions that the pool has had
    History {
        #[command(flatten)]
        target: Target,
        /// Print what this revision was made from
        #[arg(long, value_name = "NUMBER")]
        revision: Option<i64>,
    },
    /// Go back to the revision before, or to another one
    ///
    /// Writes what the revision was made from into the pool's template, so that every pool of that template follows.
    Undo {
        #[command(flatten)]
        target: Target,
        #[arg(long, value_name = "NUMBER")]
        to_revision: Option<i64>,
        /// The revision that is left is bad: nobody gets one of its members any more, and all of them are replaced at once,
        /// whatever the strategy says. Claims wait for new ones meanwhile
        #[arg(long)]
        retire: bool,
        /// Say what would be done
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(clap::Args)]
struct Target {
    /// Name of the SandboxWarmPool, also as sandboxwarmpool/NAME or swp/NAME
    #[arg(value_parser = pool_name)]
    pool: String,
    /// Namespace of the pool; that of the kubeconfig's context if left out
    #[arg(short, long)]
    namespace: Option<String>,
    /// Path of the kubeconfig; KUBECONFIG, ~/.kube/config or the pod's own account if left out
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// The data directory of the `sandbar up` to speak to
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    data_dir: Option<PathBuf>,
}

/// The name in `NAME` or `KIND/NAME`, where the kind may be said in every way that kubectl knows.
fn pool_name(word: &str) -> Result<String, String> {
    let Some((kind, name)) = word.split_once('/') else {
        return Ok(word.to_owned());
    };
    let resource = kind.split('.').next().unwrap_or_default();
    match resource.to_ascii_lowercase().as_str() {
        "sandboxwarmpool" | "sandboxwarmpools" | "swp" => Ok(name.to_owned()),
        _ => Err(format!(
            "only SandboxWarmPools have rollouts, not {kind}: write NAME or sandboxwarmpool/NAME"
        )),
    }
}

/// A pool on a server.
struct Place {
    client: Client,
    namespace: String,
    name: String,
}

impl Target {
    async fn open(&self) -> Result<Place> {
        let in_directory = self.data_dir.as_deref().map(kubeconfig_in).transpose()?;
        let kubeconfig = self.kubeconfig.as_deref().or(in_directory.as_deref());
        let config = cluster::config(kubeconfig, self.context.as_deref()).await?;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        Ok(Place {
            client: Client::try_from(config)?,
            namespace,
            name: self.pool.clone(),
        })
    }
}

impl Place {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn pool(&self) -> Result<SandboxWarmPool> {
        let Self {
            namespace, name, ..
        } = self;
        let found = self.api::<SandboxWarmPool>().get_opt(name).await;
        let found =
            found.with_context(|| format!("cannot read SandboxWarmPool {namespace}/{name}"))?;
        found.with_context(|| {
            format!(
                "SandboxWarmPool {namespace}/{name} not found; `kubectl get sandboxwarmpools -A` lists those there are"
            )
        })
    }

    async fn template(&self, pool: &SandboxWarmPool) -> Result<Option<SandboxTemplate>> {
        let name = &pool.spec.sandbox_template_ref.name;
        Ok(self.api().get_opt(name).await?)
    }

    async fn set_paused(&self, is_paused: bool) -> Result<()> {
        let pool = self.pool().await?;
        let strategy = pool.spec.update_strategy.unwrap_or_default();
        let rolling = Open::Known(UpdateStrategyType::RollingUpdate);
        if strategy.type_ != Some(rolling) {
            bail!(
                "the strategy of {}/{} is {}, which cannot be paused; set spec.updateStrategy.type to RollingUpdate",
                self.namespace,
                self.name,
                strategy
                    .type_
                    .unwrap_or(Open::Known(UpdateStrategyType::OnReplenish)),
            );
        }
        let rolling = strategy.rolling_update.unwrap_or_default();
        let (done, already) = match is_paused {
            true => ("paused", "is paused already"),
            false => ("resumed", "is not paused"),
        };
        if rolling.paused.unwrap_or(false) == is_paused {
            println!("{}/{} {already}", self.namespace, self.name);
            return Ok(());
        }
        let patch = json!({"spec": {"updateStrategy": {"rollingUpdate": {"paused": is_paused}}}});
        let pools = self.api::<SandboxWarmPool>();
        let params = PatchParams::default();
        pools
            .patch(&self.name, &params, &Patch::Merge(patch))
            .await?;
        println!("{}/{} {done}", self.namespace, self.name);
        Ok(())
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.command.run())
    }
}

impl Command {
    async fn run(self) -> Result<()> {
        match self {
            Self::Status {
                target,
                no_watch,
                timeout,
            } => {
                let place = target.open().await?;
                match (no_watch, timeout.map(Duration::from_secs)) {
                    (true, _) => status::once(&place).await,
                    (false, None) => status::follow(&place).await,
                    (false, Some(time)) => {
                        match tokio::time::timeout(time, status::follow(&place)).await {
                            Ok(done) => done,
                            Err(_) => bail!("not complete after {} s", time.as_secs()),
                        }
                    }
                }
            }
            Self::Pause { target } => target.open().await?.set_paused(true).await,
            Self::Resume { target } => target.open().await?.set_paused(false).await,
            Self::History { target, revision } => {
                history::show(&target.open().await?, revision).await
            }
            Self::Undo {
                target,
                to_revision,
                retire,
                dry_run,
            } => {
                let back = undo::Back {
                    to: to_revision,
                    retires: retire,
                    is_dry: dry_run,
                };
                undo::undo(&target.open().await?, &back).await
            }
        }
    }
}
