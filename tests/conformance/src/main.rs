//! `conformance record` and `conformance compare`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use conformance::{Options, Topic, Transcripts};
use indicatif::{ProgressBar, ProgressStyle};
use regex::Regex;

/// Drive a Kubernetes API server through written cases and see how it answers
///
/// The server needs the controllers of namespaces, service accounts and garbage collection, and no scheduler or
/// nodes. Cases run in namespaces of their own; custom kinds of this project are installed and stay.
#[derive(Parser)]
#[command(name = "conformance")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the cases and write down the answers, one transcript per topic
    Record {
        #[command(flatten)]
        run: Run,
        /// Where the transcripts go; existing ones are replaced
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Run the cases and compare the answers with recorded ones; exit code 1 if any differs
    Compare {
        #[command(flatten)]
        run: Run,
        /// The transcripts to compare with [default: those of a real kube-apiserver]
        #[arg(long, value_name = "DIR")]
        golden: Option<PathBuf>,
        /// Only the table, no diffs
        #[arg(long)]
        brief: bool,
    },
    /// Name the cases, one a line, as `topic: name`
    List {
        #[command(flatten)]
        choice: Choice,
    },
}

#[derive(Args)]
struct Choice {
    /// The directory of the cases [default: those of this package]
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// Only cases whose `topic: name` matches this regular expression
    #[arg(long, value_name = "REGEX")]
    only: Option<Regex>,
}

#[derive(Args)]
struct Run {
    /// How to reach the server and as whom; the user must be allowed everything
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// Cases at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    parallel: usize,
    /// Leave the namespaces of the cases, for a server that is thrown away
    #[arg(long)]
    leave: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    match Cli::parse().command {
        Command::Record { run, out } => {
            let said = run.run().await?;
            said.write(&out)?;
            println!("{} cases recorded in {}", said.cases(), out.display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Compare { run, golden, brief } => {
            let golden = golden.unwrap_or_else(conformance::golden_dir);
            let golden = Transcripts::read(&golden)?;
            let comparison = run.run().await?.compare(&golden);
            if !brief {
                print!("{}", comparison.diffs());
            }
            print!("{}", comparison.table());
            Ok(match comparison.is_same() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            })
        }
        Command::List { choice } => {
            for topic in choice.topics()? {
                for case in &topic.cases {
                    println!("{}: {}", topic.name, case.name);
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Choice {
    fn topics(&self) -> Result<Vec<Topic>> {
        let dir = self.cases.clone().unwrap_or_else(conformance::cases_dir);
        let mut topics = conformance::load(&dir)?;
        if let Some(pattern) = &self.only {
            conformance::only(&mut topics, pattern);
        }
        Ok(topics)
    }
}

impl Run {
    async fn run(&self) -> Result<Transcripts> {
        let topics = self.choice.topics()?;
        let client = conformance::connect(&self.kubeconfig).await?;
        let bar = std::io::stderr().is_terminal().then(bar);
        let options = Options {
            parallel: self.parallel,
            tidy: !self.leave,
            progress: bar.clone().map(|bar| -> conformance::Progress {
                Arc::new(move |done, all, name| {
                    bar.set_length(all as u64);
                    bar.set_position(done as u64);
                    bar.set_message(name.to_owned());
                })
            }),
        };
        let said = conformance::run(&client, &topics, &options)
            .await
            .context("running the cases");
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        said
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    // the template is a constant; a wrong one would show in the first run
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}
