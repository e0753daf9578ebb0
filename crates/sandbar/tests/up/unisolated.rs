//! Where sandboxes cannot be isolated: an ordinary user in a place where user namespaces are refused.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, chown},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    instance::{Instance, PROGRAM, command, container, eventually, exit_code, is_ready, sh},
    sandboxes::{claim, stocked},
};

const NOBODY: u32 = 65534;
const FLAG: &str = "--insecure-no-isolation";

/// A user namespace in which nobody may make another one. The machine around it stays as it is.
pub(crate) struct Ward(Child);

impl Ward {
    pub(crate) fn open() -> Self {
        let mut holder = Command::new("unshare");
        let holder = holder.args(["--user", "sleep", "1000"]).spawn().unwrap();
        let of = |process: &str| {
            fs::metadata(format!("/proc/{process}/ns/user"))
                .unwrap()
                .ino()
        };
        let (own, start) = (of("self"), Instant::now());
        while of(&holder.id().to_string()) == own {
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", holder.id()), "0 0 65536").unwrap();
        }
        let ward = Self(holder);
        let file = "/proc/sys/user/max_user_namespaces";
        let mut forbid = Command::new("nsenter");
        forbid.args(ward.entrance());
        forbid.args(["sh", "-c", &format!("echo 0 > {file}")]);
        assert!(forbid.status().unwrap().success());
        assert_ne!(fs::read_to_string(file).unwrap().trim(), "0");
        ward
    }

    fn entrance(&self) -> Vec<String> {
        ["--user", "--target", &self.0.id().to_string()]
            .map(str::to_owned)
            .to_vec()
    }

    /// A directory of an ordinary user, and the program run by that user in here.
    fn launcher(&self) -> (TempDir, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let program = directory.path().join("sandbar");
        fs::copy(PROGRAM, &program).unwrap();
        let mut launcher = vec!["nsenter".to_owned()];
        launcher.extend(self.entrance());
        let user = format!("--reuid={NOBODY}");
        let group = format!("--regid={NOBODY}");
        let rest = [
            "setpriv",
            &user,
            &group,
            "--clear-groups",
            "env",
            "-C",
            "/",
            program.to_str().unwrap(),
        ];
        launcher.extend(rest.map(str::to_owned));
        (directory, launcher)
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) async fn start(ward: &Ward, pool: &str) -> Instance {
    let (directory, launcher) = ward.launcher();
    Instance::launched(launcher, directory, &["--pool", pool, FLAG]).await
}

#[test]
fn where_isolation_is_impossible_up_refuses_with_the_reason_and_the_flag() {
    let ward = Ward::open();
    let (directory, launcher) = ward.launcher();
    let data = directory.path().join("data");
    let output = command(&launcher)
        .args(["up", "--port", "0", "--data-dir"])
        .arg(&data)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "user namespaces are refused",
        "`sysctl user.max_user_namespaces=",
        "as root",
        FLAG,
    ] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert!(!data.exists(), "nothing is begun");
}

#[tokio::test]
async fn with_the_flag_a_claim_is_answered_by_a_plain_process_and_it_is_said_so() {
    let ward = Ward::open();
    let mut up = start(&ward, "1").await;
    assert!(
        up.introduction.contains("NO ISOLATION"),
        "{}",
        up.introduction
    );
    stocked(&up, "base", 1).await;
    let sandbox = claim(&up, "mine", "base").await;
    let script = "echo $HOSTNAME runs as $(id -u) in $PWD; exit 7";
    let (out, code) = up.exec("sandboxclaim/mine", &["sh", "-c", script]);
    let begins = format!(
        "{sandbox} runs as {NOBODY} in {}",
        up.data().join("node/pods").display()
    );
    assert!(out.starts_with(&begins) && code == 7, "{code}: {out}");
    let node = Api::<Node>::all(up.client.clone())
        .get("sandbar")
        .await
        .unwrap();
    assert_eq!(
        node.metadata.labels.unwrap()["sandbar.dev/isolation"],
        "none"
    );
    up.event("NoIsolation").await;
    up.end(Signal::KILL);
    assert_ne!(
        up.processes(),
        Vec::<u32>::new(),
        "sandboxes outlive the program"
    );
    kill_shims(&up);
    let down = up.sandbar(&["down"]);
    assert!(down.status.success(), "{down:?}");
    assert_eq!(up.processes(), Vec::<u32>::new());
    assert!(!up.data().exists());
}

#[tokio::test]
async fn plain_processes_have_logs_codes_restarts_probes_and_are_found_again() {
    let ward = Ward::open();
    let mut up = start(&ward, "0").await;
    let mut probed = sh(
        "main",
        "echo begun; (setsid sleep 1000 &) ; touch here; exec sleep 1000",
    );
    probed["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "here"]}, "periodSeconds": 1});
    up.pod("probed", json!({"containers": [probed]})).await;
    let once = sh(
        "main",
        "echo last words >&2; (setsid sleep 1000 &) ; exit 3",
    );
    up.pod(
        "once",
        json!({"restartPolicy": "Never", "containers": [once]}),
    )
    .await;
    up.run(
        "again",
        "test -e been && exec tail -f /dev/null; touch been; (setsid sleep 1000 &); exit 1",
    )
    .await;
    let failed = up.phase("once", "Failed").await;
    assert_eq!(exit_code(&failed, "main"), Some(3));
    assert_eq!(up.says("once", "words").await, "last words\n");
    let is_back = |pod: &Pod| is_ready(pod) && container(pod, "main").restart_count == 1;
    up.until("again", "came back", is_back).await;
    let before = up.ready("probed").await;
    assert_eq!(
        before.status.as_ref().unwrap().pod_ip.as_deref(),
        Some("127.0.0.1")
    );
    eventually("what a run left behind is gone with it", async || {
        sleepers(&up) == 2
    })
    .await;
    up.end(Signal::KILL);
    up.start_again().await;
    let after = up.ready("probed").await;
    assert_eq!(
        container(&after, "main").container_id,
        container(&before, "main").container_id
    );
    up.delete("probed").await;
    up.delete("again").await;
    eventually("no process outlives its container", async || {
        sleepers(&up) == 0
    })
    .await;
}

/// What is left then is known by its marks only.
fn kill_shims(up: &Instance) {
    for pod in fs::read_dir(up.data().join("node/pods")).unwrap().flatten() {
        // one that was about to be made is nobody yet
        let Ok(record) = fs::read(pod.path().join("shim/shim.json")) else {
            continue;
        };
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        let pid = i32::try_from(record["process"]["pid"].as_i64().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
}

fn sleepers(up: &Instance) -> usize {
    let names = up.processes().into_iter();
    let names = names.filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    names.filter(|name| name.trim() == "sleep").count()
}

#[tokio::test]
async fn what_cannot_be_had_without_isolation_is_refused_with_the_reason() {
    let ward = Ward::open();
    let up = start(&ward, "0").await;
    let mut image = sh("main", "exec sleep 1000");
    image["image"] = json!("local.test/other:1");
    let mut volume = sh("main", "exec sleep 1000");
    volume["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let mut user = sh("main", "exec sleep 1000");
    user["securityContext"] = json!({"runAsUser": 1000});
    let volumes = json!([{"name": "data", "emptyDir": {}}]);
    for (name, one, reason) in [
        ("image", image, "cannot be run without isolation"),
        (
            "volume",
            volume,
            "cannot be mounted at /data without isolation",
        ),
        ("user", user, "cannot have its runAsUser"),
    ] {
        up.pod(name, json!({"volumes": volumes, "containers": [one]}))
            .await;
        let says = |pod: &Pod| {
            let waiting = container(pod, "main").state.and_then(|state| state.waiting);
            let message = waiting.and_then(|waiting| waiting.message);
            message.is_some_and(|message| message.contains(reason))
        };
        up.until(name, &format!("said that it {reason}"), says)
            .await;
    }
}
