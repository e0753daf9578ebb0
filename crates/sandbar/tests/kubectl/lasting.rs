//! What a restart of the server leaves.

use serde_json::Value;

use crate::server::{REPOSITORY, Server, User};
use crate::{SANDBOX, WEB};

const SANDBOXES: &str = "/apis/agents.x-k8s.io/v1beta1/namespaces/lasting/sandboxes";

#[test]
fn objects_and_watches_survive_a_restart() {
    let server = Server::own();
    let admin = User::new(&server, "kubeconfig", "lasting").in_new_namespace();
    admin.does(&format!("apply -f {REPOSITORY}/deploy/crds"));
    admin.does("wait --for=condition=Established crd --all --timeout=30s");
    admin.does_with(WEB, "apply -f -");
    admin.does_with(SANDBOX, "apply -f -");
    let before = admin.sees("sandboxes.agents.x-k8s.io box");
    admin.does("label sandboxes.agents.x-k8s.io box seen=before");
    let list: Value = serde_json::from_str(&admin.does(&format!("get --raw {SANDBOXES}"))).unwrap();
    drop(admin);
    let server = server.restarted();
    let admin = User::new(&server, "kubeconfig", "lasting");
    assert_eq!(admin.does("get pods -o name"), "pod/idle\npod/web\n");
    admin.does("label sandboxes.agents.x-k8s.io box seen=after --overwrite");
    let after = admin.sees("sandboxes.agents.x-k8s.io box");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let events = events_after(&admin, &list);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["object"]["metadata"]["labels"]["seen"], "after");
    let events = events_after(&admin, &before);
    assert_eq!(
        events[0]["object"]["reason"], "Expired",
        "who missed something lists again"
    );
    let said = admin.does(&format!("apply -f {REPOSITORY}/deploy/crds"));
    assert!(
        said.lines().all(|line| line.ends_with("unchanged")),
        "{said}"
    );
}

/// What a watch tells within a second that goes on from an object or list.
fn events_after(user: &User, seen: &Value) -> Vec<Value> {
    let version = seen["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{SANDBOXES}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    let events = user.does(&format!("get --raw {watch}"));
    let events = events
        .lines()
        .map(|event| serde_json::from_str(event).unwrap());
    events.collect()
}
