//! The one binary.

use std::process::ExitCode;

use clap::Parser;

mod api;
mod cli;
mod crds;

fn main() -> ExitCode {
    match cli::Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbar: {error:#}");
            ExitCode::FAILURE
        }
    }
}
