//! The figures of `sandbar up`, each with its target, and of pods beside those of a kubelet. Needs root.
//! `cargo build --release -p bench -p sandbar -p testbed && target/release/bench-up`.

mod claims;
mod instance;
mod memory;
mod pods;
mod progress;
mod rival;
mod start;
mod watched;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::instance::Program;
use bench::table::Table;

/// The pods of the namespace that the warm pool is in.
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Prints the figures of `sandbar up`
#[derive(Parser)]
struct Args {
    /// Measure only these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<What>,
    /// Leave out the kubelet
    #[arg(long)]
    without_rival: bool,
    /// The program to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    sandbar: Option<PathBuf>,
    /// The directory whose disk is measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    disk: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Start,
    Pods,
    Claims,
    Sandboxes,
    Idle,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root can measure sandboxes with a network"
    );
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        // what has been started is ended when it is dropped, and would not be if the signal ended this process
        tokio::select! {
            measured = measure(args) => measured,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminated.recv() => bail!("terminated"),
        }
    })
}

async fn measure(args: Args) -> Result<()> {
    let file = match args.sandbar {
        Some(file) => file,
        None => std::env::current_exe()?.with_file_name("sandbar"),
    };
    ensure!(
        file.exists(),
        "there is no {}: build it with cargo build --release -p sandbar",
        file.display()
    );
    let disk = args.disk.canonicalize();
    let disk = disk.with_context(|| format!("finding {}", args.disk.display()))?;
    let program = Program { file, disk };
    let wanted = |what| args.only.is_empty() || args.only.contains(&what);
    let has_rival = !args.without_rival && wanted(What::Pods);
    let table = Table::begin(has_rival.then_some("kubelet"));
    if wanted(What::Start) {
        start::measure(&table, &program).await?;
    }
    if wanted(What::Pods) {
        pods::measure(&table, &program, has_rival).await?;
    }
    if wanted(What::Claims) {
        claims::measure(&table, &program).await?;
    }
    if wanted(What::Sandboxes) {
        memory::of_sandboxes(&table, &program).await?;
    }
    if wanted(What::Idle) {
        memory::of_process(&table, &program).await?;
    }
    Ok(())
}
