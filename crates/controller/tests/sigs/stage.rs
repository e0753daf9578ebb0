//! An embedded cluster with a hollow node, and on it a namespace with a controller of its own.

mod objects;

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use api::{
    crds::{Conversion, Family, Schemas, Versions},
    sigs::v1beta1::{Sandbox, SandboxClaim},
};
use controller::{
    sigs::{self, Options},
    trace::Traces,
};
use futures::future::LocalBoxFuture;
use k8s_openapi::{
    api::core::v1::{Namespace, ServiceAccount},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::api::resource::Quantity,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use local::{
    Cluster, clock,
    fault::{Fault, Faults},
    hollow::{self, Failure, Target},
};
use tokio::task::JoinHandle;

use crate::{
    chronicle::{Allowance, Chronicle},
    wire::Answers,
};

pub(crate) use objects::{condition, pool, reason, sandbox, template};

const PATIENCE: Duration = Duration::from_secs(120);
/// The longest that a controller waits before it tries again; longer waits are the scenario's to pass.
const SHORT: Duration = Duration::from_secs(60);

/// What a request that was let go takes to arrive, at most. One that its controller has given up never does.
const ARRIVAL: Duration = Duration::from_secs(5);

const AGES: Duration = Duration::from_secs(1_000_000_000);

/// What many runs share.
pub(crate) struct Theatre {
    cluster: Cluster,
    pub(crate) hollow: hollow::Hollow,
    stages: AtomicUsize,
}

impl Theatre {
    pub(crate) async fn open() -> Self {
        Self::with(Schemas::Full).await
    }

    pub(crate) async fn with(schemas: Schemas) -> Self {
        Self::defined_by(definitions(schemas)).await
    }

    pub(crate) async fn defined_by(crds: Vec<CustomResourceDefinition>) -> Self {
        let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
        let client = cluster.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in crds {
            let created = definitions.create(&PostParams::default(), &crd).await;
            created.unwrap();
        }
        let sandboxes: Api<Sandbox> = Api::all(client.clone());
        let start = Instant::now();
        while sandboxes.list(&ListParams::default()).await.is_err() {
            assert!(start.elapsed() < PATIENCE, "sandboxes are never served");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut options = hollow::Options::default();
        // a theatre is not swept: all faults of all scenarios leave more pods behind than a node has by default
        let room = Quantity("10000000".to_owned());
        options.capacity.insert("pods".to_owned(), room);
        let hollow = hollow::Hollow::start(client, clock::Clock::system(), options);
        hollow.fail(Target::Image("missing*".to_owned()), Failure::Pull);
        hollow.fail(Target::Image("crashing*".to_owned()), Failure::Crash);
        Self {
            hollow,
            cluster,
            stages: AtomicUsize::new(0),
        }
    }
}

pub(crate) fn definitions(schemas: Schemas) -> Vec<CustomResourceDefinition> {
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
    /// What came of the requests of the controller that faults strike.
    answers: Answers,
    /// What the controller that comes after a dead one does.
    survivor: Faults,
    extensions: bool,
    ready_grace: Duration,
    claims: sigs::claim::Options,
    traces: Traces,
    controller: Mutex<Option<JoinHandle<()>>>,
    /// One that acts beside it and believes to be the only one, too.
    rival: Mutex<Option<JoinHandle<()>>>,
    /// How many there are at most at a time.
    leaders: AtomicUsize,
    chronicle: Chronicle,
    /// The names of what the scenario itself has deleted.
    deleted: Mutex<BTreeSet<String>>,
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
        let chronicle = Chronicle::begin(&client, &namespace).await;
        Self {
            wire: client.clone(),
            client,
            namespace,
            clock: clock::Clock::manual(start_of_play()),
            name: name.to_owned(),
            faults,
            answers: Answers::default(),
            survivor: Faults::none(),
            extensions: true,
            // the cluster's time stands still beside ours, and everything on it grows old quickly
            ready_grace: AGES,
            claims: sigs::claim::Options::default(),
            traces: Traces::default(),
            controller: Mutex::new(None),
            rival: Mutex::new(None),
            leaders: AtomicUsize::new(1),
            chronicle,
            deleted: Mutex::default(),
        }
    }

    /// Only sandboxes are controlled here.
    pub(crate) fn without_extensions(self) -> Self {
        Self {
            extensions: false,
            ..self
        }
    }

    pub(crate) fn with_ready_grace(self, ready_grace: Duration) -> Self {
        Self {
            ready_grace,
            ..self
        }
    }

    pub(crate) fn with_claims(self, claims: sigs::claim::Options) -> Self {
        Self { claims, ..self }
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

    fn replace(&self, client: Client) -> Option<JoinHandle<()>> {
        let task = self.run(client);
        self.controller.lock().unwrap().replace(task)
    }

    /// The client of a controller that no fault strikes.
    fn unharmed(&self) -> Client {
        self.survivor.client(self.wire.clone())
    }

    fn run(&self, client: Client) -> JoinHandle<()> {
        let options = Options {
            namespace: Some(self.namespace.clone()),
            pool: sigs::pool::Options {
                ready_grace: self.ready_grace,
                // those about claims make the members themselves
                at_a_time: if self.name.starts_with("claims::") {
                    0
                } else {
                    10
                },
                ..sigs::pool::Options::default()
            },
            extensions: self.extensions,
            claim: self.claims.clone(),
            traces: self.traces.clone(),
            ..Options::default()
        };
        let clock = crate::moved::of(&self.clock);
        tokio::spawn(sigs::run(client, clock, options))
    }

    /// Those about a cluster that others ran until now begin without a controller.
    fn has_prologue(&self) -> bool {
        self.name.starts_with("inherited::")
    }

    /// The prologue is over.
    pub(crate) fn begin(&self) {
        let wire = self.answers.counted(self.wire.clone());
        if let Some(old) = self.replace(self.faults.client(wire)) {
            old.abort();
        }
    }

    /// Another controller acts at the same time, and no fault strikes it.
    pub(crate) fn double(&self) {
        self.leaders.store(2, Ordering::Relaxed);
        let rival = self.run(self.unharmed());
        if let Some(old) = self.rival.lock().unwrap().replace(rival) {
            old.abort();
        }
    }

    /// There is one controller again.
    pub(crate) fn undouble(&self) {
        if let Some(rival) = self.rival.lock().unwrap().take() {
            rival.abort();
        }
    }

    /// The controller ends, and another one takes its place.
    pub(crate) fn restart(&self) {
        if let Some(old) = self.replace(self.unharmed()) {
            old.abort();
        }
    }

    /// The controller is replaced. What one that hangs had on the wire arrives when the next has begun.
    async fn succeed(&self) {
        let old = self.replace(self.unharmed());
        while self.survivor.points().len() < self.first_look() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if self.was_held() {
            self.faults.release();
            self.until_all_is_answered().await;
        }
        old.inspect(JoinHandle::abort);
    }

    /// Nothing that was sent is on its way any more.
    async fn until_all_is_answered(&self) {
        let give_up = Instant::now() + ARRIVAL;
        while self.answers.count() < self.faults.points().len() && Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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
        if !self.has_prologue() {
            self.begin();
        }
        let succession = async {
            self.faults.stopped().await;
            self.succeed().await;
            std::future::pending().await
        };
        let whole = async {
            scenario(self).await;
            self.is_quiet().await;
            self.claims_have_one_sandbox_each().await;
            self.nothing_was_ever_wrong().await;
        };
        tokio::select! {
            () = whole => {}
            () = succession => {}
        }
        if let Some(task) = self.controller.lock().unwrap().take() {
            task.abort();
        }
        self.undouble();
    }

    pub(crate) fn writes(&self) -> usize {
        self.written().len()
    }

    /// How many objects of a kind the controllers have asked for.
    pub(crate) fn posts(&self, resource: &str) -> usize {
        let post = format!("POST {resource}");
        self.written()
            .iter()
            .filter(|write| **write == post)
            .count()
    }

    /// What was asked of the server to be written, as the method and what follows the namespace in the path.
    pub(crate) fn written(&self) -> Vec<String> {
        let points = [&self.faults, &self.survivor].into_iter();
        let points = points.flat_map(Faults::points);
        let writes = points.filter(|point| point.method != http::Method::GET);
        let place = format!("/namespaces/{}/", self.namespace);
        let told = writes.map(|point| {
            let (_, what) = point.path.split_once(&place).unwrap_or_default();
            format!("{} {what}", point.method)
        });
        told.collect()
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

    pub(crate) async fn violations(&self, allowance: &Allowance) -> Vec<String> {
        self.chronicle.violations(allowance).await
    }

    /// No state on the way broke what must always hold.
    async fn nothing_was_ever_wrong(&self) {
        // what a former leader had on the wire comes on top of what the next one does
        let late = usize::from(self.was_held());
        let allowance = Allowance {
            deleted: self.deleted.lock().unwrap().clone(),
            leaders: self.leaders.load(Ordering::Relaxed) + late,
        };
        let wrong = self.violations(&allowance).await;
        assert!(
            wrong.is_empty(),
            "{}\n{wrong:#?}",
            self.story("wrong on the way")
        );
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
}
