//! One pod: a task that learns what happens to it, asks its plan what to do, and has it done.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
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
    end,
    facts::{Busy, End, Facts, Health, Inmate, Made, Run, Setback, Shell},
    plan::{self, Step},
    probes::{self, Finding, Target, Watching},
    report::PULL_ERROR,
    site::Site,
    tenants::Tenant,
    trouble::Trouble,
    volumes,
};
use crate::{clock::after, kubelet::plan::pod_label};

/// How long a status waits for the start of a container, which mostly comes at once and is then told in the same write.
const HUSH: Duration = Duration::from_millis(150);
/// How often volumes are brought up to date with what they show.
const REFRESH: Duration = Duration::from_secs(60);

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
            hush_until: None,
            failures: 0,
            is_left: false,
        }
    }

    async fn run(mut self, look: watch::Sender<bool>) {
        let first = self.wishes.borrow().pod.clone();
        self.recover(&first).await;
        self.show();
        look.send_replace(true);
        while !self.is_left {
            let Wish { pod, course } = self.wishes.borrow_and_update().clone();
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

    fn is_over(&self) -> bool {
        self.jobs.is_empty()
            && matches!(
                self.facts.shell,
                Shell::Absent | Shell::Ended | Shell::Broken(_)
            )
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

    /// What changes with time alone: how a failed pull is told, and what volumes show.
    fn own_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let setbacks = self.facts.containers.values();
        let turns = setbacks
            .filter_map(|inmate| Some(after(inmate.setback.as_ref()?.at, PULL_ERROR)))
            .filter(|turn| *turn > now);
        turns.chain(self.refresh_at).chain(self.hush_until).min()
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
            }
            Some((name, attempt, finding)) = self.findings.recv() => {
                self.found(&name, attempt, finding, pod);
            }
            changed = self.wishes.changed() => {
                self.hush_until = hush;
                self.is_left = changed.is_err();
            }
            () = sleep => self.refresh(pod),
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
                    lodging.stop(&container, &made, &home, &target, grace).await;
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
        let attempt = inmate.next_attempt();
        let target = self.target(pod, &name, &home);
        let (lodging, pod, mut by) = (self.lodging.clone(), pod.clone(), self.by.subscribe());
        self.job(async move {
            // a pod that is told to end waits for no image
            let started = tokio::select! {
                started = lodging.start(&pod, &container, attempt, &home, target) => started,
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

    fn fold(&mut self, done: Done, pod: &Pod) {
        match done {
            Done::Made(Ok(home)) => {
                self.move_in(home);
                self.hush_until = Some(after(self.lodging.site.clock.now(), HUSH));
            }
            Done::Made(Err(trouble)) => {
                self.failures += 1;
                self.warn(pod, &trouble);
                self.facts.shell = Shell::Broken(self.setback(trouble, self.failures));
            }
            Done::Started(name, Ok((run, hook))) => {
                self.started(&name, run, pod);
                if let Some(trouble) = hook {
                    self.warn(pod, &trouble);
                }
            }
            Done::Started(name, Err(trouble)) => self.set_back(&name, trouble, pod),
            Done::Stopped(name) => self.busy(&name, None),
            Done::Resized(name, Ok(made)) => {
                self.busy(&name, None);
                if let Some(inmate) = self.facts.containers.get_mut(&name)
                    && let Some(run) = &mut inmate.run
                {
                    run.made = made;
                    inmate.setback = None;
                }
            }
            Done::Resized(name, Err(trouble)) => {
                let inmate = self.facts.containers.get(&name);
                match inmate.and_then(Inmate::alive) {
                    Some(_) => self.set_back(&name, trouble, pod),
                    None => self.busy(&name, None),
                }
            }
            Done::Ended(states) => {
                for state in states {
                    self.ended(&state, pod);
                }
                self.vacate(Shell::Ended);
            }
            Done::Refreshed(refreshed) => {
                if let Err(trouble) = refreshed {
                    self.warn(pod, &trouble);
                }
            }
        }
    }

    /// There is something to live in.
    pub(super) fn move_in(&mut self, home: Home) {
        self.failures = 0;
        self.facts.shell = Shell::Whole {
            number: home.number,
            ip: home.address.map(|address| address.to_string()),
        };
        self.events = Some(home.shim.events());
        self.lodging.site.tenants.set(
            &self.lodging.uid,
            Tenant {
                place: self.lodging.place.clone(),
                pod: Some(Arc::clone(&home.shim)),
                running: self.running.subscribe(),
            },
        );
        self.home = Some(home);
        let pod = &self.wishes.borrow().pod;
        let now = self.lodging.site.clock.now();
        self.refresh_at = volumes::is_refreshable(pod).then(|| after(now, REFRESH));
    }

    /// There is nothing to live in any more.
    pub(super) fn vacate(&mut self, shell: Shell) {
        self.facts.shell = shell;
        self.home = None;
        self.events = None;
        self.refresh_at = None;
        self.watched.clear();
        self.running.send_replace(BTreeMap::new());
        let now = self.lodging.site.clock.now();
        for run in self
            .facts
            .containers
            .values_mut()
            .filter_map(|one| one.run.as_mut())
        {
            run.end.get_or_insert_with(|| end::unseen(now));
        }
        self.lodging.site.tenants.set(
            &self.lodging.uid,
            Tenant {
                place: self.lodging.place.clone(),
                pod: None,
                running: self.running.subscribe(),
            },
        );
    }

    fn started(&mut self, name: &str, run: Run, pod: &Pod) {
        let attempt = run.made.attempt;
        let inmate = self.facts.containers.entry(name.to_owned()).or_default();
        inmate.busy = None;
        inmate.setback = None;
        inmate.health = Health::default();
        if let Some(last) = inmate.run.replace(run) {
            let before = last.terminated(&self.lodging.uid, name);
            inmate.before = before.or(inmate.before.take());
        }
        let early = self.early.remove(&(name.to_owned(), attempt));
        self.early.retain(|(other, _), _| other != name);
        match early {
            Some(state) => self.ended(&state, pod),
            None => self.watch(name, pod),
        }
    }

    /// Begins to ask a container how it is.
    pub(super) fn watch(&mut self, name: &str, pod: &Pod) {
        let (Some(container), Some(home)) = (container_of(pod, name), self.home.clone()) else {
            return;
        };
        let target = self.target(pod, name, &home);
        let Some(inmate) = self.facts.containers.get_mut(name) else {
            return;
        };
        let Some(run) = inmate.alive() else { return };
        let (attempt, started_at) = (run.made.attempt, run.started_at);
        inmate.health.started |= container.startup_probe.is_none();
        inmate.health.ready |= inmate.health.started && container.readiness_probe.is_none();
        let (find, name) = (self.find.clone(), name.to_owned());
        let has_probes = [
            &container.startup_probe,
            &container.readiness_probe,
            &container.liveness_probe,
        ];
        if has_probes.iter().any(|probe| probe.is_some()) {
            let told = name.clone();
            let say = move |finding| {
                let _ = find.send((told.clone(), attempt, finding));
            };
            let watching = probes::watch(&container, target, started_at, say);
            self.watched.insert(name, watching);
        }
    }

    fn found(&mut self, name: &str, attempt: u32, finding: Finding, pod: &Pod) {
        let Some(inmate) = self.facts.containers.get_mut(name) else {
            return;
        };
        if inmate.alive().is_none_or(|run| run.made.attempt != attempt) {
            return;
        }
        match finding {
            Finding::Started => {
                let container = container_of(pod, name);
                inmate.health.started = true;
                inmate.health.ready |= container.is_some_and(|one| one.readiness_probe.is_none());
            }
            Finding::Ready(ready) => inmate.health.ready = ready,
            Finding::Unhealthy {
                message,
                kill,
                grace,
                ..
            } => {
                if kill {
                    inmate.health.lost = Some(grace);
                    inmate.health.ready = false;
                }
                self.lodging.site.events.warn(pod, "Unhealthy", message);
            }
        }
    }

    fn setback(&self, trouble: Trouble, times: u32) -> Setback {
        Setback {
            trouble,
            at: self.lodging.site.clock.now(),
            times,
        }
    }

    fn set_back(&mut self, name: &str, trouble: Trouble, pod: &Pod) {
        let is_ending = self.by.borrow().is_some();
        if !is_ending {
            self.warn(pod, &trouble);
        }
        let inmate = self.facts.containers.entry(name.to_owned()).or_default();
        inmate.busy = None;
        let times = inmate.setback.as_ref().map_or(1, |before| before.times + 1);
        let setback = self.setback(trouble, times);
        if !is_ending && let Some(inmate) = self.facts.containers.get_mut(name) {
            inmate.setback = Some(setback);
        }
    }

    fn warn(&self, pod: &Pod, trouble: &Trouble) {
        let reason = match trouble.reason {
            "ContainerCreating" => "FailedMount",
            "FailedCreatePodSandBox" => "FailedCreatePodSandBox",
            "PostStartHookError" => "FailedPostStartHook",
            _ => "Failed",
        };
        let message = trouble.message.clone();
        self.lodging.site.events.warn(pod, reason, message);
    }

    async fn happened(&mut self, event: Option<Event>, pod: &Pod) {
        match event {
            Some(Event::Started(state)) => self.runs(&state),
            Some(Event::Exited(state)) => self.ended(&state, pod),
            Some(Event::Missed) => self.catch_up(pod).await,
            // a pod that ends takes its shim along
            None if matches!(self.facts.shell, Shell::Ending) => self.events = None,
            None => {
                for state in end::settle(&self.lodging.place.shim()).await {
                    self.ended(&state, pod);
                }
                self.lodging.detach().await;
                self.vacate(Shell::Absent);
            }
        }
    }

    async fn catch_up(&mut self, pod: &Pod) {
        let Some(home) = self.home.clone() else {
            return;
        };
        for state in home.shim.containers().await.unwrap_or_default() {
            match state.exit {
                Some(_) => self.ended(&state, pod),
                None => self.runs(&state),
            }
        }
    }

    pub(super) fn runs(&self, state: &ContainerState) {
        let (name, attempt) = (state.name.clone(), state.attempt);
        self.running.send_modify(|running| {
            running.insert(name, attempt);
        });
    }

    fn ended(&mut self, state: &ContainerState, pod: &Pod) {
        let (name, attempt) = (&state.name, state.attempt);
        self.running.send_if_modified(|running| {
            let is_it = running.get(name) == Some(&attempt);
            if is_it {
                running.remove(name);
            }
            is_it
        });
        let container = container_of(pod, name);
        let end: End = end::of(state, container.as_ref(), &self.lodging.place);
        let inmate = self.facts.containers.entry(name.clone()).or_default();
        match &mut inmate.run {
            Some(run) if run.made.attempt == attempt => {
                run.end.get_or_insert(end);
                inmate.health = Health::default();
                inmate.setback = None;
                self.watched.remove(name);
            }
            Some(run) if run.made.attempt > attempt => {}
            _ => drop(self.early.insert((name.clone(), attempt), state.clone())),
        }
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

pub(super) fn container_of(pod: &Pod, name: &str) -> Option<Container> {
    let spec = pod.spec.as_ref()?;
    let inits = spec.init_containers.iter().flatten();
    let mut all = inits.chain(&spec.containers);
    all.find(|container| container.name == name).cloned()
}
