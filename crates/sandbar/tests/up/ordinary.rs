//! What an ordinary user has of a sandbox without a network: its ports, its probes, its log, and its end.

use std::{collections::BTreeSet, fs, os::unix::fs::chown};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    instance::{CROWD, Instance, PROGRAM, container, eventually, is_ready, sh},
    plain::hear,
};

const NOBODY: u32 = 65534;
const PORT: u16 = 8000;

/// The program, run by nobody.
async fn start() -> Instance {
    let directory = tempfile::tempdir().unwrap();
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let program = directory.path().join("sandbar");
    fs::copy(PROGRAM, &program).unwrap();
    let launcher = [
        "setpriv",
        &format!("--reuid={NOBODY}"),
        &format!("--regid={NOBODY}"),
        "--clear-groups",
        "env",
        "-C",
        "/",
        "-i",
        "PATH=/usr/bin:/bin",
        program.to_str().unwrap(),
    ];
    let launcher = launcher.map(str::to_owned).to_vec();
    Instance::launched(launcher, directory, &["--pool", "0"]).await
}

/// Who runs for an instance: those who bear its mark, and their parents as far as this test.
fn family(up: &Instance) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = up.processes();
    while let Some(pid) = next.pop() {
        if pid > 1 && pid != std::process::id() && found.insert(pid) {
            next.extend(parent(pid));
        }
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut lines = status.lines();
    let parent = lines.find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

/// What those of them run who have not ended.
fn programs(family: &BTreeSet<u32>) -> Vec<String> {
    let read = |pid: &u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let names = family.iter().filter_map(|pid| {
        // of one that nobody has asked yet how it ended there is only its name
        read(pid, "cmdline").filter(|text| !text.is_empty())?;
        Some(read(pid, "comm")?.trim().to_owned())
    });
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_users_fork_bomb_stays_in_its_sandbox_and_is_reported() {
    let _alone = CROWD.lock().await;
    let up = start().await;
    up.run("bystander", "exec sleep 1000").await;
    up.ready("bystander").await;
    let mut bomb = sh(
        "main",
        "f() { f & f & sleep 1000; }; f 2>/dev/null; exec sleep 1000",
    );
    // by this its processes are found when nothing else tells whose they are
    bomb["env"] = json!([{"name": "WHOSE", "value": up.data()}]);
    up.pod("bomb", json!({"containers": [bomb]})).await;
    up.event("ProcessLimitReached").await;
    let told = up.api::<Event>().list(&ListParams::default()).await;
    let told = told.unwrap().items.into_iter();
    let told = told.filter(|event| event.reason.as_deref() == Some("ProcessLimitReached"));
    let told: Vec<_> = told
        .map(|one| (one.involved_object.name, one.message))
        .collect();
    let message = "the containers of the pod have reached their limit of 4096 processes: \
        no more can be started in them until some end";
    let expected = (Some("bomb".to_owned()), Some(message.to_owned()));
    assert_eq!(told, [expected], "once, and of nobody else");
    assert!(up.processes().len() < 4200, "{}", up.processes().len());
    let (out, code) = up.exec("bystander", &["sh", "-c", "echo fine | cat"]);
    assert_eq!((out.as_str(), code), ("fine\n", 0));
    up.delete("bomb").await;
    eventually("its processes are gone", async || up.processes().len() < 50).await;
    let bystander = up.ready("bystander").await;
    assert_eq!(container(&bystander, "main").restart_count, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_user_reaches_ports_within_pods_hears_them_and_leaves_nothing() {
    let up = start().await;
    let network = "node:           sandbar, no network: you are not root";
    assert!(up.introduction.contains(network), "{}", up.introduction);
    let script = format!(
        "mkdir /tmp/www; cd /tmp/www; echo begun; \
         exec python3 -um http.server --bind 127.0.0.1 {PORT} 2>&1"
    );
    let mut one = sh("main", &script);
    // by this its processes are found when nothing else tells whose they are
    one["env"] = json!([{"name": "WHOSE", "value": up.data()}]);
    one["readinessProbe"] = json!({"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5});
    up.pod("web", json!({"containers": [one]})).await;
    up.says("web", "\"GET /ready HTTP/1.1\" 404").await;
    let pod = up.pods().get("web").await.unwrap();
    assert!(!is_ready(&pod) && container(&pod, "main").restart_count == 0);

    assert_eq!(up.exec("web", &["touch", "/tmp/www/ready"]).1, 0);
    up.ready("web").await;
    let said = up.says("web", "\"GET /ready HTTP/1.1\" 200").await;
    assert!(said.starts_with("begun\n"), "{said}");

    let page = ["sh", "-c", "echo from within > /tmp/www/page"];
    assert_eq!(up.exec("web", &page).1, 0);
    let mut forwarder = up.pods().portforward("web", &[PORT]).await.unwrap();
    let mut stream = forwarder.take_stream(PORT).unwrap();
    let request = b"GET /page HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.unwrap();
    hear(&mut stream, "\r\n\r\nfrom within\n").await;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();

    assert_eq!(up.exec("web", &["rm", "/tmp/www/ready"]).1, 0);
    let is_unready = |pod: &Pod| !is_ready(pod);
    up.until("web", "became unready", is_unready).await;

    let family = family(&up);
    let before = programs(&family);
    for name in ["sandbar", "sandbar-shim", "python3"] {
        assert!(before.contains(&name.to_owned()), "{before:?}");
    }
    let down = up.sandbar(&["down"]);
    assert!(down.status.success(), "{down:?}");
    assert!(!up.data().exists());
    assert_eq!(programs(&family), Vec::<String>::new());
    assert_eq!(up.processes(), Vec::<u32>::new());
}
