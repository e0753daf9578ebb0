//! Published clients, as they are.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use api::sigs::v1beta1::{SandboxTemplate, SandboxWarmPool};
use serde_json::{Value, json};

use crate::fleet::{Fleet, pool, template};
use crate::ground::define;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fleet");

/// A Python with this version of the package, made once.
fn python(version: &str) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sdk-{version}"));
    let python = home.join("bin/python");
    let constraints = format!("{HERE}/sdk.txt");
    let (mark, wanted) = (home.join("complete"), fs::read(&constraints).unwrap());
    if fs::read(&mark).is_ok_and(|found| found == wanted) {
        return python;
    }
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&home));
    let package = format!("k8s-agent-sandbox[async]=={version}");
    run(Command::new(&python)
        .args(["-m", "pip", "install", "-q", "--disable-pip-version-check"])
        .args(["-c", &constraints, &package]));
    fs::write(mark, wanted).unwrap();
    python
}

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(done.status.success(), "{command:?}: {out}{err}");
}

/// Its client for suspending insists that there are such kinds. Nothing is stored in them.
async fn define_snapshots(fleet: &Fleet) {
    for (kind, plural) in [
        ("PodSnapshot", "podsnapshots"),
        ("PodSnapshotManualTrigger", "podsnapshotmanualtriggers"),
    ] {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let crd = json!({
            "metadata": {"name": format!("{plural}.podsnapshot.gke.io")},
            "spec": {
                "group": "podsnapshot.gke.io",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        });
        define(fleet.ground.client(), &serde_json::from_value(crd).unwrap()).await;
    }
}

fn named(name: &str, mut object: Value) -> Value {
    object["metadata"]["name"] = json!(name);
    object
}

async fn serve(name: &str, version: &'static str) {
    let python = tokio::task::spawn_blocking(|| python(version));
    let python = python.await.unwrap();
    let fleet = Fleet::new(name).await;
    define_snapshots(&fleet).await;
    let mut open = template("open", "busybox:v1");
    open["spec"]["envVarsInjectionPolicy"] = json!("Allowed");
    let mut failing = template("failing", "busybox:v1");
    let spec = &mut failing["spec"]["podTemplate"]["spec"];
    spec["restartPolicy"] = json!("Never");
    // its container would be Ready for a moment
    let first = json!({"name": "first", "image": "busybox:v1", "command": ["false"]});
    spec["initContainers"] = json!([first]);
    for template in [template("one", "busybox:v1"), open, failing] {
        fleet.create::<SandboxTemplate>(template).await;
    }
    for (name, template, replicas) in [
        ("pool", "one", 3),
        ("open", "open", 0),
        ("failing", "failing", 0),
        ("without-template", "nothing", 0),
    ] {
        let pool = named(name, pool(template, replicas, json!({})));
        fleet.create::<SandboxWarmPool>(pool).await;
    }
    fleet.until_stocked(3, "busybox:v1").await;
    let mut script = Command::new(python);
    script
        .arg(format!("{HERE}/sdk.py"))
        .args([version, fleet.ground.namespace()])
        .env("KUBECONFIG", fleet.ground.kubeconfig());
    // the cluster is next door, wherever the packages came from
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        script.env_remove(proxy);
    }
    let script = tokio::task::spawn_blocking(move || run(&mut script));
    script.await.unwrap();
}

#[tokio::test]
async fn the_python_package_0_5_6_is_served() {
    serve("sdk-old", "0.5.6").await;
}

#[tokio::test]
async fn the_python_package_1_0_8_is_served() {
    serve("sdk-new", "1.0.8").await;
}
