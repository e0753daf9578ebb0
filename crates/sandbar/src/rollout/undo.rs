//! Going back to an earlier revision of a pool.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use api::sigs::v1beta1::{SandboxTemplate, SandboxWarmPool};
use controller::sigs::names;
use engine::revision::history::{Stored, undo as choose};
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    Place,
    history::{Entry, entries, images},
};

/// So many revisions stay retired; members of older ones are long gone.
const MOST_RETIRED: usize = 10;

/// How long an object may be written by others again and again before the user is told so.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// How to go back.
pub(super) struct Back {
    pub(super) to: Option<i64>,
    /// Nobody shall get what is left.
    pub(super) retires: bool,
    pub(super) is_dry: bool,
}

pub(super) async fn undo(place: &Place, back: &Back) -> Result<()> {
    let entries = entries(place).await?;
    let stored: Vec<Stored<'_>> = entries
        .iter()
        .map(|entry| Stored {
            name: &entry.name,
            number: entry.number,
            template: &entry.spec,
            is_used: true,
        })
        .collect();
    let chosen = choose(&stored, back.to)
        .with_context(|| format!("cannot go back with {}/{}", place.namespace, place.name))?;
    let entry = entries.iter().find(|entry| entry.number == chosen.number);
    let entry = entry.context("the history has changed meanwhile; try again")?;
    let others = others(place, &entry.template).await?;
    let doing = if back.is_dry { "would go" } else { "goes" };
    println!(
        "{}/{} {doing} back to revision {} ({})",
        place.namespace,
        place.name,
        entry.number,
        images(&entry.spec)
    );
    if !others.is_empty() {
        println!(
            "note: SandboxTemplate {:?} is also that of {}",
            entry.template,
            others.join(", ")
        );
    }
    let left = entries.last().filter(|_| back.retires);
    if let Some(left) = left {
        println!(
            "nobody gets a member of revision {} ({}) any more",
            left.number,
            images(&left.spec)
        );
    }
    if back.is_dry {
        return Ok(());
    }
    // first: who dies in between has retired what is still the target, which means nothing
    if let Some(left) = left {
        for pool in others.iter().chain([&place.name]) {
            retire(place, pool, left, entry).await?;
        }
    }
    apply(place, entry).await
}

/// Writes on the pool that one revision is bad, and that the other is not.
async fn retire(place: &Place, name: &str, left: &Entry, next: &Entry) -> Result<()> {
    let done = until_undisturbed(async || try_to_retire(place, name, left, next).await).await;
    done.with_context(|| format!("cannot retire revision {} of {name}", left.number))
}

async fn try_to_retire(place: &Place, name: &str, left: &Entry, next: &Entry) -> Result<()> {
    let pools = place.api::<SandboxWarmPool>();
    let pool = pools.get(name).await?;
    let listed = pool.annotations().get(names::RETIRED);
    let listed = listed.into_iter().flat_map(|text| text.split(','));
    let (bad, good) = (left.revision(), next.revision());
    let mut retired: Vec<&str> = listed.filter(|one| *one != bad && *one != good).collect();
    retired.push(bad);
    let kept = retired.len().saturating_sub(MOST_RETIRED);
    let body = json!({"metadata": {
        "resourceVersion": pool.resource_version(),
        "annotations": {names::RETIRED: retired[kept..].join(",")},
    }});
    let params = PatchParams::default();
    pools.patch(name, &params, &Patch::Merge(body)).await?;
    Ok(())
}

/// Tries again while others write between the reading and the writing: a controller may write at any time.
async fn until_undisturbed<T>(attempt: impl AsyncFn() -> Result<T>) -> Result<T> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let done = attempt().await;
        let is_disturbed = done.as_ref().is_err_and(is_conflict);
        if !is_disturbed || Instant::now() > give_up {
            return done;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_conflict(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.is_conflict())
}

/// The other pools that follow the template.
async fn others(place: &Place, template: &str) -> Result<Vec<String>> {
    let pools = place
        .api::<SandboxWarmPool>()
        .list(&ListParams::default())
        .await?;
    let others = pools.items.into_iter().filter(|pool| {
        pool.spec.sandbox_template_ref.name == template && pool.name_any() != place.name
    });
    Ok(others.map(|pool| pool.name_any()).collect())
}

/// First the template, then the pool: in between, the pool follows what it followed before.
async fn apply(place: &Place, entry: &Entry) -> Result<()> {
    let seen = template_of(place, entry).await?;
    until_undisturbed(async || write_template(place, entry, &seen).await).await?;
    let pool = place.pool().await?;
    if pool.spec.sandbox_template_ref.name != entry.template {
        let body = json!({"spec": {"sandboxTemplateRef": {"name": entry.template}}});
        let params = PatchParams::default();
        place
            .api::<SandboxWarmPool>()
            .patch(&place.name, &params, &Patch::Merge(body))
            .await?;
    }
    println!(
        "follow it with `sandbar rollout status {} -n {}`",
        place.name, place.namespace
    );
    Ok(())
}

async fn template_of(place: &Place, entry: &Entry) -> Result<SandboxTemplate> {
    let found = place.api().get_opt(&entry.template).await?;
    found.with_context(|| {
        format!(
            "SandboxTemplate {}/{} is gone; create it from `sandbar rollout history {} --revision {}`",
            place.namespace, entry.template, place.name, entry.number
        )
    })
}

/// Gives the template the content of the revision, unless somebody has given it another one since it was seen.
async fn write_template(place: &Place, entry: &Entry, seen: &SandboxTemplate) -> Result<()> {
    let found = template_of(place, entry).await?;
    let old = serde_json::to_value(&found.spec.blueprint)?;
    let Some(patch) = controller::merge::patch(&old, &entry.spec) else {
        return Ok(());
    };
    if found.metadata.generation != seen.metadata.generation {
        bail!(
            "SandboxTemplate {}/{} is being changed by somebody else; look at it, then try again",
            place.namespace,
            entry.template
        );
    }
    let body = json!({
        "metadata": {"resourceVersion": found.resource_version()},
        "spec": patch,
    });
    let (templates, params) = (place.api::<SandboxTemplate>(), PatchParams::default());
    let body = Patch::Merge(body);
    templates.patch(&entry.template, &params, &body).await?;
    Ok(())
}
