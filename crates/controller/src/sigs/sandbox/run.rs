//! Watching, and doing what was decided.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::sigs::shared::Blueprint;
use engine::in_place::{Platform, ResizeVia};

use super::{
    decide::{Act, Look, Part, Step, World, decide},
    parts,
    update::{Endpoint, Whole},
    view::{Pod, Sandbox, Service, Volume},
};
use crate::{
    clock::Clock,
    events::Teller,
    meta::{Key, Meta},
    queue::{Next, Pass},
    rush::Rush,
    sigs::{
        names,
        pool::member::KIND,
        run::{Common, Controller},
        stores::Stores,
    },
    store::{Store, View},
    trace::{self, Traces},
    write::{Failure, Guard, Writer},
};

/// The name under which the controller writes and tells.
pub(crate) const CONTROLLER: &str = "sandbox-controller";
const TELLER: Teller = Teller {
    controller: CONTROLLER,
    api_version: names::API_VERSION,
    kind: "Sandbox",
};
/// From this failure on, a server that cannot do what it is asked is worth a word in the status. Before, it is a hiccup.
const WORTH_TELLING: u32 = 3;
/// No pass does more, whatever others do to what it writes.
const MOST_ACTS: usize = 32;

#[derive(Clone, Debug)]
pub struct Options {
    pub cluster_domain: String,
    /// How many sandboxes are worked on at a time.
    pub at_a_time: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster_domain: "cluster.local".to_owned(),
            at_a_time: 100,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Sandboxes {
    stores: Stores,
    writer: Writer,
    clock: Clock,
    domain: Arc<str>,
    platform: Platform,
    rush: Rush,
    traces: Traces,
    refusals: Arc<Mutex<HashMap<Key, Refusal>>>,
}

/// A change of a pod that the server would not make. It is asked once for each generation of a sandbox.
struct Refusal {
    generation: i64,
    pod: Box<str>,
    why: String,
}

impl Controller for Sandboxes {
    type View = Sandbox;
    const SPAN: &'static str = "ReconcileSandbox";

    fn store(&self) -> &Store<Sandbox> {
        &self.stores.sandboxes
    }

    /// One look at a sandbox: act until there is nothing left to do.
    async fn pass(&self, pass: Pass<Key>) -> Next {
        let mut seen = Seen::default();
        for _ in 0..MOST_ACTS {
            if seen.is_nothing_old() {
                pass.look();
            }
            let Some(sandbox) = self.stores.sandboxes.get(&pass.key) else {
                self.refusals().remove(&pass.key);
                return Next::Never;
            };
            // the API server has checked it against the schema
            let Ok(blueprint) = seen.blueprint(&sandbox) else {
                return Next::Never;
            };
            let act = match decide(&self.world(&sandbox, &blueprint, &seen)) {
                Step::Rest(next) => return next,
                Step::Act(act) => act,
            };
            let done = self.act(&sandbox, &act, &mut seen);
            match trace::part(act.span(), &pass.key, done).await {
                Ok(()) => {}
                Err(failure) if pass.is_worth_telling(&failure) && seen.can_note(&act) => {
                    seen.note(act, failure);
                }
                Err(_) => return Next::Retry,
            }
        }
        Next::Retry
    }
}

impl Sandboxes {
    pub(crate) fn new(common: &Common, platform: Platform, options: Options) -> Self {
        Self {
            stores: common.stores.clone(),
            writer: common.writer(CONTROLLER),
            clock: common.clock.clone(),
            domain: options.cluster_domain.into(),
            platform,
            rush: common.rush.clone(),
            traces: common.traces.clone(),
            refusals: Arc::default(),
        }
    }

    fn world<'a>(
        &'a self,
        sandbox: &'a Sandbox,
        blueprint: &'a Blueprint,
        seen: &Seen,
    ) -> World<'a> {
        let stores = &self.stores;
        let pods = stores.pods.owned_by(&sandbox.meta.uid);
        World {
            sandbox,
            blueprint,
            refusal: pods.first().and_then(|pod| self.refusal(sandbox, pod)),
            pods,
            annotated: match sandbox.meta.annotations.get(names::POD_NAME) {
                Some(name) if name != sandbox.name() => seen.pod(&stores.pods, sandbox, name),
                _ => Look::Missing,
            },
            namesake: seen.pod(&stores.pods, sandbox, sandbox.name()),
            whole: seen.whole.clone(),
            updates: seen.updates,
            platform: self.platform,
            service: shown(&stores.services, &sandbox.meta.key)
                .unwrap_or_else(|| seen.service.clone()),
            volumes: seen.volumes(&stores.volumes, sandbox, blueprint),
            trouble: seen.trouble.clone(),
            trace: self.traces.missing(&sandbox.meta.annotations),
            domain: &self.domain,
            now: self.clock.now(),
        }
    }

    fn refusal(&self, sandbox: &Sandbox, pod: &Pod) -> Option<String> {
        let refusals = self.refusals();
        let refusal = refusals.get(&sandbox.meta.key)?;
        let is_of_this =
            refusal.generation == sandbox.meta.generation && refusal.pod == pod.meta.uid;
        is_of_this.then(|| refusal.why.clone())
    }

    fn refusals(&self) -> MutexGuard<'_, HashMap<Key, Refusal>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn update(
        &self,
        sandbox: &Sandbox,
        pod: &Meta,
        endpoint: Endpoint,
        body: serde_json::Value,
    ) -> Result<(), Failure> {
        let is_apart = self.platform.resize == Some(ResizeVia::Subresource);
        let subresource = match endpoint {
            Endpoint::Resize if is_apart => Some("resize"),
            Endpoint::Resize | Endpoint::Pod => None,
        };
        let (writer, pods) = (&self.writer, &self.stores.pods);
        match writer.patch_strategic(pods, pod, subresource, body).await {
            Err(Failure::Refused(why)) => {
                let refusal = Refusal {
                    generation: sandbox.meta.generation,
                    pod: pod.uid.clone(),
                    why,
                };
                self.refusals().insert(sandbox.meta.key.clone(), refusal);
                Ok(())
            }
            other => other.map(drop),
        }
    }

    async fn act(&self, sandbox: &Sandbox, act: &Act, seen: &mut Seen) -> Result<(), Failure> {
        let writer = &self.writer;
        if !is_awaited(sandbox, act) {
            self.rush.over().await;
        }
        match act {
            Act::ReadPod(name) => self.read_pod(sandbox, name, seen).await,
            Act::ReadService => self.read_service(sandbox, seen).await,
            Act::ReadWhole(name) => {
                let key = sandbox.meta.key.beside(name);
                let found = writer.read_whole::<Pod>(&key).await?;
                seen.whole = look(found.and_then(|json| self.whole(json)));
                Ok(())
            }
            Act::Update(pod, endpoint, body) => {
                self.update(sandbox, pod, *endpoint, body.clone()).await?;
                seen.updates += 1;
                seen.outdate(Part::Pod);
                Ok(())
            }
            Act::Gate(pod, status) => {
                let (pods, status) = (&self.stores.pods, status.clone());
                let written = writer.patch_strategic(pods, pod, Some("status"), status);
                drop(written.await?);
                seen.outdate(Part::Pod);
                Ok(())
            }
            Act::Create(part, body) => match self.create(sandbox, *part, body.clone()).await {
                Err(Failure::Exists(_)) => self.read(sandbox, *part, body, seen).await,
                other => other,
            },
            Act::Patch(part, meta, guard, body) => {
                let (guard, body) = (*guard, body.clone());
                match part {
                    Part::Volume(_) => {
                        drop(
                            writer
                                .patch(&self.stores.volumes, meta, guard, body)
                                .await?,
                        );
                    }
                    Part::Pod => drop(writer.patch(&self.stores.pods, meta, guard, body).await?),
                    Part::Service => drop(
                        writer
                            .patch(&self.stores.services, meta, guard, body)
                            .await?,
                    ),
                    Part::Sandbox => drop(
                        writer
                            .patch(&self.stores.sandboxes, meta, guard, body)
                            .await?,
                    ),
                }
                seen.outdate(*part);
                Ok(())
            }
            Act::Delete(part, meta) => {
                match part {
                    Part::Volume(_) => writer.delete(&self.stores.volumes, meta).await?,
                    Part::Pod => writer.delete(&self.stores.pods, meta).await?,
                    Part::Service => writer.delete(&self.stores.services, meta).await?,
                    Part::Sandbox => writer.delete(&self.stores.sandboxes, meta).await?,
                }
                seen.outdate(*part);
                Ok(())
            }
            Act::Status(status) => self.status(sandbox, status).await,
            Act::Announce(status, news) => {
                self.status(sandbox, status).await?;
                self.rush.over().await;
                let now = self.clock.now();
                TELLER.tell(writer, &sandbox.meta, news, now).await;
                Ok(())
            }
        }
    }

    async fn status(&self, sandbox: &Sandbox, status: &serde_json::Value) -> Result<(), Failure> {
        let (store, meta) = (&self.stores.sandboxes, &sandbox.meta);
        // claims and rollouts go by it: what a leader wrote late must not undo what the next one has said
        let written = self
            .writer
            .patch_status(store, meta, Guard::Unchanged, status.clone());
        written.await.map(drop)
    }

    async fn create(
        &self,
        sandbox: &Sandbox,
        part: Part,
        body: serde_json::Value,
    ) -> Result<(), Failure> {
        let (writer, namespace) = (&self.writer, &sandbox.meta.key.namespace);
        match part {
            Part::Volume(_) => writer
                .create(&self.stores.volumes, namespace, body)
                .await
                .map(drop),
            Part::Pod => writer
                .create(&self.stores.pods, namespace, body)
                .await
                .map(drop),
            Part::Service => writer
                .create(&self.stores.services, namespace, body)
                .await
                .map(drop),
            Part::Sandbox => Ok(()),
        }
    }

    /// Looks at what is in the way of a creation.
    async fn read(
        &self,
        sandbox: &Sandbox,
        part: Part,
        body: &serde_json::Value,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        match part {
            Part::Volume(_) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let key = sandbox.meta.key.beside(name);
                let found = self.writer.read(&self.stores.volumes, &key).await?;
                seen.volumes.insert(name.to_owned(), look(found));
                Ok(())
            }
            Part::Pod => self.read_pod(sandbox, sandbox.name(), seen).await,
            Part::Service => self.read_service(sandbox, seen).await,
            Part::Sandbox => Ok(()),
        }
    }

    async fn read_pod(
        &self,
        sandbox: &Sandbox,
        name: &str,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let key = sandbox.meta.key.beside(name);
        let found = self.writer.read(&self.stores.pods, &key).await?;
        seen.pods.insert(name.to_owned(), look(found));
        Ok(())
    }

    fn whole(&self, json: serde_json::Value) -> Option<Arc<Whole>> {
        let pod = serde::Deserialize::deserialize(&json).ok()?;
        let view = self.stores.pods.see(pod);
        Some(Arc::new(Whole { view, json }))
    }

    async fn read_service(&self, sandbox: &Sandbox, seen: &mut Seen) -> Result<(), Failure> {
        let found = self
            .writer
            .read(&self.stores.services, &sandbox.meta.key)
            .await?;
        seen.service = look(found);
        Ok(())
    }
}

/// Nobody waits for a member of a pool, nor for what is written on a pod that runs.
fn is_awaited(sandbox: &Sandbox, act: &Act) -> bool {
    let is_member = sandbox.meta.is_controlled_by_a(names::EXTENSIONS, KIND);
    !is_member && !matches!(act, Act::Patch(Part::Pod, ..))
}

fn look<T>(found: Option<Arc<T>>) -> Look<T> {
    found.map_or(Look::Missing, Look::Found)
}

fn shown<V: View>(store: &Store<V>, key: &Key) -> Option<Look<V>> {
    store.get(key).map(Look::Found)
}

impl Pass<Key> {
    pub(crate) fn is_worth_telling(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Refused(_) => true,
            Failure::Unknown(_) => self.failures >= WORTH_TELLING,
            Failure::Exists(_) | Failure::Changed(_) | Failure::Gone(_) => false,
        }
    }
}

/// What a pass has learned past the cache.
#[derive(Default)]
struct Seen {
    pods: BTreeMap<String, Look<Pod>>,
    whole: Look<Whole>,
    updates: usize,
    service: Look<Service>,
    volumes: BTreeMap<String, Look<Volume>>,
    trouble: BTreeMap<Part, String>,
    /// The last blueprint that was read, with its text.
    blueprint: Option<(Arc<str>, Arc<Blueprint>)>,
}

impl Seen {
    /// Whether all that the pass goes by is in the stores.
    fn is_nothing_old(&self) -> bool {
        let is_unread =
            matches!(self.whole, Look::Unknown) && matches!(self.service, Look::Unknown);
        is_unread && self.pods.is_empty() && self.volumes.is_empty() && self.trouble.is_empty()
    }

    /// A pass looks many times at one blueprint.
    fn blueprint(&mut self, sandbox: &Sandbox) -> Result<Arc<Blueprint>, serde_json::Error> {
        let text = &sandbox.blueprint;
        if let Some((known, blueprint)) = &self.blueprint
            && Arc::ptr_eq(known, text)
        {
            return Ok(Arc::clone(blueprint));
        }
        let blueprint = Arc::new(sandbox.blueprint()?);
        self.blueprint = Some((Arc::clone(text), Arc::clone(&blueprint)));
        Ok(blueprint)
    }

    fn pod(&self, store: &Store<Pod>, sandbox: &Sandbox, name: &str) -> Look<Pod> {
        shown(store, &sandbox.meta.key.beside(name))
            .or_else(|| self.pods.get(name).cloned())
            .unwrap_or_default()
    }

    fn volumes(
        &self,
        store: &Store<Volume>,
        sandbox: &Sandbox,
        blueprint: &Blueprint,
    ) -> Vec<Look<Volume>> {
        let templates = blueprint.volume_claim_templates.iter().flatten();
        let look = |template| {
            let name = parts::volume_name(sandbox, template);
            shown(store, &sandbox.meta.key.beside(&name))
                .or_else(|| self.volumes.get(&name).cloned())
                .unwrap_or_default()
        };
        templates.map(look).collect()
    }

    /// The cache knows better now.
    fn outdate(&mut self, part: Part) {
        match part {
            Part::Volume(_) => self.volumes.clear(),
            Part::Pod => {
                self.pods.clear();
                self.whole = Look::Unknown;
            }
            Part::Service => self.service = Look::Unknown,
            Part::Sandbox => {}
        }
    }

    /// A status that cannot be written cannot tell why.
    fn can_note(&self, act: &Act) -> bool {
        !matches!(act, Act::Status(_) | Act::Announce(..))
    }

    fn note(&mut self, act: Act, failure: Failure) {
        let part = match act {
            Act::ReadPod(name) => {
                self.pods.insert(name, Look::Failed);
                Part::Pod
            }
            Act::ReadWhole(_) => {
                self.whole = Look::Failed;
                Part::Pod
            }
            Act::Update(..) | Act::Gate(..) => Part::Pod,
            Act::ReadService => {
                self.service = Look::Failed;
                Part::Service
            }
            Act::Create(part, _) | Act::Patch(part, ..) | Act::Delete(part, _) => part,
            Act::Status(_) | Act::Announce(..) => Part::Sandbox,
        };
        self.trouble.insert(part, failure.to_string());
    }
}
