//! The ways of pods: the network, in step with the policies, namespaces, Services and pods of the cluster.

mod resolv_conf;
mod rounds;
mod told;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::sync::{RwLock, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::kubelet::roster::version;
use crate::network::{Forwarding, Network, NetworkError};
use rounds::Rounds;
use told::{Change, Heard, Told};

/// Names are made anew no more often than this: they are made of all pods.
const BREATH: Duration = Duration::from_millis(50);
/// The watch is behind by moments; one that is so for longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
const LEFT: &str = "the network has been left: the node is stopping";

type News = BoxStream<'static, Result<Heard, watcher::Error>>;

pub(crate) struct Ways {
    client: Client,
    shared: Arc<Shared>,
    gateway: Option<Ipv4Addr>,
    /// End when this is dropped.
    tasks: Mutex<JoinSet<()>>,
}

struct Shared {
    /// None once it has been left. Who waits for a round must not hold this.
    network: RwLock<Option<Network>>,
    told: Mutex<Told>,
    /// The version of the newest policy that was told.
    heard: watch::Sender<u64>,
    enforcement: Rounds,
    names: watch::Sender<()>,
    trouble: watch::Sender<Option<String>>,
}

impl Ways {
    /// Returns when the cluster is known. Pods that are on the net already, and that the API knows, stay on it without a break.
    pub(crate) async fn open(
        client: &Client,
        network: Network,
        trouble: watch::Sender<Option<String>>,
    ) -> Arc<Ways> {
        let gateway = network.gateway();
        let shared = Arc::new(Shared {
            network: RwLock::new(Some(network)),
            told: Mutex::new(Told::new()),
            heard: watch::Sender::new(0),
            enforcement: Rounds::new(),
            names: watch::Sender::new(()),
            trouble,
        });
        let mut tasks = JoinSet::new();
        if gateway.is_some() {
            let mut news = news(client);
            while !shared.told().is_complete() {
                shared.hear(news.next().await);
            }
            shared.take_up().await;
            let (one, two, three) = (shared.clone(), shared.clone(), shared.clone());
            tasks.spawn(async move { one.follow(news).await });
            tasks.spawn(async move { two.enforcement.run(|| two.enforce()).await });
            tasks.spawn(async move { three.name().await });
        }
        Arc::new(Ways {
            client: client.clone(),
            shared,
            gateway,
            tasks: Mutex::new(tasks),
        })
    }

    /// Puts a pod on the net, by its network namespace. When this returns, all policies that the API has had when this was called
    /// are in force, and it may send. None without a network: the loopback link, which a pod then has, is up from the start.
    pub(crate) async fn attach(
        &self,
        pod: &Pod,
        namespace: &Path,
    ) -> Result<Option<Ipv4Addr>, String> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let attached = async {
            let network = self.shared.network.read().await;
            let network = network.as_ref().ok_or(LEFT)?;
            let attached = network.attach(uid, namespace).await;
            attached.map_err(|error| error.to_string())
        };
        // neither waits for the other, and asking takes less time
        let (attached, heard) = tokio::join!(attached, self.hear_of_policies(pod));
        let address = attached?;
        if address.is_some() {
            let enforced = match heard {
                Ok(()) => {
                    // from here on any round lets it send
                    self.shared.told().attach(pod);
                    self.shared.enforced().await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = enforced {
                // why it could not be attached says more than why it could not be detached
                let _ = self.detach(uid).await;
                return Err(error);
            }
        }
        Ok(address)
    }

    /// Waits until everything has been told that the API has on policies for a pod. The watch is later than the API, and may be
    /// later than that of pods.
    async fn hear_of_policies(&self, pod: &Pod) -> Result<(), String> {
        if self.gateway.is_none() {
            return Ok(());
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let policies: Api<NetworkPolicy> = Api::namespaced(self.client.clone(), namespace);
        let listed = policies.list_metadata(&ListParams::default()).await;
        let listed = listed.map_err(|error| {
            format!("the network policies of namespace {namespace} cannot be listed: {error}")
        })?;
        let newest = listed.items.iter().map(version).max();
        let heard = self.shared.heard_of(newest.unwrap_or_default()).await;
        heard.map_err(|why| {
            format!("the network policies of namespace {namespace} are not in force: {why}")
        })
    }

    /// The address of a pod that an earlier process put on the net. It may send as its policies have it.
    pub(crate) async fn known(&self, pod: &Pod) -> Option<Ipv4Addr> {
        let uid = pod.metadata.uid.as_deref()?;
        let address = {
            let network = self.shared.network.read().await;
            *network.as_ref()?.addresses().get(uid)?
        };
        let is_new = self.shared.told().attach(pod);
        if is_new {
            // it goes on without sending until the rules can be made
            let _ = self.shared.enforced().await;
        }
        Some(address)
    }

    /// Takes a pod off the net, if it is on it. What fails can be tried again.
    pub(crate) async fn detach(&self, uid: &str) -> Result<(), NetworkError> {
        let was_attached = self.shared.told().detach(uid);
        let network = self.shared.network.read().await;
        let Some(network) = network.as_ref() else {
            return Ok(());
        };
        let detached = network.detach(uid).await;
        if was_attached {
            // no rule must speak of its address when another gets it
            self.shared.enforcement.want();
        }
        detached
    }

    /// Takes every pod but these off the net.
    pub(crate) async fn sweep(&self, known: &BTreeSet<String>) -> Result<(), NetworkError> {
        let stays = |uid: &str| known.contains(uid);
        self.shared.told().detach_all_but(stays);
        let network = self.shared.network.read().await;
        let Some(network) = network.as_ref() else {
            return Ok(());
        };
        let swept = network.sweep(known).await;
        self.shared.enforcement.want();
        swept
    }

    /// What `/etc/resolv.conf` says in a pod; nothing without a network.
    pub(crate) fn resolv_conf(&self, pod: &Pod) -> String {
        let gateway = self.gateway;
        gateway.map_or_else(String::new, |gateway| {
            resolv_conf::resolv_conf(gateway, pod)
        })
    }

    /// The host's address as pods know it.
    pub(crate) fn host_ip(&self) -> String {
        self.gateway.unwrap_or(Ipv4Addr::LOCALHOST).to_string()
    }

    /// Leaves pods on the net, under the rules they have, for a process that comes back.
    pub(crate) async fn leave(&self) {
        if let Some(network) = self.stop().await {
            network.leave().await;
        }
    }

    /// Removes every trace of the network.
    pub(crate) async fn close(&self) -> Result<Forwarding, NetworkError> {
        match self.stop().await {
            Some(network) => network.close().await,
            None => Ok(Forwarding::Untouched),
        }
    }

    async fn stop(&self) -> Option<Network> {
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        tasks.shutdown().await;
        self.shared.enforcement.end(LEFT);
        self.shared.network.write().await.take()
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        locked(&self.told)
    }

    async fn take_up(&self) {
        let network = self.network.read().await;
        let attached = network.as_ref().map(Network::addresses);
        let attached = attached.unwrap_or_default();
        self.told().attach_known(attached.keys());
    }

    /// Waits until a policy of this version has been told, or one after it.
    async fn heard_of(&self, version: u64) -> Result<(), String> {
        let mut heard = self.heard.subscribe();
        let told = timeout(PATIENCE, heard.wait_for(|heard| *heard >= version)).await;
        match told {
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "the watch has not told of version {version} within {} seconds",
                PATIENCE.as_secs()
            )),
        }
    }

    /// Waits until rules are in force that were made after this was called.
    async fn enforced(&self) -> Result<(), String> {
        let round = self.enforcement.want();
        self.enforcement.outcome(round).await
    }

    async fn follow(&self, mut news: News) {
        loop {
            self.hear(news.next().await);
        }
    }

    /// Watches do not end, so there is always something.
    fn hear(&self, news: Option<Result<Heard, watcher::Error>>) {
        let change = match news {
            Some(Ok(heard)) => {
                let (change, newest) = {
                    let mut told = self.told();
                    (told.hear(&heard), told.newest_policy())
                };
                self.heard.send_if_modified(|known| {
                    let is_news = newest > *known;
                    *known = newest;
                    is_news
                });
                change
            }
            Some(Err(error)) => {
                self.complain(error.to_string());
                Change::default()
            }
            None => Change::default(),
        };
        if change.rules {
            self.enforcement.want();
        }
        if change.names {
            self.names.send_replace(());
        }
    }

    async fn enforce(&self) -> Result<(), String> {
        let network = self.network.read().await;
        let network = network.as_ref().ok_or(LEFT)?;
        let snapshot = self.told().snapshot();
        let enforced = network.enforce(&snapshot).await;
        enforced.map_err(|error| {
            self.complain(error.to_string());
            error.to_string()
        })
    }

    async fn name(&self) {
        let mut changes = self.names.subscribe();
        loop {
            changes.borrow_and_update();
            let records = self.told().records();
            if let Some(network) = self.network.read().await.as_ref() {
                network.set_records(records);
            }
            tokio::time::sleep(BREATH).await;
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn complain(&self, error: String) {
        self.trouble.send_replace(Some(error));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn news(client: &Client) -> News {
    let namespaces = events(client).map_ok(Heard::Namespace).boxed();
    let policies = events(client).map_ok(Heard::Policy).boxed();
    let services = events(client)
        .map_ok(|event| Heard::Service(Box::new(event)))
        .boxed();
    let pods = events(client)
        .map_ok(|event| Heard::Pod(Box::new(event)))
        .boxed();
    select_all([namespaces, policies, services, pods]).boxed()
}

fn events<K>(client: &Client) -> BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<K> = Api::all(client.clone());
    let events = watcher(api, watcher::Config::default());
    events.default_backoff().boxed()
}
