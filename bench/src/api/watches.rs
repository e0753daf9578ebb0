//! How long after the answer of a write its event reaches everybody who watches.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use crate::load::CONNECTIONS;
use crate::objects::{SANDBOXES, Template, change};
use crate::rival::Side;
use crate::table::{Table, Target, Unit};
use bench::client::{Ask, Lines};
use bench::times::{Times, millis, progress};

pub(crate) const WATCHERS: usize = 100;
pub(crate) const WRITES: usize = 200;
pub(crate) const PACE: Duration = Duration::from_millis(15);
/// ms, at the 99th percentile
pub(crate) const WANTED: f64 = 5.0;

pub(crate) async fn measure(table: &mut Table, sides: &[&Side]) -> Result<()> {
    for side in sides {
        progress(&format!("watches: {}", side.name));
        let times = delivery(side).await?;
        let target = if side.is_ours() {
            Target::AtMost(WANTED)
        } else {
            Target::None
        };
        show(table, &format!("TLS: {}", side.name), &times, target);
    }
    Ok(())
}

pub(crate) fn show(table: &mut Table, how: &str, times: &Times, target: Target) {
    let median = format!("answer to event, {WATCHERS} watchers, median, {how}");
    table.row(&median, millis(times.median()), Unit::Millis, Target::None);
    let late = format!("answer to event, {WATCHERS} watchers, p99, {how}");
    table.row(&late, millis(times.percentile(99)), Unit::Millis, target);
}

async fn delivery(side: &Side) -> Result<Times> {
    let writer = side.access.connect().await?;
    let body = Template::sandbox().named("watched");
    let made = writer.whole(Ask::post(SANDBOXES, body)).await?;
    let from = version(&made).context("no version")?;
    let path = format!("{SANDBOXES}?watch=1&resourceVersion={from}");
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(side.access.connect().await?);
    }
    let mut watchers = JoinSet::new();
    for number in 0..WATCHERS {
        let connection = &connections[number % CONNECTIONS];
        let answer = connection.send(Ask::get(&path)).await?;
        watchers.spawn(arrivals(answer.into_body()));
    }
    let mut answered = HashMap::new();
    for round in 0..WRITES {
        let ask = change(&format!("{SANDBOXES}/watched"), round as u64 + 1);
        let made = writer.whole(ask).await?;
        let now = Instant::now();
        answered.insert(version(&made).context("no version")?, now);
        tokio::time::sleep(PACE).await;
    }
    delays(&answered, watchers).await
}

/// How long after its answer each write was seen, by every watcher.
pub(crate) async fn delays(
    answered: &HashMap<u64, Instant>,
    mut watchers: JoinSet<Result<Vec<(u64, Instant)>>>,
) -> Result<Times> {
    let mut times = Vec::new();
    while let Some(seen) = watchers.join_next().await {
        for (version, at) in seen?? {
            let answered = answered.get(&version).context("an event of no write")?;
            times.push(at.saturating_duration_since(*answered));
        }
    }
    Ok(Times::new(times))
}

/// Reads a watch until it has all events.
async fn arrivals(mut body: Incoming) -> Result<Vec<(u64, Instant)>> {
    let (mut seen, mut lines) = (Vec::with_capacity(WRITES), Lines::default());
    while seen.len() < WRITES {
        let Some(frame) = body.frame().await else {
            bail!("a watch ended early");
        };
        let at = Instant::now();
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        for line in lines.cut(&data) {
            seen.push((version(&line).context("an event without version")?, at));
        }
    }
    Ok(seen)
}

/// The version of the object that the JSON is, or of the one in an event.
pub(crate) fn version(json: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"\"resourceVersion\":\"";
    let at = json.windows(KEY.len()).position(|window| window == KEY)?;
    let digits = json[at + KEY.len()..].split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
