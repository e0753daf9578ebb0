//! `sandbar controller` as a cluster runs it, on the API of `sandbar api`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    net::TcpListener,
    path::PathBuf,
    time::{Duration, Instant},
};

use api::sigs::v1beta1::Sandbox;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use support::{
    replica::{LEASE, Process, Replica, sandbar},
    until,
};
use tempfile::TempDir;

/// An API without anything in it.
struct Server {
    _process: Process,
    _directory: TempDir,
    kubeconfig: PathBuf,
    client: Client,
}

impl Server {
    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let data = directory.path().to_str().unwrap();
        let command = sandbar(&["api", "--port", "0", "--ephemeral", "--data-dir", data]);
        let process = Process::start(command, |child| Box::new(child.stdout.take().unwrap()));
        until("the API is ready", async || process.said("ready")).await;
        let kubeconfig = directory.path().join("kubeconfig");
        let options = KubeConfigOptions::default();
        let read = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(read, &options);
        Self {
            _process: process,
            client: Client::try_from(config.await.unwrap()).unwrap(),
            kubeconfig,
            _directory: directory,
        }
    }

    async fn install(&self) {
        support::install(&self.client).await;
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create_sandbox(&self, name: &str) {
        let pod = json!({"spec": {"containers": [{"name": "main", "image": "app:1"}]}});
        let sandbox = json!({"metadata": {"name": name}, "spec": {"podTemplate": pod}});
        let sandbox: Sandbox = serde_json::from_value(with_kind(sandbox)).unwrap();
        let params = PostParams::default();
        self.api().create(&params, &sandbox).await.unwrap();
    }

    async fn until_pod(&self, name: &str) {
        let pods: Api<Pod> = self.api();
        until("its pod", async || pods.get_opt(name).await.unwrap()).await;
    }

    async fn holder(&self) -> String {
        let lease = self.api::<Lease>().get(LEASE).await.unwrap();
        lease.spec.unwrap().holder_identity.unwrap_or_default()
    }
}

fn with_kind(mut sandbox: serde_json::Value) -> serde_json::Value {
    sandbox["apiVersion"] = json!("agents.x-k8s.io/v1beta1");
    sandbox["kind"] = json!("Sandbox");
    sandbox
}

/// The names of all samples. Every line is a sample or a comment, and every sample has a number and a type.
fn samples(text: &str) -> Vec<&str> {
    let mut types = Vec::new();
    let mut names = Vec::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<_> = comment.splitn(3, ' ').collect();
            match words[..] {
                ["TYPE", name, "counter" | "gauge" | "histogram"] => types.push(name),
                ["HELP", _, _] => {}
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        assert!(labels.ends_with('}'), "{line}");
        for label in labels.trim_end_matches('}').split("\",") {
            let is_whole = label.is_empty() || label.contains("=\"");
            assert!(is_whole, "{label:?} in {line}");
        }
        let of_type = |kind: &&str| name.starts_with(*kind);
        assert!(types.last().is_some_and(of_type), "{line} has no type");
        names.push(name);
    }
    names
}

const EXPECTED: &[&str] = &[
    "agent_sandboxes",
    "agent_sandbox_build_info",
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_time_seconds_bucket",
    "workqueue_depth",
    "workqueue_queue_duration_seconds_count",
    "workqueue_work_duration_seconds_sum",
    "workqueue_retries_total",
    "rest_client_requests_total",
    "rest_client_request_duration_seconds_bucket",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "sandbar_leading",
    "sandbar_watched_objects",
];

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_its_kinds_and_then_controls_them() {
    let server = Server::start().await;
    let unused = ["-webhook-port=9443", "--enable-pprof", "--kube-api-qps=-1"];
    let replica = Replica::start(&server.kubeconfig, &unused);
    let wait = until("told to wait", async || {
        let (code, text) = replica.probe("/readyz").await;
        (code == 503 && text.contains("not served")).then_some(text)
    })
    .await;
    for told in [
        "sandboxes of agents.x-k8s.io/v1beta1",
        "sandboxclaims of extensions.agents.x-k8s.io/v1beta1",
        "sandbar crds",
    ] {
        assert!(wait.contains(told), "{wait}");
    }
    assert_eq!(replica.probe("/healthz").await, (200, "ok".to_owned()));
    assert_eq!(replica.probe("/other").await.0, 404);
    let said = async || replica.0.said("flags without effect");
    let warning = until("warned", said).await;
    let flags = "--kube-api-qps, --enable-pprof, --webhook-port";
    assert!(warning.ends_with(flags), "{warning}");
    server.install().await;
    replica.until_ready().await;
    assert!(server.holder().await.contains('_'));
    let lease = server.api::<Lease>().get(LEASE).await.unwrap();
    let managers = lease.metadata.managed_fields.unwrap_or_default();
    let user_agent = managers.first().and_then(|one| one.manager.clone());
    assert_eq!(user_agent.as_deref(), Some("sandbar-controller"));
    server.create_sandbox("box").await;
    server.until_pod("box").await;
    let text = replica.metrics().await;
    let names = samples(&text);
    for name in EXPECTED {
        assert!(names.contains(name), "{name} in {names:#?}");
    }
    for controller in [
        "sandbox",
        "sandboxclaim",
        "sandboxwarmpool",
        "sandboxtemplate",
    ] {
        let depth = format!("workqueue_depth{{controller=\"{controller}\",name=\"{controller}\"}}");
        assert!(text.contains(&depth), "{depth}");
    }
    let passes = "controller_runtime_reconcile_total{controller=\"sandbox\",result=\"success\"}";
    until("a pass has ended", async || {
        let text = replica.metrics().await;
        (!text.contains(&format!("{passes} 0\n"))).then_some(())
    })
    .await;
    assert!(text.contains("code=\"201\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_told_to_stop_makes_way_at_once() {
    let server = Server::start().await;
    server.install().await;
    let mut first = Replica::start(&server.kubeconfig, &[]);
    first.until_leading().await;
    let second = Replica::start(&server.kubeconfig, &[]);
    second.until_ready().await;
    assert!(second.metrics().await.contains("\nsandbar_leading 0\n"));
    until("standing by", async || second.0.said("standing by")).await;
    let before = server.holder().await;
    let start = Instant::now();
    first.0.terminate();
    let status = first.0.child.wait().unwrap();
    assert!(status.success(), "{status}");
    second.until_leading().await;
    // a lease that was not given back would have to run out first
    let took = start.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert_ne!(server.holder().await, before);
    server.create_sandbox("later").await;
    server.until_pod("later").await;
    second.0.terminate();
    until("released", async || {
        server.holder().await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_election_it_leads_and_leaves_the_lease_alone() {
    let server = Server::start().await;
    server.install().await;
    let replica = Replica::start(&server.kubeconfig, &["-leader-elect=false"]);
    replica.until_ready().await;
    server.create_sandbox("box").await;
    server.until_pod("box").await;
    let lease = server.api::<Lease>().get_opt(LEASE).await.unwrap();
    assert!(lease.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_cannot_be_had_is_told() {
    let server = Server::start().await;
    server.install().await;
    // the last word counts, as it does for Go
    let nowhere = ["--leader-election-namespace=nowhere"];
    let replica = Replica::start(&server.kubeconfig, &nowhere);
    until("told why it is not ready", async || {
        let (code, text) = replica.probe("/readyz").await;
        let is_told = code == 503 && text.contains("namespaces \"nowhere\" not found");
        is_told.then_some(())
    })
    .await;
    // the probe may be quicker than the log
    let said = async || replica.0.said("the lease cannot be held");
    let warning = until("warned", said).await;
    assert!(warning.contains("nothing is done"), "{warning}");
    assert!(warning.contains("--leader-election-namespace"), "{warning}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_serves_both_families_holds_both_leases() {
    let server = Server::start().await;
    server.install().await;
    let both = ["--family", "all", "--leader-elect-namespace=default"];
    let replica = Replica::start(&server.kubeconfig, &both);
    replica.until_ready().await;
    let other = server.api::<Lease>().get("f57b9a68.kruise.io").await;
    let other = other.unwrap().spec.unwrap().holder_identity;
    assert_eq!(other, Some(server.holder().await));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_family_says_whether_there_is_an_election_unless_a_flag_does() {
    let server = Server::start().await;
    let lease = async || {
        let leases = server.api::<Lease>();
        leases.get_opt("f57b9a68.kruise.io").await.unwrap()
    };
    let kruise = ["--family=kruise", "--leader-elect-namespace=default"];
    let replica = Replica::start(&server.kubeconfig, &kruise);
    replica.until_leading().await;
    assert!(lease().await.is_none());
    let kruise = [kruise[0], kruise[1], "--leader-elect"];
    let replica = Replica::start(&server.kubeconfig, &kruise);
    replica.until_leading().await;
    assert!(lease().await.is_some());
}

#[test]
fn what_is_wrong_with_a_flag_is_told_with_the_remedy() {
    for (flag, remedy) in [
        ("--leader-elect=maybe", "use true or false"),
        ("-extensions=2", "use true or false"),
        ("--sandbox-concurrent-workers=0", "at least 1"),
        ("--kube-api-burst=0", "at least 1"),
        (
            "--metrics-bind-address=8080",
            "use [host]:port, such as :8080",
        ),
        ("--health-probe-bind-address=:http", "use [host]:port"),
        (
            "--sandbox-warm-pool-readiness-grace-period=5",
            "use a time such as 500ms, 30s, 5m or 1h30m",
        ),
        ("--sandbox-warm-pool-max-refill-rate=-2", "at least 0"),
        ("--family=none", "sigs, kruise, all"),
        ("--zap-log-level=loud", "use debug, info, error, panic"),
        (
            "--kubeconfig=/no/such/file",
            "name another with --kubeconfig",
        ),
    ] {
        let local = [
            "--metrics-bind-address=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
        ];
        let other = local
            .into_iter()
            .find(|local| flag.split('=').next() != local.split('=').next());
        let output = sandbar(&["controller", other.unwrap(), flag]).output();
        let output = output.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{flag}: {error}");
        let name = flag.trim_start_matches('-').split('=').next().unwrap();
        let named = format!("--{name}");
        assert!(error.contains(&named), "{flag}: {error}");
        assert!(error.contains(remedy), "{flag}: {error}");
    }
}

#[test]
fn an_address_in_use_is_named_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let flag = format!("--metrics-bind-address={address}");
    let output = sandbar(&["controller", &flag]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = format!(
        "cannot listen on {address}: choose another address with --metrics-bind-address, or 0 for none"
    );
    assert!(error.contains(&told), "{error}");
}

#[test]
fn its_help_names_the_defaults() {
    let help = sandbar(&["controller", "--help"]).output().unwrap();
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    for default in [
        "true, with --family kruise false",
        ":8080, with --family kruise 0",
        ":8081",
        "sigs",
        "cluster.local",
        "100",
        "5m",
        "info",
    ] {
        assert!(help.contains(&format!("[default: {default}]")), "{help}");
    }
}
