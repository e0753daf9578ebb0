//! The shared cluster and its real node.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::{Namespace, Testbed};

use crate::support::{container, eventually, eventually_sync, http_get, ip, output, pod, run};

const SERVE: &str = "cp /etc/image-version /tmp/index.html; exec httpd -f -p 80 -h /tmp";
const SLEEP: &str = "exec sleep 100000";

fn exec(bed: &Testbed, namespace: &Namespace, pod: &str, command: &[&str]) -> String {
    let mut kubectl = bed.kubectl();
    output(
        kubectl
            .args(["exec", "-n", namespace.name(), pod, "--"])
            .args(command),
    )
}

#[tokio::test]
async fn a_pod_is_reached_by_its_address_and_through_a_service() {
    let bed = Testbed::shared().await.unwrap();
    let namespace = bed.namespace("reach").await.unwrap();
    let pods = namespace.api::<Pod>();
    let server = run(&pods, &pod("server", SERVE, json!({}))).await;
    let direct = format!("{}:80", ip(&server)).parse().unwrap();
    eventually_sync("the pod answers", || {
        http_get(direct).is_ok_and(|body| body == "v1")
    });

    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 8080, "targetPort": 80}]},
    }))
    .unwrap();
    let created = namespace
        .api::<Service>()
        .create(&PostParams::default(), &service)
        .await
        .unwrap();
    let cluster_ip = created.spec.unwrap().cluster_ip.unwrap();
    let through = format!("{cluster_ip}:8080").parse().unwrap();
    eventually_sync("the service answers", || {
        http_get(through).is_ok_and(|body| body == "v1")
    });

    // from another pod, from the pod behind the service itself, and from where the API server runs
    run(&pods, &pod("client", SLEEP, json!({}))).await;
    run(&pods, &pod("on-node", SLEEP, json!({"hostNetwork": true}))).await;
    for client in ["client", "server", "on-node"] {
        let url = format!("http://{cluster_ip}:8080/");
        let body = exec(&bed, &namespace, client, &["wget", "-q", "-O", "-", &url]);
        assert_eq!(body, "v1", "{client}");
    }
}

#[tokio::test]
async fn a_server_in_the_test_is_reached_from_pods_and_from_the_node() {
    let bed = Testbed::shared().await.unwrap();
    let namespace = bed.namespace("host").await.unwrap();
    let pods = namespace.api::<Pod>();
    let listener = TcpListener::bind((bed.host_address(), 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello");
        }
    });
    for (name, spec) in [("pod", json!({})), ("node", json!({"hostNetwork": true}))] {
        run(&pods, &pod(name, SLEEP, spec)).await;
        let body = exec(&bed, &namespace, name, &["wget", "-q", "-O", "-", &url]);
        assert_eq!(body, "hello", "{name}");
    }
}

#[tokio::test]
async fn an_image_changes_in_place() {
    let bed = Testbed::shared().await.unwrap();
    let namespace = bed.namespace("image").await.unwrap();
    let pods = namespace.api::<Pod>();
    let before = run(&pods, &pod("one", SLEEP, json!({}))).await;
    let patch = Patch::Strategic(json!({
        "spec": {"containers": [{"name": "main", "image": "busybox:v2"}]}
    }));
    pods.patch("one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let after = eventually("the container was restarted", async || {
        let pod = pods.get("one").await.ok()?;
        let status = container(&pod);
        (status.restart_count == 1 && status.ready).then_some(pod)
    })
    .await;
    assert_eq!(ip(&after), ip(&before));
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert!(
        container(&after).image.ends_with("busybox:v2"),
        "{}",
        container(&after).image
    );
    assert_ne!(
        container(&after).container_id,
        container(&before).container_id
    );
    assert_eq!(
        exec(&bed, &namespace, "one", &["cat", "/etc/image-version"]),
        "v2"
    );
    eventually("the observed generation follows", async || {
        let pod = pods.get("one").await.ok()?;
        (pod.status?.observed_generation == pod.metadata.generation).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_pod_is_resized_without_a_restart() {
    let bed = Testbed::shared().await.unwrap();
    let namespace = bed.namespace("resize").await.unwrap();
    let pods = namespace.api::<Pod>();
    let resources = json!({"limits": {"cpu": "200m", "memory": "64Mi"}});
    let before = run(
        &pods,
        &pod("one", SLEEP, json!({"container.resources": resources})),
    )
    .await;
    let patch = Patch::Strategic(json!({
        "spec": {"containers": [{"name": "main", "resources": {
            "limits": {"cpu": "300m"}, "requests": {"cpu": "300m"},
        }}]}
    }));
    pods.patch_subresource("resize", "one", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let after = eventually("the container's limit is reported", async || {
        let pod = pods.get("one").await.ok()?;
        let resources = container(&pod).resources.as_ref()?;
        (resources.limits.as_ref()?["cpu"].0 == "300m").then_some(pod)
    })
    .await;
    assert_eq!(container(&after).restart_count, 0);
    assert_eq!(
        container(&after).container_id,
        container(&before).container_id
    );
}

#[tokio::test]
async fn data_on_a_claimed_volume_outlives_its_pod() {
    let bed = Testbed::shared().await.unwrap();
    let namespace = bed.namespace("volume").await.unwrap();
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }))
    .unwrap();
    // the provisioner's hard-coded path
    let on_the_host = std::path::Path::new("/tmp/hostpath_pv");
    let before = on_the_host.exists();
    let claims = namespace.api::<PersistentVolumeClaim>();
    claims.create(&PostParams::default(), &claim).await.unwrap();
    let pods = namespace.api::<Pod>();
    let spec = json!({
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "container.volumeMounts": [{"name": "data", "mountPath": "/data"}],
    });
    let writer = "echo kept > /data/file; echo written; exec sleep 100000";
    run(&pods, &pod("writer", writer, spec.clone())).await;
    eventually_sync("the writer's log says so", || {
        output(
            bed.kubectl()
                .args(["logs", "-n", namespace.name(), "writer"]),
        ) == "written\n"
    });
    pods.delete("writer", &DeleteParams::default())
        .await
        .unwrap();
    run(&pods, &pod("reader", SLEEP, spec)).await;
    assert_eq!(
        exec(&bed, &namespace, "reader", &["cat", "/data/file"]),
        "kept\n"
    );
    let claim = claims.get("data").await.unwrap();
    assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"));
    assert_eq!(
        on_the_host.exists(),
        before,
        "the path is the cluster's, not the machine's"
    );
}

#[tokio::test]
async fn an_image_made_by_a_test_runs() {
    let bed = Testbed::shared().await.unwrap();
    let image = bed
        .busybox_image("docker.io/sandbar/made-by-test:1")
        .unwrap()
        .file(
            "/opt/hello",
            0o755,
            "#!/bin/sh\necho hello from the image\nexec sleep 100000\n",
        )
        .command(&["/opt/hello"]);
    bed.import(&image).await.unwrap();
    let namespace = bed.namespace("import").await.unwrap();
    let pods = namespace.api::<Pod>();
    let spec = json!({"container.image": "sandbar/made-by-test:1", "container.command": null});
    run(&pods, &pod("one", "", spec)).await;
    eventually_sync("the image's own command has run", || {
        let log = output(bed.kubectl().args(["logs", "-n", namespace.name(), "one"]));
        log == "hello from the image\n"
    });
}
