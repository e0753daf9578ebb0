//! Pods of every shape, from their start to their end.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::instance::{Instance, container, eventually, exit_code, ip, ready_by_file, sh};

#[tokio::test]
async fn a_pod_runs_with_its_own_name_address_and_processes() {
    let up = Instance::start().await;
    up.run("alone", "hostname; echo $$$$; exec sleep 1000")
        .await;
    let pod = up.ready("alone").await;
    assert_eq!(up.says("alone", "1\n").await, "alone\n1\n");
    let (out, code) = up.exec(
        "alone",
        &["sh", "-c", "hostname -i; ls /proc | grep -c '^[0-9]'"],
    );
    assert_eq!(code, 0, "{out}");
    assert!(out.starts_with(&ip(&pod)), "{out}");
    assert!(
        container(&pod, "main")
            .container_id
            .as_ref()
            .unwrap()
            .starts_with("sandbar://")
    );
    up.delete("alone").await;
    let addresses = up.data().join("node/network");
    eventually("its address is free", async || {
        addresses.read_dir().unwrap().count() == 0
    })
    .await;
}

#[tokio::test]
async fn pods_succeed_or_fail_by_their_policy() {
    let up = Instance::start().await;
    let spec = |policy: &str, script: &str| json!({"restartPolicy": policy, "containers": [sh("main", script)]});
    up.pod("well", spec("Never", "echo done")).await;
    up.pod(
        "ill",
        spec("Never", "echo why > /dev/termination-log; exit 3"),
    )
    .await;
    up.pod(
        "again",
        spec(
            "OnFailure",
            "test -e /data/here || { touch /data/here; exit 1; }",
        ),
    )
    .await;
    let mut spec = spec(
        "OnFailure",
        "test -e /data/here || { touch /data/here; exit 1; }",
    );
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    up.pod("kept", spec).await;
    up.phase("well", "Succeeded").await;
    let ill = up.phase("ill", "Failed").await;
    assert_eq!(exit_code(&ill, "main"), Some(3));
    let end = container(&ill, "main")
        .state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(end.message.as_deref(), Some("why\n"));
    let kept = up.phase("kept", "Succeeded").await;
    assert_eq!(container(&kept, "main").restart_count, 1);
    assert_eq!(
        up.logs("well").await,
        "done\n",
        "logs outlive their container"
    );
}

#[tokio::test]
async fn a_container_that_crashes_is_kept_from_starting_ever_longer() {
    let up = Instance::start().await;
    up.run("crash", "exit 1").await;
    let waits = |pod: &Pod| {
        let state = container(pod, "main").state.clone().unwrap_or_default();
        state
            .waiting
            .is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
    };
    let pod = up.until("crash", "backed off", waits).await;
    assert_eq!(container(&pod, "main").restart_count, 1);
    let last = container(&pod, "main")
        .last_state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(last.exit_code, 1);
}

#[tokio::test]
async fn init_containers_run_first_and_sidecars_stay() {
    let up = Instance::start().await;
    let mount = json!([{"name": "shared", "mountPath": "/shared"}]);
    let with = |mut one: Value| {
        one["volumeMounts"] = mount.clone();
        one
    };
    let mut sidecar = with(sh(
        "side",
        "echo side >> /shared/order; trap 'exit 0' TERM; while :; do sleep 0.1; done",
    ));
    sidecar["restartPolicy"] = json!("Always");
    up.pod("crew", json!({
        "restartPolicy": "Never",
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "initContainers": [with(sh("first", "echo first >> /shared/order")), sidecar, with(sh("second", "until grep -q side /shared/order; do sleep 0.05; done; echo second >> /shared/order"))],
        "containers": [with(sh("main", "cat /shared/order; sleep 1"))],
    })).await;
    let pod = up.phase("crew", "Succeeded").await;
    let options = kube::api::LogParams {
        container: Some("main".to_owned()),
        ..Default::default()
    };
    assert_eq!(
        up.pods().logs("crew", &options).await.unwrap(),
        "first\nside\nsecond\n"
    );
    assert_eq!(
        exit_code(&pod, "side"),
        Some(0),
        "sidecars end after the others"
    );
}

#[tokio::test]
async fn an_image_that_is_not_there_is_said_to_be_and_the_pod_runs_once_it_is() {
    let up = Instance::start().await;
    let mut one = sh("main", "exec sleep 1000");
    one["image"] = json!("local.test/later:1");
    one["imagePullPolicy"] = json!("Never");
    up.pod("waits", json!({"containers": [one]})).await;
    let waits = |pod: &Pod| {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref());
        statuses.is_some_and(|all| {
            let waiting = all[0].state.clone().and_then(|state| state.waiting);
            waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("ErrImageNeverPull"))
        })
    };
    up.until("waits", "waited for its image", waits).await;
    up.import("local.test/later:1", "1");
    up.ready("waits").await;
}

#[tokio::test]
async fn a_command_that_is_not_there_is_named() {
    let up = Instance::start().await;
    let one = json!({"name": "main", "image": "sandbar/base", "command": ["/no/such/program"]});
    up.pod("lost", json!({"containers": [one]})).await;
    let says = |pod: &Pod| {
        let text = serde_json::to_string(&pod.status).unwrap();
        text.contains("RunContainerError") && text.contains("/no/such/program")
    };
    up.until("lost", "said what it lacks", says).await;
}

/// How the container `main` ended that could not be started.
fn start_error(pod: &Pod) -> Option<String> {
    let end = container(pod, "main").state?.terminated?;
    let is_it = (end.exit_code, end.reason.as_deref()) == (128, Some("StartError"));
    end.message.filter(|_| is_it)
}

#[tokio::test]
async fn a_pod_whose_command_cannot_be_run_fails_if_it_may_not_restart() {
    let mut up = Instance::start().await;
    for (name, command, why) in [
        ("lost", "no-such-program", "not found in $PATH"),
        ("data", "/etc/passwd", "permission denied"),
    ] {
        let one = json!({"name": "main", "image": "sandbar/base", "command": [command]});
        let spec = json!({"restartPolicy": "Never", "containers": [one]});
        up.pod(name, spec).await;
        let pod = up.phase(name, "Failed").await;
        let said = start_error(&pod).unwrap();
        assert!(said.contains(why), "{said}");
    }
    let both = json!({"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "sandbar/base", "command": ["no-such-program"]},
        sh("other", "exec sleep 1000"),
    ]});
    up.pod("both", both).await;
    let is_told = |pod: &Pod| start_error(pod).is_some() && container(pod, "other").ready;
    let before = up.until("both", "ran what can be run", is_told).await;
    up.end(Signal::KILL);
    // ends are told in whole seconds, and another one would be a later one
    tokio::time::sleep(Duration::from_secs(1)).await;
    up.start_again().await;
    up.run("later", "exec sleep 1000").await;
    up.ready("later").await;
    let pod = up.until("both", "came back", is_told).await;
    assert_eq!(container(&pod, "main"), container(&before, "main"));
}

/// The volume of the claim `kept`.
fn kept() -> Value {
    json!([{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}])
}

fn with_kept(mut one: Value) -> Value {
    one["volumeMounts"] = json!([{"name": "kept", "mountPath": "/kept"}]);
    one
}

/// What others have written to `/kept/order`.
async fn what_is_kept(up: &Instance) -> String {
    let one = with_kept(sh("main", "cat /kept/order"));
    let spec = json!({"restartPolicy": "Never", "volumes": kept(), "containers": [one]});
    up.pod("reader", spec).await;
    up.phase("reader", "Succeeded").await;
    up.logs("reader").await
}

#[tokio::test]
async fn hooks_run_after_the_start_and_before_the_end() {
    let up = Instance::start().await;
    up.disk("kept").await;
    let mut one = ready_by_file(with_kept(sh(
        "main",
        "trap 'echo ended >> /kept/order; exit 0' TERM; touch /tmp/ready; while :; do sleep 0.05; done",
    )));
    one["lifecycle"] = json!({
        "postStart": {"exec": {"command": ["sh", "-c", "echo started >> /kept/order"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo stopping >> /kept/order"]}},
    });
    up.pod(
        "hooked",
        json!({"terminationGracePeriodSeconds": 20, "volumes": kept(), "containers": [one]}),
    )
    .await;
    up.ready("hooked").await;
    up.delete("hooked").await;
    assert_eq!(what_is_kept(&up).await, "started\nstopping\nended\n");
}

#[tokio::test]
async fn who_ignores_sigterm_is_killed_when_its_time_is_up() {
    let up = Instance::start().await;
    up.disk("kept").await;
    let script =
        "trap 'echo told to end >> /kept/order' TERM; echo begun; while :; do sleep 0.1; done";
    let spec = json!({"terminationGracePeriodSeconds": 5, "volumes": kept(), "containers": [with_kept(sh("main", script))]});
    // its end is seen only while its object is there
    let meta = json!({"name": "stubborn", "finalizers": ["sandbar.test/seen"]});
    up.create::<Pod>(json!({"metadata": meta, "spec": spec}))
        .await;
    up.says("stubborn", "begun").await;
    let pod = up.ready("stubborn").await;
    let name = format!("pod-{}", pod.metadata.uid.unwrap());
    let remains = || {
        let all = up.cgroups().into_iter();
        all.filter(|path| path.join(&name).exists()).count()
    };
    assert_ne!(remains(), 0);
    let options = DeleteParams::default();
    up.pods().delete("stubborn", &options).await.unwrap();
    let has_ended = |pod: &Pod| exit_code(pod, "main").is_some();
    let pod = up.until("stubborn", "ended", has_ended).await;
    assert_eq!(exit_code(&pod, "main"), Some(137));
    let seen = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["sandbar.test/seen"]}});
    up.patch("stubborn", None, seen).await;
    up.gone("stubborn").await;
    assert_eq!(remains(), 0);
    assert_eq!(what_is_kept(&up).await, "told to end\n");
}

/// Writes what happens to it to a volume, and ends when it is asked to. It is ready when it can be asked.
fn witness(name: &str, begins: &str, ends: &str) -> Value {
    let script = format!(
        "echo {name} >> /kept/order; {begins}; \
         trap '{ends}; echo end of {name} >> /kept/order; exit 0' TERM; touch /tmp/ready; while :; do sleep 0.05; done"
    );
    ready_by_file(with_kept(sh(name, &script)))
}

#[tokio::test]
async fn sidecars_have_started_before_the_others_and_outlive_them() {
    let up = Instance::start().await;
    up.disk("kept").await;
    let begins = "sleep 1; echo started >> /kept/order; touch /tmp/started";
    let mut sidecar = witness("side", begins, "true");
    sidecar["restartPolicy"] = json!("Always");
    sidecar["startupProbe"] = json!({"exec": {"command": ["test", "-e", "/tmp/started"]}, "periodSeconds": 1, "failureThreshold": 50});
    let spec = json!({
        "terminationGracePeriodSeconds": 20, "volumes": kept(),
        "initContainers": [sidecar], "containers": [witness("main", "true", "sleep 0.5")],
    });
    up.pod("crew", spec).await;
    up.ready("crew").await;
    up.delete("crew").await;
    assert_eq!(
        what_is_kept(&up).await,
        "side\nstarted\nmain\nend of main\nend of side\n"
    );
}

#[tokio::test]
async fn a_sidecar_that_ends_starts_again_though_its_pod_does_not() {
    let up = Instance::start().await;
    let mut sidecar = sh("side", "exit 0");
    sidecar["restartPolicy"] = json!("Always");
    let main = sh("main", "exec sleep 1000");
    let spec = json!({"restartPolicy": "Never", "initContainers": [sidecar], "containers": [main]});
    up.pod("crew", spec).await;
    let again = |pod: &Pod| container(pod, "side").restart_count >= 1;
    let pod = up.until("crew", "had its sidecar started again", again);
    assert_eq!(container(&pod.await, "main").restart_count, 0);
}

#[tokio::test]
async fn a_pod_has_no_more_time_than_it_may() {
    let up = Instance::start().await;
    let main = sh("main", "exec sleep 1000");
    up.pod(
        "late",
        json!({"activeDeadlineSeconds": 2, "containers": [main]}),
    )
    .await;
    let pod = up.phase("late", "Failed").await;
    let reason = pod.status.unwrap().reason;
    assert_eq!(reason.as_deref(), Some("DeadlineExceeded"));
}

#[tokio::test]
async fn a_container_whose_hook_fails_is_ended_and_started_anew() {
    let up = Instance::start().await;
    let mut one = sh("main", "exec sleep 1000");
    one["lifecycle"] = json!({"postStart": {"exec": {"command": ["sh", "-c", "exit 3"]}}});
    up.pod("hooked", json!({"containers": [one]})).await;
    up.event("FailedPostStartHook").await;
    let again = |pod: &Pod| container(pod, "main").restart_count >= 1;
    let pod = up.until("hooked", "was started anew", again).await;
    let last = container(&pod, "main").last_state.unwrap();
    assert!(last.terminated.is_some(), "{last:?}");
}
