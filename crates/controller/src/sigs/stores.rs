//! What the controllers of the family watch, and whom a change concerns.

use std::sync::Arc;

use engine::revision::name_hash;
use tokio::task::JoinSet;

use super::{
    claim::{self, ledger::Ledger, view::Claim},
    names,
    pool::{self, view::Pool},
    sandbox::{
        self,
        view::{Pod, Sandbox, Service, Volume},
    },
    stock::Stock,
    template::{
        self,
        view::{Policy, Template},
    },
};
use crate::{
    clock::Clock,
    conditions::{self, READY},
    meta::{Key, Meta},
    metrics::Metrics,
    queue::Queue,
    store::{By, Change, Store, View},
    watch::{Scope, follow},
};

/// Clones are the same stores.
#[derive(Clone, Default)]
pub struct Stores {
    pub sandboxes: Store<Sandbox>,
    pub pods: Store<Pod>,
    pub services: Store<Service>,
    pub volumes: Store<Volume>,
    pub templates: Store<Template>,
    pub policies: Store<Policy>,
    pub pools: Store<Pool>,
    pub claims: Store<Claim>,
}

/// What is to be looked at.
#[derive(Clone)]
pub(super) struct Queues {
    pub sandboxes: Queue<Key>,
    pub templates: Queue<Key>,
    pub pools: Queue<Key>,
    pub claims: Queue<Key>,
}

impl Queues {
    pub(super) fn new(clock: &Clock, metrics: &Metrics) -> Self {
        let queue = |name| Queue::new(clock.clone(), metrics.work(name));
        Self {
            sandboxes: queue("sandbox"),
            templates: queue("sandboxtemplate"),
            pools: queue("sandboxwarmpool"),
            claims: queue("sandboxclaim"),
        }
    }
}

impl Stores {
    /// Everything about sandboxes themselves.
    pub(super) fn watch_sandboxes(
        &self,
        scope: &Scope,
        queues: &Queues,
        (stock, ledger): (&Stock, &Ledger),
        watches: &mut JoinSet<()>,
    ) {
        let (to, stock, ledger) = (queues.clone(), stock.clone(), ledger.clone());
        let pools = self.pools.clone();
        self.sandboxes.tell(move |change| {
            stock.observe(change);
            tell_of_sandbox(&to, &stock, change);
            tell_of_orphan(&to, &pools, change);
            if let Some(claim) = ledger.served_by(change) {
                to.claims.add(claim);
            }
        });
        let (to, sandboxes) = (queues.clone(), self.sandboxes.clone());
        self.pods
            .tell(move |change| tell_of_pod(&to, &sandboxes, change));
        let to = queues.clone();
        self.services.tell(move |change| {
            if !is_of(change.by, sandbox::CONTROLLER) {
                owners(change, SANDBOX).for_each(|sandbox| to.sandboxes.add(sandbox));
            }
        });
        // nothing about a volume claim changes what a sandbox needs
        let label = Some(names::NAME_HASH);
        watches.spawn(follow(scope.clone(), None, self.sandboxes.clone()));
        watches.spawn(follow(scope.clone(), label, self.pods.clone()));
        watches.spawn(follow(scope.clone(), label, self.services.clone()));
        watches.spawn(follow(scope.clone(), label, self.volumes.clone()));
    }

    /// Everything about templates, pools and claims.
    pub(super) fn watch_extensions(
        &self,
        scope: &Scope,
        queues: &Queues,
        (stock, ledger): (&Stock, &Ledger),
        watches: &mut JoinSet<()>,
    ) {
        let (to, stores) = (queues.clone(), self.clone());
        self.templates
            .tell(move |change| tell_of_template(&to, &stores, change));
        let to = queues.clone();
        self.policies.tell(move |change| {
            // also one that is not the template's: it is in the way
            let policy = change.views().last();
            if !is_of(change.by, template::CONTROLLER)
                && let Some(key) = policy.and_then(|it| template::template_of(&it.meta.key))
            {
                to.templates.add(key);
            }
            // older controllers made one for each claim
            if !is_of(change.by, claim::CONTROLLER) {
                owners(change, CLAIM).for_each(|claim| to.claims.add(claim));
            }
        });
        let (to, claims) = (queues.clone(), self.claims.clone());
        self.pools
            .tell(move |change| tell_of_pool(&to, &claims, change));
        let (to, sandboxes) = (queues.clone(), self.sandboxes.clone());
        stock.tell(move |member| {
            let member = sandboxes.get(member);
            if let Some(pool) = member.and_then(|member| owner(&member.meta, POOL)) {
                to.pools.add(pool);
            }
        });
        let (to, clock) = (queues.clone(), scope.clock.clone());
        let (stock, ledger) = (stock.clone(), ledger.clone());
        self.claims.tell(move |change| {
            ledger.observe(change, clock.now());
            if let (Some(gone), None) = (change.before, change.after) {
                stock.release(&gone.meta.uid);
            }
            let claim = change.views().last();
            if let Some(claim) = claim.filter(|_| !is_of(change.by, claim::CONTROLLER)) {
                to.claims.add(claim.meta.key.clone());
            }
        });
        watches.spawn(follow(scope.clone(), None, self.templates.clone()));
        watches.spawn(follow(scope.clone(), None, self.policies.clone()));
        watches.spawn(follow(scope.clone(), None, self.pools.clone()));
        watches.spawn(follow(scope.clone(), None, self.claims.clone()));
    }

    pub(super) async fn listed(&self, has_extensions: bool) {
        self.sandboxes.listed().await;
        self.pods.listed().await;
        self.services.listed().await;
        self.volumes.listed().await;
        if has_extensions {
            self.templates.listed().await;
            self.policies.listed().await;
            self.pools.listed().await;
            self.claims.listed().await;
        }
    }
}

type Kind = (&'static str, &'static str);
const SANDBOX: Kind = (names::GROUP, "Sandbox");
const POOL: Kind = (names::EXTENSIONS, pool::member::KIND);
const CLAIM: Kind = (names::EXTENSIONS, claim::KIND);

/// A pass sees what its own writes brought about, so that nobody need tell it.
fn is_of(by: By, controller: &str) -> bool {
    matches!(by, By::Answer(manager) if manager == controller)
}

fn owner(meta: &Meta, (group, kind): Kind) -> Option<Key> {
    let owner = meta.owner.as_ref()?;
    let is_one = meta.is_controlled_by_a(group, kind);
    is_one.then(|| meta.key.beside(&owner.name))
}

/// Whoever of this kind owned the object and whoever owns it.
fn owners<V: View>(change: &Change<'_, V>, kind: Kind) -> impl Iterator<Item = Key> {
    let owner = |view: Option<&Arc<V>>| view.and_then(|view| owner(view.meta(), kind));
    let (before, after) = (owner(change.before), owner(change.after));
    let after = after.filter(|after| before.as_ref() != Some(after));
    before.into_iter().chain(after)
}

fn tell_of_sandbox(queues: &Queues, stock: &Stock, change: &Change<'_, Sandbox>) {
    let by = change.by;
    let Some(sandbox) = change.views().last() else {
        return;
    };
    if !is_of(by, sandbox::CONTROLLER) {
        queues.sandboxes.add(sandbox.meta.key.clone());
    }
    if !is_of(by, pool::CONTROLLER) {
        let can_wait = is_only_to_be_counted(stock, change);
        owners(change, POOL).for_each(|pool| match can_wait {
            true => queues.pools.add_within(pool::TOLD_AFTER, pool),
            false => queues.pools.add(pool),
        });
    }
    if !is_of(by, claim::CONTROLLER) && claim::concerns(change) {
        owners(change, CLAIM).for_each(|claim| queues.claims.add(claim));
    }
}

/// Claims that wait for a member are told by themselves.
fn is_only_to_be_counted(stock: &Stock, change: &Change<'_, Sandbox>) -> bool {
    let both = change.before.zip(change.after);
    both.is_some_and(|(before, after)| {
        let owner = after.meta.owner.as_ref();
        owner.is_some_and(|owner| stock.is_settled(&owner.uid))
            && pool::member::has_only_come_up(before, after)
    })
}

/// A member that has lost its owner may find another of the same name.
fn tell_of_orphan(queues: &Queues, pools: &Store<Pool>, change: &Change<'_, Sandbox>) {
    let Some(sandbox) = change.after.filter(|sandbox| sandbox.meta.owner.is_none()) else {
        return;
    };
    if let Some(hash) = sandbox.meta.labels.get(names::WARM_POOL) {
        let Key { namespace, .. } = &sandbox.meta.key;
        for pool in pools.all() {
            let Key {
                namespace: of,
                name,
            } = &pool.meta.key;
            if of == namespace && name_hash(name) == hash {
                queues.pools.add(pool.meta.key.clone());
            }
        }
    }
}

fn tell_of_pod(queues: &Queues, sandboxes: &Store<Sandbox>, change: &Change<'_, Pod>) {
    let is_another = |(before, after): (&Arc<Pod>, &Arc<Pod>)| !before.says_the_same(after);
    if !change.before.zip(change.after).is_none_or(is_another) {
        return;
    }
    if !is_of(change.by, sandbox::CONTROLLER) && !sandbox::can_wait(sandboxes, change) {
        owners(change, SANDBOX).for_each(|sandbox| queues.sandboxes.add(sandbox));
    }
    // a sandbox does not tell what its pool must know of its pod
    let trouble = |pod: Option<&Arc<Pod>>| pod.and_then(|pod| pod.failure());
    if trouble(change.before) != trouble(change.after) {
        let sandboxes = owners(change, SANDBOX).filter_map(|key| sandboxes.get(&key));
        let pools = sandboxes.filter_map(|sandbox| owner(&sandbox.meta, POOL));
        pools.for_each(|pool| queues.pools.add(pool));
    }
}

fn tell_of_template(queues: &Queues, stores: &Stores, change: &Change<'_, Template>) {
    let Some(template) = change.views().last() else {
        return;
    };
    let key = &template.meta.key;
    if !is_of(change.by, template::CONTROLLER) {
        queues.templates.add(key.clone());
    }
    // whoever tells: the answer to a write of ours may bring the edit of somebody else
    let content = |template: Option<&Arc<Template>>| {
        template.map(|template| (template.meta.uid.clone(), template.meta.generation))
    };
    if content(change.before) == content(change.after) {
        return;
    }
    for pool in stores.pools.all() {
        if pool.template() == *key {
            queues.pools.add(pool.meta.key.clone());
            add_claims(queues, &stores.claims, &pool.meta.key);
        }
    }
}

fn tell_of_pool(queues: &Queues, claims: &Store<Claim>, change: &Change<'_, Pool>) {
    let Some(pool) = change.views().last() else {
        return;
    };
    if !is_of(change.by, pool::CONTROLLER) {
        queues.pools.add(pool.meta.key.clone());
    }
    let generation = |pool: Option<&Arc<Pool>>| pool.map(|pool| pool.meta.generation);
    if generation(change.before) != generation(change.after) {
        add_claims(queues, claims, &pool.meta.key);
    }
}

/// The claims of a pool that have got nothing yet, or not what they ask for.
fn add_claims(queues: &Queues, claims: &Store<Claim>, pool: &Key) {
    for claim in claims.all() {
        let is_ready = conditions::is_true(claim.status.conditions.as_ref(), READY);
        let is_served = claim.sandbox().is_some() && is_ready;
        if !is_served && !claim.meta.is_deleting && claim.pool() == *pool {
            queues.claims.add(claim.meta.key.clone());
        }
    }
}
