//! How far a rollout has come.

use std::{pin::pin, time::Duration};

use anyhow::{Result, bail};
use api::{
    open::known,
    sigs::{
        rolling_update::UpdateStrategyType,
        v1beta1::{SandboxTemplate, SandboxWarmPool, SandboxWarmPoolStatus},
    },
};
use controller::{
    sigs::{pool::member, template::view::Template},
    store::{Texts, View as _},
};
use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::{WatchStreamExt as _, watcher};

use super::Place;

/// What is to be said of a pool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every member is as the template says, or the partition keeps the rest.
    Complete,
    /// The strategy leaves old members alone, so that there is nothing to wait for.
    UntilClaimed,
    Rolling,
    /// The controller has not looked since the last edit.
    Unseen,
    Missed(String),
}

/// What one look has found.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) verdict: Verdict,
    pub(super) replicas: u64,
    pub(super) updated: u64,
    pub(super) text: String,
}

pub(super) async fn once(place: &Place) -> Result<()> {
    let pool = place.pool().await?;
    let template = place.template(&pool).await?;
    println!("{}", look(&pool, template).text);
    Ok(())
}

pub(super) async fn follow(place: &Place) -> Result<()> {
    // says so if there is no such pool
    let pool = place.pool().await?;
    let bar = progress_bar(&pool);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
    let events = watcher(place.api::<SandboxWarmPool>(), config);
    let mut events = pin!(events.default_backoff().touched_objects());
    loop {
        let pool = place.pool().await?;
        let found = look(&pool, place.template(&pool).await?);
        bar.set_length(found.replicas);
        bar.set_position(found.updated.min(found.replicas));
        bar.set_message(found.text.clone());
        if bar.is_hidden() {
            println!("{}", found.text);
        }
        match found.verdict {
            Verdict::Complete | Verdict::UntilClaimed => {
                bar.finish_and_clear();
                if !bar.is_hidden() {
                    println!("{}", found.text);
                }
                return Ok(());
            }
            Verdict::Missed(why) => {
                bar.abandon();
                bail!("{why}");
            }
            Verdict::Rolling | Verdict::Unseen => {}
        }
        // the template has no watch of its own here
        let _ = tokio::time::timeout(Duration::from_secs(2), events.next()).await;
    }
}

fn progress_bar(pool: &SandboxWarmPool) -> ProgressBar {
    let replicas = u64::try_from(pool.spec.replicas.unwrap_or(1)).unwrap_or_default();
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} updated  {elapsed}  {wide_msg}");
    let bar = ProgressBar::new(replicas);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

pub(super) fn look(pool: &SandboxWarmPool, template: Option<SandboxTemplate>) -> Look {
    let status = pool.status.clone().unwrap_or_default();
    let count = |count: Option<i32>| u64::try_from(count.unwrap_or_default()).unwrap_or_default();
    let wanted = template.map(|template| {
        let template = Template::of(template, &mut Texts::default());
        member::target(&template).to_string()
    });
    let (replicas, updated) = (
        count(Some(pool.spec.replicas.unwrap_or(1))),
        count(status.updated_replicas),
    );
    let verdict = verdict(pool, &status, wanted.as_deref());
    let numbers = format!(
        "{updated} of {replicas} updated, {} ready, {} of the new ones claimable",
        count(status.ready_replicas),
        count(status.updated_available_replicas),
    );
    let text = match (&verdict, wanted.is_some()) {
        (_, false) => format!(
            "SandboxTemplate {:?} not found; {numbers}",
            pool.spec.sandbox_template_ref.name
        ),
        (Verdict::Unseen, _) => "the controller has not seen the last edit yet".to_owned(),
        _ => format!("{numbers}; {}", told(&status)),
    };
    Look {
        verdict,
        replicas,
        updated,
        text,
    }
}

fn verdict(
    pool: &SandboxWarmPool,
    status: &SandboxWarmPoolStatus,
    wanted: Option<&str>,
) -> Verdict {
    let is_seen = status.observed_generation >= pool.metadata.generation
        && wanted.is_some()
        && status.update_revision.as_deref() == wanted;
    if !is_seen {
        return Verdict::Unseen;
    }
    let progressing = condition(status, "Progressing");
    if progressing.is_some_and(|it| it.reason == "DeadlineExceeded") {
        return Verdict::Missed(told(status));
    }
    let strategy = pool.spec.update_strategy.as_ref();
    let strategy = strategy.and_then(|it| known(&it.type_));
    let is_complete = status.current_revision == status.update_revision
        && status.updated_replicas >= Some(pool.spec.replicas.unwrap_or(1));
    let is_kept = progressing.is_some_and(|it| it.reason == "PartitionReached");
    match strategy {
        _ if is_complete || is_kept => Verdict::Complete,
        None | Some(UpdateStrategyType::OnReplenish) => Verdict::UntilClaimed,
        Some(UpdateStrategyType::Recreate | UpdateStrategyType::RollingUpdate) => Verdict::Rolling,
    }
}

/// What somebody has to do, or how far it is.
fn told(status: &SandboxWarmPoolStatus) -> String {
    let stalled = condition(status, "Stalled").filter(|stalled| stalled.status == "True");
    let told = stalled.or(condition(status, "Progressing"));
    told.map(|told| format!("{}: {}", told.reason, told.message))
        .unwrap_or_default()
}

fn condition<'a>(status: &'a SandboxWarmPoolStatus, kind: &str) -> Option<&'a Condition> {
    controller::conditions::find(status.conditions.as_ref(), kind)
}
