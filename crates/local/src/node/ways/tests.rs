//! Ways on the embedded cluster, with real links and rules: the test runs again in namespaces of its own, which go with it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{from_value, json};
use tokio::sync::{RwLock, watch};
use tokio::time::timeout;

use super::rounds::Rounds;
use super::told::Told;
use super::{Shared, Ways};
use crate::fault::{Fault, Faults, Refusal};
use crate::network::{Network, Settings};
use crate::{Cluster, Options};

const ALONE: &str = "SANDBAR_TEST_ALONE";
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than any test takes.
const UNTIL_RELEASED: Duration = Duration::from_secs(3600);

/// Runs the test of this name again, alone, and there its body.
fn alone(test: &str, body: impl AsyncFnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(body());
    }
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let output = unshare
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("cannot run unshare: install the package `util-linux`");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

/// A process that does nothing in a network namespace of its own.
struct Space(Child);

impl Space {
    fn new() -> Self {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--net", "sleep", "1000"])
            .stdin(Stdio::null());
        let space = Self(unshare.spawn().unwrap());
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        while std::fs::read_link(space.path()).is_ok_and(|it| it == own) {
            std::thread::sleep(Duration::from_millis(5));
        }
        space
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.0.id()))
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let join = || {
            let file = std::fs::File::open(self.path()).unwrap();
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(join).join().unwrap())
    }

    fn listen(&self, port: u16) -> TcpListener {
        self.inside(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
    }

    fn reaches(&self, address: Ipv4Addr, port: u16) -> bool {
        let to = SocketAddr::new(address.into(), port);
        self.inside(|| TcpStream::connect_timeout(&to, Duration::from_millis(300)).is_ok())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn network(directory: &tempfile::TempDir) -> Network {
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    assert!(up.unwrap().success());
    Network::open(Settings::new(directory.path()))
        .await
        .unwrap()
}

async fn open(client: &Client, network: Network) -> Arc<Ways> {
    Ways::open(client, network, watch::Sender::new(None)).await
}

async fn pod(client: &Client, name: &str) -> Pod {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let pod = from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap()
}

async fn eventually(what: &str, look: impl Fn() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < PATIENCE, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// By the whole address: others begin with it.
async fn is_in_the_rules(ways: &Ways, address: Ipv4Addr) -> bool {
    let network = ways.shared.network.read().await;
    let rules = network.as_ref().unwrap().describe().await;
    let mut words = rules.split(|one: char| !one.is_ascii_digit() && one != '.');
    words.any(|word| word == address.to_string())
}

#[test]
fn ways_follow_policies_and_labels() {
    alone(
        "node::ways::tests::ways_follow_policies_and_labels",
        async || {
            let directory = tempfile::tempdir().unwrap();
            let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
            let client = cluster.client();
            let ways = open(&client, network(&directory).await).await;
            let (a, b) = (pod(&client, "a").await, pod(&client, "b").await);
            let (at_a, at_b) = (Space::new(), Space::new());
            ways.attach(&a, &at_a.path()).await.unwrap().unwrap();
            let address = ways.attach(&b, &at_b.path()).await.unwrap().unwrap();
            let _listener = at_b.listen(80);
            assert!(!at_a.reaches(address, 80));
            let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), "default");
            let policy = json!({
                "metadata": {"name": "open"},
                "spec": {
                    "podSelector": {"matchLabels": {"app": "b"}},
                    "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}]}],
                },
            });
            let policy = from_value(policy).unwrap();
            policies
                .create(&PostParams::default(), &policy)
                .await
                .unwrap();
            eventually("opened", || at_a.reaches(address, 80)).await;
            let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
            let other = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
            pods.patch("a", &PatchParams::default(), &other)
                .await
                .unwrap();
            eventually("closed by a label", || !at_a.reaches(address, 80)).await;
            let back = Patch::Merge(json!({"metadata": {"labels": {"app": "a"}}}));
            pods.patch("a", &PatchParams::default(), &back)
                .await
                .unwrap();
            eventually("opened by a label", || at_a.reaches(address, 80)).await;
            policies
                .delete("open", &DeleteParams::default())
                .await
                .unwrap();
            eventually("closed", || !at_a.reaches(address, 80)).await;
            assert!(ways.resolv_conf(&a).contains(&ways.host_ip()));
            ways.close().await.unwrap();
            let refused = ways.attach(&a, &at_a.path()).await.unwrap_err();
            assert!(refused.contains("stopping"), "{refused}");
        },
    );
}

/// A policy for pods of this label, and called like it.
async fn policy(client: &Client, app: &str, spec: serde_json::Value) {
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), "default");
    let mut policy = json!({
        "metadata": {"name": app},
        "spec": {"podSelector": {"matchLabels": {"app": app}}},
    });
    let whole = policy["spec"].as_object_mut().unwrap();
    whole.extend(spec.as_object().unwrap().clone());
    let policy = from_value(policy).unwrap();
    let created = policies.create(&PostParams::default(), &policy).await;
    created.unwrap();
}

/// The lists and watches of namespaces, policies, Services and pods.
const OPENING: usize = 8;

/// A client of these faults, once its ways have asked for all that they follow.
async fn open_with(faults: &Faults, client: &Client, network: Network) -> Arc<Ways> {
    let ways = open(&faults.client(client.clone()), network).await;
    eventually("everything is watched", || faults.points().len() >= OPENING).await;
    ways
}

#[test]
fn a_pod_does_not_send_before_the_policies_that_the_api_has_are_in_force() {
    alone(
        "node::ways::tests::a_pod_does_not_send_before_the_policies_that_the_api_has_are_in_force",
        async || {
            let directory = tempfile::tempdir().unwrap();
            let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
            let client = cluster.client();
            let faults = Faults::at(OPENING, Fault::StallWatches(UNTIL_RELEASED));
            let ways = open_with(&faults, &client, network(&directory).await).await;
            policy(&client, "b", json!({"ingress": [{}]})).await;
            let (a, b) = (pod(&client, "a").await, pod(&client, "b").await);
            let other = pod(&client, "other").await;
            eventually("the policy is known", || *ways.shared.heard.borrow() > 0).await;
            let (at_a, at_b, at_other) = (Space::new(), Space::new(), Space::new());
            // the first request of its own, from which on watches tell nothing
            let address = ways.attach(&b, &at_b.path()).await.unwrap().unwrap();
            assert!(faults.is_waiting());
            let _listener = at_b.listen(80);
            ways.attach(&other, &at_other.path()).await.unwrap();
            eventually("it is reached by whom no policy keeps", || {
                at_other.reaches(address, 80)
            })
            .await;
            policy(&client, "a", json!({"policyTypes": ["Egress"]})).await;
            assert!(faults.is_waiting(), "nobody has heard of the policy");
            let at = at_a.path();
            let mut attached = std::pin::pin!(ways.attach(&a, &at));
            let waits = timeout(Duration::from_millis(300), &mut attached).await;
            assert!(waits.is_err(), "it waits to hear of the policy");
            faults.release();
            attached.await.unwrap().unwrap();
            assert!(!at_a.reaches(address, 80));
            eventually("it is still there", || at_other.reaches(address, 80)).await;
            ways.close().await.unwrap();
        },
    );
}

#[test]
fn a_pod_is_not_put_on_the_net_if_its_policies_cannot_be_known() {
    alone(
        "node::ways::tests::a_pod_is_not_put_on_the_net_if_its_policies_cannot_be_known",
        async || {
            let directory = tempfile::tempdir().unwrap();
            let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
            let client = cluster.client();
            let faults = Faults::at(OPENING, Fault::Refuse(Refusal::ServerError));
            let ways = open_with(&faults, &client, network(&directory).await).await;
            let pod = pod(&client, "p").await;
            let space = Space::new();
            let refused = ways.attach(&pod, &space.path()).await.unwrap_err();
            let why = "the network policies of namespace default cannot be listed";
            assert!(refused.starts_with(why), "{refused}");
            assert_eq!(ways.known(&pod).await, None);
            let address = ways.attach(&pod, &space.path()).await.unwrap();
            assert!(
                is_in_the_rules(&ways, address.unwrap()).await,
                "the next time"
            );
            ways.close().await.unwrap();
        },
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_tells_nothing_is_not_waited_for_for_ever() {
    let shared = Shared {
        network: RwLock::new(None),
        told: Mutex::new(Told::new()),
        heard: watch::Sender::new(3),
        enforcement: Rounds::new(),
        names: watch::Sender::new(()),
        trouble: watch::Sender::new(None),
    };
    assert_eq!(shared.heard_of(3).await, Ok(()));
    let why = "the watch has not told of version 4 within 10 seconds";
    assert_eq!(shared.heard_of(4).await, Err(why.to_owned()));
}

#[test]
fn pods_stay_on_the_net_when_a_process_comes_back() {
    alone(
        "node::ways::tests::pods_stay_on_the_net_when_a_process_comes_back",
        async || {
            let directory = tempfile::tempdir().unwrap();
            let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
            let client = cluster.client();
            let ways = open(&client, network(&directory).await).await;
            let (here, gone) = (pod(&client, "here").await, pod(&client, "gone").await);
            let spaces = [Space::new(), Space::new()];
            let address = ways.attach(&here, &spaces[0].path()).await.unwrap();
            ways.attach(&gone, &spaces[1].path()).await.unwrap();
            ways.leave().await;
            let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
            let now = DeleteParams::default().grace_period(0);
            pods.delete("gone", &now).await.unwrap();
            let ways = open(&client, network(&directory).await).await;
            assert_eq!(ways.shared.told().snapshot().pods.len(), 1);
            assert_eq!(ways.known(&here).await, address);
            let known = here.metadata.uid.clone().into_iter().collect();
            ways.sweep(&known).await.unwrap();
            assert_eq!(ways.known(&gone).await, None);
            assert_eq!(ways.known(&here).await, address);
            ways.close().await.unwrap();
        },
    );
}

#[test]
fn many_pods_come_at_once() {
    alone("node::ways::tests::many_pods_come_at_once", async || {
        let directory = tempfile::tempdir().unwrap();
        let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
        let client = cluster.client();
        let ways = open(&client, network(&directory).await).await;
        let spaces: Vec<_> = (0..20).map(|_| Space::new()).collect();
        let attached = spaces.iter().enumerate().map(async |(index, space)| {
            let pod = pod(&client, &format!("p{index}")).await;
            let address = ways.attach(&pod, &space.path()).await.unwrap();
            assert!(is_in_the_rules(&ways, address.unwrap()).await);
            // in its first milliseconds on the net a busy machine may lose a packet of a pod that may send
            let gateway: Ipv4Addr = ways.host_ip().parse().unwrap();
            eventually("reaches the resolver", || space.reaches(gateway, 53)).await;
            address
        });
        let mut addresses = join_all(attached).await;
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 20);
        ways.close().await.unwrap();
    });
}

#[tokio::test]
async fn without_a_network_pods_have_no_address() {
    let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
    let client = cluster.client();
    let ways = open(&client, Network::none()).await;
    let pod = pod(&client, "p").await;
    let space = std::path::Path::new("/proc/self/ns/net");
    assert_eq!(ways.attach(&pod, space).await, Ok(None));
    assert_eq!(ways.known(&pod).await, None);
    assert_eq!(ways.host_ip(), "127.0.0.1");
    assert_eq!(ways.resolv_conf(&pod), "");
    ways.leave().await;
}
