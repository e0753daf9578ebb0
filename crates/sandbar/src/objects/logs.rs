//! `sandbar logs`.

use std::{pin::pin, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use clap::ArgAction;
use futures::{
    AsyncBufRead, AsyncBufReadExt as _, Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;

use super::{
    is_heard,
    place::{Place, Where},
    pods::{self, Chosen},
    run,
};
use crate::controller::go;

/// Show what containers have written
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sandbar logs box                          a pod
  sandbar logs sandboxclaim/mine -f         the pod of a claim's sandbox, and what comes
  sandbar logs sandbox/box -c side --tail 20 --timestamps
  sandbar logs sandbox/box --all-containers --prefix
  sandbar logs box -p                       what the container wrote before it was last restarted")]
pub(crate) struct Args {
    /// A pod, sandbox/NAME or sandboxclaim/NAME
    #[arg(value_name = "POD | KIND/NAME")]
    target: String,
    /// The container; the pod's first if left out
    #[arg(short, long)]
    container: Option<String>,
    /// Of all containers, one after the other and the pod's init containers first; with -f as they come
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set, conflicts_with = "container")]
    all_containers: bool,
    /// Begin each line with its pod and container
    #[arg(long)]
    prefix: bool,
    /// Go on with what is written from now on, until the container ends
    #[arg(short, long)]
    follow: bool,
    /// Of the container before its last restart
    #[arg(short, long)]
    previous: bool,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
    /// Only what is not older, such as 30s, 5m or 2h
    #[arg(long, value_name = "TIME", value_parser = go::duration)]
    since: Option<Duration>,
    /// Begin each line with its time
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    place: Where,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        run(self.logs())
    }

    async fn logs(self) -> Result<ExitCode> {
        let place = self.place.open().await?;
        let (pod, containers) = match self.all_containers {
            true => pods::choose_all(&place, &self.target).await?,
            false => {
                let named = self.container.clone();
                let Chosen { pod, container } = pods::choose(&place, &self.target, named).await?;
                (pod, vec![container])
            }
        };
        match containers.as_slice() {
            [only] if !self.prefix => {
                let log = self.open(&place, &pod, only).await?;
                copy(log, &pod).await?;
            }
            all if self.follow => {
                let mut logs = Vec::new();
                for container in all {
                    logs.push(self.lines(&place, &pod, container).await?);
                }
                print(stream::select_all(logs)).await?;
            }
            all => {
                for container in all {
                    let lines = self.lines(&place, &pod, container).await?;
                    if !print(lines).await? {
                        break;
                    }
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn open(
        &self,
        place: &Place,
        pod: &str,
        container: &str,
    ) -> Result<impl AsyncBufRead + Send + use<>> {
        let params = LogParams {
            container: Some(container.to_owned()),
            follow: self.follow,
            previous: self.previous,
            // a server counts whole seconds from one on
            since_seconds: self
                .since
                .map(|time| i64::try_from(time.as_secs().max(1)).unwrap_or(i64::MAX)),
            tail_lines: self.tail.map(i64::from),
            timestamps: self.timestamps,
            ..LogParams::default()
        };
        let pods = pods::api::<Pod>(place);
        place.ask(pods.log_stream(pod, &params)).await
    }

    /// What one of several containers has written, by lines.
    async fn lines(
        &self,
        place: &Place,
        pod: &str,
        container: &str,
    ) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        let log = Box::pin(self.open(place, pod, container).await?);
        let begin = match self.prefix {
            true => format!("[pod/{pod}/{container}] "),
            false => String::new(),
        };
        let broken = broken_off(pod);
        let lines = stream::try_unfold(log, move |mut log| {
            let (begin, broken) = (begin.clone(), broken.clone());
            async move {
                let mut line = begin.into_bytes();
                let length = log.read_until(b'\n', &mut line).await.context(broken)?;
                if line.last() != Some(&b'\n') {
                    line.push(b'\n');
                }
                Ok((length > 0).then_some((line, log)))
            }
        });
        Ok(lines.boxed())
    }
}

fn broken_off(pod: &str) -> String {
    format!("the log of pod {pod:?} has broken off")
}

/// Whether anybody still reads when all of it is printed.
async fn print(mut lines: impl Stream<Item = Result<Vec<u8>>> + Unpin) -> Result<bool> {
    while let Some(line) = lines.next().await {
        if !is_heard(&line?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Prints a log as it is, lines or not.
async fn copy(log: impl AsyncBufRead, pod: &str) -> Result<()> {
    let mut log = pin!(log);
    loop {
        let chunk = log.fill_buf().await;
        let chunk = chunk.with_context(|| broken_off(pod))?;
        let length = chunk.len();
        if length == 0 || !is_heard(chunk)? {
            return Ok(());
        }
        log.consume_unpin(length);
    }
}
