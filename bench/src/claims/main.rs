//! What claims cost and how long they take with any controller that serves the agents.x-k8s.io APIs, on a real kube-apiserver
//! with nodes whose pods only pretend to run:
//! `target/release/bench-claims --controller-cmd 'target/release/sandbar controller --extensions --leader-elect=false'`.

mod arrivals;
mod controller;
mod cost;
mod desk;
mod metrics;
mod objects;
mod per_claim;
mod report;
mod rollout;
mod scale;
mod session;
mod sizes;
mod stock;
mod targets;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::crds;
use bench::times::progress;
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::cost::Writer;
use crate::report::{Column, Figure};
use crate::rollout::Rotations;
use crate::session::{Nodes, Session, Setup};
use crate::sizes::Sizes;
use crate::targets::Targets;

/// Measures a controller that serves the agents.x-k8s.io APIs
#[derive(Parser)]
struct Args {
    /// The controller, a shell command; KUBECONFIG is set for it
    #[arg(long, value_name = "COMMAND")]
    controller_cmd: Option<String>,
    /// The same with events and stamps off, for a second column
    #[arg(
        long,
        value_name = "COMMAND",
        required_unless_present = "controller_cmd"
    )]
    lean_controller_cmd: Option<String>,
    /// Measure only this; can be repeated or separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<What>,
    /// Measure so little that it only shows that everything works
    #[arg(long)]
    quick: bool,
    /// Where the controllers tell of themselves
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8080/metrics"
    )]
    metrics_url: String,
    /// The beginning of the controllers' user agent [default: everybody who is not part of the cluster]
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,
    /// The update strategy of the pools
    #[arg(long, value_name = "TYPE", default_value = "RollingUpdate")]
    strategy: String,
    /// How much the API server knows of pod templates: the CRDs of `sandbar crds --schemas`
    #[arg(long, value_enum, default_value_t = Schemas::Full)]
    schemas: Schemas,
    /// Delete each claim when it has been answered: what a claim costs then includes its end, and its sandbox's
    #[arg(long)]
    delete_claims: bool,
    /// Milliseconds between claims that come one at a time, so that the refill of one is not in the way of the next
    #[arg(long, value_name = "MS", default_value_t = 200)]
    pause_ms: u64,
    /// Write all figures to this file too, with what the table leaves out
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the output of the controllers goes [default: a file that is removed]
    #[arg(long, value_name = "FILE")]
    controller_log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Schemas {
    /// Every field
    Full,
    /// The containers' names
    Lean,
}

impl Schemas {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full schemas",
            Self::Lean => "lean schemas",
        }
    }

    fn rendered(self) -> crds::Schemas {
        match self {
            Self::Full => crds::Schemas::Full,
            Self::Lean => crds::Schemas::Lean,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Cost and latency, one claim after the other
    OneAtATime,
    /// Cost, latency and rate with 20 claims at any time
    Parallel,
    /// Cost and latency of 20 claims a second that arrive at random
    Poisson,
    /// A template edit under load
    Edit,
    /// Rotations of a pool by an env change, under four loads
    Rotation,
    /// The same by an image change, in place
    InPlace,
    /// The same with real containers, a fifth as many, under two loads
    InPlaceKubelet,
    /// Memory, idle CPU and restart at 10,000 sandboxes
    Scale,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::OneAtATime => "one at a time",
            Self::Parallel => "20 parallel",
            Self::Poisson => "Poisson 20/s",
            Self::Edit => "template edit",
            Self::Rotation => "rotation",
            Self::InPlace => "rotation in place",
            Self::InPlaceKubelet => "rotation in place on a kubelet",
            Self::Scale => "scale",
        }
    }
}

fn main() -> Result<()> {
    // as in the program that is measured
    allocator::give_back_at_once();
    let args = Args::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    // what is dropped when this ends takes its cluster and its controller with it
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            done = run(args) => done,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminated.recv() => bail!("terminated"),
        }
    })
}

async fn run(args: Args) -> Result<()> {
    let kept = tempfile::NamedTempFile::new().context("creating a file for logs")?;
    let log = args.controller_log.clone();
    let log = log.unwrap_or_else(|| kept.path().to_owned());
    let mut sizes = match args.quick {
        true => Sizes::quick(),
        false => Sizes::full(),
    };
    sizes.claims.pause = Duration::from_millis(args.pause_ms);
    let setup = |command: &str| Setup {
        command: command.to_owned(),
        log: log.clone(),
        metrics: args.metrics_url.clone(),
        writer: Writer {
            agent: args.user_agent.clone(),
        },
        keeps_claims: !args.delete_claims,
        strategy: args.strategy.clone(),
        schemas: args.schemas,
        sizes: sizes.clone(),
    };
    let wanted: Vec<What> = match args.only.is_empty() {
        true => What::value_variants().to_vec(),
        false => args.only.clone(),
    };
    let both = [
        (
            "default flags",
            &args.controller_cmd,
            Targets::default_flags(),
        ),
        (
            "events and stamps off",
            &args.lean_controller_cmd,
            Targets::lean(),
        ),
    ];
    let (mut columns, mut failed) = (Vec::new(), 0);
    for (name, command, targets) in both {
        if let Some(command) = command {
            progress(&format!("{name}, {}: {command}", args.schemas.name()));
            let mut column = Column::new(name, command, args.schemas);
            failed += measure(&setup(command), &mut column, &targets, &wanted).await;
            columns.push(column);
        }
    }
    println!("{}", report::table(&columns));
    if let Some(path) = &args.json {
        report::save(&columns, path)?;
    }
    match failed {
        0 => Ok(()),
        some => bail!("{some} measurements failed"),
    }
}

/// Everything that is wanted of one controller; a failure of one measurement leaves the others. Tells how many failed.
async fn measure(setup: &Setup, column: &mut Column, targets: &Targets, wanted: &[What]) -> usize {
    let is_load = |what: &What| per_claim::LOADS.contains(what);
    let loads: Vec<What> = wanted.iter().copied().filter(is_load).collect();
    let mut steps: Vec<Vec<What>> = vec![loads];
    steps.extend(
        wanted
            .iter()
            .filter(|what| !is_load(what))
            .map(|what| vec![*what]),
    );
    let mut failed = 0;
    for step in steps.iter().filter(|step| !step.is_empty()) {
        if let Err(error) = measure_step(setup, column, targets, step).await {
            let names: Vec<&str> = step.iter().map(|what| what.name()).collect();
            let names = names.join(", ");
            eprintln!("! {names}: {error:#}");
            column.add(Figure::new(names, "").word("failed", "failed", Some(false)));
            failed += 1;
        }
    }
    failed
}

/// In a cluster of its own, so that nothing measured before counts.
async fn measure_step(
    setup: &Setup,
    column: &mut Column,
    targets: &Targets,
    step: &[What],
) -> Result<()> {
    let nodes = match step {
        [What::InPlaceKubelet] => Nodes::Kubelet,
        [What::InPlace] => Nodes::Pretended {
            restart: setup.sizes.rollouts.restart,
        },
        _ => Nodes::Pretended {
            restart: Duration::ZERO,
        },
    };
    let mut session = Session::start(setup, nodes).await?;
    let session_mut = &mut session;
    let done = match step {
        [What::Edit] => rollout::edit(session_mut, column).await,
        [What::Rotation] => rollout::rotations(session_mut, column, &Rotations::REPLACED).await,
        [What::InPlace] => rollout::rotations(session_mut, column, &Rotations::IN_PLACE).await,
        [What::InPlaceKubelet] => {
            rollout::rotations(session_mut, column, &Rotations::ON_A_KUBELET).await
        }
        [What::Scale] => scale::measure(session_mut, column).await,
        loads => per_claim::measure(session_mut, column, targets, loads).await,
    };
    let ended = session.end().await;
    done.and(ended)
}
