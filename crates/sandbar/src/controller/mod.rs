//! `sandbar controller`: the controllers on a cluster.

mod cluster;
#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
#[path = "no_export.rs"]
mod export;
mod flags;
pub(crate) mod go;
mod http;
mod readiness;

use std::{io, time::Duration};

use ::http::StatusCode;
use anyhow::{Context, Result};
use controller::{
    clock::Clock,
    lease::{Candidate, Role, Terms},
    metrics::{CONTENT_TYPE, Metrics},
    sigs,
    trace::{self, Traces},
};
use kube::Client;
use tokio::{
    runtime::Builder,
    sync::{oneshot, watch},
    time::{sleep, timeout},
};
use tracing::{info, warn};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::signals::asked_to_stop;
use export::Export;
pub(crate) use flags::{Args, with_two_dashes};
use flags::{Encoder, Logs};
use http::Answer;
use readiness::Readiness;

/// How often is looked for what is not there yet.
const LOOKS: Duration = Duration::from_secs(2);
/// How long giving the lease back may take; it runs out by itself after a while.
const FAREWELL: Duration = Duration::from_millis(800);

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        // an answer is mostly waited for, and a second thread would only have to be woken
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the runtime of the controllers")?;
        let result = runtime.block_on(self.control());
        // what is under way is nobody's any more
        runtime.shutdown_background();
        result
    }

    async fn control(self) -> Result<()> {
        let export = match self.logs.enable_tracing {
            true => Some(Export::start()?),
            false => None,
        };
        start_logs(&self.logs, export.as_ref());
        let traces = export.as_ref().map(Export::traces).unwrap_or_default();
        let ended = self.control_until_asked(traces).await;
        if let Some(export) = export {
            export.end().await;
        }
        ended
    }

    async fn control_until_asked(&self, traces: Traces) -> Result<()> {
        let asked = asked_to_stop().context("waiting for signals")?;
        let unused = self.unused();
        if !unused.is_empty() {
            warn!("flags without effect here: {}", unused.join(", "));
        }
        if self.family.has_kruise() {
            let held = match self.elects() {
                true => ", and only holds its lease",
                false => "",
            };
            warn!("agents.kruise.io: this release has no controllers for it{held}");
        }
        let (metrics, readiness) = (Metrics::default(), Readiness::new());
        self.serve(&metrics, &readiness).await?;
        let (client, host) = cluster::connect(self.kubeconfig.as_deref()).await?;
        let client = metrics.counted(client, &host);
        info!(version = env!("CARGO_PKG_VERSION"), %host, "sandbar controller");
        let (leave, left) = oneshot::channel::<()>();
        let mut election = None;
        let work = async {
            self.wait_for_kinds(&client, &readiness).await;
            let mut options = self.found(&client, &metrics, &readiness).await;
            options.traces = traces;
            readiness.wait_for(None);
            if self.elects() {
                election = Some(self.stand(&client, &readiness, left));
            } else {
                readiness.role.send_replace(Role::Leading);
            }
            self.act(&client, &options, &readiness).await;
        };
        tokio::select! {
            _ = asked => info!("stopping"),
            () = work => {}
        }
        // nobody acts any more, so that another may
        drop(leave);
        if let Some(election) = election
            && timeout(FAREWELL, election).await.is_err()
        {
            warn!("the lease could not be given back; it will run out");
        }
        Ok(())
    }

    async fn serve(&self, metrics: &Metrics, readiness: &Readiness) -> Result<()> {
        let metrics = metrics.clone();
        let pages = move |path: &str| {
            (path == "/metrics").then(|| Answer {
                status: StatusCode::OK,
                content_type: CONTENT_TYPE,
                text: metrics.text(),
            })
        };
        let bind = self.metrics_at();
        if let Some(address) = http::serve("--metrics-bind-address", &bind, pages).await? {
            info!(%address, "serving metrics");
        }
        let readiness = readiness.clone();
        let probes = move |path: &str| match path {
            "/healthz" => Some(Answer::plain(StatusCode::OK, "ok")),
            "/readyz" => Some(match readiness.check() {
                Ok(()) => Answer::plain(StatusCode::OK, "ok"),
                Err(why) => Answer::plain(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
            }),
            _ => None,
        };
        let bind = self.probes_at();
        if let Some(address) = http::serve("--health-probe-bind-address", bind, probes).await? {
            info!(%address, "serving probes");
        }
        Ok(())
    }

    /// A watch of a kind that is not served would fail for ever, and a leader that cannot work keeps others from it.
    async fn wait_for_kinds(&self, client: &Client, readiness: &Readiness) {
        while self.family.has_sigs() {
            let wait = match cluster::missing(client, self.extensions).await {
                Ok(missing) if missing.is_empty() => return,
                Ok(missing) => format!(
                    "not served: {}; install with `sandbar crds --family sigs | kubectl apply --server-side -f -`",
                    missing.join(", ")
                ),
                Err(error) => format!("the API server does not answer: {error}"),
            };
            if readiness.wait_for(Some(wait.clone())) {
                warn!("{wait}");
            }
            sleep(LOOKS).await;
        }
    }

    async fn found(
        &self,
        client: &Client,
        metrics: &Metrics,
        readiness: &Readiness,
    ) -> sigs::Options {
        let mut options = self.options(cluster::label_domains());
        options.metrics = metrics.clone();
        options.listed = readiness.listed.clone();
        loop {
            match cluster::platform(client).await {
                Ok(platform) => {
                    options.platform = platform;
                    return options;
                }
                Err(error) => {
                    let wait = format!("the API server does not say what it is: {error}");
                    if readiness.wait_for(Some(wait.clone())) {
                        warn!("{wait}");
                    }
                }
            }
            sleep(LOOKS).await;
        }
    }

    /// Stands for election until `left` says to leave.
    fn stand(
        &self,
        client: &Client,
        readiness: &Readiness,
        left: oneshot::Receiver<()>,
    ) -> tokio::task::JoinHandle<()> {
        let leases = self.leases(cluster::own_namespace());
        let me = identity();
        for (namespace, name) in &leases {
            info!(lease = %format!("{namespace}/{name}"), identity = %me, "standing for election");
        }
        let candidate = Candidate::new(client, Clock::steady(), leases, me, Terms::default());
        let role = readiness.role.clone();
        tokio::spawn(async move {
            let left = async {
                // dropped is as good as sent
                let _ = left.await;
            };
            candidate.run(&role, left).await;
        })
    }

    /// Controls whenever this replica leads. Never returns.
    async fn act(&self, client: &Client, options: &sigs::Options, readiness: &Readiness) {
        let mut role = readiness.role.subscribe();
        loop {
            until(&mut role, true).await;
            options.metrics.set_leading(true);
            info!("leading");
            let controllers = async {
                if self.family.has_sigs() {
                    sigs::run(client.clone(), Clock::system(), options.clone()).await;
                }
                readiness.listed.send_replace(true);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = until(&mut role, false) => {}
                () = controllers => {}
            }
            readiness.listed.send_replace(false);
            options.metrics.set_leading(false);
            warn!("the lease is lost: standing by");
        }
    }
}

/// Tells of every role on the way.
async fn until(role: &mut watch::Receiver<Role>, leading: bool) {
    loop {
        let is_leading = match &*role.borrow_and_update() {
            Role::Leading => true,
            Role::Standby {
                holder: Some(holder),
            } => {
                info!(%holder, "standing by");
                false
            }
            Role::Standby { holder: None } => false,
            Role::Unknown(why) => {
                if !why.is_empty() {
                    warn!(
                        "the lease cannot be held, so nothing is done: {why}; \
                         --leader-election-namespace (that of agents.kruise.io: \
                         --leader-elect-namespace) names another namespace for it, \
                         --leader-elect=false does without"
                    );
                }
                false
            }
        };
        if is_leading == leading {
            return;
        }
        // the sender lives as long as the process
        let _ = role.changed().await;
    }
}

/// Nobody else has it, not even this pod after a restart.
fn identity() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("{host}_{}", uuid::Uuid::new_v4())
}

fn start_logs(logs: &Logs, export: Option<&Export>) {
    // libraries say more than anybody asked for
    let libraries = match logs.zap_log_level {
        tracing::Level::TRACE => tracing::Level::DEBUG,
        tracing::Level::ERROR => tracing::Level::ERROR,
        _ => tracing::Level::WARN,
    };
    let targets = Targets::new()
        .with_default(libraries)
        .with_target("sandbar", logs.zap_log_level)
        .with_target("controller", logs.zap_log_level)
        .with_target(trace::TARGET, LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(io::stderr);
    let lines = match logs.zap_encoder {
        Encoder::Console => lines.boxed(),
        Encoder::Json => lines.json().flatten_event(true).boxed(),
    };
    let lines = tracing_subscriber::registry().with(lines.with_filter(targets));
    match export {
        Some(export) => lines.with(export.layer()).init(),
        None => lines.init(),
    }
}
