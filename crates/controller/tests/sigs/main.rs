//! The controllers of the family on the embedded cluster: what they do, and what they do when anything fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chronicle;
mod fallbacks;
mod guards;
mod late;
mod lean;
mod long_names;
#[path = "../support/clock.rs"]
mod moved;
mod newer;
mod newest;
mod rivals;
mod rolling;
mod scenarios;
mod stage;
mod wire;
mod writes;

use std::{panic::AssertUnwindSafe, time::Duration};

use api::crds::Schemas;
use futures::{FutureExt as _, StreamExt as _, stream};
use local::fault::{Fault, Faults, points};

use stage::Theatre;

/// Scenarios at a time. They wait more than they work; of more, each would take too long for its own patience.
const AT_A_TIME: usize = 16;
/// What goes on for a while: an old cache, one that is made anew from what was listed before, and a write of a leader that
/// arrives when another leads.
const LASTING: [Fault; 3] = [
    Fault::StallWatches(A_WHILE),
    Fault::LateLists(A_WHILE),
    Fault::Hold,
];
const A_WHILE: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_ends_as_it_says() {
    play_all(&Theatre::open().await).await;
}

/// The controllers need nothing that the API server fills in for them or keeps from them.
#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_ends_as_it_says_with_lean_schemas() {
    play_all(&Theatre::with(Schemas::Lean).await).await;
}

async fn play_all(theatre: &Theatre) {
    for (name, scenario) in scenarios::ALL {
        let stage = scenarios::stage(theatre, name, Faults::none()).await;
        stage.play(*scenario).await;
    }
}

/// Whatever fails, and at whatever request: what each scenario says of the end holds, and then nothing is written.
///
/// All requests of all scenarios take the better part of an hour; with `SANDBAR_FAULTS=some` every 23rd is taken, in each
/// scenario and with each fault another one. With `SANDBAR_SCENARIO` only those whose names contain it are played.
#[tokio::test(flavor = "multi_thread")]
async fn no_single_fault_changes_the_end_of_any_scenario() {
    let is_sample = std::env::var("SANDBAR_FAULTS").is_ok_and(|faults| faults == "some");
    let stride = if is_sample { 23 } else { 1 };
    let wanted = std::env::var("SANDBAR_SCENARIO").unwrap_or_default();
    let theatre = Theatre::open().await;
    let all = scenarios::ALL.iter().enumerate();
    let all = all.filter(|(_, (name, _))| name.contains(&wanted));
    let faults = [&Fault::SUDDEN[..], &LASTING].concat();
    let runs = all.map(async |(first, (name, scenario))| {
        let report = points(&faults, first, stride, async |faults: Faults| {
            let stage = scenarios::stage(&theatre, name, faults).await;
            stage.play(*scenario).await;
        });
        // the others go on, so that one run tells of all that fail
        let Ok(report) = AssertUnwindSafe(report).catch_unwind().await else {
            println!("{name}: FAILED");
            return None;
        };
        let points: usize = report.struck.values().sum();
        println!("{name}: {points} faults");
        Some((points, report))
    });
    let reports: Vec<_> = stream::iter(runs)
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    let played = reports.len();
    let reports: Vec<_> = reports.into_iter().flatten().collect();
    let points: usize = reports.iter().map(|(points, _)| points).sum();
    println!("{points} faults in {} scenarios", reports.len());
    assert_eq!(reports.len(), played, "some have failed, as said above");
    let has_struck = |fault: Fault, method: &str| {
        let mut reports = reports.iter();
        reports.any(|(_, report)| report.struck.contains_key(&(fault, method.to_owned())))
    };
    if !wanted.is_empty() {
        return;
    }
    for fault in faults {
        let missed = ["GET", "POST", "PATCH", "DELETE"].map(|method| !has_struck(fault, method));
        // a sample need not meet the rarest requests with every fault
        let are_too_many = missed.iter().filter(|missed| **missed).count() > usize::from(is_sample);
        assert!(
            !are_too_many,
            "{fault:?} never struck some kinds of request"
        );
    }
}
