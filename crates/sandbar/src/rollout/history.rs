//! The revisions of a pool, and going back to one.

use anyhow::{Context as _, Result};
use api::sigs::v1beta1::{SandboxTemplate, SandboxWarmPool};
use controller::sigs::{names, pool::history::selector};
use engine::revision::history::{Stored, undo as choose};
use k8s_openapi::{api::apps::v1::ControllerRevision, jiff::Timestamp};
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::Place;
use crate::table;

/// One revision.
struct Entry {
    name: String,
    number: i64,
    template: String,
    spec: Value,
    created: Option<Timestamp>,
}

async fn entries(place: &Place) -> Result<Vec<Entry>> {
    let pool = place.pool().await?;
    let params = ListParams::default().labels(&selector(&place.name));
    let stored = place.api::<ControllerRevision>().list(&params).await;
    let stored = stored.context("cannot list the controllerrevisions that hold the history")?;
    let uid = pool.uid();
    let mut entries: Vec<Entry> = stored
        .items
        .into_iter()
        .filter(|one| {
            let owners = one.owner_references().iter();
            owners
                .into_iter()
                .any(|owner| Some(&owner.uid) == uid.as_ref())
        })
        .map(|one| Entry {
            name: one.name_any(),
            number: one.revision,
            template: one
                .annotations()
                .get(names::TEMPLATE_REF)
                .cloned()
                .unwrap_or_default(),
            created: one.metadata.creation_timestamp.as_ref().map(|time| time.0),
            spec: one
                .data
                .map(|data| data.0["spec"].clone())
                .unwrap_or_default(),
        })
        .collect();
    entries.sort_by_key(|entry| entry.number);
    Ok(entries)
}

pub(super) async fn show(place: &Place, revision: Option<i64>) -> Result<()> {
    let entries = entries(place).await?;
    if let Some(number) = revision {
        let found = entries.iter().find(|entry| entry.number == number);
        let found = found.with_context(|| format!("there is no revision {number}"))?;
        print!("{}", serde_saphyr::to_string(&found.spec)?);
        return Ok(());
    }
    if entries.is_empty() {
        println!("{}/{} has no history yet", place.namespace, place.name);
        return Ok(());
    }
    let latest = entries.last().map(|entry| entry.number);
    let mut rows = vec![["REVISION", "TEMPLATE", "IMAGES", "AGE"].map(str::to_owned)];
    for entry in &entries {
        let mark = if Some(entry.number) == latest {
            " (now)"
        } else {
            ""
        };
        rows.push([
            format!("{}{mark}", entry.number),
            entry.template.clone(),
            images(&entry.spec),
            entry.created.map(age).unwrap_or_default(),
        ]);
    }
    print!("{}", table::render(&rows));
    Ok(())
}

fn images(spec: &Value) -> String {
    let containers = spec["podTemplate"]["spec"]["containers"].as_array();
    let images = containers.into_iter().flatten();
    let images: Vec<&str> = images.filter_map(|one| one["image"].as_str()).collect();
    images.join(",")
}

fn age(created: Timestamp) -> String {
    table::age(Timestamp::now().duration_since(created).as_secs())
}

pub(super) async fn undo(place: &Place, to: Option<i64>, is_dry: bool) -> Result<()> {
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
    let chosen = choose(&stored, to)
        .with_context(|| format!("cannot go back with {}/{}", place.namespace, place.name))?;
    let entry = entries.iter().find(|entry| entry.number == chosen.number);
    let entry = entry.context("the history has changed meanwhile; try again")?;
    let others = others(place, &entry.template).await?;
    let doing = if is_dry { "would go" } else { "goes" };
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
    match is_dry {
        true => Ok(()),
        false => apply(place, entry).await,
    }
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
    let templates = place.api::<SandboxTemplate>();
    let found = templates.get_opt(&entry.template).await?;
    let found = found.with_context(|| {
        format!(
            "SandboxTemplate {}/{} is gone; create it from `sandbar rollout history {} --revision {}`",
            place.namespace, entry.template, place.name, entry.number
        )
    })?;
    let old = serde_json::to_value(&found.spec.blueprint)?;
    if let Some(patch) = controller::merge::patch(&old, &entry.spec) {
        let body = json!({
            "metadata": {"resourceVersion": found.resource_version()},
            "spec": patch,
        });
        let params = PatchParams::default();
        templates
            .patch(&entry.template, &params, &Patch::Merge(body))
            .await?;
    }
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
