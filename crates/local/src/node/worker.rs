//! One pod: a task that learns what happens to it, asks its plan what to do, and has it done.

mod learn;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use container::{ContainerState, Event};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Either},
    stream::FuturesUnordered,
};
use k8s_openapi::{
    api::core::v1::{Container, Pod},
    jiff::Timestamp,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use super::{
    acts::{Home, Lodging},
    admission, end,
    facts::{Begin, Busy, Facts, Inmate, Made, Run, Shell},
    plan::{self, Step},
    probes::{Finding, Target, Watching},
    report::PULL_ERROR,
    room,
    site::Site,
    trouble::Trouble,
    works::Works,
};
use crate::{clock::after, kubelet::plan::pod_label};

/// How long a status waits for the start of a container, or the end of a pod, which mostly comes at once and is then told in
/// the same write.
const HUSH: Duration = Duration::from_millis(150);
/// How often volumes are brought up to date with what they show.
const REFRESH: Duration = Duration::from_secs(60);
/// How often it is looked how much storage is used, at most.
const MEASURE: Duration = Duration::from_secs(10);
/// A look that took long is not taken again before so many times as long have passed.
const RESPITE: u32 = 20;

/// What is wanted of a pod.
#[derive(Clone)]
pub(crate) struct Wish {
    pub(crate) pod: Arc<Pod>,
    pub(crate) course: Course,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// What its object says.
    Follow,
    /// It ends, and all that it has stays for its next life.
    Rest,
    /// There is no such pod any more: nothing of it stays.
    Vanish,
}

/// A pod that is looked after.
pub(crate) struct Worker {
    wish: watch::Sender<Wish>,
    facts: Arc<Mutex<Option<Facts>>>,
    looked: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Worker {
    /// `news` is told the uid whenever something may have changed.
    pub(crate) fn start(
        site: &Arc<Site>,
        pod: Arc<Pod>,
        news: mpsc::UnboundedSender<String>,
    ) -> Self {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let course = Course::Follow;
        let (wish, wishes) = watch::channel(Wish { pod, course });
        let facts = Arc::default();
        let care = Care::new(site, uid, wishes, Arc::clone(&facts), news);
        let (look, looked) = watch::channel(false);
        let task = tokio::spawn(care.run(look));
        Self {
            wish,
            facts,
            looked,
            task,
        }
    }

    /// Returns when the pod has been looked for.
    pub(crate) async fn found(&self) {
        // the sender is gone only with the task
        let _ = self.looked.clone().wait_for(|looked| *looked).await;
    }

    /// What is known of the pod; nothing before it has been looked for.
    pub(crate) fn facts(&self) -> Option<Facts> {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.clone()
    }

    /// The pod as it is wanted, and those of its containers that run.
    pub(crate) fn living(&self) -> (Arc<Pod>, Vec<String>) {
        let pod = Arc::clone(&self.wish.borrow().pod);
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let all = facts.iter().flat_map(|facts| &facts.containers);
        let alive = all.filter(|(_, inmate)| inmate.alive().is_some());
        (pod, alive.map(|(name, _)| name.clone()).collect())
    }

    pub(crate) fn tell(&self, pod: &Pod) {
        self.wish.send_if_modified(|wish| {
            let is_news = wish.pod.metadata.resource_version != pod.metadata.resource_version;
            if is_news {
                wish.pod = Arc::new(pod.clone());
            }
            is_news
        });
    }

    pub(crate) fn set_course(&self, course: Course) {
        self.wish.send_modify(|wish| wish.course = course);
    }

    /// Returns when it has gone its course, which must not be that of its object.
    pub(crate) async fn ended(self) {
        let Self { wish, task, .. } = self;
        let _ = task.await;
        drop(wish);
    }

    /// Stops looking after the pod, which goes on.
    pub(crate) fn leave(self) {
        self.task.abort();
    }
}

/// What came of a step.
enum Done {
    Made(Result<Home, Trouble>),
    Started(String, Result<(Run, Option<Trouble>), Trouble>),
    Stopped(String),
    Resized(String, Result<Made, Trouble>),
    Ended(Vec<ContainerState>),
    Refreshed(Result<bool, Trouble>),
    /// What is used too much of, and how long it took to find out.
    Measured(Option<String>, Duration),
}

pub(super) struct Care {
    pub(super) lodging: Lodging,
    wishes: watch::Receiver<Wish>,
    pub(super) facts: Facts,
    shown: Arc<Mutex<Option<Facts>>>,
    news: mpsc::UnboundedSender<String>,
    pub(super) home: Option<Home>,
    events: Option<container::Events>,
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    pub(super) running: watch::Sender<BTreeMap<String, u32>>,
    /// By when the pod has to have ended, once it has to.
    by: watch::Sender<Option<Timestamp>>,
    findings: mpsc::UnboundedReceiver<(String, u32, Finding)>,
    find: mpsc::UnboundedSender<(String, u32, Finding)>,
    watched: BTreeMap<String, Watching>,
    /// Ends of runs whose start has not been told yet.
    early: BTreeMap<(String, u32), ContainerState>,
    refresh_at: Option<Timestamp>,
    /// When to look how much storage is used, if that is limited.
    measure_at: Option<Timestamp>,
    /// Until when what has changed is not worth a write of its own.
    hush_until: Option<Timestamp>,
    /// How often in a row there was nothing to live in.
    failures: u32,
    /// Nobody wishes anything any more.
    is_left: bool,
}

impl Care {
    fn new(
        site: &Arc<Site>,
        uid: String,
        wishes: watch::Receiver<Wish>,
        shown: Arc<Mutex<Option<Facts>>>,
        news: mpsc::UnboundedSender<String>,
    ) -> Self {
        let (running, heard) = watch::channel(BTreeMap::new());
        let (find, findings) = mpsc::unbounded_channel();
        Self {
            lodging: Lodging {
                site: Arc::clone(site),
                place: site.place(&uid),
                uid,
                running: heard,
                works: Works::default(),
            },
            wishes,
            facts: Facts::default(),
            shown,
            news,
            home: None,
            events: None,
            jobs: FuturesUnordered::new(),
            running,
            by: watch::Sender::new(None),
            findings,
            find,
            watched: BTreeMap::new(),
            early: BTreeMap::new(),
            refresh_at: None,
            measure_at: None,
            hush_until: None,
            failures: 0,
            is_left: false,
        }
    }

    async fn run(mut self, look: watch::Sender<bool>) {
        let first = self.wishes.borrow().pod.clone();
        self.recover(&first).await;
        self.judge(&first);
        self.show();
        look.send_replace(true);
        while !self.is_left {
            let Wish { pod, course } = self.wishes.borrow_and_update().clone();
            let pod = self.granted(pod);
            let now = self.lodging.site.clock.now();
            let next = match course {
                Course::Follow => plan::next(&pod, &self.facts, now),
                Course::Rest | Course::Vanish if self.is_over() => break,
                Course::Rest | Course::Vanish => self.part(&pod, course, now),
            };
            for step in next.steps {
                self.begin(step, &pod);
            }
            self.show();
            let wake = next.wake.into_iter().chain(self.own_wake(now)).min();
            self.listen(&pod, wake).await;
        }
        if self.wishes.borrow().course == Course::Vanish {
            let names: Vec<String> = self.facts.containers.keys().cloned().collect();
            self.lodging.clean(&names).await;
        }
    }

    /// A pod that is seen for the first time may be one for nobody. What runs is not judged again: whoever started it has.
    fn judge(&mut self, pod: &Pod) {
        let site = &self.lodging.site;
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let is_new = self.facts.containers.is_empty() && matches!(phase, None | Some("Pending"));
        let is_begun = pod
            .status
            .as_ref()
            .is_some_and(|status| status.start_time.is_some());
        if is_new && !is_begun {
            site.events.scheduled(pod);
        }
        let spec = pod.spec.as_ref().filter(|_| is_new);
        let rejected = spec.and_then(|spec| admission::rejection(spec, site.is_isolated));
        if let Some(Trouble { reason, message }) = &rejected {
            site.events.warn(pod, reason, message.clone());
        }
        self.facts.rejected = rejected;
    }

    fn is_over(&self) -> bool {
        self.jobs.is_empty()
            && matches!(
                self.facts.shell,
                Shell::Absent | Shell::Ended | Shell::Broken(_)
            )
    }

    /// The pod as it may be on this machine.
    fn granted(&self, asked: Arc<Pod>) -> Arc<Pod> {
        let site = &self.lodging.site;
        let (granted, refused) = room::granted(&asked, &self.facts, &site.allocatable);
        if let Some(lack) = refused {
            site.events
                .warn(&asked, "ResizeInfeasible", lack.to_string());
        }
        match granted {
            Cow::Borrowed(_) => asked,
            Cow::Owned(granted) => Arc::new(granted),
        }
    }

    /// The plan of a pod that ends whatever its object says.
    fn part(&self, pod: &Pod, course: Course, now: Timestamp) -> plan::Next {
        let is_there = matches!(self.facts.shell, Shell::Whole { .. } | Shell::Ending);
        let grace = match (course, &pod.spec) {
            (Course::Rest, Some(spec)) => plan::grace(spec),
            _ => Duration::ZERO,
        };
        let by = match *self.by.borrow() {
            Some(by) => by.min(after(now, grace)),
            None => after(now, grace),
        };
        plan::Next {
            steps: is_there.then_some(Step::End { by }).into_iter().collect(),
            wake: None,
        }
    }

    /// What changes with time alone: how a failed pull or start is told, and what volumes show.
    fn own_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let setbacks = self.facts.containers.values();
        let turns = setbacks
            .filter_map(Inmate::failed_at)
            .map(|at| after(at, PULL_ERROR))
            .filter(|turn| *turn > now);
        let own = [self.refresh_at, self.measure_at, self.hush_until];
        turns.chain(own.into_iter().flatten()).min()
    }

    /// Makes known what is known.
    fn show(&self) {
        if self.hush_until.is_some() {
            return;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Some(self.facts.clone());
        drop(shown);
        // nobody listens any more when the node is being left
        let _ = self.news.send(self.lodging.uid.clone());
    }

    async fn listen(&mut self, pod: &Pod, wake: Option<Timestamp>) {
        let clock = &self.lodging.site.clock;
        let sleep = match wake {
            Some(deadline) => Either::Left(clock.sleep_until(deadline).map(drop)),
            None => Either::Right(pending()),
        };
        let event = async {
            match &mut self.events {
                Some(events) => events.next().await,
                None => pending().await,
            }
        };
        let hush = self.hush_until.take();
        tokio::select! {
            Some(done) = self.jobs.next() => self.fold(done, pod),
            event = event => {
                // that a container runs is told with its start
                self.hush_until = hush.filter(|_| matches!(event, Some(Event::Started(_))));
                self.happened(event, pod).await;
                if !self.facts.containers.values().any(|one| one.alive().is_some()) {
                    self.hush_at_the_end(pod);
                }
            }
            Some((name, attempt, finding)) = self.findings.recv() => {
                self.found(&name, attempt, finding, pod);
            }
            changed = self.wishes.changed() => {
                self.hush_until = hush;
                self.is_left = changed.is_err();
            }
            () = sleep => {
                self.refresh(pod);
                self.measure(pod);
            }
        }
    }

    fn begin(&mut self, step: Step, pod: &Pod) {
        let lodging = self.lodging.clone();
        let shared = pod.clone();
        match step {
            Step::Make => {
                self.facts.shell = Shell::Making;
                self.job(async move { Done::Made(lodging.make(&shared).await) });
            }
            Step::Start { name } => self.begin_start(name, pod),
            Step::Stop { name, grace } => {
                let Some((container, made, home, target)) = self.whom(pod, &name) else {
                    return;
                };
                self.busy(&name, Some(Busy::Stopping));
                self.job(async move {
                    let stopped = lodging.stop(&shared, &container, &made, &home, &target, grace);
                    stopped.await;
                    Done::Stopped(name)
                });
            }
            Step::Resize { name } => {
                let Some((container, made, home, _)) = self.whom(pod, &name) else {
                    return;
                };
                self.busy(&name, Some(Busy::Resizing));
                self.job(async move {
                    Done::Resized(name, lodging.resize(&container, &made, &home).await)
                });
            }
            Step::End { by } => self.begin_end(by, pod),
        }
    }

    fn begin_start(&mut self, name: String, pod: &Pod) {
        let (Some(container), Some(home)) = (container_of(pod, &name), self.home.clone()) else {
            return;
        };
        let inmate = self.facts.containers.entry(name.clone()).or_default();
        inmate.busy = Some(Busy::Starting);
        if inmate.tried != container.image {
            inmate.tried.clone_from(&container.image);
            inmate.setback = None;
        }
        let begin = Begin {
            first_attempt: inmate.next_attempt(),
            crashes: plan::crashes(&container, inmate, home.number),
        };
        let target = self.target(pod, &name, &home);
        let (lodging, pod, mut by) = (self.lodging.clone(), pod.clone(), self.by.subscribe());
        self.job(async move {
            // a pod that is told to end waits for no image
            let started = tokio::select! {
                started = lodging.start(&pod, &container, begin, &home, target) => started,
                _ = by.wait_for(Option::is_some) => Err(Trouble::create("the pod is ending")),
            };
            Done::Started(name, started)
        });
    }

    fn begin_end(&mut self, by: Timestamp, pod: &Pod) {
        let Some(home) = self.home.clone() else {
            return;
        };
        let is_under_way = matches!(self.facts.shell, Shell::Ending);
        self.by.send_if_modified(|known| {
            let is_news = known.is_none_or(|known| by < known);
            if is_news {
                *known = Some(by);
            }
            is_news
        });
        if is_under_way {
            return;
        }
        self.facts.shell = Shell::Ending;
        self.hush_at_the_end(pod);
        self.watched.clear();
        let alive: BTreeMap<String, Made> = self
            .facts
            .containers
            .iter()
            .filter_map(|(name, inmate)| Some((name.clone(), inmate.alive()?.made.clone())))
            .collect();
        let targets = alive
            .keys()
            .map(|name| (name.clone(), self.target(pod, name, &home)));
        let targets: BTreeMap<String, Target> = targets.collect();
        let (lodging, pod, by) = (self.lodging.clone(), pod.clone(), self.by.subscribe());
        self.job(async move {
            lodging.end(&pod, alive, &home, &targets, by).await;
            Done::Ended(end::settle(&lodging.place.shim()).await)
        });
    }

    /// What is about to end mostly does so at once, and is then told in one write, which is the last of a deleted pod.
    fn hush_at_the_end(&mut self, pod: &Pod) {
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        if is_deleted && matches!(self.facts.shell, Shell::Ending) {
            self.hush_until = Some(after(self.lodging.site.clock.now(), HUSH));
        }
    }

    fn job(&self, work: impl Future<Output = Done> + Send + 'static) {
        self.jobs.push(work.boxed());
    }

    fn busy(&mut self, name: &str, busy: Option<Busy>) {
        if let Some(inmate) = self.facts.containers.get_mut(name) {
            inmate.busy = busy;
        }
    }

    fn target(&self, pod: &Pod, name: &str, home: &Home) -> Target {
        Target {
            pod: Arc::clone(&home.shim),
            label: pod_label(pod),
            container: name.to_owned(),
            address: home.address,
            dialer: Arc::clone(&self.lodging.site.dialer),
        }
    }

    /// A container that lives, and how to reach it.
    fn whom(&self, pod: &Pod, name: &str) -> Option<(Container, Made, Home, Target)> {
        let home = self.home.clone()?;
        let made = self.facts.containers.get(name)?.alive()?.made.clone();
        let target = self.target(pod, name, &home);
        Some((container_of(pod, name)?, made, home, target))
    }

    fn refresh(&mut self, pod: &Pod) {
        let now = self.lodging.site.clock.now();
        let Some(home) = self
            .home
            .as_ref()
            .filter(|_| self.refresh_at.is_some_and(|at| at <= now))
        else {
            return;
        };
        self.refresh_at = Some(after(now, REFRESH));
        let (lodging, pod, address) = (self.lodging.clone(), pod.clone(), home.address);
        self.job(async move { Done::Refreshed(lodging.refresh(&pod, address).await) });
    }
}

impl Care {
    fn measure(&mut self, pod: &Pod) {
        let now = self.lodging.site.clock.now();
        if self.measure_at.is_none_or(|at| at > now) {
            return;
        }
        self.measure_at = None;
        let (lodging, pod) = (self.lodging.clone(), pod.clone());
        self.job(async move {
            let begun = Instant::now();
            let exceeded = lodging.measure(&pod).await;
            Done::Measured(exceeded, begun.elapsed())
        });
    }
}

pub(super) fn container_of(pod: &Pod, name: &str) -> Option<Container> {
    let spec = pod.spec.as_ref()?;
    let inits = spec.init_containers.iter().flatten();
    let mut all = inits.chain(&spec.containers);
    all.find(|container| container.name == name).cloned()
}
