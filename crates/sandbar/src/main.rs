//! The one binary.

use std::{ffi::OsStr, path::PathBuf, process::ExitCode};

mod api;
mod cli;
mod cluster;
mod controller;
mod crds;
mod daemon;
mod down;
mod image;
mod objects;
mod refusal;
mod rollout;
mod signals;
mod table;
mod up;

fn main() -> ExitCode {
    // before any thread is there: all are processes that must have one only
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(OsStr::to_str) {
        Some(up::HELPER) => return container::helper::run(),
        Some(up::PLAIN_HELPER) => return container::helper::run_plain(),
        Some(up::PROBE) => {
            let directory = words.next().map(PathBuf::from);
            return container::isolation::run(directory.as_deref());
        }
        Some(up::USERS_PROBE) => return container::users::run(words.map(Into::into)),
        Some(up::INSIDE) => return local::node::inside::run(&words.collect::<Vec<_>>()),
        _ => {}
    }
    // not in helpers: they fork, and each page given back is one to be faulted in again while a pod waits
    allocator::give_back_at_once();
    let args = match cli::Args::from_command_line() {
        Ok(args) => args,
        Err(code) => return code,
    };
    match args.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sandbar: {}", refusal::in_words(&error));
            ExitCode::FAILURE
        }
    }
}
