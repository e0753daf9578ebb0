//! Answering claims.

use std::{collections::BTreeMap, sync::Arc};

use engine::{claim::Refusal, demand::Event, member::Policy};
use serde_json::Value;

use super::{
    KIND,
    current::Current,
    decide::{Act, Offer, Step, World, becomes_ready, decide},
    find::Sandboxes,
    ledger::{Given, Ledger, Unsure},
    status::news_of_end,
    view::Claim,
};
use crate::{
    clock::Clock,
    conditions::{self, READY},
    events::{News, Teller},
    meta::{Key, Meta},
    metrics::{FirstReady, Metrics},
    queue::{Next, Pass},
    rush::{Rush, Ticket},
    sigs::{
        names,
        pool::{self, member::time, settings::settings, view::Pool},
        run::{Common, Controller},
        sandbox::{decide::Look, view::Sandbox},
        stock::{Find, Stock},
        stores::Stores,
        template::view::Template,
    },
    store::Store,
    trace::Traces,
    write::{Failure, Guard, Writer},
};

/// The name under which the controller writes and tells.
pub(crate) const CONTROLLER: &str = "sandboxclaim-controller";
const TELLER: Teller = Teller {
    controller: CONTROLLER,
    api_version: names::EXTENSIONS_API_VERSION,
    kind: KIND,
};
/// No pass does more, whatever others do to what it writes.
const MOST_ACTS: usize = 32;

#[derive(Clone, Debug)]
pub struct Options {
    /// How many claims are worked on at a time.
    pub at_a_time: usize,
    /// No events about claims.
    pub without_events: bool,
    /// No annotations that say when a claim was seen and answered.
    pub without_stamps: bool,
    /// Domains in which claims may give labels to pods.
    pub label_domains: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            at_a_time: 50,
            without_events: false,
            without_stamps: false,
            label_domains: vec!["sandbox.users.io".to_owned()],
        }
    }
}

#[derive(Clone)]
pub(crate) struct Claims {
    stores: Stores,
    stock: Stock,
    ledger: Ledger,
    current: Current,
    writer: Writer,
    clock: Clock,
    rush: Rush,
    metrics: Metrics,
    traces: Traces,
    options: Arc<Options>,
    pool_options: Arc<pool::Options>,
}

impl Claims {
    pub(crate) fn new(common: &Common, options: Options, pool_options: pool::Options) -> Self {
        Self {
            stores: common.stores.clone(),
            stock: common.stock.clone(),
            ledger: common.ledger.clone(),
            current: Current::default(),
            writer: common.writer(CONTROLLER),
            clock: common.clock.clone(),
            rush: common.rush.clone(),
            metrics: common.metrics.clone(),
            traces: common.traces.clone(),
            options: Arc::new(options),
            pool_options: Arc::new(pool_options),
        }
    }
}

impl Controller for Claims {
    type View = Claim;
    const SPAN: &'static str = "ReconcileSandboxClaim";

    fn store(&self) -> &Store<Claim> {
        &self.stores.claims
    }

    fn trace(&self, meta: &Meta) -> Option<String> {
        let owned = self.stores.sandboxes.owned_by(&meta.uid);
        self.ledger.trace(meta, &owned)
    }

    async fn pass(&self, pass: Pass<Key>) -> Next {
        self.remember_trace(&pass.key);
        let next = self.tend(&pass).await;
        // a promise outlives its pass only if nobody knows whether it was kept
        if let Some(claim) = self.stores.claims.get(&pass.key) {
            let uid = &claim.meta.uid;
            if self.ledger.memory(uid).unsure.is_none() {
                self.stock.release(uid);
            }
        }
        next
    }
}

impl Claims {
    /// The claim itself is told later, when something else is written on it.
    fn remember_trace(&self, key: &Key) {
        let claim = self.stores.claims.get(key);
        if let Some(claim) = claim.filter(|_| self.traces.are_on()) {
            let trace = self.trace(&claim.meta).or_else(|| self.traces.context());
            self.ledger
                .note(&claim.meta.uid, |memory| memory.trace = trace);
        }
    }

    /// One look at a claim: act until there is nothing left to do.
    async fn tend(&self, pass: &Pass<Key>) -> Next {
        let mut seen = Seen::default();
        for _ in 0..MOST_ACTS {
            if seen.is_nothing_old() {
                pass.look();
            }
            let Some(claim) = self.stores.claims.get(&pass.key) else {
                return Next::Never;
            };
            if self.make_sure(&claim).await.is_err() {
                return Next::Retry;
            }
            let world = self.world(&claim, &seen);
            let act = match decide(&world) {
                Step::Rest(Next::Never) if seen.is_unfinished => return Next::Retry,
                Step::Rest(next) => return self.rest(&claim, next),
                Step::Act(act) => act,
            };
            match self.act(&claim, &act, &mut seen).await {
                Ok(()) => {}
                Err(failure) if pass.is_worth_telling(&failure) && act.is_the_answer() => {
                    seen.trouble = Some(failure.to_string());
                }
                Err(_) => return Next::Retry,
            }
        }
        Next::Retry
    }
}

impl Act {
    /// Whether the claim has nothing as long as this fails.
    fn is_the_answer(&self) -> bool {
        match self {
            Self::ReadPool
            | Self::ReadTemplate
            | Self::CatchUp
            | Self::ReadSandbox(_)
            | Self::Bind(..)
            | Self::Create(_) => true,
            Self::DeletePolicy(_)
            | Self::Choose(_)
            | Self::Status(_)
            | Self::Announce(..)
            | Self::Drop(_)
            | Self::DeleteSandbox(_)
            | Self::DeleteClaim { .. }
            | Self::PatchSandbox(..)
            | Self::PatchClaim(_)
            | Self::Tell(_) => false,
        }
    }
}

/// What a pass has learned past the cache.
#[derive(Default)]
struct Seen {
    sandboxes: BTreeMap<String, Look<Sandbox>>,
    pool: Look<Pool>,
    template: Look<Template>,
    is_template_fresh: bool,
    offer: Option<Result<Offer, Refusal>>,
    trouble: Option<String>,
    /// From the bind to the answer.
    ticket: Option<Ticket>,
    /// The network policy could not be deleted, which nobody waits for.
    leaves_policy: bool,
    /// Something that nobody waits for is to be tried again.
    is_unfinished: bool,
}

impl Seen {
    /// Whether all that the pass goes by is in the stores.
    fn is_nothing_old(&self) -> bool {
        let has_choice = matches!(self.offer, None | Some(Ok(Offer::Member(_))));
        has_choice && self.sandboxes.is_empty() && self.trouble.is_none() && !self.leaves_policy
    }
}

impl Claims {
    fn world<'a>(&'a self, claim: &'a Claim, seen: &Seen) -> World<'a> {
        let stores = &self.stores;
        let pool = cached(stores.pools.get(&claim.pool()), &seen.pool);
        let template = pool.found().map(Pool::template);
        let template = template.and_then(|key| stores.templates.get(&key));
        let policy = format!("{}-network-policy", claim.meta.key.name);
        let policy = stores.policies.get(&claim.meta.key.beside(&policy));
        let policy = policy
            .filter(|policy| policy.meta.is_controlled_by(&claim.meta.uid) && !seen.leaves_policy);
        World {
            claim,
            sandboxes: Sandboxes {
                owned: stores.sandboxes.owned_by(&claim.meta.uid),
                namesake: stores.sandboxes.get(&claim.meta.key),
                looked: seen.sandboxes.clone(),
            },
            pool,
            template: cached(template, &seen.template),
            is_template_fresh: seen.is_template_fresh,
            is_behind: self.current.is_behind(claim),
            policy: policy.map(|policy| policy.meta.clone()),
            offer: seen.offer.clone(),
            memory: self.ledger.memory(&claim.meta.uid),
            trouble: seen.trouble.clone(),
            options: &self.options,
            now: self.clock.now(),
        }
    }

    fn rest(&self, claim: &Claim, next: Next) -> Next {
        let is_ready = conditions::is_true(claim.status.conditions.as_ref(), READY);
        if is_ready && next != Next::Retry {
            self.ledger.settle(&claim.meta.uid);
        }
        next
    }

    async fn act(&self, claim: &Claim, act: &Act, seen: &mut Seen) -> Result<(), Failure> {
        let (writer, stores) = (&self.writer, &self.stores);
        if let Act::PatchSandbox(..) | Act::PatchClaim(_) | Act::Tell(_) = act {
            seen.ticket = None;
            self.rush.over().await;
        }
        match act {
            Act::DeletePolicy(meta) => {
                let deleted = writer.delete(&stores.policies, meta).await;
                seen.leaves_policy = deleted.is_err();
                seen.is_unfinished = deleted.is_err_and(|failure| failure.may_pass());
            }
            Act::ReadPool => {
                let pool = writer.refresh(&stores.pools, &claim.pool(), None).await?;
                seen.pool = look(pool);
            }
            Act::ReadTemplate => {
                let pool = cached(stores.pools.get(&claim.pool()), &seen.pool);
                if let Some(key) = pool.found().map(Pool::template) {
                    let template = writer.refresh(&stores.templates, &key, None).await?;
                    seen.template = look(template);
                    seen.is_template_fresh = true;
                }
            }
            Act::CatchUp => self.current.catch_up(claim, writer, stores).await?,
            Act::ReadSandbox(name) => self.read(claim, name, seen).await?,
            Act::Choose(wish) => self.choose(claim, wish.clone(), seen),
            Act::Bind(sandbox, patch) => self.bind(claim, sandbox, patch.clone(), seen).await?,
            Act::Create(body) => self.create(claim, body.clone(), seen).await?,
            Act::Status(patch) => {
                let written = self.status(claim, patch).await;
                seen.ticket = None;
                drop(written?);
            }
            Act::Announce(patch, news) => {
                let written = self.status(claim, patch).await;
                seen.ticket = None;
                if written?.is_some() {
                    self.rush.over().await;
                    self.tell(claim, news).await;
                }
            }
            Act::Drop(sandbox) => self.drop_surplus(claim, sandbox).await?,
            Act::DeleteSandbox(sandbox) => {
                writer.delete(&stores.sandboxes, sandbox).await?;
                seen.sandboxes.remove(&*sandbox.key.name);
            }
            Act::DeleteClaim { is_last } => {
                self.tell(claim, &news_of_end(claim, "Deleting")).await;
                match is_last {
                    true => writer.delete_last(&stores.claims, &claim.meta).await?,
                    false => writer.delete(&stores.claims, &claim.meta).await?,
                }
            }
            Act::PatchSandbox(sandbox, patch) => {
                let (store, guard) = (&stores.sandboxes, Guard::SameObject);
                drop(writer.patch(store, sandbox, guard, patch.clone()).await?);
            }
            Act::PatchClaim(patch) => {
                let (store, guard) = (&stores.claims, Guard::SameObject);
                drop(
                    writer
                        .patch(store, &claim.meta, guard, patch.clone())
                        .await?,
                );
            }
            Act::Tell(news) => {
                self.tell(claim, news).await;
                self.ledger
                    .note(&claim.meta.uid, |memory| memory.news = None);
            }
        }
        Ok(())
    }

    /// Reads the sandbox of a write whose answer was lost, before anything is decided without it.
    async fn make_sure(&self, claim: &Claim) -> Result<(), Failure> {
        let uid = &claim.meta.uid;
        if let Some(Unsure { key, seen }) = self.ledger.memory(uid).unsure {
            let store = &self.stores.sandboxes;
            let found = self.writer.refresh(store, &key, seen.as_ref()).await?;
            self.ledger.note(uid, |memory| memory.unsure = None);
            self.stock.release(uid);
            let ours = found.filter(|sandbox| sandbox.meta.is_controlled_by(uid));
            match (ours, seen) {
                (Some(sandbox), Some(_)) => self.adopted(claim, &sandbox),
                (Some(sandbox), None) => self.started(claim, &sandbox),
                (None, _) => {}
            }
        }
        Ok(())
    }

    async fn read(&self, claim: &Claim, name: &str, seen: &mut Seen) -> Result<(), Failure> {
        let store = &self.stores.sandboxes;
        let key = claim.meta.key.beside(name);
        let known = store.get(&key);
        let known = known.as_ref().map(|sandbox| &sandbox.meta);
        let found = self.writer.refresh(store, &key, known).await?;
        seen.sandboxes.insert(name.to_owned(), look(found));
        Ok(())
    }

    fn choose(&self, claim: &Claim, wish: Option<Policy>, seen: &mut Seen) {
        let (key, uid, now) = (&claim.meta.key, &claim.meta.uid, self.clock.now());
        let pool = cached(self.stores.pools.get(&claim.pool()), &seen.pool);
        let template = pool.found().map(Pool::template);
        let template = template.and_then(|key| self.stores.templates.get(&key));
        let template = cached(template, &seen.template);
        let (Some(pool), Some(template)) = (pool.found(), template.found()) else {
            return;
        };
        if !self.ledger.memory(uid).is_counted {
            self.stock.record(&pool.meta.uid, Event::Claimed, time(now));
            self.ledger.note(uid, |memory| {
                memory.is_counted = true;
                memory.observed.get_or_insert(now);
            });
        }
        // before the look: a member that becomes Ready right after it is not missed
        self.ledger.wait(&pool.meta.key, &claim.meta);
        let (settings, _) = settings(pool, &self.pool_options);
        let found = self
            .stock
            .choose(pool, template, &settings, uid, wish, time(now));
        seen.offer = match found {
            Err(refusal) => Some(Err(refusal)),
            Ok(find) => match self.promised(claim, &find) {
                Some(sandbox) => {
                    self.ledger.leave(&pool.meta.key, key);
                    Some(Ok(Offer::Member(sandbox)))
                }
                None => Offer::nothing(&find).map(Ok),
            },
        };
    }

    /// The member as it is now, if it still is what was promised.
    fn promised(&self, claim: &Claim, find: &Find) -> Option<Arc<Sandbox>> {
        let Find::Member(promise) = find else {
            return None;
        };
        let sandbox = self.stores.sandboxes.get(&promise.key);
        let sandbox = sandbox.filter(|sandbox| {
            *sandbox.meta.uid == *promise.uid.as_str() && pool::member::is_on_offer(sandbox)
        });
        let uid = &claim.meta.uid;
        match sandbox {
            Some(_) => self.ledger.note(uid, |memory| {
                memory.given = Some(Given {
                    revision: promise.revision.to_string(),
                    is_stale: promise.is_stale,
                });
            }),
            None => {
                self.stock.release(uid);
                self.stock.forget(&promise.uid);
            }
        }
        sandbox
    }

    async fn bind(
        &self,
        claim: &Claim,
        sandbox: &Sandbox,
        patch: Value,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let (store, meta) = (&self.stores.sandboxes, &sandbox.meta);
        seen.offer = None;
        seen.ticket = Some(self.rush.enter());
        let bound = self
            .writer
            .patch(store, meta, Guard::Unchanged, patch)
            .await;
        match bound {
            Ok(bound) => self.adopted(claim, &bound),
            // it was somebody else's a moment ago, or may be ours all the same
            Err(Failure::Changed(_) | Failure::Gone(_)) => self.doubt(claim, &meta.key, Some(meta)),
            Err(failure @ Failure::Unknown(_)) => {
                self.doubt(claim, &meta.key, Some(meta));
                return Err(failure);
            }
            Err(failure) => return Err(failure),
        }
        seen.sandboxes.remove(sandbox.name());
        Ok(())
    }

    async fn create(&self, claim: &Claim, body: Value, seen: &mut Seen) -> Result<(), Failure> {
        let (store, key) = (&self.stores.sandboxes, &claim.meta.key);
        self.ledger.leave(&claim.pool(), key);
        // whatever was promised, it has gone to somebody else
        self.ledger
            .note(&claim.meta.uid, |memory| memory.given = None);
        match self.writer.create(store, &key.namespace, body).await {
            Ok(created) => {
                self.started(claim, &created);
                seen.sandboxes.remove(&*key.name);
                Ok(())
            }
            Err(Failure::Exists(_)) => self.read(claim, &key.name, seen).await,
            Err(failure) => {
                if let Failure::Unknown(_) = failure {
                    self.doubt(claim, key, None);
                }
                Err(failure)
            }
        }
    }

    /// Before anything else is tried, the sandbox is looked at past the cache.
    fn doubt(&self, claim: &Claim, key: &Key, seen: Option<&Meta>) {
        let unsure = Unsure {
            key: key.clone(),
            seen: seen.cloned(),
        };
        self.ledger
            .note(&claim.meta.uid, |memory| memory.unsure = Some(unsure));
    }

    /// A status that was meant for an older claim is not written: the claim is read, and looked at again.
    async fn status(&self, claim: &Claim, patch: &Value) -> Result<Option<Arc<Claim>>, Failure> {
        let store = &self.stores.claims;
        let is_answer = becomes_ready(claim, patch);
        if is_answer {
            self.answered(claim);
        }
        let written = self
            .writer
            .patch_status(store, &claim.meta, Guard::Unchanged, patch.clone());
        match written.await {
            Ok(written) if is_answer => {
                self.measure(&written);
                Ok(Some(written))
            }
            Err(Failure::Changed(_)) => {
                let key = &claim.meta.key;
                self.writer.refresh(store, key, Some(&claim.meta)).await?;
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Only one whom the claim, as the server has it, does not name.
    async fn drop_surplus(&self, claim: &Claim, sandbox: &Meta) -> Result<(), Failure> {
        let (store, meta) = (&self.stores.claims, &claim.meta);
        let current = self.writer.refresh(store, &meta.key, Some(meta)).await?;
        match current.is_some_and(|current| current.meta.version == meta.version) {
            true => self.writer.delete(&self.stores.sandboxes, sandbox).await,
            false => Ok(()),
        }
    }

    /// A member of a pool has become the claim's.
    fn adopted(&self, claim: &Claim, sandbox: &Sandbox) {
        let message = format!("Adopted warm pool Sandbox {:?}", sandbox.name());
        let is_ready = sandbox.status.is_true(READY);
        let Key { namespace, .. } = &claim.meta.key;
        let (template, pool) = (template_of(sandbox), &claim.spec.warm_pool_ref.name);
        self.metrics
            .claim_adopted(namespace, template, pool, is_ready, client_of(claim));
        self.has_news(claim, sandbox, "SandboxAdopted", message);
    }

    /// A sandbox has been made for the claim.
    fn started(&self, claim: &Claim, sandbox: &Sandbox) {
        let message = format!("Created Sandbox {:?}", sandbox.name());
        let Key { namespace, .. } = &claim.meta.key;
        let (template, pool) = (template_of(sandbox), &claim.spec.warm_pool_ref.name);
        self.metrics
            .claim_created_cold(namespace, template, pool, client_of(claim));
        self.has_news(claim, sandbox, "SandboxProvisioned", message);
    }

    /// The claim is Ready for the first time that this process knows of.
    fn answered(&self, claim: &Claim) {
        let now = self.clock.now();
        self.ledger.note(&claim.meta.uid, |memory| {
            memory.ready.get_or_insert(now);
        });
    }

    /// How long the claim has waited. One that was Ready before this process came is not measured again.
    fn measure(&self, claim: &Claim) {
        let annotation = |key: &str| claim.meta.annotations.get(key);
        let stamp = |key: &str| annotation(key).and_then(|text| text.parse().ok());
        if annotation(names::FIRST_READY).is_some() {
            return;
        }
        let sandbox = claim.sandbox().map(|name| claim.meta.key.beside(name));
        let sandbox = sandbox.and_then(|key| self.stores.sandboxes.get(&key));
        let sandbox = sandbox.as_deref();
        let ready = sandbox.and_then(|sandbox| sandbox.status.find(READY));
        let observed = self.ledger.memory(&claim.meta.uid).observed;
        if observed.is_none() {
            return;
        }
        self.metrics.claim_first_ready(&FirstReady {
            namespace: &claim.meta.key.namespace,
            launch_type: sandbox.and_then(|sandbox| sandbox.meta.labels.get(names::LAUNCH_TYPE)),
            template: sandbox.and_then(template_of),
            now: self.clock.now(),
            requested: stamp(names::CLIENT_REQUESTED),
            admitted: stamp(names::WEBHOOK_OBSERVED),
            first_seen: stamp(names::FIRST_OBSERVED).or(observed),
            sandbox: sandbox
                .zip(ready)
                .map(|(sandbox, ready)| (sandbox.meta.created, ready.since)),
        });
    }

    fn has_news(&self, claim: &Claim, sandbox: &Sandbox, reason: &'static str, message: String) {
        let news = News {
            is_warning: false,
            reason,
            action: "Provision",
            message,
            occasion: sandbox.meta.uid.to_string(),
        };
        let news = Some(news).filter(|_| !self.options.without_events);
        self.ledger
            .note(&claim.meta.uid, |memory| memory.news = news);
    }

    async fn tell(&self, claim: &Claim, news: &News) {
        if !self.options.without_events {
            let now = self.clock.now();
            TELLER.tell(&self.writer, &claim.meta, news, now).await;
        }
    }
}

fn template_of(sandbox: &Sandbox) -> Option<&str> {
    sandbox.meta.annotations.get(names::TEMPLATE_REF)
}

fn client_of(claim: &Claim) -> &str {
    names::known_client(claim.meta.labels.get(names::CREATED_BY).unwrap_or_default())
}

fn look<T>(found: Option<Arc<T>>) -> Look<T> {
    found.map_or(Look::Missing, Look::Found)
}

fn cached<T: Clone>(known: Option<Arc<T>>, looked: &Look<T>) -> Look<T> {
    known.map_or_else(|| looked.clone(), Look::Found)
}
