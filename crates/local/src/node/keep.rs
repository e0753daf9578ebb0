//! How this node keeps its pods: each has a worker, and what that knows is told.

use std::{
    collections::HashMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::join_all;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    NAME,
    report::{self, Host},
    room,
    site::Site,
    worker::{Course, Worker},
};
use crate::kubelet::{plan::Plan, run::Keeper};

/// The pods that are looked after, by uid. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Crew {
    all: Arc<Mutex<HashMap<String, Worker>>>,
    /// Those of whom nothing is to be left, and something still is.
    leaving: Arc<Mutex<JoinSet<()>>>,
}

impl Crew {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Worker>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of a worker in the background.
    fn see_off(&self, worker: Worker) {
        let mut leaving = self.leaving();
        while leaving.try_join_next().is_some() {}
        leaving.spawn(worker.ended());
    }

    fn take(&self) -> HashMap<String, Worker> {
        std::mem::take(&mut *self.all())
    }

    /// All pods, and those of their containers that run.
    pub(crate) fn living(&self) -> Vec<(Arc<Pod>, Vec<String>)> {
        self.all().values().map(Worker::living).collect()
    }

    /// Ends all pods, each in its own time. What they have stays.
    pub(crate) async fn rest(&self) {
        let workers = self.take().into_values();
        join_all(workers.map(|worker| {
            worker.set_course(Course::Rest);
            worker.ended()
        }))
        .await;
        let leaving = std::mem::take(&mut *self.leaving());
        leaving.join_all().await;
    }

    /// Looks after nobody any more. All pods go on.
    pub(crate) fn leave(&self) {
        self.take().into_values().for_each(Worker::leave);
    }
}

pub(crate) struct Landlord {
    site: Arc<Site>,
    crew: Crew,
    news: mpsc::UnboundedReceiver<String>,
    tell: mpsc::UnboundedSender<String>,
    /// What is short on the disk.
    pressure: watch::Receiver<Option<String>>,
}

impl Landlord {
    pub(crate) fn new(
        site: Arc<Site>,
        crew: Crew,
        pressure: watch::Receiver<Option<String>>,
    ) -> Self {
        let (tell, news) = mpsc::unbounded_channel();
        Self {
            site,
            crew,
            news,
            tell,
            pressure,
        }
    }
}

impl Landlord {
    /// Takes up pods that an earlier process has started, and returns when it has.
    pub(crate) async fn take_up(&self, pods: &[Pod]) {
        let ours = pods.iter().filter(|pod| is_here(pod));
        join_all(ours.map(|pod| async {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let worker = Worker::start(&self.site, Arc::new(pod.clone()), self.tell.clone());
            worker.found().await;
            self.crew.all().insert(uid, worker);
        }))
        .await;
    }
}

fn is_here(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node == Some(NAME)
}

/// Ends and removes a pod that nobody knows any more, but whose directory is there.
pub(crate) async fn evict(site: &Arc<Site>, uid: &str) {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    let (tell, _news) = mpsc::unbounded_channel();
    let worker = Worker::start(site, Arc::new(pod), tell);
    worker.set_course(Course::Vanish);
    worker.ended().await;
}

impl Keeper for Landlord {
    type Memory = ();

    fn run(&mut self, pod: &Pod, (): &mut (), host_ip: &str, now: Timestamp) -> Plan {
        let Some(uid) = &pod.metadata.uid else {
            return Plan::default();
        };
        let mut crew = self.crew.all();
        let worker = crew
            .entry(uid.clone())
            .or_insert_with(|| Worker::start(&self.site, Arc::new(pod.clone()), self.tell.clone()));
        worker.tell(pod);
        match worker.facts() {
            Some(facts) => {
                let host = Host {
                    ip: host_ip,
                    allocatable: &self.site.allocatable,
                };
                report::plan(pod, &facts, &host, now)
            }
            None => Plan::default(),
        }
    }

    fn lacks(&self, pod: &Pod) -> Option<&'static str> {
        room::lack(pod, &self.site.allocatable).map(|lack| lack.resource)
    }

    fn disk_pressure(&self) -> Option<String> {
        self.pressure.borrow().clone()
    }

    fn observed(&mut self, _: &Pod) {}

    fn forgotten(&mut self, uid: &str) {
        if let Some(worker) = self.crew.all().remove(uid) {
            worker.set_course(Course::Vanish);
            self.crew.see_off(worker);
        }
    }

    async fn news(&mut self) -> Option<String> {
        tokio::select! {
            Some(uid) = self.news.recv() => Some(uid),
            Ok(()) = self.pressure.changed() => None,
            else => pending().await,
        }
    }
}
