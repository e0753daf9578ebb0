//! How this node keeps its pods: each has a worker, and what that knows is told.

use std::{
    collections::{BTreeMap, HashMap},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::{Pod, ResourceRequirements},
    apimachinery::pkg::api::resource,
    jiff::Timestamp,
};
use quantity::Quantity;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    NAME, report,
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
}

impl Landlord {
    pub(crate) fn new(site: Arc<Site>, crew: Crew) -> Self {
        let (tell, news) = mpsc::unbounded_channel();
        Self {
            site,
            crew,
            news,
            tell,
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

/// One machine is shared by whoever is on it: only who could not even have it alone lacks something.
fn lack(pod: &Pod, allocatable: &BTreeMap<String, resource::Quantity>) -> Option<&'static str> {
    let asked = |name: &str| {
        let spec = pod.spec.iter();
        let each = spec.flat_map(|spec| &spec.containers).filter_map(|one| {
            let ResourceRequirements { requests, .. } = one.resources.as_ref()?;
            let amount = &requests.as_ref()?.get(name)?.0;
            Quantity::parse(amount).ok()
        });
        each.map(|amount| i128::from(amount.milli_value()))
            .sum::<i128>()
    };
    ["cpu", "memory"].into_iter().find(|name| {
        let here = allocatable.get(*name);
        let here = here.and_then(|here| Quantity::parse(&here.0).ok());
        here.is_some_and(|here| asked(name) > i128::from(here.milli_value()))
    })
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
            Some(facts) => report::plan(pod, &facts, host_ip, now),
            None => Plan::default(),
        }
    }

    fn lacks(&self, pod: &Pod) -> Option<&'static str> {
        lack(pod, &self.site.allocatable)
    }

    fn observed(&mut self, _: &Pod) {}

    fn forgotten(&mut self, uid: &str) {
        if let Some(worker) = self.crew.all().remove(uid) {
            worker.set_course(Course::Vanish);
            self.crew.see_off(worker);
        }
    }

    async fn news(&mut self) -> Option<String> {
        match self.news.recv().await {
            Some(uid) => Some(uid),
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Pod, lack};

    #[test]
    fn who_wants_no_more_than_the_whole_machine_is_taken() {
        let here = serde_json::from_value(json!({"cpu": "2", "memory": "1Gi"})).unwrap();
        let table = [
            (json!([{}]), None),
            (json!([{"cpu": "2", "memory": "1Gi"}]), None),
            (json!([{"cpu": "1500m"}, {"cpu": "500m"}]), None),
            (json!([{"cpu": "1500m"}, {"cpu": "501m"}]), Some("cpu")),
            (json!([{"memory": "1073741825"}]), Some("memory")),
            // nothing else is looked at
            (json!([{"example.com/thing": "1"}]), None),
        ];
        for (requests, expected) in table {
            let each = requests.as_array().unwrap().iter();
            let containers: Vec<Value> = each
                .map(|requests| json!({"name": "c", "resources": {"requests": requests}}))
                .collect();
            let pod = json!({"metadata": {}, "spec": {"containers": containers}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(lack(&pod, &here), expected, "{requests}");
        }
    }
}
