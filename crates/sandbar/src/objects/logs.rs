//! `sandbar logs`.

use std::{pin::pin, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use futures::AsyncBufReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;

use super::{
    is_heard,
    place::Where,
    pods::{self, Chosen},
    run,
};
use crate::controller::go;

/// Show what a container has written
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sandbar logs box                          a pod
  sandbar logs sandboxclaim/mine -f         the pod of a claim's sandbox, and what comes
  sandbar logs sandbox/box -c side --tail 20 --timestamps
  sandbar logs box -p                       what the container wrote before it was last restarted")]
pub(crate) struct Args {
    /// A pod, sandbox/NAME or sandboxclaim/NAME
    #[arg(value_name = "POD | KIND/NAME")]
    target: String,
    /// The container; the pod's first if left out
    #[arg(short, long)]
    container: Option<String>,
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
        let Chosen { pod, container } = pods::choose(&place, &self.target, self.container).await?;
        let params = LogParams {
            container: Some(container),
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
        let pods = pods::api::<Pod>(&place);
        let mut log = pin!(place.ask(pods.log_stream(&pod, &params)).await?);
        loop {
            let chunk = log.fill_buf().await;
            let chunk = chunk.with_context(|| format!("the log of pod {pod:?} has broken off"))?;
            let length = chunk.len();
            if length == 0 || !is_heard(chunk)? {
                return Ok(ExitCode::SUCCESS);
            }
            log.consume_unpin(length);
        }
    }
}
