//! Drives any Kubernetes API server through written cases and records how it answers, so that two servers can be
//! compared. The cases are `cases/*.http`, the answers of a real kube-apiserver `golden/*.txt`; README.md describes
//! both.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), conformance::Error> {
//! let topics = conformance::load(&conformance::cases_dir())?;
//! let said = conformance::run(&client, &topics, &conformance::Options::default()).await?;
//! let golden = conformance::Transcripts::read(&conformance::golden_dir())?;
//! println!("{}", said.compare(&golden).table());
//! # Ok(()) }
//! ```
//!
//! The client may lead anywhere: to a real server, or by `kube::Client::new` into a service in this process.

mod cases;
mod causes;
mod diff;
mod drive;
mod fixtures;
mod mask;
mod print;
mod shape;
mod transcript;
mod variables;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Client;
use regex::Regex;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use cases::{Case, Topic, load, parse};
pub use transcript::{Comparison, Difference, TopicResult, Transcripts};

#[derive(Debug, Error)]
pub enum Error {
    #[error("reading {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("writing {}: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{topic}.http, line {line}: {what}")]
    Syntax {
        topic: String,
        line: usize,
        what: String,
    },
    #[error("{request}: {what}")]
    Request { request: String, what: String },
    #[error("setting up {what}: {answer}")]
    Setup { what: String, answer: String },
    #[error("connecting with {}: {what}", path.display())]
    Connect { path: PathBuf, what: String },
}

/// How a run is done.
#[derive(Clone)]
pub struct Options {
    /// Cases at the same time. They do not disturb each other: each has names of its own.
    pub parallel: usize,
    /// Delete the namespaces of the cases. Not worth the time on a cluster that ends with the run.
    pub tidy: bool,
    /// Called after each case with the number done, the number of all, and the case's name.
    pub progress: Option<Progress>,
}

pub type Progress = Arc<dyn Fn(usize, usize, &str) + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Self {
            parallel: 16,
            tidy: false,
            progress: None,
        }
    }
}

/// The cases of this package.
pub fn cases_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// What a real kube-apiserver answered to them.
pub fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Leaves the cases whose `topic: name` matches.
pub fn only(topics: &mut Vec<Topic>, pattern: &Regex) {
    for topic in topics.iter_mut() {
        let name = topic.name.clone();
        topic
            .cases
            .retain(|case| pattern.is_match(&format!("{name}: {}", case.name)));
    }
    topics.retain(|topic| !topic.cases.is_empty());
}

/// A client that shows answers as they come: one that repeats a refused request by itself would hide 429 and 503.
pub async fn connect(kubeconfig: &Path) -> Result<Client, Error> {
    let failed = |what: String| Error::Connect {
        path: kubeconfig.to_owned(),
        what,
    };
    let file =
        kube::config::Kubeconfig::read_from(kubeconfig).map_err(|e| failed(e.to_string()))?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &Default::default())
        .await
        .map_err(|e| failed(e.to_string()))?;
    config.default_retry = false;
    Client::try_from(config).map_err(|e| failed(e.to_string()))
}

/// Installs the custom kinds and runs the cases. An error means that a server could not be talked to; whatever it
/// answers is no error but part of the transcript.
pub async fn run(
    client: &Client,
    topics: &[Topic],
    options: &Options,
) -> Result<Transcripts, Error> {
    fixtures::install(client).await?;
    let slots = Arc::new(Semaphore::new(options.parallel.max(1)));
    let mut order = Vec::new();
    for (t, topic) in topics.iter().enumerate() {
        order.extend(topic.cases.iter().enumerate().map(|(c, case)| (t, c, case)));
    }
    // those that wait for controllers first, so that others fill the time
    order.sort_by_key(|(_, _, case)| !case.waits());
    let mut running = JoinSet::new();
    for (t, c, case) in order {
        let (client, slots, case, tidy) =
            (client.clone(), slots.clone(), case.clone(), options.tidy);
        running.spawn(async move {
            let _slot = slots.acquire_owned().await;
            let said = drive::run(&client, &case, tidy).await;
            (t, c, case.name, said)
        });
    }
    let all = running.len();
    let mut said: Vec<Vec<Option<(String, String)>>> = topics
        .iter()
        .map(|topic| vec![None; topic.cases.len()])
        .collect();
    while let Some(done) = running.join_next().await {
        let Ok((t, c, name, text)) = done else {
            continue;
        };
        if let Some(progress) = &options.progress {
            progress(all - running.len(), all, &name);
        }
        // a server that drops a connection has answered too, if badly
        let text = text.unwrap_or_else(|error| format!("(failed) {error}\n"));
        said[t][c] = Some((name, text));
    }
    let names = topics.iter().map(|topic| topic.name.clone());
    let said = said
        .into_iter()
        .map(|cases| cases.into_iter().flatten().collect());
    Ok(Transcripts(names.zip(said).collect()))
}
