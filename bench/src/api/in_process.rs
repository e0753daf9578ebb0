//! The API without a socket: what Sandbar's own controllers use.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt as _, Full};
use local::server::Server;
use local::{Cluster, Options};
use tokio::task::JoinSet;
use tower::Service as _;

use crate::objects::{SANDBOXES, Template, change, definition};
use crate::table::{Table, Target, Unit};
use crate::watches::{PACE, WANTED, WATCHERS, WRITES, delays, show, version};
use bench::client::Ask;
use bench::process;
use bench::times::{Times, micros, progress};

const ROUNDS: u64 = 10_000;
const WARM_UP: u64 = 500;

pub(crate) fn measure(table: &mut Table) -> Result<()> {
    progress("in process");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let cluster = Cluster::open(Options::ephemeral()).await?;
        let client = cluster.client();
        for ask in definition()? {
            said(&client, ask).await?;
        }
        said(
            &client,
            Ask::post(SANDBOXES, Template::sandbox().named("one")),
        )
        .await?;
        through_kube(table, &client).await?;
        bare(table, cluster.service()).await
    })?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let cluster = Cluster::open(Options::ephemeral()).await?;
        let client = cluster.client();
        for ask in definition()? {
            said(&client, ask).await?;
        }
        let times = delivery(&client).await?;
        show(table, "in process", &times, Target::AtMost(WANTED));
        Ok(())
    })
}

async fn said(client: &kube::Client, ask: Ask) -> Result<String> {
    let request = ask.request("", |bytes| bytes.to_vec())?;
    Ok(client.request_text(request).await?)
}

fn one() -> String {
    format!("{SANDBOXES}/one")
}

async fn through_kube(table: &mut Table, client: &kube::Client) -> Result<()> {
    let (mut gets, mut patches) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + WARM_UP {
        let begun = Instant::now();
        said(client, Ask::get(&one())).await?;
        if round >= WARM_UP {
            gets.push(begun.elapsed());
        }
    }
    let before = process::cpu(&[std::process::id()])?;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        said(client, change(&one(), round + 1)).await?;
        patches.push(begun.elapsed());
    }
    let cpu = process::cpu(&[std::process::id()])? - before;
    let each = Duration::from_secs_f64(cpu.as_secs_f64() / ROUNDS as f64);
    rows(
        table,
        "get, ephemeral, kube client",
        gets,
        Target::AtMost(40.0),
    );
    rows(
        table,
        "merge patch, ephemeral, kube client",
        patches,
        Target::AtMost(150.0),
    );
    let what = "CPU for a merge patch of a Sandbox, in process, client included";
    table.row(what, micros(each), Unit::Micros, Target::AtMost(200.0));
    Ok(())
}

/// Without the client, to tell what it costs.
async fn bare(table: &mut Table, mut server: Server) -> Result<()> {
    let (mut gets, mut patches) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for (times, ask) in [
            (&mut gets, Ask::get(&one())),
            (&mut patches, change(&one(), round + ROUNDS + 1)),
        ] {
            let request = ask.request("", Full::new)?;
            let begun = Instant::now();
            let answer = server.call(request).await?;
            let status = answer.status();
            let body = answer.into_body().collect().await;
            body.map_err(anyhow::Error::from_boxed)?;
            times.push(begun.elapsed());
            if !status.is_success() {
                bail!("the server answered {status}");
            }
        }
    }
    rows(table, "get, ephemeral, no client", gets, Target::None);
    rows(
        table,
        "merge patch, ephemeral, no client",
        patches,
        Target::None,
    );
    Ok(())
}

fn rows(table: &mut Table, what: &str, times: Vec<Duration>, target: Target) {
    let times = Times::new(times);
    table.row(
        &format!("{what}, median"),
        micros(times.median()),
        Unit::Micros,
        target,
    );
    let late = micros(times.percentile(99));
    table.row(&format!("{what}, p99"), late, Unit::Micros, Target::None);
}

async fn delivery(client: &kube::Client) -> Result<Times> {
    let body = Template::sandbox().named("one");
    let made = said(client, Ask::post(SANDBOXES, body)).await?;
    let from = version(made.as_bytes()).context("no version")?;
    let path = format!("{SANDBOXES}?watch=1&resourceVersion={from}");
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let request = Ask::get(&path).request("", |_| kube::client::Body::empty())?;
        let mut body = client.send(request).await?.into_body();
        watchers.spawn(async move {
            let mut seen = Vec::with_capacity(WRITES);
            // in process every event is a frame of its own
            while seen.len() < WRITES {
                let frame = body.frame().await.context("a watch ended early")??;
                let at = Instant::now();
                if let Ok(data) = frame.into_data() {
                    seen.push((version(&data).context("an event without version")?, at));
                }
            }
            anyhow::Ok(seen)
        });
    }
    let mut answered = HashMap::new();
    for round in 0..WRITES {
        let made = said(client, change(&one(), round as u64 + 1)).await?;
        let now = Instant::now();
        answered.insert(version(made.as_bytes()).context("no version")?, now);
        tokio::time::sleep(PACE).await;
    }
    delays(&answered, watchers).await
}
