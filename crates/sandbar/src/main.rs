//! The one binary.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

mod api;
mod cli;
mod crds;
mod rollout;

/// Requests make and drop trees of small pieces; see docs/benchmarks.md for what it saves.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match cli::Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbar: {error:#}");
            ExitCode::FAILURE
        }
    }
}
