//! What pools have in stock, and how members stand to what their pools want.
//!
//! Fed by every change of a sandbox; claims choose here, and rollouts ask what is promised. All of it can be made anew from
//! the stores.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use api::sigs::shared::Blueprint;
use engine::{
    claim::{Choice, Refusal, Rules, choose},
    demand::{Demand, Event, Meter},
    in_place::{Platform, Verdict, diff},
    member::{self, Claim, Difference, Older, Policy, Revision, Revisions, State, Time, Uid},
    queue::Index,
    revision::Standing,
    rollout::Settings,
};
use serde_json::Value;

use super::{
    names,
    pool::{
        member::{is_adoptable, member, target},
        settings::{policy, replicas},
        view::Pool,
    },
    sandbox::view::Sandbox,
    template::view::Template,
};
use crate::{
    meta::{Key, Meta},
    store::Change,
};

const LONGEST_START: Duration = Duration::from_secs(300);

/// Clones are one stock.
#[derive(Clone)]
pub struct Stock {
    shelves: Arc<Mutex<Shelves>>,
    platform: Platform,
    listener: Arc<OnceLock<Listener>>,
}

type Listener = Box<dyn Fn(&Key) + Send + Sync>;

#[derive(Default)]
struct Shelves {
    index: Index,
    places: HashMap<Uid, Place>,
    /// Members that nobody owns.
    orphans: HashMap<Home, BTreeSet<Key>>,
    /// What claims were promised and have not got yet, by the uid of the claim.
    promises: HashMap<Uid, Uid>,
    pools: HashMap<Uid, Shelf>,
}

/// The namespace and the hash of the name of a pool.
type Home = (Arc<str>, Box<str>);

/// Where a member is.
struct Place {
    key: Key,
    pool: Uid,
    revision: Revision,
}

/// What is known of one pool.
#[derive(Default)]
struct Shelf {
    samples: HashMap<Revision, Sample>,
    /// By the target and the revision of members.
    judged: HashMap<(Revision, Revision), Difference>,
    meter: Meter,
    is_settled: bool,
}

/// One of the members of a revision stands for all of them.
struct Sample {
    members: HashMap<Uid, Time>,
    template_hash: Box<str>,
    content: Box<str>,
    blueprint: Arc<str>,
}

/// The member that a claim has been promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    pub key: Key,
    pub uid: Uid,
    pub revision: Revision,
    /// It is not at the target.
    pub is_stale: bool,
}

/// What a claim finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Find {
    Member(Promise),
    Nothing {
        /// Acceptable members that may become Ready.
        coming: usize,
        /// When the first that is Ready has been so for long enough.
        matures: Option<Time>,
    },
}

impl Stock {
    pub fn new(platform: Platform) -> Self {
        Self {
            shelves: Arc::default(),
            platform,
            listener: Arc::default(),
        }
    }

    /// Whom to tell of members that were promised and are on offer again, where their pool may have waited for the claim.
    /// There is one; the first counts.
    pub fn tell(&self, listener: impl Fn(&Key) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Takes in what has become known of a sandbox.
    pub fn observe(&self, change: &Change<'_, Sandbox>) {
        let shelves = &mut *self.shelves();
        let is_start = change
            .before
            .is_some_and(|old| !member(old).state.is_ready());
        for view in change.views() {
            shelves.remove(&Uid::from(&*view.meta.uid));
        }
        shelves.note_orphan(change);
        let member = change.after.filter(|sandbox| is_adoptable(sandbox));
        let owner = member.and_then(|sandbox| sandbox.meta.owner.as_ref());
        if let (Some(sandbox), Some(owner)) = (member, owner) {
            shelves.insert(&Uid::from(&*owner.uid), sandbox, is_start);
        }
        let gone = change.views().map(|view| Uid::from(&*view.meta.uid));
        for uid in gone
            .filter(|uid| !shelves.places.contains_key(uid))
            .collect::<Vec<_>>()
        {
            shelves.index.forget(&uid);
        }
    }

    /// The members of a pool by their labels that have no owner.
    pub fn orphans(&self, namespace: &Arc<str>, pool_hash: &str) -> Vec<Key> {
        let place = (Arc::clone(namespace), Box::from(pool_hash));
        let shelves = self.shelves();
        shelves
            .orphans
            .get(&place)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// How a sandbox that nobody owns differs from what the template makes now. Anybody may have written its labels, so that
    /// only its content counts.
    pub fn content_differs(&self, sandbox: &Sandbox, template: &Template) -> Difference {
        let sample = Sample {
            content: Box::default(),
            ..Sample::of(sandbox)
        };
        sample.difference(template, &self.platform)
    }

    pub fn forget_pool(&self, pool: &str) {
        let shelves = &mut *self.shelves();
        let pool = Uid::from(pool);
        shelves.index.forget_pool(&pool);
        shelves.pools.remove(&pool);
    }

    /// What the pool shall be, and how the revisions of its members differ from it.
    pub fn describe(&self, pool: &Pool, template: &Template) -> member::Pool {
        let shelves = &mut *self.shelves();
        shelves.describe(pool, template, &self.platform)
    }

    /// Promises a member to a claim. Until [`Stock::release`] or until the member has left its pool, nobody else gets it.
    pub fn choose(
        &self,
        pool: &Pool,
        template: &Template,
        settings: &Settings,
        claim: &str,
        wish: Option<Policy>,
        now: Time,
    ) -> Result<Find, Refusal> {
        let shelves = &mut *self.shelves();
        let described = shelves.describe(pool, template, &self.platform);
        let claim = Claim {
            uid: Uid::from(claim),
            policy: wish,
        };
        let rules = Rules {
            strategy: &settings.strategy,
            min_ready: settings.min_ready,
            overrides: pool.lets_claims_choose(),
        };
        let uid = Uid::from(&*pool.meta.uid);
        loop {
            let choice = choose(&mut shelves.index, &uid, &described, &claim, &rules, now)?;
            let chosen = match choice {
                Choice::Member(chosen) => chosen,
                Choice::Nothing { coming, matures } => {
                    return Ok(Find::Nothing { coming, matures });
                }
            };
            match shelves.places.get(&chosen.uid) {
                Some(place) => {
                    let promise = (claim.uid.clone(), chosen.uid.clone());
                    shelves.promises.insert(promise.0, promise.1);
                    return Ok(Find::Member(Promise {
                        key: place.key.clone(),
                        uid: chosen.uid,
                        revision: chosen.revision,
                        is_stale: chosen.stale,
                    }));
                }
                // never on the shelf, so not to be had
                None => shelves.index.forget(&chosen.uid),
            }
        }
    }

    /// Whatever the claim was promised is on offer again, unless it has it.
    pub fn release(&self, claim: &str) {
        let returned = self.shelves().release(&Uid::from(claim));
        if let (Some(member), Some(listener)) = (returned, self.listener.get()) {
            listener(&member);
        }
    }

    /// It is not what it seemed to be; the next change of it says what it is.
    pub fn forget(&self, member: &Uid) {
        let shelves = &mut *self.shelves();
        shelves.remove(member);
        shelves.index.forget(member);
    }

    /// The members that claims were promised and have not got yet.
    pub fn promised(&self) -> HashSet<Uid> {
        self.shelves().promises.values().cloned().collect()
    }

    pub fn record(&self, pool: &str, event: Event, at: Time) {
        let shelves = &mut *self.shelves();
        let shelf = shelves.pools.entry(Uid::from(pool)).or_default();
        shelf.meter.record(event, at);
    }

    /// Whether nothing is to be done about the pool but to count its members.
    pub fn settle(&self, pool: &str, is_settled: bool) {
        let shelves = &mut *self.shelves();
        let shelf = shelves.pools.entry(Uid::from(pool)).or_default();
        shelf.is_settled = is_settled;
    }

    pub fn is_settled(&self, pool: &str) -> bool {
        let shelves = self.shelves();
        let shelf = shelves.pools.get(&Uid::from(pool));
        shelf.is_some_and(|shelf| shelf.is_settled)
    }

    pub fn demand(&self, pool: &str, now: Time) -> Demand {
        let shelves = self.shelves();
        let shelf = shelves.pools.get(&Uid::from(pool));
        shelf.map_or_else(Demand::default, |shelf| shelf.meter.demand(now))
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a member without an owner belongs.
fn orphan(sandbox: &Sandbox) -> Option<(Home, &Key)> {
    let Meta { key, owner, .. } = &sandbox.meta;
    let pool = sandbox.meta.labels.get(names::WARM_POOL)?;
    let place = || (Arc::clone(&key.namespace), pool.into());
    (owner.is_none() && !sandbox.meta.is_deleting).then(|| (place(), key))
}

impl Shelves {
    fn insert(&mut self, pool: &Uid, sandbox: &Sandbox, is_start: bool) {
        let member = member(sandbox);
        self.index.observe(pool, &member);
        let place = Place {
            key: sandbox.meta.key.clone(),
            pool: pool.clone(),
            revision: member.revision.clone(),
        };
        self.places.insert(member.uid.clone(), place);
        let shelf = self.pools.entry(pool.clone()).or_default();
        if let State::Ready { since } = member.state
            && is_start
            && member.intent.is_none()
        {
            let took = since.since(member.created);
            // one that takes longer was Ready before
            if took <= LONGEST_START {
                shelf.meter.record(Event::Started(took), since);
            }
        }
        let revision = member.revision.clone();
        let sample = shelf.samples.entry(revision);
        let sample = sample.or_insert_with(|| Sample::of(sandbox));
        sample.members.insert(member.uid, member.created);
    }

    /// The member, if it is still there and its pool has not come to rest.
    fn release(&mut self, claim: &Uid) -> Option<Key> {
        let member = self.promises.remove(claim)?;
        self.index.release(&member, claim);
        let place = self.places.get(&member)?;
        let shelf = self.pools.get(&place.pool);
        let is_at_rest = shelf.is_some_and(|shelf| shelf.is_settled);
        (!is_at_rest).then(|| place.key.clone())
    }

    fn note_orphan(&mut self, change: &Change<'_, Sandbox>) {
        if let Some((place, key)) = change.before.and_then(|old| orphan(old))
            && let Some(known) = self.orphans.get_mut(&place)
        {
            known.remove(key);
            if known.is_empty() {
                self.orphans.remove(&place);
            }
        }
        if let Some((place, key)) = change.after.and_then(|new| orphan(new)) {
            self.orphans.entry(place).or_default().insert(key.clone());
        }
    }

    /// Off the shelf; a promise that was made of it stands.
    fn remove(&mut self, uid: &Uid) {
        let Some(place) = self.places.remove(uid) else {
            return;
        };
        if let Some(shelf) = self.pools.get_mut(&place.pool)
            && let Some(sample) = shelf.samples.get_mut(&place.revision)
        {
            sample.members.remove(uid);
            if sample.members.is_empty() {
                shelf.samples.remove(&place.revision);
            }
        }
    }

    fn describe(&mut self, pool: &Pool, template: &Template, platform: &Platform) -> member::Pool {
        let shelf = self.pools.entry(Uid::from(&*pool.meta.uid)).or_default();
        let target = target(template);
        shelf.judged.retain(|(judged, _), _| *judged == target);
        let Shelf {
            samples, judged, ..
        } = shelf;
        let mut older: Vec<(Time, Older)> = samples
            .iter()
            .filter(|(revision, _)| **revision != target)
            .map(|(revision, sample)| {
                let newest = sample.members.values().max().copied().unwrap_or_default();
                let difference = *judged
                    .entry((target.clone(), revision.clone()))
                    .or_insert_with(|| sample.difference(template, platform));
                let older = Older {
                    revision: revision.clone(),
                    difference,
                    retired: pool.retired().any(|retired| retired == revision.as_str()),
                };
                (newest, older)
            })
            .collect();
        older.sort_by(|(left, one), (right, two)| {
            right
                .cmp(left)
                .then_with(|| one.revision.cmp(&two.revision))
        });
        let current = pool.status.current_revision.as_deref();
        member::Pool {
            replicas: replicas(pool),
            revisions: Revisions {
                current: current.map_or_else(|| target.clone(), Revision::from),
                target,
                older: older.into_iter().map(|(_, older)| older).collect(),
            },
            policy: policy(pool),
        }
    }
}

impl Sample {
    fn of(sandbox: &Sandbox) -> Self {
        let label = |key: &str| sandbox.meta.labels.get(key).unwrap_or_default();
        Self {
            members: HashMap::new(),
            template_hash: label(names::TEMPLATE_REF_HASH).into(),
            content: label(names::TEMPLATE_HASH).into(),
            blueprint: Arc::clone(&sandbox.blueprint),
        }
    }

    /// How members of this revision differ from what the template makes now.
    fn difference(&self, template: &Template, platform: &Platform) -> Difference {
        let Ok(blueprint) = serde_json::from_str::<Blueprint>(&self.blueprint) else {
            return Difference::Replace;
        };
        let old = without_pool(&blueprint, template);
        let new = serde_json::to_value(&template.blueprint).unwrap_or_default();
        let is_of_this = *self.template_hash == *template.name_hash;
        let recorded = Some(&*self.content).filter(|content| !content.is_empty());
        match template.wanted.standing(recorded, Some(&old)) {
            Standing::Current | Standing::Equivalent if !is_of_this => Difference::Reference,
            Standing::Current => Difference::Same,
            Standing::Equivalent => match pods_differ(&old, &new, platform) {
                Difference::Metadata => Difference::Metadata,
                _ => Difference::Same,
            },
            Standing::Stale => pods_differ(&old, &new, platform),
        }
    }
}

fn pods_differ(old: &Value, new: &Value, platform: &Platform) -> Difference {
    let same = |field: &str| old.get(field) == new.get(field);
    let verdict = diff(&old["podTemplate"], &new["podTemplate"], platform);
    match verdict {
        Verdict::Recreate { .. } => Difference::Replace,
        _ if !same("volumeClaimTemplates") || !same("service") => Difference::Replace,
        Verdict::Image(_) => Difference::Image,
        Verdict::Resize(_) => Difference::Resources,
        Verdict::Metadata(_) => Difference::Metadata,
        // it differs in something that a pod does not show
        Verdict::None => Difference::Replace,
    }
}

/// The blueprint of a member without what its pool put in.
fn without_pool(blueprint: &Blueprint, template: &Template) -> Value {
    let own = template.blueprint.pod_template.metadata.as_ref();
    let own = own.and_then(|metadata| metadata.annotations.as_ref());
    let is_own = own.is_some_and(|annotations| annotations.contains_key(names::SAFE_TO_EVICT));
    let mut value = serde_json::to_value(blueprint).unwrap_or_default();
    let metadata = &mut value["podTemplate"]["metadata"];
    if let Some(labels) = metadata["labels"].as_object_mut() {
        labels.retain(|key, _| !names::is_reserved(key));
    }
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.retain(|key, _| is_own || key != names::SAFE_TO_EVICT);
    }
    let is_empty = |value: &Value| value.as_object().is_none_or(|map| map.is_empty());
    for field in ["labels", "annotations"] {
        if is_empty(&metadata[field]) {
            drop(
                metadata
                    .as_object_mut()
                    .map(|metadata| metadata.remove(field)),
            );
        }
    }
    if is_empty(metadata) {
        drop(
            value["podTemplate"]
                .as_object_mut()
                .map(|template| template.remove("metadata")),
        );
    }
    value
}

#[cfg(test)]
mod tests;
