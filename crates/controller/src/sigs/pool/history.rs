//! The revisions that a pool has had, so that one can go back to them.
//!
//! One ControllerRevision holds what the template was. It is written before the status names the revision, so that whoever
//! reads the status finds it.

use std::{collections::HashSet, sync::Arc};

use engine::{
    member::Revision,
    revision::history::{DEFAULT_LIMIT, Stored, surplus},
    revision::name_hash,
};
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::{Value, json};

use super::{
    member::{KIND, revision, target},
    memory::Memory,
    run::{Pools, Round},
    view::Pool,
};
use crate::{
    meta::Meta,
    sigs::{names, sandbox::view::Sandbox},
    store::{Store, Texts, View},
    write::{Failure, Guard},
};

const LONGEST_NAME: usize = 253;

/// One revision that is stored.
struct Record {
    meta: Meta,
    number: i64,
}

impl View for Record {
    type Object = ControllerRevision;

    fn of(object: ControllerRevision, _: &mut Texts) -> Self {
        Self {
            meta: object.metadata.into(),
            number: object.revision,
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// How the revisions of a pool are found.
pub fn selector(pool: &str) -> String {
    format!("{}={}", names::HISTORY_OF, name_hash(pool))
}

/// Whatever the revision says, which may be what somebody wrote on a sandbox.
fn name(pool: &Pool, revision: &Revision) -> String {
    let longest = LONGEST_NAME.saturating_sub(revision.as_str().len() + 1);
    let pool: String = pool.meta.key.name.chars().take(longest).collect();
    format!("{pool}-{revision}")
}

impl Pools {
    /// Stores what is rolled out now, once. A server that does not allow it is asked no more by this process: the pool goes
    /// on without a history, and says so.
    pub(super) async fn record(&self, round: &Round, memory: &mut Memory) -> Result<(), Failure> {
        let wanted = target(&round.template);
        if memory.recorded.as_ref() == Some(&wanted) {
            return Ok(());
        }
        memory.forgive();
        // whatever the status says: who went back before it was written has not been told of by it
        memory.no_history = match self.store_revision(round, &wanted).await {
            Ok(()) => None,
            Err(Failure::Refused(why)) => Some(why),
            Err(failure) => return Err(failure),
        };
        memory.recorded = Some(wanted);
        Ok(())
    }

    async fn store_revision(&self, round: &Round, wanted: &Revision) -> Result<(), Failure> {
        let pool = &round.pool;
        let namespace = &pool.meta.key.namespace;
        let store = Store::<Record>::default();
        let selector = selector(&pool.meta.key.name);
        let mut records = self.writer.list(&store, namespace, &selector).await?;
        records.retain(|record| record.meta.is_controlled_by(&pool.meta.uid));
        let name = name(pool, wanted);
        let latest = records.iter().map(|record| record.number).max();
        let next = latest.unwrap_or(0).saturating_add(1);
        let is_latest = |record: &Arc<Record>| Some(record.number) == latest;
        let known = records.iter().find(|record| *record.meta.key.name == *name);
        // first: once the number has changed, nobody can tell that the pool has come back to it
        if !known.is_some_and(is_latest) {
            self.reinstate(pool, wanted).await?;
        }
        match known {
            Some(record) if is_latest(record) => {}
            Some(record) => {
                let (patch, guard) = (json!({"revision": next}), Guard::Unchanged);
                drop(
                    self.writer
                        .patch(&store, &record.meta, guard, patch)
                        .await?,
                );
            }
            None => {
                let body = body(round, &name, next);
                match self.writer.create(&store, namespace, body.clone()).await {
                    Err(Failure::Exists(_)) => self.take_in(round, &name, body).await?,
                    other => drop(other?),
                }
            }
        }
        let mut used: HashSet<String> = self.used(round, records.len());
        used.insert(name);
        for old in beyond_the_limit(&records, &used) {
            self.writer.delete(&store, &old.meta).await?;
        }
        Ok(())
    }

    /// Whoever goes back to a revision that was retired wants it: later it is an old one like any other. Who retires the
    /// latest one has its number unchanged until the template follows, and is not contradicted.
    async fn reinstate(&self, pool: &Pool, wanted: &Revision) -> Result<(), Failure> {
        let is_bad = |revision: &&str| *revision != wanted.as_str();
        let left: Vec<&str> = pool.retired().filter(is_bad).collect();
        if left.len() == pool.retired().count() {
            return Ok(());
        }
        let left = (!left.is_empty()).then(|| left.join(","));
        let patch = json!({"metadata": {"annotations": {names::RETIRED: left}}});
        let (pools, guard) = (&self.stores.pools, Guard::Unchanged);
        let patched = self.writer.patch(pools, &pool.meta, guard, patch).await;
        patched.map(drop)
    }

    /// The names of revisions that members or claimed sandboxes of the pool run. Asked for once for each edit, so that
    /// claims are gone through instead of counted all the time; where nothing can be too much, not even that.
    fn used(&self, round: &Round, stored: usize) -> HashSet<String> {
        let pool = &round.pool;
        if stored <= DEFAULT_LIMIT {
            return HashSet::new();
        }
        let members = round.members.iter().map(|member| revision(member));
        let claims = self.stores.claims.all();
        let claims = claims.iter().filter(|claim| claim.pool() == pool.meta.key);
        let claimed = claims.flat_map(|claim| self.stores.sandboxes.owned_by(&claim.meta.uid));
        let claimed = claimed.filter_map(|sandbox| claimed_revision(&sandbox));
        let used = members.chain(claimed);
        used.map(|revision| name(pool, &revision)).collect()
    }
}

/// What a claimed sandbox was made from. One that another controller has handed out does not say.
fn claimed_revision(sandbox: &Sandbox) -> Option<Revision> {
    let revision = sandbox.meta.annotations.get(names::REVISION)?;
    Some(Revision::from(revision))
}

impl Pools {
    /// A revision of this name that is there already: mostly, an earlier pool of the same name has left it.
    async fn take_in(&self, round: &Round, name: &str, body: Value) -> Result<(), Failure> {
        let store = Store::<Record>::default();
        let key = round.pool.meta.key.beside(name);
        let found = self.writer.read(&store, &key).await?;
        let Some(record) = found else {
            return Err(Failure::Gone(format!(
                "controllerrevision {name} has just gone"
            )));
        };
        // a former leader has stored it since the list was read
        if record.meta.is_controlled_by(&round.pool.meta.uid) {
            return Ok(());
        }
        if record.meta.owner.is_some() {
            let why = format!("controllerrevision {name:?} belongs to somebody else; delete it");
            return Err(Failure::Refused(why));
        }
        let (number, owners) = (&body["revision"], &body["metadata"]["ownerReferences"]);
        let patch = json!({"revision": number, "metadata": {"ownerReferences": owners}});
        let patched = self
            .writer
            .patch(&store, &record.meta, Guard::Unchanged, patch);
        patched.await.map(drop)
    }
}

fn beyond_the_limit<'a>(
    records: &'a [Arc<Record>],
    used: &HashSet<String>,
) -> Vec<&'a Arc<Record>> {
    let stored: Vec<Stored<'_>> = records
        .iter()
        .map(|record| Stored {
            name: &record.meta.key.name,
            number: record.number,
            template: &Value::Null,
            is_used: used.contains(&*record.meta.key.name),
        })
        .collect();
    let surplus = surplus(&stored, DEFAULT_LIMIT);
    let is_surplus = |record: &&Arc<Record>| surplus.contains(&&*record.meta.key.name);
    records.iter().filter(is_surplus).collect()
}

fn body(round: &Round, name: &str, number: i64) -> Value {
    let (pool, template) = (&round.pool, &round.template);
    json!({
        "metadata": {
            "name": name,
            "labels": {names::HISTORY_OF: name_hash(&pool.meta.key.name)},
            "annotations": {names::TEMPLATE_REF: &*template.meta.key.name},
            "ownerReferences": [pool.meta.as_owner(names::EXTENSIONS_API_VERSION, KIND)],
        },
        "revision": number,
        "data": {"spec": template.spec.blueprint},
    })
}
