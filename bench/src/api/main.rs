//! The figures of the embedded Kubernetes API, each with its target, beside those of etcd and kube-apiserver:
//! `cargo build --release -p bench -p sandbar -p testbed && target/release/bench-api`.

mod in_process;
mod load;
mod memory;
mod objects;
mod patches;
mod rival;
mod sandbar;
mod start;
mod table;
mod watches;
mod writes;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};

use crate::rival::Rival;
use crate::sandbar::Program;
use crate::table::Table;

/// Prints the figures of the embedded Kubernetes API
#[derive(Parser)]
struct Args {
    /// Measure only this; can be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<What>,
    /// Leave out etcd and kube-apiserver
    #[arg(long)]
    no_rival: bool,
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
    Writes,
    Patches,
    Watches,
    InProcess,
    Memory,
}

fn main() -> Result<()> {
    // as in the program that is measured
    allocator::give_back_at_once();
    let args = Args::parse();
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
    let mut table = Table::begin();
    if wanted(What::InProcess) {
        in_process::measure(&mut table)?;
    }
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        if wanted(What::Start) || wanted(What::Memory) {
            let filled = memory::measure(&mut table, &program, wanted(What::Memory)).await?;
            if wanted(What::Start) {
                start::measure(&mut table, &program, &filled).await?;
            }
        }
        let compared = [What::Writes, What::Patches, What::Watches];
        if !compared.into_iter().any(wanted) {
            return Ok(());
        }
        let rival = match args.no_rival {
            true => None,
            false => Some(Rival::start().await?),
        };
        let server = program.start_empty().await?;
        let mut sides = vec![&server.side];
        sides.extend(rival.as_ref().map(|rival| &rival.side));
        objects::install(&sides).await?;
        if wanted(What::Writes) {
            writes::measure(&mut table, &sides).await?;
        }
        if wanted(What::Patches) {
            patches::measure(&mut table, &sides).await?;
        }
        if wanted(What::Watches) {
            watches::measure(&mut table, &sides).await?;
        }
        server.stop().await?;
        match rival {
            Some(rival) => rival.stop().await,
            None => Ok(()),
        }
    })
}
