//! The revisions of a pool, and who runs them.

use std::collections::{HashMap, HashSet};

use anyhow::{Context as _, Result};
use api::sigs::v1beta1::{Sandbox, SandboxClaim};
use controller::sigs::{
    names,
    pool::{history::selector, member::revision_of},
};
use engine::revision::name_hash;
use k8s_openapi::{api::apps::v1::ControllerRevision, jiff::Timestamp};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::Value;

use super::Place;
use crate::{refusal, table};

/// One revision.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) number: i64,
    pub(super) template: String,
    pub(super) spec: Value,
    created: Option<Timestamp>,
}

impl Entry {
    /// What members carry: the stored name without that of the pool, which may have been cut. It begins with the hash
    /// of the template's name.
    pub(super) fn revision(&self) -> &str {
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

/// The oldest first.
pub(super) async fn entries(place: &Place) -> Result<Vec<Entry>> {
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

pub(super) fn images(spec: &Value) -> String {
    let containers = spec["podTemplate"]["spec"]["containers"].as_array();
    let images = containers.into_iter().flatten();
    let images: Vec<&str> = images.filter_map(|one| one["image"].as_str()).collect();
    images.join(",")
}

fn age(created: Timestamp) -> String {
    table::age(Timestamp::now().duration_since(created).as_secs())
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
