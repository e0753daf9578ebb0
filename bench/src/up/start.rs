//! From the start of the process to the first sandbox that can be used.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use bench::times::{Times, millis};
use bench::watch::Change;

use crate::PODS;
use crate::instance::{Instance, Program};
use crate::progress::steps;
use crate::watched::{Watched, is_ready, run_of};
use bench::table::{Bound, Limit, Table, middle_and_worst};

const STARTS: usize = 5;
const WANTED: f64 = 1000.0;
const POOL: usize = 2;

pub(crate) async fn measure(table: &Table, program: &Program) -> Result<()> {
    let bar = steps("starts", 2 * STARTS);
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let mut instance = program.up(&[])?;
        first.push(first_ready(&instance, &BTreeSet::new()).await?);
        bar.inc(1);
        let before = all_ready(&instance).await?;
        instance.stop()?;
        instance.start(&[])?;
        again.push(first_ready(&instance, &before).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let first = Times::new(first);
    table.row(
        "start to the first ready member of the pool, empty directory; median / worst of 5",
        &middle_and_worst(&first),
        Some(Bound {
            of: "median",
            value: millis(first.median()),
            limit: Limit::AtMost(WANTED),
            unit: "ms",
        }),
    );
    table.row(
        "  again in the same directory, after a stop",
        &middle_and_worst(&Times::new(again)),
        None,
    );
    Ok(())
}

/// `before` are the runs of containers that have been stopped, which may still be told of.
async fn first_ready(instance: &Instance<'_>, before: &BTreeSet<String>) -> Result<Duration> {
    let mut pods = Watched::begin(&instance.access().await?, PODS).await?;
    let is_first = |change: &Change<_>| match change {
        Change::Is(pod) => is_ready(pod) && run_of(pod).is_some_and(|run| !before.contains(run)),
        Change::Gone(_) => false,
    };
    let at = pods
        .until("a member of the pool is ready", is_first)
        .await?;
    Ok(at - instance.begun()?)
}

/// The runs of all members' containers, once all are ready.
async fn all_ready(instance: &Instance<'_>) -> Result<BTreeSet<String>> {
    let mut pods = Watched::begin(&instance.access().await?, PODS).await?;
    let mut runs = BTreeSet::new();
    let are_all = |change: &Change<_>| {
        if let Change::Is(pod) = change
            && is_ready(pod)
        {
            runs.extend(run_of(pod).map(str::to_owned));
        }
        runs.len() == POOL
    };
    pods.until("all members of the pool are ready", are_all)
        .await?;
    Ok(runs)
}
