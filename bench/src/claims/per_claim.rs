//! What a claim costs and how long it takes, under three loads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bench::times::{Times, millis, progress};
use serde_json::json;

use crate::What;
use crate::arrivals::Pace;
use crate::cost::{Cost, Idle};
use crate::desk::{Desk, Outcome, lock, lost, span, waits, waits_after_creation};
use crate::report::{Column, Figure, Target, Unit};
use crate::session::Session;
use crate::sizes::Claims;
use crate::targets::Targets;

const POOL: &str = "claims";
const SAY: Duration = Duration::from_secs(2);

pub(crate) const LOADS: [What; 3] = [What::OneAtATime, What::Parallel, What::Poisson];

pub(crate) async fn measure(
    session: &mut Session,
    column: &mut Column,
    targets: &Targets,
    loads: &[What],
) -> Result<()> {
    let sizes = session.setup.sizes.clone();
    let pool = session.fill_pool(POOL, sizes.claims.pool, Duration::ZERO);
    pool.await?;
    session.desk.keep(session.setup.keeps_claims);
    // what is made on first use is made
    let warm = session.desk.one_at_a_time(POOL, 5, sizes.claims.pause);
    warm.await?;
    session.settle().await?;
    session.clear().await?;
    let idle = session.idle(sizes.idle).await?;
    let mut costs = Vec::new();
    for load in loads {
        let (cost, outcomes) = run(session, *load, idle).await?;
        explain(&cost);
        session.clear().await?;
        costs.push((load.name(), cost));
        latencies(column, targets, *load, &outcomes);
        let stock = lock(&session.stock);
        let given = outcomes.iter().filter_map(Outcome::sandbox);
        let cold = given.filter(|name| stock.was_cold(name)).count();
        column.add(
            Figure::new(format!("{}: cold starts / lost", load.name()), "")
                .part("cold", cold as f64, Unit::Number, Target::None)
                .part("lost", lost(&outcomes) as f64, Unit::Number, Target::None),
        );
    }
    report(column, targets, &costs);
    session.desk.keep(false);
    Ok(())
}

/// The cost of a claim, and all outcomes.
async fn run(session: &mut Session, load: What, idle: Idle) -> Result<(Cost, Vec<Outcome>)> {
    let sizes = session.setup.sizes.claims.clone();
    progress(load.name());
    let first = session.read().await?;
    let desk = Arc::clone(&session.desk);
    let outcomes = {
        let claims = serve(&desk, load, &sizes);
        tokio::pin!(claims);
        loop {
            match tokio::time::timeout(SAY, &mut claims).await {
                Ok(outcomes) => break outcomes?,
                Err(_) => progress(&format!("{} claims so far", desk.answered())),
            }
            session.check().await?;
        }
    };
    session.settle().await?;
    let cost = session.cost(outcomes.len(), &first, idle).await?;
    Ok((cost, outcomes))
}

async fn serve(desk: &Arc<Desk>, load: What, sizes: &Claims) -> Result<Vec<Outcome>> {
    match load {
        What::OneAtATime => {
            desk.one_at_a_time(POOL, sizes.one_at_a_time, sizes.pause)
                .await
        }
        What::Parallel => {
            desk.in_parallel(POOL, sizes.clients, sizes.in_parallel)
                .await
        }
        _ => {
            let arriving = desk.open_loop(POOL, sizes.rate, Pace::Random);
            tokio::time::sleep(sizes.steady).await;
            arriving.stop().await
        }
    }
}

fn explain(cost: &Cost) {
    let list = |counts: &BTreeMap<String, f64>| {
        let mut counts: Vec<_> = counts.iter().collect();
        counts.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        let each = counts
            .iter()
            .map(|(what, count)| format!("{count:.2} {what}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let agents = cost.agents.join(", ");
    progress(&format!("writes of {agents}: {}", list(&cost.kinds)));
    progress(&format!("writes of others: {}", list(&cost.others)));
}

fn latencies(column: &mut Column, targets: &Targets, load: What, outcomes: &[Outcome]) {
    let times = waits(outcomes);
    let p99 = millis(times.percentile(99));
    match load {
        What::OneAtATime => {
            let [most, late] = targets.one_at_a_time;
            column.add(pair(
                "one at a time: p50 / p99",
                "67 / 130 ms",
                &times,
                [most, late],
            ));
            let what = "  of these after the creation was answered: p50 / p99";
            let after = waits_after_creation(outcomes);
            column.add(pair(what, "", &after, [Target::None; 2]));
        }
        What::Parallel => {
            let rate = outcomes.len() as f64 / span(outcomes).as_secs_f64();
            let [enough, late] = targets.parallel;
            column.add(
                Figure::new(format!("{}: claims/s; p99", load.name()), "15; 1,850 ms")
                    .part("rate", rate, Unit::Number, enough)
                    .part("p99", p99, Unit::Millis, late)
                    .detail("p50", millis(times.median()))
                    .detail("claims", times.len()),
            );
        }
        _ => {
            let (first, last) = thirds(outcomes);
            let grows = is_growing(first, last);
            let word = if grows { "the queue grows" } else { "no queue" };
            column.add(
                Figure::new(format!("{}: p99", load.name()), "queue grows")
                    .part("p99", p99, Unit::Millis, targets.poisson)
                    .word("queue", word, grows.then_some(false))
                    .detail("p50", millis(times.median()))
                    .detail("claims", times.len())
                    .detail("p50 of the first and the last third", json!([first, last])),
            );
        }
    }
}

fn pair(what: &str, reference: &'static str, times: &Times, targets: [Target; 2]) -> Figure {
    let [median, late] = targets;
    Figure::new(what, reference)
        .part("p50", millis(times.median()), Unit::Millis, median)
        .part("p99", millis(times.percentile(99)), Unit::Millis, late)
        .detail("claims", times.len())
}

/// The medians of the first and of the last third, in milliseconds.
fn thirds(outcomes: &[Outcome]) -> (f64, f64) {
    let third = outcomes.len() / 3;
    let median = |part: &[Outcome]| millis(waits(part).median());
    (
        median(&outcomes[..third]),
        median(&outcomes[outcomes.len() - third..]),
    )
}

/// Whether those who come late wait clearly longer than those who came early.
fn is_growing(first: f64, last: f64) -> bool {
    last > 2.0 * first && last > first + 100.0
}

fn report(column: &mut Column, targets: &Targets, costs: &[(&str, Cost)]) {
    let loads: Vec<&str> = costs.iter().map(|(load, _)| *load).collect();
    let loads = loads.join(" / ");
    let mut add = |what: &str,
                   reference: &'static str,
                   unit: Unit,
                   target: Target,
                   value: &dyn Fn(&Cost) -> Option<f64>| {
        let title = format!("{what} per claim: {loads}");
        let mut figure = Figure::new(title, reference);
        for (load, cost) in costs {
            figure = match value(cost) {
                Some(value) => figure.part(load, value, unit, target),
                None => figure.word(load, "not told", None),
            };
        }
        if what == "controller writes" {
            let kinds = costs.iter().map(|(load, cost)| {
                json!({
                    "load": load, "of": cost.agents, "kinds": cost.kinds,
                    "refused": cost.refused, "others": cost.others,
                })
            });
            figure = figure.detail("detail", kinds.collect::<Vec<_>>());
        }
        column.add(figure);
    };
    let number = Unit::Number;
    add(
        "controller writes",
        "16.5–18",
        number,
        targets.writes,
        &|cost| Some(cost.writes),
    );
    add(
        "conflicts",
        "up to 0.9",
        number,
        Target::Below(0.02),
        &|cost| Some(cost.conflicts),
    );
    add(
        "reconciles",
        "about 15",
        number,
        targets.reconciles,
        &|cost| cost.reconciles,
    );
    let millis = Unit::Millis;
    add(
        "API-server CPU",
        "105–125 ms",
        millis,
        targets.api_server,
        &|cost| Some(cost.api_server),
    );
    let most = Target::AtMost(3.0);
    add("controller CPU", "28 ms", millis, most, &|cost| {
        Some(cost.controller)
    });
}

#[cfg(test)]
mod tests {
    use super::is_growing;

    #[test]
    fn a_queue_grows_when_late_comers_wait_clearly_longer() {
        assert!(is_growing(60.0, 900.0));
        assert!(!is_growing(20.0, 45.0), "noise");
        assert!(!is_growing(500.0, 700.0), "slow, but no slower");
    }
}
