//! How much memory sandboxes and the program hold when nothing happens.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use bench::process;
use bench::times::progress;
use bench::watch::Change;

use crate::PODS;
use crate::instance::{Instance, Program};
use crate::watched::{Watched, is_ready, name_of};
use bench::table::{Bound, Limit, Table};

const SANDBOXES: usize = 20;
const WANTED_OF_SHIM: f64 = 1.0;
const WANTED_OF_ALL: f64 = 40.0;
/// What a start leaves to be done in the background is over by then.
const IDLE: Duration = Duration::from_secs(10);

pub(crate) async fn of_sandboxes(table: &Table, program: &Program) -> Result<()> {
    progress("20 idle sandboxes");
    let instance = program.up(&["--pool", &SANDBOXES.to_string()])?;
    until_ready(&instance, SANDBOXES).await?;
    tokio::time::sleep(IDLE).await;
    let shims = process::children(instance.helper()?, "sandbar-shim")?;
    let count = shims.len();
    ensure!(count == SANDBOXES, "{count} shims run instead of 20");
    let average = |of: fn(u32) -> Result<f64>| -> Result<f64> {
        let all: Result<Vec<f64>> = shims.iter().copied().map(of).collect();
        Ok(all?.iter().sum::<f64>() / SANDBOXES as f64)
    };
    let share = average(process::share)?;
    table.row(
        "memory of an idle sandbox without its workload, Pss of its shim, average of 20",
        &format!("{share:.2} MiB"),
        Some(Bound {
            of: "",
            value: share,
            limit: Limit::AtMost(WANTED_OF_SHIM),
            unit: "MiB",
        }),
    );
    let own = average(process::own)?;
    table.row(
        "  of it private and changed",
        &format!("{own:.2} MiB"),
        None,
    );
    table.row(
        "  RSS of the process with these 20",
        &format!("{:.1} MiB", process::resident(instance.pid()?)?),
        None,
    );
    Ok(())
}

pub(crate) async fn of_process(table: &Table, program: &Program) -> Result<()> {
    progress("an idle instance");
    let instance = program.up(&[])?;
    until_ready(&instance, 2).await?;
    tokio::time::sleep(IDLE).await;
    let resident = process::resident(instance.pid()?)?;
    table.row(
        "RSS of the process, default pool of 2, idle for 10 s",
        &format!("{resident:.1} MiB"),
        Some(Bound {
            of: "",
            value: resident,
            limit: Limit::AtMost(WANTED_OF_ALL),
            unit: "MiB",
        }),
    );
    let helper = instance.helper()?;
    let helper = format!(
        "{:.1} / {:.1} MiB",
        process::resident(helper)?,
        process::share(helper)?
    );
    table.row("  of its helper, RSS / Pss", &helper, None);
    Ok(())
}

async fn until_ready(instance: &Instance<'_>, count: usize) -> Result<()> {
    let mut pods = Watched::begin(&instance.access().await?, PODS).await?;
    let mut ready = BTreeSet::new();
    let are_all = |change: &Change<_>| {
        if let Change::Is(pod) = change
            && is_ready(pod)
        {
            ready.insert(name_of(pod).to_owned());
        }
        ready.len() == count
    };
    pods.until("all members of the pool are ready", are_all)
        .await
        .map(drop)
}
