//! The revisions of a pool, and going back to one.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use controller::sigs::{
    names,
    pool::{history::selector, member::revision_of},
};
use engine::revision::{
    history::{Stored, undo as choose},
    name_hash,
};
use k8s_openapi::{api::apps::v1::ControllerRevision, jiff::Timestamp};
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::Place;
use crate::{refusal, table};

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

/// One revision.
struct Entry {
    name: String,
    number: i64,
    template: String,
    spec: Value,
    created: Option<Timestamp>,
}

impl Entry {
    /// What members carry: the stored name without that of the pool, which may have been cut. It begins with the hash
    /// of the template's name.
    fn revision(&self) -> &str {
        let begins = format!("-{}-", name_hash(&self.template));
        let at = self.name.rfind(&begins).map_or(0, |at| at + 1);
        &self.name[at..]
    }
}

/// How many sandboxes run a revision.
#[derive(Clone, Copy, Default)]
struct Users {
    members: usize,
    claimed: usize,
}

/// Who runs what, by the revision.
async fn users(place: &Place) -> Result<HashMap<String, Users>> {
    let pool = place.pool().await?.uid();
    let whole = ListParams::default();
    let claims = place.api::<SandboxClaim>().list(&whole).await;
    let claims = claims.context("cannot list the sandboxclaims that hold revisions")?;
    let claims = claims.items.into_iter();
    let claims = claims.filter(|claim| claim.spec.warm_pool_ref.name == place.name);
    let claims: HashSet<String> = claims.filter_map(|claim| claim.metadata.uid).collect();
    let sandboxes = place.api::<Sandbox>().list_metadata(&whole).await;
    let sandboxes = sandboxes.context("cannot list the sandboxes that run revisions")?;
    let mut users: HashMap<String, Users> = HashMap::new();
    for sandbox in sandboxes.items {
        let owners = sandbox.owner_references().iter();
        let mut owners = owners.filter(|owner| owner.controller == Some(true));
        let Some(owner) = owners.next().map(|owner| &owner.uid) else {
            continue;
        };
        let label = |key: &str| sandbox.labels().get(key).map_or("", String::as_str);
        if Some(owner) == pool.as_ref() {
            let (template, content) = (names::TEMPLATE_REF_HASH, names::TEMPLATE_HASH);
            let revision = revision_of(label(template), label(content));
            users.entry(revision.to_string()).or_default().members += 1;
        } else if claims.contains(owner)
            && let Some(revision) = sandbox.annotations().get(names::REVISION)
        {
            users.entry(revision.clone()).or_default().claimed += 1;
        }
    }
    Ok(users)
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
    // the history itself can be read with fewer rights
    let users = users(place).await;
    if let Err(error) = &users {
        let why = refusal::in_words(error);
        eprintln!("note: who runs them cannot be told: {why}");
    }
    let columns = [
        "REVISION", "TEMPLATE", "IMAGES", "MEMBERS", "CLAIMED", "AGE",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    for entry in &entries {
        let mark = if Some(entry.number) == latest {
            " (now)"
        } else {
            ""
        };
        let of_it = users.as_ref().ok();
        let of_it = of_it.map(|users| users.get(entry.revision()).copied().unwrap_or_default());
        let count = |number: fn(Users) -> usize| {
            of_it.map_or_else(|| "?".to_owned(), |users| number(users).to_string())
        };
        rows.push([
            format!("{}{mark}", entry.number),
            entry.template.clone(),
            images(&entry.spec),
            count(|users| users.members),
            count(|users| users.claimed),
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

#[cfg(test)]
mod tests {
    use super::{Entry, name_hash};

    #[test]
    fn a_revision_is_known_though_the_name_of_its_pool_was_cut_in_front_of_the_same_letter() {
        let hash = name_hash("one");
        let entry = Entry {
            // of the pool "pool-<first letter of the hash>…"
            name: format!("pool-{hash}-77"),
            number: 1,
            template: "one".to_owned(),
            spec: serde_json::Value::Null,
            created: None,
        };
        assert_eq!(entry.revision(), format!("{hash}-77"));
    }
}
