//! Watching and acting: one task that looks at pods and nodes and does what their plans say.
//!
//! What becomes of a pod on a node is its [`Keeper`]'s business; here pods are given nodes, nodes are kept up, and
//! requests are sent one at a time for each object, again if they failed.

use std::{
    collections::{BTreeMap, HashSet},
    pin::pin,
    sync::Arc,
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Either, pending},
    stream::FuturesUnordered,
};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher, watcher::Event},
};
use tokio::sync::{Semaphore, watch};

use super::{
    act::{self, Outcome, PodId, retry_after},
    node::{self, Machine, NodeAct, Spot},
    plan::{self, Act, Plan},
    roster::{Entry, Roster, Work, version},
};
use crate::clock::{Awake, Clock};

/// How many requests are made at a time.
const REQUESTS: usize = 16;

/// What keeps the pods of these nodes.
pub(crate) trait Keeper: Send + 'static {
    /// What it remembers of a pod beyond what the pod tells.
    type Memory: Default + Send;

    /// What to do about a pod on one of the nodes.
    fn run(&mut self, pod: &Pod, memory: &mut Self::Memory, host_ip: &str, now: Timestamp) -> Plan;

    /// What the pod asks for more of than any node has.
    fn lacks(&self, pod: &Pod) -> Option<&'static str>;

    /// What is short on the disk of the nodes, if something is: then they take no more pods.
    fn disk_pressure(&self) -> Option<String> {
        None
    }

    /// Told of every pod of the cluster, on these nodes or not.
    fn observed(&mut self, pod: &Pod);

    /// Told that there is no such pod any more.
    fn forgotten(&mut self, uid: &str);

    /// Waits until a pod is to be looked at again though the API server has nothing new; all of them, and the nodes, if none is
    /// named.
    /// Never loses news when it is dropped.
    fn news(&mut self) -> impl Future<Output = Option<String>> + Send;
}

pub(crate) struct Engine<K: Keeper> {
    client: Client,
    clock: Clock,
    keeper: K,
    trouble: watch::Sender<Option<String>>,
    roster: Roster<K::Memory>,
    nodes: BTreeMap<String, NodeEntry>,
    requests: Arc<Semaphore>,
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
    listing: HashSet<String>,
    /// Nothing is done about pods before all of them, and with them all addresses in use, are known.
    listed: bool,
}

struct NodeEntry {
    machine: Machine,
    node: Option<Node>,
    work: Work,
}

/// The end of a request. Time stands still until it has been seen to.
struct Landed {
    on: On,
    awake: Awake,
}

enum On {
    Pod(String, Outcome<Pod>),
    Node(String, Outcome<Node>),
}

impl<K: Keeper> Engine<K> {
    /// With `schedule`, pods without a node are given one of these.
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        keeper: K,
        machines: Vec<Machine>,
        schedule: bool,
        trouble: watch::Sender<Option<String>>,
    ) -> Self {
        let names: Vec<String> = machines.iter().map(|one| one.name.clone()).collect();
        let entry = |machine: Machine| {
            let name = machine.name.clone();
            let (node, work) = (None, Work::default());
            let entry = NodeEntry {
                machine,
                node,
                work,
            };
            (name, entry)
        };
        Self {
            nodes: machines.into_iter().map(entry).collect(),
            roster: Roster::new(&names, schedule),
            client,
            clock,
            keeper,
            trouble,
            requests: Arc::new(Semaphore::new(REQUESTS)),
            flights: FuturesUnordered::new(),
            listing: HashSet::new(),
            listed: false,
        }
    }

    pub(crate) async fn run(mut self) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut pods = pin!(watcher(pods, watcher::Config::default()).default_backoff());
        let mut nodes = pin!(watcher(nodes, watcher::Config::default()).default_backoff());
        let mut awake = None;
        loop {
            let sleep = match self.roster.next_wake() {
                Some(deadline) => Either::Left(self.clock.sleep_until(deadline)),
                None => Either::Right(pending()),
            };
            let mut sleep = pin!(sleep);
            // only now that the next sleep has begun may time go on
            drop(awake.take());
            tokio::select! {
                token = &mut sleep => {
                    awake = Some(token);
                    self.wake();
                }
                Some(landed) = self.flights.next() => {
                    awake = Some(landed.awake);
                    match landed.on {
                        On::Pod(uid, outcome) => self.pod_answered(&uid, outcome),
                        On::Node(name, outcome) => self.node_answered(&name, outcome),
                    }
                }
                Some(event) = pods.next() => {
                    awake = Some(self.clock.hold());
                    self.pod_event(event);
                }
                Some(event) = nodes.next() => {
                    awake = Some(self.clock.hold());
                    self.node_event(event);
                }
                news = self.keeper.news() => {
                    awake = Some(self.clock.hold());
                    match news {
                        Some(uid) => self.consider(&uid),
                        None => {
                            self.keep_all();
                            self.consider_all(|_| true);
                        }
                    }
                }
            }
        }
    }

    fn complain(&self, error: String) {
        self.trouble.send_replace(Some(error));
    }

    fn wake(&mut self) {
        let now = self.clock.now();
        while let Some(uid) = self.roster.due(now) {
            self.consider(&uid);
        }
    }

    fn pod_event(&mut self, event: Result<Event<Pod>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(pod)) => {
                self.listing.extend(pod.metadata.uid.clone());
                self.observe(pod);
            }
            Ok(Event::InitDone) => {
                self.listed = true;
                let listed = std::mem::take(&mut self.listing);
                for uid in self.roster.missing(&listed) {
                    self.forget(&uid);
                }
                self.consider_all(|_| true);
            }
            Ok(Event::Apply(pod)) => {
                if let Some(uid) = self.observe(pod) {
                    self.consider(&uid);
                }
            }
            Ok(Event::Delete(pod)) => {
                if let Some(uid) = &pod.metadata.uid {
                    self.forget(uid);
                }
            }
            Err(error) => self.complain(error.to_string()),
        }
    }

    fn observe(&mut self, pod: Pod) -> Option<String> {
        self.keeper.observed(&pod);
        self.roster.observe(pod)
    }

    fn forget(&mut self, uid: &str) {
        self.roster.forget(uid);
        self.keeper.forgotten(uid);
    }

    fn consider_all(&mut self, which: impl Fn(&Entry<K::Memory>) -> bool) {
        for uid in self.roster.which(which) {
            self.consider(&uid);
        }
    }

    fn consider(&mut self, uid: &str) {
        let Some(plan) = self.plan(uid) else { return };
        self.roster.set_wake(uid, plan.wake);
        if let Some(act) = plan.act {
            self.fly(uid, act);
        }
    }

    fn plan(&mut self, uid: &str) -> Option<Plan> {
        let entry = self.roster.pods.get(uid).filter(|_| self.listed)?;
        if entry.work.flying || entry.done {
            return None;
        }
        let now = self.clock.now();
        let Some(node) = &entry.pod.spec.as_ref()?.node_name else {
            let lack = self.keeper.lacks(&entry.pod);
            return Some(plan::schedule(&entry.pod, &self.spots(), lack, now));
        };
        let host_ip = host_ip(self.nodes.get(node)?);
        let entry = self.roster.pods.get_mut(uid)?;
        let plan = self
            .keeper
            .run(&entry.pod, &mut entry.memory, &host_ip, now);
        Some(plan)
    }

    fn spots(&self) -> Vec<Spot<'_>> {
        let has_disk_pressure = self.keeper.disk_pressure().is_some();
        self.nodes
            .iter()
            .map(|(name, entry)| Spot {
                name,
                node: entry.node.as_ref().filter(|node| node::is_ready(node)),
                has_disk_pressure,
                load: self.roster.load(name),
            })
            .collect()
    }

    fn fly(&mut self, uid: &str, act: Act) {
        let Some(entry) = self.roster.pods.get_mut(uid) else {
            return;
        };
        match &act {
            Act::Status(patch) if !entry.work.insists(patch) => return,
            Act::Status(_) | Act::Remove => {}
            Act::Bind { node } => {
                let node = node.clone();
                self.roster.assign(uid, Some(node));
            }
        }
        let Some(entry) = self.roster.pods.get_mut(uid) else {
            return;
        };
        entry.work.flying = true;
        let id = PodId {
            namespace: entry.pod.namespace().unwrap_or_default(),
            name: entry.pod.name_any(),
            uid: uid.to_owned(),
        };
        let failures = entry.work.failures;
        let client = self.client.clone();
        self.launch(failures, async move {
            let outcome = act::on_pod(&client, &id, &act).await;
            On::Pod(id.uid, outcome)
        });
    }

    /// Sends a request on its way. After failures it waits first, in real time: on a clock that
    /// nobody moves it would wait for ever.
    fn launch(&self, failures: u32, request: impl Future<Output = On> + Send + 'static) {
        let (clock, requests) = (self.clock.clone(), Arc::clone(&self.requests));
        let mut awake = (failures == 0).then(|| clock.hold());
        let flight = async move {
            if failures > 0 {
                tokio::time::sleep(retry_after(failures)).await;
            }
            // the semaphore is never closed
            let _permit = requests.acquire().await;
            let awake = awake.take().unwrap_or_else(|| clock.hold());
            let on = request.await;
            Landed { on, awake }
        };
        self.flights.push(flight.boxed());
    }

    fn pod_answered(&mut self, uid: &str, outcome: Outcome<Pod>) {
        let Some(entry) = self.roster.pods.get_mut(uid) else {
            return;
        };
        entry.work.flying = false;
        entry.work.failures = match &outcome {
            Outcome::Failed(_) => entry.work.failures.saturating_add(1),
            Outcome::Is(_)
            | Outcome::Changed(_)
            | Outcome::Bound
            | Outcome::Removed
            | Outcome::Gone => 0,
        };
        let is_bound = entry.is_bound();
        match outcome {
            Outcome::Is(pod) => {
                self.observe(*pod);
            }
            Outcome::Changed(pod) => {
                entry.work.sent = None;
                self.observe(*pod);
            }
            Outcome::Bound => entry.done = !is_bound,
            Outcome::Removed => entry.done = true,
            Outcome::Gone => self.forget(uid),
            Outcome::Failed(error) => {
                entry.work.sent = None;
                if !is_bound {
                    self.roster.assign(uid, None);
                }
                self.complain(error);
            }
        }
        self.consider(uid);
    }

    fn node_event(&mut self, event: Result<Event<Node>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.listing_nodes(),
            Ok(Event::InitApply(node) | Event::Apply(node)) => self.node_is(node),
            Ok(Event::InitDone) => {
                self.keep_all();
            }
            Ok(Event::Delete(node)) => {
                let name = node.name_any();
                if let Some(entry) = self.nodes.get_mut(&name) {
                    entry.node = None;
                    self.keep(&name);
                }
            }
            Err(error) => self.complain(error.to_string()),
        }
    }

    /// What the list that follows does not name is not there.
    fn listing_nodes(&mut self) {
        for entry in self.nodes.values_mut() {
            entry.node = None;
        }
    }

    fn node_is(&mut self, node: Node) {
        let name = node.name_any();
        let Some(entry) = self.nodes.get_mut(&name) else {
            return;
        };
        let old = entry.node.as_ref();
        if old.is_some_and(|old| version(old) > version(&node)) {
            return;
        }
        entry.node = Some(node);
        self.keep(&name);
        self.consider_all(|entry| entry.node.is_none());
    }

    fn keep_all(&mut self) {
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            self.keep(&name);
        }
    }

    fn keep(&mut self, name: &str) {
        let now = self.clock.now();
        let pressure = self.keeper.disk_pressure();
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| !entry.work.flying) else {
            return;
        };
        let node = entry.node.as_ref();
        let act = node::keep(&entry.machine, node, pressure.as_deref(), now);
        let Some(act) = act else { return };
        if let NodeAct::Status(patch) | NodeAct::Patch(patch) = &act
            && !entry.work.insists(patch)
        {
            return;
        }
        entry.work.flying = true;
        let failures = entry.work.failures;
        let (client, name) = (self.client.clone(), name.to_owned());
        self.launch(failures, async move {
            let outcome = act::on_node(&client, &name, &act).await;
            On::Node(name, outcome)
        });
    }

    fn node_answered(&mut self, name: &str, outcome: Outcome<Node>) {
        let Some(entry) = self.nodes.get_mut(name) else {
            return;
        };
        entry.work.flying = false;
        entry.work.failures = 0;
        match outcome {
            Outcome::Is(node) => self.node_is(*node),
            Outcome::Changed(node) => {
                entry.work.sent = None;
                self.node_is(*node);
            }
            Outcome::Bound | Outcome::Removed => {}
            Outcome::Gone => {
                entry.node = None;
                self.keep(name);
            }
            Outcome::Failed(error) => {
                entry.work.failures += 1;
                entry.work.sent = None;
                self.complain(error);
                self.keep(name);
            }
        }
    }
}

fn host_ip(entry: &NodeEntry) -> String {
    let status = entry.node.as_ref().and_then(|node| node.status.as_ref());
    let mut addresses = status
        .into_iter()
        .flat_map(|status| &status.addresses)
        .flatten();
    addresses
        .find(|address| address.type_ == "InternalIP")
        .map_or_else(
            || entry.machine.address.to_string(),
            |address| address.address.clone(),
        )
}
