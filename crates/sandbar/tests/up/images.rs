//! Images that the node fetches itself, from a real registry server.

use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod, Secret};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    instance::{Instance, container, shell},
    registry::{Layer, PASSWORD, Registry, USER, layer_of},
};

/// A shell of this machine, and a file `/version`.
fn layers(version: &str) -> [Layer; 2] {
    let (files, version) = (shell(), format!("{version}\n"));
    let files = files.iter().map(|(path, bytes)| {
        let name = path.trim_start_matches('/');
        (name, 0o755, bytes.as_slice())
    });
    [
        layer_of(files),
        layer_of([("version", 0o644, version.as_bytes())]),
    ]
}

fn main(image: &str, policy: &str) -> Value {
    let command = ["/bin/sh", "-c", "cat /version; exec sleep 1000"];
    json!({"name": "main", "image": image, "imagePullPolicy": policy, "command": command})
}

async fn run(up: &Instance, name: &str, image: &str, policy: &str) {
    let spec = json!({"containers": [main(image, policy)]});
    up.pod(name, spec).await;
}

fn waiting(pod: &Pod) -> ContainerStateWaiting {
    let state = container(pod, "main").state;
    state.and_then(|state| state.waiting).unwrap_or_default()
}

/// Waits until the container of a pod waits for this reason, and returns what is said about it.
async fn waits(up: &Instance, name: &str, reason: &str) -> String {
    let is_it = |pod: &Pod| waiting(pod).reason.as_deref() == Some(reason);
    let pod = up.until(name, &format!("waited for {reason}"), is_it).await;
    waiting(&pod).message.unwrap_or_default()
}

#[tokio::test]
async fn an_image_is_fetched_from_its_registry_when_a_pod_needs_it() {
    let registry = Registry::start(false);
    let reference = registry.reference("team/app:1");
    let digest = registry.push(&reference, &layers("one")).await;
    let up = Instance::start().await;
    run(&up, "app", &reference.whole(), "IfNotPresent").await;
    let pod = up.ready("app").await;
    let repository = format!("{}/{}", reference.registry(), reference.repository());
    let expected = format!("{repository}@{digest}");
    assert_eq!(container(&pod, "main").image_id, expected);
    up.says("app", "one").await;
    let listed = String::from_utf8(up.sandbar(&["get", "pods"]).stdout).unwrap();
    assert!(listed.contains("Running"), "{listed}");
}

#[tokio::test]
async fn a_pod_waits_for_an_image_that_is_not_there_until_it_is() {
    let registry = Registry::start(false);
    let reference = registry.reference("team/late:1");
    let whole = reference.whole();
    let up = Instance::start().await;
    run(&up, "late", &whole, "IfNotPresent").await;
    let absent = format!(
        "image {whole} is not in the registry {}: ",
        reference.registry()
    );
    let said = waits(&up, "late", "ErrImagePull").await;
    assert!(said.starts_with(&absent), "{said}");
    let said = waits(&up, "late", "ImagePullBackOff").await;
    let back_off = format!("Back-off pulling image {whole:?}: ErrImagePull: {absent}");
    assert!(said.starts_with(&back_off), "{said}");
    registry.push(&reference, &layers("late")).await;
    let pod = up.ready("late").await;
    assert_eq!(container(&pod, "main").restart_count, 0);
    up.says("late", "late").await;
}

#[tokio::test]
async fn the_pull_policy_says_whether_a_registry_is_asked() {
    let registry = Registry::start(false);
    let reference = registry.reference("team/app:moving");
    let image = reference.whole();
    let up = Instance::start().await;
    run(&up, "never", &image, "Never").await;
    let said = waits(&up, "never", "ErrImageNeverPull").await;
    let expected = format!("Container image {image:?} is not present with pull policy of Never");
    assert_eq!(said, expected);

    registry.push(&reference, &layers("old")).await;
    run(&up, "first", &image, "IfNotPresent").await;
    up.says("first", "old").await;
    // now it is here, and whoever waited for it takes what is here
    up.says("never", "old").await;

    registry.push(&reference, &layers("new")).await;
    run(&up, "second", &image, "IfNotPresent").await;
    up.says("second", "old").await;
    run(&up, "third", &image, "Always").await;
    up.says("third", "new").await;

    drop(registry);
    run(&up, "fourth", &image, "IfNotPresent").await;
    up.says("fourth", "new").await;
    run(&up, "fifth", &image, "Always").await;
    let said = waits(&up, "fifth", "ErrImagePull").await;
    assert!(said.contains(reference.registry()), "{said}");
}

#[tokio::test]
async fn a_registry_with_users_is_read_with_the_secret_of_the_pod() {
    let registry = Registry::start(true);
    let reference = registry.reference("team/private:1");
    registry.push(&reference, &layers("private")).await;
    let up = Instance::start().await;
    let image = reference.whole();
    run(&up, "stranger", &image, "IfNotPresent").await;
    let said = waits(&up, "stranger", "ErrImagePull").await;
    assert!(said.contains("does not let strangers read"), "{said}");

    login(&up, "login", reference.registry(), USER, PASSWORD).await;
    pull_with(&up, "friend", &image, &["login"]).await;
    up.says("friend", "private").await;
}

#[tokio::test]
async fn each_secret_of_a_pod_is_tried_until_one_opens_its_registry() {
    let registry = Registry::start(true);
    let reference = registry.reference("team/private:1");
    registry.push(&reference, &layers("private")).await;
    let up = Instance::start().await;
    let image = reference.whole();
    let (host, team) = (
        reference.registry(),
        format!("{}/team", reference.registry()),
    );
    login(&up, "former", host, "former", "wrong").await;
    login(&up, "team", &team, "team", "wrong").await;
    login(&up, "login", host, USER, PASSWORD).await;
    pull_with(&up, "friend", &image, &["former", "team", "login"]).await;
    up.says("friend", "private").await;

    pull_with(&up, "stranger", &image, &["former", "team"]).await;
    let said = waits(&up, "stranger", "ErrImagePull").await;
    let refused = |who: &str| format!("does not let the user {who:?} read {image}");
    let tried = ["team", "former"].map(|who| said.find(&refused(who)));
    assert!(tried[0].is_some() && tried[0] < tried[1], "{said}");
}

async fn login(up: &Instance, name: &str, registry: &str, user: &str, password: &str) {
    let auth = json!({"username": user, "password": password});
    let config = json!({"auths": {registry: auth}}).to_string();
    up.create::<Secret>(json!({
        "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": config},
    }))
    .await;
}

async fn pull_with(up: &Instance, name: &str, image: &str, secrets: &[&str]) {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    let spec = json!({"imagePullSecrets": secrets, "containers": [main(image, "Always")]});
    up.pod(name, spec).await;
}

#[tokio::test]
async fn a_registry_without_tls_beyond_loopback_is_asked_only_if_it_is_said_to_be_one() {
    let mut up = Instance::start().await;
    up.run("any", "exec sleep 1000").await;
    let host = up.ready("any").await.status.unwrap().host_ip.unwrap();
    let registry = Registry::listening(&format!("{host}:0"), false);
    let reference = registry.reference("team/plain:1");
    registry.push(&reference, &layers("plain")).await;
    run(&up, "app", &reference.whole(), "IfNotPresent").await;
    let said = waits(&up, "app", "ErrImagePull").await;
    assert!(said.contains(reference.registry()), "{said}");

    up.end(Signal::KILL);
    up.options_for_next_start(&["--insecure-registry", reference.registry()]);
    up.start_again().await;
    up.says("app", "plain").await;
}
