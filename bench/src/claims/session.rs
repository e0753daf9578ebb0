//! A cluster of its own and the controller in it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use api::crds::{Conversion, Family, Versions, render};
use bench::client::{Access, Ask};
use bench::definitions::{asks, define};
use bench::process;
use bench::servers::Servers;
use bench::times::progress;
use serde_json::Value;
use testbed::{OwnOptions, Testbed};
use tokio::task::JoinHandle;

use crate::Schemas;
use crate::controller::{Controller, Launch};
use crate::cost::{Cost, Idle, Reading, Writer};
use crate::desk::{Desk, lock};
use crate::metrics;
use crate::objects::{self, CLAIMS, Content, POOLS, SANDBOXES, Sandbox, TEMPLATES};
use crate::sizes::Sizes;
use crate::stock::Stock;
use bench::watch::{Change, follow};

const FAKE_NODES: u32 = 20;
/// Nothing has changed for so long: it is over.
const QUIET: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
const SAY: Duration = Duration::from_secs(5);

/// What all sessions of one controller have in common.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) command: String,
    pub(crate) log: PathBuf,
    pub(crate) metrics: String,
    pub(crate) writer: Writer,
    pub(crate) keeps_claims: bool,
    pub(crate) strategy: String,
    pub(crate) schemas: Schemas,
    pub(crate) sizes: Sizes,
}

/// What the pods run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// Many that only pretend; a container takes so long to restart with another image.
    Pretended { restart: Duration },
    /// One, with containers.
    Kubelet,
}

impl Nodes {
    fn options(self) -> OwnOptions {
        match self {
            Self::Pretended { restart } => OwnOptions {
                fake_nodes: FAKE_NODES,
                pod_restart_delay: restart,
                ..OwnOptions::default()
            },
            Self::Kubelet => OwnOptions {
                kubelet: true,
                ..OwnOptions::default()
            },
        }
    }
}

pub(crate) struct Session {
    pub(crate) setup: Setup,
    pub(crate) desk: Arc<Desk>,
    pub(crate) stock: Arc<Mutex<Stock>>,
    bed: Testbed,
    servers: Servers,
    launch: Launch,
    controller: Option<Controller>,
    watch: JoinHandle<Result<()>>,
}

impl Session {
    pub(crate) async fn start(setup: &Setup, nodes: Nodes) -> Result<Self> {
        progress("starting a cluster");
        let options = OwnOptions {
            controller_manager: true,
            audit: true,
            fsync: true,
            ..nodes.options()
        };
        let bed = Testbed::own(options).await?;
        if nodes == Nodes::Kubelet {
            import_images(&bed, setup.sizes.rollouts.rounds).await?;
        }
        let access = Access::read(&bed.kubeconfig()).await?;
        install(&access, setup.schemas).await?;
        progress("waiting until the cluster has taken note of the kinds");
        tokio::time::sleep(setup.sizes.settling).await;
        let launch = Launch {
            command: setup.command.clone(),
            kubeconfig: bed.kubeconfig(),
            log: setup.log.clone(),
        };
        let stock: Arc<Mutex<Stock>> = Arc::default();
        let told = Arc::clone(&stock);
        let watch = follow::<Sandbox>(&access, SANDBOXES, move |change, _| match change {
            Change::Is(sandbox) => lock(&told).observe(&sandbox),
            Change::Gone(sandbox) => lock(&told).gone(sandbox.name()),
        });
        Ok(Self {
            setup: setup.clone(),
            desk: Desk::open(&access).await?,
            stock,
            watch: watch.await?,
            servers: Servers::of(&bed)?,
            controller: Some(launch.start()?),
            launch,
            bed,
        })
    }

    pub(crate) async fn end(mut self) -> Result<()> {
        self.stop_controller().await?;
        self.watch.abort();
        self.bed.stop().await
    }

    pub(crate) async fn stop_controller(&mut self) -> Result<()> {
        match self.controller.take() {
            Some(controller) => controller.stop().await,
            None => Ok(()),
        }
    }

    pub(crate) fn start_controller(&mut self) -> Result<()> {
        self.controller = Some(self.launch.start()?);
        Ok(())
    }

    pub(crate) fn controller(&mut self) -> Result<&mut Controller> {
        self.controller.as_mut().context("no controller is running")
    }

    /// An error if something that must run has ended.
    pub(crate) async fn check(&mut self) -> Result<()> {
        self.controller()?.check()?;
        self.desk.check()?;
        if self.watch.is_finished() {
            (&mut self.watch).await??;
        }
        Ok(())
    }

    pub(crate) async fn reconciles(&self) -> Option<f64> {
        metrics::reconciles(&self.setup.metrics).await.ok()?
    }

    async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let ask = Ask::post(path, object.to_string());
        let made = self.desk.ask(ask).await;
        made.with_context(|| format!("creating {}", object["metadata"]["name"]))
    }

    /// A pool and its template, of the same name.
    pub(crate) async fn create_pool(
        &self,
        name: &str,
        replicas: usize,
        start: Duration,
    ) -> Result<()> {
        let template = objects::template(name, Content::FIRST, start);
        self.create(TEMPLATES, &template).await?;
        let pool = objects::pool(name, replicas, &self.setup.strategy);
        self.create(POOLS, &pool).await
    }

    /// The same, the only pool from now on, and full.
    pub(crate) async fn fill_pool(
        &mut self,
        name: &str,
        replicas: usize,
        start: Duration,
    ) -> Result<()> {
        progress(&format!("filling a pool of {replicas}"));
        let revision = Content::FIRST.revision();
        *lock(&self.stock) = Stock::of(name, replicas, &revision);
        self.create_pool(name, replicas, start).await?;
        self.settle().await
    }

    pub(crate) async fn edit(&self, name: &str, content: Content, start: Duration) -> Result<()> {
        let body = objects::template(name, content, start).to_string();
        let ask = Ask::merge(format!("{TEMPLATES}/{name}"), body);
        let done = self.desk.ask(ask).await;
        done.context("editing the template")
    }

    pub(crate) async fn remove_pool(&mut self, name: &str) -> Result<()> {
        progress("removing the pool");
        for path in [POOLS, TEMPLATES] {
            let ask = Ask::delete(format!("{path}/{name}"));
            self.desk.ask(ask).await?;
        }
        self.wait("everything is gone", |stock| stock.existing() == 0)
            .await
    }

    /// Deletes the claims that were kept.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        if !self.desk.keeps() {
            return Ok(());
        }
        progress("deleting all claims");
        self.desk.ask(Ask::delete(CLAIMS.to_owned())).await?;
        self.wait("what was claimed is gone", |stock| {
            stock.is_full() && stock.existing() == stock.in_pool()
        })
        .await
    }

    /// Until the pool is full and what claims gave back is gone.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        let keeps = self.desk.keeps();
        self.wait("the pool is full", move |stock| {
            stock.is_full() && (keeps || stock.existing() == stock.in_pool())
        })
        .await
    }

    /// Until it is so and stays so for a moment.
    pub(crate) async fn wait(&mut self, what: &str, is_so: impl Fn(&Stock) -> bool) -> Result<()> {
        let (begun, mut said, mut since) = (Instant::now(), Instant::now(), None);
        loop {
            let (so, state) = {
                let stock = lock(&self.stock);
                let state = format!(
                    "{} claimable, {} in all",
                    stock.claimable(),
                    stock.existing()
                );
                (is_so(&stock), state)
            };
            since = so.then(|| since.unwrap_or_else(Instant::now));
            if since.is_some_and(|since: Instant| since.elapsed() >= QUIET) {
                return Ok(());
            }
            if begun.elapsed() > self.setup.sizes.patience {
                bail!("given up waiting until {what}: {state}");
            }
            if said.elapsed() > SAY {
                said = Instant::now();
                progress(&format!("waiting until {what}: {state}"));
            }
            self.check().await?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lets time pass and notices if something ends.
    pub(crate) async fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check().await?;
            let left = end.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(QUIET)).await;
        }
        Ok(())
    }

    pub(crate) async fn read(&mut self) -> Result<Reading> {
        self.check().await?;
        let reconciles = self.reconciles().await;
        Ok(Reading {
            at: Instant::now(),
            mark: self.bed.mark()?,
            api_server: process::cpu(&[self.servers.api_server])?,
            controller: self.controller()?.cpu()?,
            reconciles,
        })
    }

    pub(crate) async fn idle(&mut self, time: Duration) -> Result<Idle> {
        progress(&format!("idling for {} s", time.as_secs()));
        let first = self.read().await?;
        self.pass(time).await?;
        Ok(Idle::between(&first, &self.read().await?))
    }

    pub(crate) async fn cost(
        &mut self,
        claims: usize,
        first: &Reading,
        idle: Idle,
    ) -> Result<Cost> {
        let last = self.read().await?;
        let writes = self.bed.writes_since(first.mark)?;
        let counts = self.setup.writer.count(&writes);
        Ok(Cost::of(claims, counts, first, &last, idle))
    }
}

/// As many as there are rollouts, and the one before.
async fn import_images(bed: &Testbed, rounds: usize) -> Result<()> {
    progress("giving the kubelet its images");
    let mut content = Content::FIRST;
    for image in 1..=rounds + 1 {
        content.image = image;
        bed.import(&bed.busybox_image(&content.image())?).await?;
    }
    Ok(())
}

/// Defines the kinds and waits until all are served.
async fn install(access: &Access, schemas: Schemas) -> Result<()> {
    let all = render(&[Family::Sigs], Versions::V1beta1, Conversion::None)?;
    define(access, asks(&schemas.rendered().of(all))?).await?;
    let connection = access.connect().await?;
    let begun = Instant::now();
    for path in [SANDBOXES, CLAIMS, TEMPLATES, POOLS] {
        while let Err(error) = connection.whole(Ask::get(path)).await {
            if begun.elapsed() > Duration::from_secs(30) {
                return Err(error.context(format!("{path} is not served")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}
