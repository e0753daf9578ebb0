//! `sandbar apply`, `get`, `delete`, `logs` and `exec`: what people do with objects, for those without kubectl. They speak to any
//! Kubernetes API and print what kubectl prints.

use std::{
    io::{self, ErrorKind, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Error, Result};

use crate::refusal;

pub(crate) mod apply;
pub(crate) mod delete;
mod discover;
pub(crate) mod exec;
pub(crate) mod get;
pub(crate) mod logs;
mod manifests;
mod place;
mod pods;
mod print;
mod targets;
mod terminal;
mod watch;

/// Longer than this nobody should wait without knowing for what.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a command to its end.
fn run(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(work);
    // somebody may still be reading standard input, which has no end that one could wait for
    runtime.shutdown_background();
    ended
}

/// Prints to standard output; a reader that has seen enough is no error.
fn say(text: &str) -> Result<()> {
    is_heard(text.as_bytes()).map(drop)
}

/// The same, for those that could go on for ever: whether anybody still reads.
fn is_heard(text: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("writing to standard output"),
    }
}

/// What went wrong with one of several things.
fn complain(error: &Error) {
    eprintln!("sandbar: {}", refusal::in_words(error));
}

/// How a command ends that may have failed for some of several things.
fn code(failures: usize) -> ExitCode {
    match failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Waits, and says after a while for what.
async fn patiently<T>(what: impl FnOnce() -> String, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    match tokio::time::timeout(PATIENCE, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            eprintln!("waiting {}", what());
            work.await
        }
    }
}
