//! `sandbar logs` and `sandbar exec` on a served API with a node.

use std::{
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use api::{
    crds::{Conversion, Family, Versions, render},
    sigs::v1beta1::{Sandbox, SandboxClaim},
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::Pod,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams, PostParams},
};
use local::{
    Cluster,
    serve::{self, Home, Limits, Running},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
    sync::watch,
};

use crate::{host::Host, server::patient};

const LOG: &str = "2026-11-16T17:00:01.000000001Z stdout F one
2026-11-16T17:00:02.000000002Z stderr F two
";

/// A server with the pods `p` (one container) and `two` (two of them), a sandbox whose pod is `p`, and claims with and without a
/// sandbox.
struct Stage {
    directory: TempDir,
    cluster: Cluster,
    running: Running,
    host: Arc<Host>,
}

impl Stage {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
        let host = Arc::new(Host {
            logs: directory.path().join("logs"),
            running: watch::Sender::new(true),
        });
        cluster.set_streams("here", Arc::clone(&host) as _);
        let home = Home::open(directory.path().join("home")).unwrap();
        let options = serve::Options {
            listen: ([127, 0, 0, 1], 0).into(),
            names: Vec::new(),
            limits: Limits::default(),
        };
        let running = serve::start(home, cluster.service(), options).await;
        let stage = Self {
            directory,
            cluster,
            running: running.unwrap(),
            host,
        };
        stage.pod("p", &["main"]).await;
        stage.pod("two", &["main", "side"]).await;
        stage.write_log("x-p-main-1", LOG);
        stage.write_log("x-p-main-0", "2026-11-16T16:00:00Z stdout F before\n");
        stage.write_log("x-two-main-1", "2026-11-16T17:00:05Z stdout F of main\n");
        stage.write_log("x-two-side-1", "2026-11-16T17:00:00Z stdout F of side\n");
        stage
    }

    async fn with_sandbox(self) -> Self {
        let crds: Api<CustomResourceDefinition> = Api::all(self.cluster.client());
        for crd in render(&[Family::Sigs], Versions::V1beta1, Conversion::None).unwrap() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let containers =
            json!({"podTemplate": {"spec": {"containers": [{"name": "main", "image": "i"}]}}});
        let annotations = json!({"agents.x-k8s.io/pod-name": "p"});
        let sandbox =
            json!({"metadata": {"name": "box", "annotations": annotations}, "spec": containers});
        self.create::<Sandbox>(sandbox).await;
        let sandbox = json!({"metadata": {"name": "idle"}, "spec": containers});
        self.create::<Sandbox>(sandbox).await;
        for name in ["mine", "waiting"] {
            let spec = json!({"warmPoolRef": {"name": "pool"}});
            self.create::<SandboxClaim>(json!({"metadata": {"name": name}, "spec": spec}))
                .await;
        }
        let claims: Api<SandboxClaim> = Api::default_namespaced(self.cluster.client());
        let status = Patch::Merge(json!({"status": {"sandbox": {"name": "box"}}}));
        let params = PatchParams::default();
        let patched = claims.patch_status("mine", &params, &status);
        patched.await.unwrap();
        self
    }

    /// The server may take a moment for what an object needs.
    async fn create<K>(&self, object: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let objects: Api<K> = Api::default_namespaced(self.cluster.client());
        let object: K = serde_json::from_value(object).unwrap();
        let mut tries = 0;
        while let Err(error) = objects.create(&PostParams::default(), &object).await {
            tries += 1;
            assert!(tries < 1000, "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn pod(&self, name: &str, containers: &[&str]) {
        let specs: Vec<Value> = containers
            .iter()
            .map(|container| json!({"name": container, "image": "i"}))
            .collect();
        let statuses = containers.iter().map(|container| {
            json!({
                "name": container, "image": "i", "imageID": "i", "ready": true, "restartCount": 1,
                "containerID": format!("x-{name}-{container}-1"),
                "state": {"running": {"startedAt": "2026-11-16T17:00:00Z"}},
                "lastState": {"terminated": {"exitCode": 1, "containerID": format!("x-{name}-{container}-0")}},
            })
        });
        let statuses: Vec<Value> = statuses.collect();
        let spec = json!({"nodeName": "here", "containers": specs});
        self.create::<Pod>(json!({"metadata": {"name": name}, "spec": spec}))
            .await;
        let pods: Api<Pod> = Api::default_namespaced(self.cluster.client());
        let status = json!({"status": {"phase": "Running", "containerStatuses": statuses}});
        let patch = Patch::Merge(status);
        let params = PatchParams::default();
        let patched = pods.patch_status(name, &params, &patch);
        patched.await.unwrap();
    }

    fn write_log(&self, container_id: &str, lines: &str) {
        let directory = self.host.logs.join(container_id);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("0.log"), lines).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
        command
            .args(arguments)
            .env("KUBECONFIG", self.running.kubeconfig())
            .env("HOME", self.directory.path())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str], input: Vec<u8>) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writing = tokio::spawn(async move {
            let _ = stdin.write_all(&input).await;
        });
        let output = child.wait_with_output().await.unwrap();
        writing.abort();
        output
    }

    /// How it ends and what it says on both outputs.
    async fn says(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self.run(arguments, Vec::new()).await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            patient(&text(output.stderr)),
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_shown_in_every_way() {
    let stage = Stage::new().await;
    for (arguments, expected) in [
        (&["p"][..], "one\ntwo\n"),
        (&["pod/p", "--tail", "1"], "two\n"),
        (
            &["p", "--timestamps", "--tail=1"],
            "2026-11-16T17:00:02.000000002Z two\n",
        ),
        (&["p", "--since=999999h"], "one\ntwo\n"),
        (&["p", "-p"], "before\n"),
        (&["two", "-c", "side"], "of side\n"),
        (&["p", "--prefix", "--tail=1"], "[pod/p/main] two\n"),
        (&["two", "--all-containers"], "of main\nof side\n"),
        (
            &["two", "--all-containers=true", "--prefix", "--timestamps"],
            "[pod/two/main] 2026-11-16T17:00:05Z of main\n[pod/two/side] 2026-11-16T17:00:00Z of side\n",
        ),
    ] {
        let said = stage.says(&[&["logs"], arguments].concat()).await;
        assert_eq!(
            said,
            (0, expected.to_owned(), String::new()),
            "{arguments:?}"
        );
    }
    let (code, _, err) = stage.says(&["logs", "nobody"]).await;
    assert_eq!(
        (code, err.as_str()),
        (
            1,
            "sandbar: error from server (NotFound): pods \"nobody\" not found\n"
        )
    );
    let (_, _, err) = stage.says(&["logs", "two"]).await;
    assert!(
        err.starts_with("Defaulted container \"main\" out of: main, side\n"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_followed_until_the_container_ends() {
    let stage = Stage::new().await;
    let mut child = stage
        .command(&["logs", "-f", "--tail=1", "p"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "two");
    let more = format!("{LOG}2026-11-16T17:00:04Z stdout F three\n");
    stage.write_log("x-p-main-1", &more);
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "three");
    stage.host.running.send_replace(false);
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_of_all_containers_are_followed_as_they_come() {
    let stage = Stage::new().await;
    let mut child = stage
        .command(&["logs", "-f", "--all-containers", "--prefix", "two"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut begun = Vec::new();
    for _ in 0..2 {
        begun.push(lines.next_line().await.unwrap().unwrap());
    }
    begun.sort();
    assert_eq!(begun, ["[pod/two/main] of main", "[pod/two/side] of side"]);
    for (container, text) in [("side", "a"), ("main", "b"), ("side", "c")] {
        let log = stage.host.logs.join(format!("x-two-{container}-1/0.log"));
        let more = format!("2026-11-16T17:00:09Z stdout F {text}\n");
        let whole = std::fs::read_to_string(&log).unwrap() + &more;
        std::fs::write(&log, whole).unwrap();
        let line = lines.next_line().await.unwrap().unwrap();
        assert_eq!(line, format!("[pod/two/{container}] {text}"));
    }
    stage.host.running.send_replace(false);
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_as_it_ends_in_the_container() {
    let stage = Stage::new().await;
    let script = "echo out; echo err >&2; exit 7";
    let said = stage.says(&["exec", "p", "--", "sh", "-c", script]).await;
    let err = "err\ncommand terminated with exit code 7\n";
    assert_eq!(said, (7, "out\n".to_owned(), err.to_owned()));
    let said = stage.says(&["exec", "p", "--", "echo", "a b", "-c"]).await;
    assert_eq!(said, (0, "a b -c\n".to_owned(), String::new()));
    // without -i there is nothing to read
    let output = stage
        .run(&["exec", "p", "--", "cat"], b"unheard".to_vec())
        .await;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let (code, _, err) = stage.says(&["exec", "p", "--", "/no/such/program"]).await;
    assert_eq!(code, 1);
    assert!(err.contains("/no/such/program"), "{err}");
    let (code, _, err) = stage.says(&["exec", "p", "-c", "none", "--", "true"]).await;
    assert_eq!(code, 1);
    assert!(
        err.contains("container none is not valid for pod p"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn input_and_output_of_any_size_go_both_ways_at_once() {
    let stage = Stage::new().await;
    let input: Vec<u8> = (0..20_000_000_u32)
        .map(|number| number.to_le_bytes()[1])
        .collect();
    let arguments = ["exec", "-i", "p", "--", "sh", "-c", "cat; echo end"];
    let output = stage.run(&arguments, input.clone()).await;
    assert!(output.status.success(), "{:?}", output.status);
    let (echo, end) = output.stdout.split_at(input.len());
    assert!(echo == input);
    assert_eq!(end, b"end\n");
    let arguments = ["exec", "-i", "p", "--", "sh", "-c", "exec <&-; echo done"];
    let output = stage.run(&arguments, input).await;
    assert_eq!(output.stdout, b"done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_here_there_is_none_there() {
    let stage = Stage::new().await;
    let script = "[ -t 1 ] || echo none; echo err >&2";
    let note = "Unable to use a TTY - input is not a terminal or the right kind of file\n";
    for (flags, note) in [("-it", note), ("-t", "")] {
        let said = stage
            .says(&["exec", flags, "p", "--", "sh", "-c", script])
            .await;
        assert_eq!(said, (0, "none\n".to_owned(), format!("{note}err\n")));
    }
}

/// Reads until the text contains this.
async fn read_until(source: &mut (impl AsyncRead + Unpin), end: &str) {
    let mut text = String::new();
    while !text.contains(end) {
        let mut buffer = [0; 1024];
        let read = source.read(&mut buffer).await.unwrap();
        assert!(read > 0, "{end:?} never came: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_as_large_as_the_users_and_is_resized_with_it() {
    let stage = Stage::new().await;
    let (mut pty, pts) = pty_process::open().unwrap();
    pty.resize(pty_process::Size::new(31, 97)).unwrap();
    let shell = ["sh", "-c", "stty -echo; PS1= exec sh"];
    let mut child = pty_process::Command::new(env!("CARGO_BIN_EXE_sandbar"))
        .args(["exec", "-it", "p", "--"])
        .args(shell)
        .env("KUBECONFIG", stage.running.kubeconfig())
        .spawn(pts)
        .unwrap();
    for (rows, columns) in [(31, 97), (40, 120)] {
        pty.resize(pty_process::Size::new(rows, columns)).unwrap();
        // a size may come a moment later, and a line before the terminal is raw is echoed
        let wait = format!(
            "until [ \"$(stty size)\" = '{rows} {columns}' ]; do sleep 0.05; done; echo is $(({rows} + 0))\n"
        );
        pty.write_all(wait.as_bytes()).await.unwrap();
        read_until(&mut pty, &format!("is {rows}")).await;
    }
    pty.write_all(b"[ -t 0 ] && echo terminal $((1 + 1)) >&2; exit 5\n")
        .await
        .unwrap();
    read_until(&mut pty, "terminal 2").await;
    let mut rest = Vec::new();
    let _ = pty.read_to_end(&mut rest).await;
    assert_eq!(child.wait().await.unwrap().code(), Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_and_a_claim_lead_to_their_pod() {
    let stage = Stage::new().await.with_sandbox().await;
    for target in [
        "sandbox/box",
        "sandboxclaim/mine",
        "sandboxes.agents.x-k8s.io/box",
    ] {
        let said = stage.says(&["logs", target, "--tail=1"]).await;
        assert_eq!(said, (0, "two\n".to_owned(), String::new()), "{target}");
        let said = stage.says(&["exec", target, "--", "echo", "here"]).await;
        assert_eq!(said, (0, "here\n".to_owned(), String::new()), "{target}");
    }
    for (target, expected) in [
        (
            "sandboxclaim/waiting",
            "sandboxclaim \"waiting\" has no sandbox yet",
        ),
        ("sandbox/idle", "sandbox \"idle\" has no pod now"),
        ("sandbox/nobody", "(NotFound)"),
        ("service/a", "\"service\" has no containers"),
    ] {
        let (code, _, err) = stage.says(&["exec", target, "--", "true"]).await;
        assert!(code == 1 && err.contains(expected), "{target}: {err}");
    }
}
