//! The one binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

mod api;
mod cli;
mod controller;
mod crds;
mod image;
mod rollout;
mod signals;
mod table;

/// Requests make and drop trees of small pieces; see docs/benchmarks.md for what it saves.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let args = match cli::Args::from_command_line() {
        Ok(args) => args,
        Err(code) => return code,
    };
    match args.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbar: {error:#}");
            ExitCode::FAILURE
        }
    }
}
