//! An embedded cluster with a hollow node, and on it a namespace with a controller of its own.

use std::{
    fmt::Debug,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use api::{
    crds::{Conversion, Family, Schemas, Versions},
    sigs::v1beta1::{Sandbox, SandboxClaim, SandboxStatus},
};
use controller::{
    sigs::{self, Options},
    trace::Traces,
};
use futures::future::LocalBoxFuture;
use json_patch::merge;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Namespace, Pod, ServiceAccount},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use local::{
    Cluster, clock,
    fault::{Fault, Faults},
    hollow::{self, Failure, Target},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(120);
/// The longest that a controller waits before it tries again; longer waits are the scenario's to pass.
const SHORT: Duration = Duration::from_secs(60);

const AGES: Duration = Duration::from_secs(1_000_000_000);

/// What many runs share.
pub(crate) struct Theatre {
    cluster: Cluster,
    _hollow: hollow::Hollow,
    stages: AtomicUsize,
}

impl Theatre {
    pub(crate) async fn open() -> Self {
        Self::with(Schemas::Full).await
    }

    pub(crate) async fn with(schemas: Schemas) -> Self {
        let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
        let client = cluster.client();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in definitions(schemas) {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let sandboxes: Api<Sandbox> = Api::all(client.clone());
        let start = Instant::now();
        while sandboxes.list(&ListParams::default()).await.is_err() {
            assert!(start.elapsed() < PATIENCE, "sandboxes are never served");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let options = hollow::Options::default();
        let hollow = hollow::Hollow::start(client, clock::Clock::system(), options);
        hollow.fail(Target::Image("missing*".to_owned()), Failure::Pull);
        hollow.fail(Target::Image("crashing*".to_owned()), Failure::Crash);
        Self {
            _hollow: hollow,
            cluster,
            stages: AtomicUsize::new(0),
        }
    }
}

fn definitions(schemas: Schemas) -> Vec<CustomResourceDefinition> {
    let family = [Family::Sigs];
    schemas.of(api::crds::render(&family, Versions::V1beta1, Conversion::None).unwrap())
}

/// About the time of the cluster, and not on a whole second.
fn start_of_play() -> Timestamp {
    let second = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    clock::after(second, Duration::from_millis(700))
}

pub(crate) type Scenario = for<'a> fn(&'a Stage) -> LocalBoxFuture<'a, ()>;

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) clock: clock::Clock,
    /// What the controllers speak through.
    wire: Client,
    name: String,
    faults: Faults,
    /// What the controller that comes after a dead one does.
    survivor: Faults,
    extensions: bool,
    traces: Traces,
    controller: Mutex<Option<JoinHandle<()>>>,
}

impl Stage {
    pub(crate) async fn new(theatre: &Theatre, name: &str, faults: Faults) -> Self {
        let client = theatre.cluster.client();
        let number = theatre.stages.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("stage-{number}");
        let mut object = Namespace::default();
        object.metadata.name = Some(namespace.clone());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        // no pod may be made before it
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
        let start = Instant::now();
        while accounts.get("default").await.is_err() {
            assert!(
                start.elapsed() < PATIENCE,
                "{namespace} has no service account"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Self {
            wire: client.clone(),
            client,
            namespace,
            clock: clock::Clock::manual(start_of_play()),
            name: name.to_owned(),
            faults,
            survivor: Faults::none(),
            extensions: true,
            traces: Traces::default(),
            controller: Mutex::new(None),
        }
    }

    /// Only sandboxes are controlled here.
    pub(crate) fn without_extensions(self) -> Self {
        Self {
            extensions: false,
            ..self
        }
    }

    pub(crate) fn with_traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    pub(crate) fn with_wire(self, to: impl FnOnce(Client) -> Client) -> Self {
        Self {
            wire: to(self.client.clone()),
            ..self
        }
    }

    fn start(&self, faults: &Faults) {
        if let Some(old) = self.replace(faults) {
            old.abort();
        }
    }

    fn replace(&self, faults: &Faults) -> Option<JoinHandle<()>> {
        let options = Options {
            namespace: Some(self.namespace.clone()),
            pool: sigs::pool::Options {
                // the cluster's time stands still beside ours, and everything on it grows old quickly
                ready_grace: AGES,
                // those about claims make the members themselves
                at_a_time: if self.name.starts_with("claims::") {
                    0
                } else {
                    10
                },
                ..sigs::pool::Options::default()
            },
            extensions: self.extensions,
            traces: self.traces.clone(),
            ..Options::default()
        };
        let client = faults.client(self.wire.clone());
        let clock = crate::moved::of(&self.clock);
        let task = tokio::spawn(sigs::run(client, clock, options));
        self.controller.lock().unwrap().replace(task)
    }

    /// The controller ends, and another one takes its place.
    pub(crate) fn restart(&self) {
        self.start(&self.survivor);
    }

    /// The controller is replaced. What one that hangs had on the wire arrives when the next has begun.
    async fn succeed(&self) {
        let old = self.replace(&self.survivor);
        while self.survivor.points().len() < self.first_look() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.faults.release();
        tokio::time::sleep(Duration::from_millis(20)).await;
        old.inspect(JoinHandle::abort);
    }

    /// Whether a request arrives late, when its controller has been replaced.
    pub(crate) fn was_held(&self) -> bool {
        let points = self.faults.points();
        points.iter().any(|point| point.struck == Some(Fault::Hold))
    }

    /// How many requests it takes to see everything: each kind is listed and then watched.
    fn first_look(&self) -> usize {
        if self.extensions { 16 } else { 8 }
    }

    /// Plays the scenario with a controller, and with another one after it if it dies.
    pub(crate) async fn play(&self, scenario: Scenario) {
        self.start(&self.faults);
        let succession = async {
            self.faults.stopped().await;
            self.succeed().await;
            std::future::pending().await
        };
        let whole = async {
            scenario(self).await;
            self.is_quiet().await;
            self.claims_have_one_sandbox_each().await;
        };
        tokio::select! {
            () = whole => {}
            () = succession => {}
        }
        if let Some(task) = self.controller.lock().unwrap().take() {
            task.abort();
        }
    }

    pub(crate) fn writes(&self) -> usize {
        [&self.faults, &self.survivor]
            .into_iter()
            .flat_map(Faults::points)
            .filter(|point| point.method != http::Method::GET)
            .count()
    }

    /// Nothing is written any more, neither now nor when time passes. On a busy machine something may still be on its way
    /// that looks like a write of its own accord; one that writes by itself does so every day.
    pub(crate) async fn is_quiet(&self) {
        const DAYS: usize = 5;
        for _ in 0..DAYS {
            let writes = self.settle().await;
            self.clock.advance(Duration::from_secs(86_400)).await;
            if self.settle().await == writes {
                return;
            }
        }
        panic!("{}", self.story("writes by itself"));
    }

    /// Waits until there have been no writes for a while; says how many there were.
    pub(crate) async fn settle(&self) -> usize {
        let start = Instant::now();
        let mut writes = self.writes();
        let mut calm = 0;
        while calm < 6 {
            self.nudge().await;
            tokio::time::sleep(Duration::from_millis(4)).await;
            let now = self.writes();
            let is_calm = now == writes && !self.is_changing_hands();
            calm = if is_calm { calm + 1 } else { 0 };
            writes = now;
            assert!(start.elapsed() < PATIENCE, "{}", self.story("never quiet"));
        }
        writes
    }

    /// One has died, and the next has not looked at everything yet.
    fn is_changing_hands(&self) -> bool {
        let (before, after) = (self.faults.points(), self.survivor.points());
        let is_dead = before
            .iter()
            .any(|point| matches!(point.struck, Some(Fault::DieBefore | Fault::DieAfter)));
        self.faults.is_waiting() || (is_dead && after.len() < self.first_look())
    }

    /// Lets the controller try again what has failed.
    async fn nudge(&self) {
        let soon = clock::after(self.clock.now(), SHORT);
        if let Some(deadline) = self.clock.next_deadline().filter(|at| *at <= soon) {
            let wait = Duration::try_from(deadline.duration_since(self.clock.now()));
            self.clock.advance(wait.unwrap_or_default()).await;
        }
    }

    /// Whether something has gone wrong on purpose.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.faults.struck()
    }

    /// Whatever races there were, a claim has at most one sandbox, and that is the one it names.
    async fn claims_have_one_sandbox_each(&self) {
        let sandboxes: Vec<Sandbox> = self.list().await;
        for claim in self.list::<SandboxClaim>().await {
            let is_its = |sandbox: &&Sandbox| {
                let mut owners = sandbox.metadata.owner_references.iter().flatten();
                owners.any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref())
            };
            let its = sandboxes.iter().filter(is_its);
            let its: Vec<_> = its.map(|sandbox| sandbox.metadata.name.clone()).collect();
            let named = claim.status.and_then(|status| status.sandbox);
            let named: Vec<_> = named.into_iter().map(|sandbox| sandbox.name).collect();
            assert_eq!(its, named, "{}", self.story("not one sandbox for a claim"));
        }
    }

    pub(crate) fn story(&self, what: &str) -> String {
        let points = [&self.faults, &self.survivor].map(|faults| {
            let points = faults.points().into_iter();
            points
                .map(|point| format!("{} {} {:?}", point.method, point.path, point.struck))
                .collect::<Vec<_>>()
        });
        format!("{}: {what}\n{points:#?}", self.name)
    }

    pub(crate) async fn until<T: Debug>(
        &self,
        what: &str,
        observe: impl AsyncFn() -> T,
        is: impl Fn(&T) -> bool,
    ) -> T {
        self.wait_for(what, observe, is, async || self.nudge().await)
            .await
    }

    /// The same while time stands still.
    pub(crate) async fn until_at_once<T: Debug>(
        &self,
        what: &str,
        observe: impl AsyncFn() -> T,
        is: impl Fn(&T) -> bool,
    ) -> T {
        self.wait_for(what, observe, is, async || {}).await
    }

    /// The same while time passes without leaps, for what may come too late.
    pub(crate) async fn until_slowly<T: Debug>(
        &self,
        what: &str,
        observe: impl AsyncFn() -> T,
        is: impl Fn(&T) -> bool,
    ) -> T {
        let step = async || self.clock.advance(Duration::from_millis(200)).await;
        self.wait_for(what, observe, is, step).await
    }

    async fn wait_for<T: Debug>(
        &self,
        what: &str,
        observe: impl AsyncFn() -> T,
        is: impl Fn(&T) -> bool,
        meanwhile: impl AsyncFn(),
    ) -> T {
        let start = Instant::now();
        // a look costs more than what is waited for
        let mut pause = Duration::from_millis(2);
        loop {
            let seen = observe().await;
            if is(&seen) {
                return seen;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{}\n{seen:#?}",
                self.story(what)
            );
            meanwhile().await;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(16));
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let object = serde_json::from_value(object).unwrap();
        let created = self.api().create(&PostParams::default(), &object).await;
        created.unwrap()
    }

    pub(crate) async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let params = PatchParams::default();
        let patched = self.api().patch(name, &params, &Patch::Merge(patch)).await;
        patched.unwrap()
    }

    /// Gives the whole theatre other definitions; the server follows soon after.
    pub(crate) async fn define(&self, schemas: Schemas) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in definitions(schemas) {
            let patch = Patch::Merge(json!({"spec": {"versions": crd.spec.versions}}));
            let (name, params) = (crd.metadata.name.unwrap(), PatchParams::default());
            crds.patch(&name, &params, &patch).await.unwrap();
        }
    }

    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api: Api<K> = self.api();
        drop(api.delete(name, &DeleteParams::default()).await.unwrap());
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let all = self.api().list(&ListParams::default()).await;
        all.unwrap().items
    }

    /// The pods, of which there is never more than one that is not going.
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let pods: Vec<Pod> = self.list().await;
        let staying = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        assert!(staying.count() <= 1, "{}", self.story("two pods"));
        pods
    }

    pub(crate) async fn sandbox(&self) -> Sandbox {
        self.api().get("box").await.unwrap()
    }

    pub(crate) async fn status(&self) -> SandboxStatus {
        self.sandbox().await.status.unwrap_or_default()
    }

    /// Waits until the sandbox says this of its readiness.
    pub(crate) async fn until_ready_is(
        &self,
        status: &str,
        reason: &str,
        message: &str,
    ) -> SandboxStatus {
        let says = |seen: &SandboxStatus| {
            condition(seen, "Ready").is_some_and(|ready| {
                (&*ready.status, &*ready.reason, &*ready.message) == (status, reason, message)
            })
        };
        let observe = async || {
            self.pods().await;
            self.status().await
        };
        self.until(&format!("Ready {status} {reason} {message}"), observe, says)
            .await
    }

    pub(crate) async fn until_ready(&self) -> SandboxStatus {
        self.until_ready_is("True", "DependenciesReady", "Pod is Ready")
            .await
    }
}

pub(crate) fn condition<'a>(status: &'a SandboxStatus, kind: &str) -> Option<&'a Condition> {
    let mut all = status.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind)
}

pub(crate) fn reason<'a>(status: &'a SandboxStatus, kind: &str) -> Option<&'a str> {
    condition(status, kind).map(|condition| condition.reason.as_str())
}

/// A template of this name with one container of this image.
pub(crate) fn template(name: &str, image: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxTemplate",
        "metadata": {"name": name},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": image}]}}},
    });
    merge(&mut object["spec"], &spec);
    object
}

/// A pool called `pool` of so many members made from the template `one`.
pub(crate) fn pool(replicas: u32, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxWarmPool",
        "metadata": {"name": "pool"},
        "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": "one"}},
    });
    merge(&mut object["spec"], &spec);
    object
}

/// A sandbox called `box` with one container that listens.
pub(crate) fn sandbox(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "box"},
        "spec": {
            "podTemplate": {
                "metadata": {"labels": {"app": "agent"}, "annotations": {"team": "one"}},
                "spec": {"containers": [{
                    "name": "main", "image": "app:1", "ports": [{"containerPort": 8080}],
                }]},
            },
        },
    });
    merge(&mut object["spec"], &spec);
    object
}
