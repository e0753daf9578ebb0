//! From the creation of a pod until its status says that its container runs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use bench::client::{Access, Ask};
use bench::times::{Times, millis};
use bench::watch::Change;
use serde_json::json;
use tokio::task::JoinSet;

use crate::PODS;
use crate::instance::Program;
use crate::progress::steps;
use crate::rival::Rival;
use crate::watched::{Watched, name_of, runs};
use bench::table::{Bound, Limit, Table, middle_and_last};

const STARTS: usize = 40;
const AT_ONCE: usize = 20;
const WANTED: f64 = 40.0;
const WANTED_AT_ONCE: f64 = 500.0;

/// Something that runs pods.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) access: Access,
    /// The path of its pods.
    pub(crate) pods: String,
    pub(crate) image: &'static str,
}

pub(crate) async fn measure(table: &Table, program: &Program, has_rival: bool) -> Result<()> {
    let ours = {
        let instance = program.up(&["--pool", "0"])?;
        let side = Side {
            name: "sandbar",
            access: instance.access().await?,
            pods: PODS.to_owned(),
            image: "sandbar/base",
        };
        start_pods(&side).await?
    };
    let rival = match has_rival {
        true => {
            let rival = Rival::start().await?;
            let starts = start_pods(&rival.side().await?).await?;
            rival.stop().await?;
            Some(starts)
        }
        false => None,
    };
    report(table, &ours, rival.as_ref());
    Ok(())
}

struct Starts {
    one_by_one: Times,
    at_once: Times,
}

async fn start_pods(side: &Side) -> Result<Starts> {
    Ok(Starts {
        one_by_one: one_by_one(side).await?,
        at_once: at_once(side).await?,
    })
}

fn report(table: &Table, ours: &Starts, rival: Option<&Starts>) {
    let beside = |of: fn(&Starts) -> &Times| rival.map(|rival| middle_and_last(of(rival)));
    table.row_beside(
        "pod created to its container running, warm, one at a time, 40 times; p50 / p99",
        &middle_and_last(&ours.one_by_one),
        &beside(|starts| &starts.one_by_one).unwrap_or_default(),
        Some(Bound {
            of: "p50",
            value: millis(ours.one_by_one.median()),
            limit: Limit::AtMost(WANTED),
            unit: "ms",
        }),
    );
    table.row_beside(
        "  20 at once, from the first creation; p50 / p99",
        &middle_and_last(&ours.at_once),
        &beside(|starts| &starts.at_once).unwrap_or_default(),
        Some(Bound {
            of: "p99",
            value: millis(ours.at_once.percentile(99)),
            limit: Limit::AtMost(WANTED_AT_ONCE),
            unit: "ms",
        }),
    );
}

async fn one_by_one(side: &Side) -> Result<Times> {
    let bar = steps(&format!("pods one at a time: {}", side.name), STARTS + 1);
    let connection = side.access.connect().await?;
    let mut pods = Watched::begin(&side.access, &side.pods).await?;
    let mut times = Vec::new();
    for number in 0..=STARTS {
        let name = format!("one-{number}");
        let ask = Ask::post(&side.pods, pod(&name, side.image));
        let begun = Instant::now();
        connection.whole(ask).await?;
        let it_runs = |change: &Change<_>| matches!(change, Change::Is(pod) if name_of(pod) == name && runs(pod));
        let at = pods.until(&format!("{name} runs"), it_runs).await?;
        times.push(at - begun);
        let gone = Ask::delete(format!("{}/{name}", side.pods));
        connection.whole(gone).await?;
        pods.until_gone(&name).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    // the first one makes the image ready
    Ok(times.into_iter().skip(1).collect())
}

async fn at_once(side: &Side) -> Result<Times> {
    let bar = steps(&format!("pods at once: {}", side.name), AT_ONCE);
    let connection = side.access.connect().await?;
    let mut pods = Watched::begin(&side.access, &side.pods).await?;
    let begun = Instant::now();
    let mut creations = JoinSet::new();
    for number in 0..AT_ONCE {
        let ask = Ask::post(&side.pods, pod(&format!("many-{number}"), side.image));
        let connection = connection.clone();
        creations.spawn(async move { connection.whole(ask).await });
    }
    let mut running = BTreeSet::new();
    let mut times: Vec<Duration> = Vec::new();
    while times.len() < AT_ONCE {
        let another_runs = |change: &Change<_>| matches!(change, Change::Is(pod) if runs(pod) && running.insert(name_of(pod).to_owned()));
        let at = pods.until("pods run", another_runs).await?;
        times.push(at - begun);
        bar.inc(1);
    }
    while let Some(created) = creations.join_next().await {
        created??;
    }
    bar.finish_and_clear();
    Ok(Times::new(times))
}

fn pod(name: &str, image: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "100000"],
            }],
        },
    })
    .to_string()
}
