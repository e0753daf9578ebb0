//! A server with a pod on a node, and the programs that talk to it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use local::serve::{self, Home, Limits, Running};
use local::server::{Body, Server};
use local::{Cluster, Options};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::host::Host;

pub(crate) const NODE: &str = "here";

pub(crate) struct Stage {
    pub(crate) directory: TempDir,
    pub(crate) cluster: Cluster,
    pub(crate) running: Running,
    pub(crate) host: Arc<Host>,
    /// What connections have become, by the header that said so.
    upgrades: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    /// With the pods `p` (one container), `two` (two of them), `reads` (one that has standard input) and `terminal` (one that
    /// has a terminal), all running.
    pub(crate) async fn new() -> Stage {
        let directory = TempDir::new().unwrap();
        let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
        let host = Arc::new(Host::new(directory.path().join("logs")));
        cluster.set_streams(NODE, Arc::clone(&host) as _);
        let upgrades = Arc::<Mutex<Vec<String>>>::default();
        let home = Home::open(directory.path().join("home")).unwrap();
        let options = serve::Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            names: Vec::new(),
            limits: Limits::default(),
        };
        let service = watched(cluster.service(), Arc::clone(&upgrades));
        let service = tower::service_fn(service);
        let running = serve::start(home, service, options).await.unwrap();
        let stage = Stage {
            directory,
            cluster,
            running,
            host,
            upgrades,
        };
        stage.pod("p", json!([container("main")]), "Running").await;
        let two = json!([container("main"), container("side")]);
        stage.pod("two", two, "Running").await;
        let mut reads = container("main");
        reads["stdin"] = json!(true);
        let mut terminal = reads.clone();
        terminal["tty"] = json!(true);
        stage.pod("reads", json!([reads]), "Running").await;
        stage.pod("terminal", json!([terminal]), "Running").await;
        stage
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client(), "default")
    }

    /// Makes a pod on the node whose containers are in this state.
    pub(crate) async fn pod(&self, name: &str, containers: Value, phase: &str) {
        let statuses = containers.as_array().unwrap().iter().map(|container| {
            let container = container["name"].as_str().unwrap();
            let state = match phase {
                "Running" => json!({"running": {"startedAt": "2026-11-16T17:00:00Z"}}),
                _ => json!({"waiting": {"reason": "ContainerCreating"}}),
            };
            json!({
                "name": container, "image": "i", "imageID": "i", "ready": phase == "Running", "restartCount": 1,
                "containerID": format!("x-{name}-{container}-1"), "state": state,
                "lastState": {"terminated": {"exitCode": 1, "containerID": format!("x-{name}-{container}-0")}},
            })
        });
        let mut statuses: Vec<Value> = statuses.collect();
        if phase != "Running" {
            statuses
                .iter_mut()
                .for_each(|status| status["lastState"] = json!({}));
        }
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": NODE, "containers": containers, "terminationGracePeriodSeconds": 0},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        // the default account comes a moment after the namespace
        while let Err(error) = self.pods().create(&PostParams::default(), &pod).await {
            assert!(error.to_string().contains("serviceaccount"), "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let status = json!({"status": {"phase": phase, "containerStatuses": statuses}});
        let patch = Patch::Merge(&status);
        let params = PatchParams::default();
        self.pods()
            .patch_status(name, &params, &patch)
            .await
            .unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the log of one run of a container.
    pub(crate) fn write_log(&self, container_id: &str, lines: &str) {
        let directory = self.host.logs.join(container_id);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("0.log"), lines).unwrap();
    }

    /// A client with TLS and a token, as any other process has it.
    pub(crate) async fn client(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(self.running.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
        kube::Client::try_from(config.await.unwrap()).unwrap()
    }

    /// What connections have become since this was last asked.
    pub(crate) fn upgrades(&self) -> Vec<String> {
        std::mem::take(&mut self.upgrades.lock().unwrap())
    }

    pub(crate) fn kubectl(&self, kubectl: &Kubectl, arguments: &[&str]) -> Command {
        let mut command = Command::new(&kubectl.program);
        command.args(arguments).kill_on_drop(true);
        for (name, value) in self.environment(kubectl) {
            command.env(name, value);
        }
        command
    }

    pub(crate) fn environment(&self, kubectl: &Kubectl) -> Vec<(&'static str, String)> {
        let websockets = kubectl.websockets.to_string();
        vec![
            (
                "KUBECONFIG",
                self.running.kubeconfig().display().to_string(),
            ),
            ("HOME", self.directory.path().display().to_string()),
            ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets.clone()),
            ("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets),
        ]
    }

    /// Runs kubectl to its end.
    pub(crate) async fn run(&self, kubectl: &Kubectl, arguments: &[&str]) -> Output {
        self.run_with(kubectl, arguments, Vec::new()).await
    }

    /// The same, with something to read.
    pub(crate) async fn run_with(
        &self,
        kubectl: &Kubectl,
        arguments: &[&str],
        input: Vec<u8>,
    ) -> Output {
        let mut command = self.kubectl(kubectl, arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writing = tokio::spawn(async move {
            let _ = stdin.write_all(&input).await;
        });
        let output = child.wait_with_output().await.unwrap();
        writing.abort();
        output
    }

    /// Runs kubectl, which must succeed.
    pub(crate) async fn does(&self, kubectl: &Kubectl, arguments: &[&str]) -> String {
        let output = self.run(kubectl, arguments).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{kubectl:?} {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Every connection since this was last asked has become what this kubectl wants.
    pub(crate) fn assert_upgrades(&self, kubectl: &Kubectl) {
        let upgrades = self.upgrades();
        let expected = if kubectl.websockets {
            "websocket"
        } else {
            "SPDY/3.1"
        };
        let all = upgrades.iter().all(|upgrade| upgrade == expected);
        assert!(all && !upgrades.is_empty(), "{kubectl:?}: {upgrades:?}");
    }
}

pub(crate) fn container(name: &str) -> Value {
    json!({"name": name, "image": "i"})
}

type Answer = futures::future::BoxFuture<'static, Result<Response<Body>, Infallible>>;

/// The service, with a note of what connections become.
fn watched(
    server: Server,
    upgrades: Arc<Mutex<Vec<String>>>,
) -> impl Fn(Request<Incoming>) -> Answer + Clone + Send + 'static {
    move |request| {
        let (server, upgrades) = (server.clone(), Arc::clone(&upgrades));
        Box::pin(async move {
            let answer = server.handle(request).await;
            if answer.status() == 101 {
                let upgrade = answer.headers()["upgrade"].to_str().unwrap();
                upgrades.lock().unwrap().push(upgrade.to_owned());
            }
            Ok(answer)
        })
    }
}

/// A kubectl and what it is to speak.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    program: PathBuf,
    pub(crate) websockets: bool,
}

impl Kubectl {
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The newest one, by WebSockets.
    pub(crate) fn newest() -> Kubectl {
        KUBECTLS[0].clone()
    }
}

/// Each with both protocols.
pub(crate) static KUBECTLS: LazyLock<Vec<Kubectl>> = LazyLock::new(|| {
    let both = |program: PathBuf| {
        [true, false].map(|websockets| Kubectl {
            program: program.clone(),
            websockets,
        })
    };
    let programs = testbed::kubectls().unwrap();
    programs.into_iter().flat_map(both).collect()
});

/// Waits for something that happens soon. A test that waits in vain is stopped from outside.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
