//! The packages `e2b` of PyPI and npm and `k8s-agent-sandbox` of PyPI, as they are, with the daemon of sandboxes in a pod: its
//! loopback is where the former look for a sandbox with `E2B_DEBUG=true`, and where the latter is told that one is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::instance::{Instance, eventually};

/// The drivers, one per language and package, and what is pinned for them.
const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime/tests/sdk");

/// Has the daemon of the sandbox that this is run in run a command, the next argument, and prints its output.
pub(crate) const ASK_DAEMON: [&str; 3] = [
    "python3",
    "-c",
    r#"
import json, sys, urllib.request
command = json.dumps({"command": sys.argv[1]}).encode()
request = urllib.request.Request("http://127.0.0.1:8888/execute", command, {"content-type": "application/json"})
print(json.load(urllib.request.urlopen(request))["stdout"], end="")
"#,
];

/// Packages of every version, made once.
fn packages() -> PathBuf {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2b");
        // the distribution's Python: pods of sandbar/base have no other
        let output = Command::new("/usr/bin/python3")
            .arg(format!("{SDK}/prepare.py"))
            .arg(&packages)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{error}");
        packages
    };
    PACKAGES.get_or_init(make).clone()
}

fn volume(name: &str, path: &Path) -> Value {
    json!({"name": name, "hostPath": {"path": path, "type": "Directory"}})
}

fn mount(name: &str, at: &str, below: &str) -> Value {
    json!({"name": name, "mountPath": at, "subPath": below, "readOnly": true})
}

/// Runs a driver with version `version` of a package in a pod of `sandbar/base`, whose first process is the daemon.
async fn is_served(version: &str, modules: Option<&str>, driver: &[&str]) {
    let (packages, sdk) = (packages(), fs::canonicalize(SDK).unwrap());
    let directories = [("packages", packages.as_path()), ("sdk", sdk.as_path())];
    let mut options = vec!["--pool", "0"];
    for (_, path) in directories {
        options.extend(["--allow-host-path", path.to_str().unwrap()]);
    }
    let up = Instance::with(&options).await;
    let mut mounts = vec![
        mount("packages", "/packages", ""),
        mount("sdk", "/sdk/drivers", ""),
    ];
    // where Node looks for packages of a driver
    mounts.extend(modules.map(|modules| mount("packages", "/sdk/node_modules", modules)));
    let daemon = json!({
        "name": "main",
        "image": "sandbar/base",
        "env": [{"name": "SECRET_OF_THE_DAEMON", "value": "1"}],
        "securityContext": {"runAsUser": 0},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 49983}, "periodSeconds": 1},
        "volumeMounts": mounts,
    });
    let volumes = directories.map(|(name, path)| volume(name, path));
    up.pod("box", json!({"volumes": volumes, "containers": [daemon]}))
        .await;
    up.ready("box").await;
    let environment = ["env", "E2B_DEBUG=true", "PYTHONDONTWRITEBYTECODE=1"];
    let command = [&environment, driver, &[version]].concat();
    let (report, code) = up.exec("box", &command);
    assert_eq!(code, 0, "{report}");
    println!("{report}");
}

async fn python_is_served(version: &str) {
    let python = format!("/packages/python-{version}/bin/python");
    is_served(version, None, &[&python, "/sdk/drivers/python/driver.py"]).await;
}

async fn javascript_is_served(version: &str) {
    let modules = format!("npm-{version}/node_modules");
    let node = [
        "/packages/node/bin/node",
        "/sdk/drivers/javascript/driver.mjs",
    ];
    is_served(version, Some(&modules), &node).await;
}

#[tokio::test]
async fn the_python_package_e2b_2_63_0_is_served() {
    python_is_served("2.63.0").await;
}

#[tokio::test]
async fn the_python_package_e2b_2_45_1_is_served() {
    python_is_served("2.45.1").await;
}

#[tokio::test]
async fn the_javascript_package_e2b_2_51_0_is_served() {
    javascript_is_served("2.51.0").await;
}

#[tokio::test]
async fn the_javascript_package_e2b_2_45_0_is_served() {
    javascript_is_served("2.45.0").await;
}

#[tokio::test]
async fn the_python_package_k8s_agent_sandbox_1_0_8_is_served() {
    let driver = [
        "/packages/agent-sandbox-1.0.8/bin/python",
        "/sdk/drivers/agent_sandbox/driver.py",
    ];
    is_served("1.0.8", None, &driver).await;
}

#[tokio::test]
async fn a_sandbox_of_the_pool_runs_commands_as_its_user() {
    let up = Instance::with(&["--pool", "1"]).await;
    eventually("the daemon answers", async || {
        let names = up.sandbar(&["get", "sandboxes", "-o", "name"]).stdout;
        let names = String::from_utf8(names).unwrap();
        let Some((_, name)) = names.trim().split_once('/') else {
            return false;
        };
        let sandbox = format!("sandbox/{name}");
        let ask = [&["exec", &sandbox, "--"], &ASK_DAEMON[..], &["whoami"]].concat();
        up.sandbar(&ask).stdout == b"user\n"
    })
    .await;
}
