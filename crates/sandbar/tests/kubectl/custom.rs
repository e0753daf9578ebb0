//! Our own kinds: what kubectl may do with them, in both versions.

use serde_json::json;

use crate::server::User;
use crate::{SANDBOX, SANDBOX_SET};

const BOX: &str = "sandboxes.v1beta1.agents.x-k8s.io box";
const OLD_BOX: &str = "sandboxes.v1alpha1.agents.x-k8s.io box";

fn with_sandbox() -> User {
    let admin = User::admin();
    admin.does_with(SANDBOX, "apply -f -");
    admin
}

#[test]
fn custom_objects_take_merge_and_json_patches_only() {
    let admin = with_sandbox();
    let said = admin.fails(&format!("patch {BOX} -p '{{}}'"));
    assert!(said.starts_with("error: application/strategic-merge-patch+json is not supported by agents.x-k8s.io/v1beta1, Kind=Sandbox"), "{said}");
    admin.does(&format!(
        r#"patch {BOX} --type=merge -p '{{"metadata":{{"labels":{{"team":null,"b":"c"}}}}}}'"#
    ));
    admin.does(&format!(r#"patch {BOX} --type=json -p '[{{"op":"replace","path":"/spec/operatingMode","value":"Suspended"}}]'"#));
    let sandbox = admin.sees(BOX);
    assert_eq!(sandbox["metadata"]["labels"], json!({"b": "c"}));
    assert_eq!(sandbox["spec"]["operatingMode"], "Suspended");
    let said = admin.fails(&format!(
        r#"patch {BOX} --type=merge -p '{{"spec":{{"operatingMode":"Nope"}}}}'"#
    ));
    assert!(
        said.contains("spec.operatingMode: Unsupported value: \"Nope\""),
        "{said}"
    );
    let (ok, _, said) = admin.run(
        "",
        &format!(r#"patch {BOX} --type=merge -p '{{"spec":{{"nope":1}}}}'"#),
    );
    assert!(
        ok && said.contains("Warning: unknown field \"spec.nope\""),
        "{said}"
    );
}

#[test]
fn its_status_is_set_apart_and_shows_in_tables_and_waits() {
    let admin = with_sandbox();
    let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Fine","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    admin.does(&format!("patch {BOX} --type=merge -p '{status}'"));
    assert_eq!(admin.sees(BOX)["status"], json!(null), "the spec's door");
    admin.does(&format!(
        "patch {BOX} --subresource=status --type=merge -p '{status}'"
    ));
    let rows = admin.rows("get sandboxes.agents.x-k8s.io");
    assert_eq!(rows[0], "NAME READY REASON AGE");
    assert!(rows[1].starts_with("box True Fine "), "{rows:?}");
    admin.does("wait sandboxes.agents.x-k8s.io/box --for=condition=Ready --timeout=20s");
    let told = admin
        .rows("describe sandboxes.agents.x-k8s.io box")
        .join(" ");
    assert!(
        told.contains("Reason: Fine Status: True Type: Ready"),
        "{told}"
    );
}

#[test]
fn an_editor_changes_custom_objects_in_either_version() {
    let admin = with_sandbox();
    admin
        .editing("s/busybox:1/busybox:2/")
        .does(&format!("edit {BOX}"));
    assert_eq!(
        admin.does(&format!("get {BOX} -o jsonpath={{..image}}")),
        "busybox:2"
    );
    admin
        .editing("/replicas:/s/1/0/")
        .does(&format!("edit {OLD_BOX}"));
    assert_eq!(admin.sees(BOX)["spec"]["operatingMode"], "Suspended");
}

#[test]
fn both_versions_are_the_same_sandbox() {
    let admin = with_sandbox();
    let (ok, old, warning) = admin.run(
        "",
        &format!("get {OLD_BOX} -o jsonpath={{.apiVersion}}/{{.spec.replicas}}"),
    );
    assert!(ok && old == "agents.x-k8s.io/v1alpha1/1", "{old}");
    assert!(
        warning.contains("agents.x-k8s.io/v1alpha1 Sandbox is deprecated"),
        "{warning}"
    );
    admin.does(&format!("scale {OLD_BOX} --replicas=0"));
    let new = admin.sees(BOX);
    assert_eq!(new["spec"]["operatingMode"], "Suspended");
    assert_eq!(new["spec"]["replicas"], json!(null));
    admin.does(&format!(
        r#"patch {BOX} --type=merge -p '{{"spec":{{"operatingMode":"Running"}}}}'"#
    ));
    let old = admin.sees(OLD_BOX);
    assert_eq!(old["spec"]["replicas"], 1);
    assert_eq!(old["metadata"]["uid"], new["metadata"]["uid"]);
    let said = admin.fails(&format!("scale {BOX} --replicas=0"));
    assert!(
        said.contains("(NotFound)"),
        "only the old version has replicas: {said}"
    );
    let manifest = SANDBOX
        .replace("v1beta1", "v1alpha1")
        .replace("name: box", "name: old");
    admin.does_with(&manifest, "apply -f -");
    assert_eq!(
        admin
            .rows("get sandboxes.v1beta1.agents.x-k8s.io --no-headers")
            .len(),
        2
    );
}

#[test]
fn a_sandbox_set_scales() {
    let admin = User::admin();
    admin.does_with(SANDBOX_SET, "apply -f -");
    admin.does("scale sbs set --replicas=5 --current-replicas=1");
    let set = admin.sees("sandboxsets set");
    assert_eq!(set["spec"]["replicas"], 5);
    assert_eq!(set["metadata"]["generation"], 2);
}

#[test]
fn a_finalizer_holds_a_deleted_object() {
    let admin = User::admin();
    admin.does_with(SANDBOX_SET, "apply -f -");
    admin.does(r#"patch sbs set --type=merge -p '{"metadata":{"finalizers":["a.b/c"]}}'"#);
    let said = admin.fails("delete sbs set --timeout=1s");
    assert!(
        said.contains("timed out waiting for the condition"),
        "{said}"
    );
    assert!(admin.sees("sbs set")["metadata"]["deletionTimestamp"].is_string());
    admin.does(r#"patch sbs set --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'"#);
    admin.does("wait sbs/set --for=delete --timeout=20s");
}

#[test]
fn a_viewer_reads_all_but_secrets_and_changes_nothing() {
    let admin = with_sandbox();
    admin.does_with(crate::WEB, "apply -f -");
    let viewer = admin.viewer();
    assert_eq!(
        viewer
            .rows("get pods,sandboxes.agents.x-k8s.io -o name")
            .len(),
        3
    );
    viewer.does("describe cm settings");
    viewer.does("explain pod.spec");
    viewer.does("api-resources");
    let namespace = &admin.namespace;
    for (command, verb, resource, group) in [
        ("get secrets", "list", "secrets", ""),
        ("get secret key", "get", "secrets", ""),
        ("delete pod web", "delete", "pods", ""),
        ("delete cm --all", "delete", "configmaps", ""),
        ("label cm settings a=b", "patch", "configmaps", ""),
        (
            "patch sandboxes.agents.x-k8s.io box --type=merge -p '{}'",
            "patch",
            "sandboxes",
            "agents.x-k8s.io",
        ),
        (
            "scale deployment web --replicas=3",
            "patch",
            "deployments/scale",
            "apps",
        ),
    ] {
        let said = viewer.fails(command);
        let reason = format!(
            "is forbidden: User \"viewer\" cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \"{namespace}\""
        );
        assert!(said.contains(&reason), "{command}: {said}");
    }
    let said = viewer.fails_with(SANDBOX_SET, "apply -f -");
    assert!(
        said.contains("cannot create resource \"sandboxsets\""),
        "{said}"
    );
    assert_eq!(admin.sees("deployment web")["spec"]["replicas"], 2);
}
