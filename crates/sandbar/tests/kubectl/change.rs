//! Changes of core objects: patch, edit, label, scale, wait, delete.

use serde_json::json;

use crate::server::User;
use crate::{SANDBOX_SET, WEB};

fn with_web() -> User {
    let admin = User::admin();
    admin.does_with(WEB, "apply -f -");
    admin
}

#[test]
fn core_objects_take_every_kind_of_patch() {
    let admin = with_web();
    let containers =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:2"}]}}}}"#;
    admin.does(&format!("patch deployment web -p '{containers}'"));
    let images = "get deployment web -o jsonpath={..image}";
    assert_eq!(admin.does(images), "nginx:1 side:2", "merged by name");
    let again = admin.does(&format!(
        "patch deployment web --type=strategic -p '{containers}'"
    ));
    assert_eq!(again, "deployment.apps/web patched (no change)\n");
    admin.does(&format!(
        "patch deployment web --type=merge -p '{containers}'"
    ));
    assert_eq!(admin.does(images), "side:2", "replaced as a whole");
    admin.does(r#"patch cm settings --type=merge -p '{"data":{"size":null,"colour":"red"}}'"#);
    assert_eq!(admin.sees("cm settings")["data"], json!({"colour": "red"}));
    let operations = r#"[{"op":"test","path":"/data/colour","value":"red"},{"op":"move","from":"/data/colour","path":"/data/color"}]"#;
    admin.does(&format!("patch cm settings --type=json -p '{operations}'"));
    assert_eq!(admin.sees("cm settings")["data"], json!({"color": "red"}));
    let said = admin.fails(&format!("patch cm settings --type=json -p '{operations}'"));
    assert!(said.starts_with("The request is invalid"), "{said}");
    let said = admin.fails(r#"patch pod web -p '{"spec":{"nodeName":"x"}}'"#);
    assert!(
        said.contains("spec: Forbidden: pod updates may not change fields"),
        "{said}"
    );
}

#[test]
fn subresources_are_patched_on_their_own() {
    let admin = with_web();
    admin.does(r#"patch deployment web --subresource=status --type=merge -p '{"status":{"replicas":2},"spec":{"replicas":9}}'"#);
    let deployment = admin.sees("deployment web");
    assert_eq!(deployment["status"]["replicas"], 2);
    assert_eq!(deployment["spec"]["replicas"], 2);
    admin.does(
        r#"patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":5}}'"#,
    );
    assert_eq!(admin.sees("deployment web")["spec"]["replicas"], 5);
}

#[test]
fn an_editor_changes_core_objects() {
    let admin = with_web();
    let said = admin.editing("s/blue/green/").does("edit cm settings");
    assert_eq!(said, "configmap/settings edited\n");
    assert_eq!(admin.sees("cm settings")["data"]["colour"], "green");
    let said = admin.editing("s/nginx:1/nginx:2/").does("edit pod web");
    assert_eq!(said, "pod/web edited\n");
    let said = admin.editing("s/a/a/").run("", "edit pod web");
    assert!(
        said.0 && said.2.contains("Edit cancelled, no changes made."),
        "{said:?}"
    );
}

#[test]
fn labels_and_annotations_come_and_go() {
    let admin = with_web();
    admin.does("label pod web tier=front");
    let said = admin.fails("label pod web tier=back");
    assert!(
        said.contains("already has a value (front), and --overwrite is false"),
        "{said}"
    );
    admin.does("label pod web tier=back --overwrite");
    admin.does("annotate pod web 'note=two words'");
    let metadata = &admin.sees("pod web")["metadata"];
    assert_eq!(metadata["labels"], json!({"app": "web", "tier": "back"}));
    assert_eq!(metadata["annotations"]["note"], "two words");
    admin.does("label pods --all tier-");
    assert_eq!(admin.does("get pods -l tier -o name"), "");
}

#[test]
fn a_deployment_scales_if_it_is_as_expected() {
    let admin = with_web();
    admin.does("scale deployment web --replicas=3 --current-replicas=2");
    let said = admin.fails("scale deployment web --replicas=4 --current-replicas=2");
    assert_eq!(said, "error: Expected replicas to be 2, was 3\n");
    assert_eq!(admin.sees("deployment web")["spec"]["replicas"], 3);
    let said = admin.fails("scale cm settings --replicas=2");
    assert!(said.contains("(NotFound)"), "{said}");
    admin.does("set image deployment/web main=nginx:9");
    assert!(
        admin
            .does("get deployment web -o jsonpath={..image}")
            .starts_with("nginx:9")
    );
    let (done, said, _) = admin.run("", "rollout status deployment web --timeout=5s");
    assert!(
        !done && said.starts_with("Waiting for deployment"),
        "nothing rolls out: {said}"
    );
}

#[test]
fn wait_ends_when_what_it_waits_for_is_true() {
    let admin = with_web();
    let mut waits =
        admin.follows("wait cm/settings --for=jsonpath={.data.colour}=green --timeout=50s");
    admin.does(r#"patch cm settings -p '{"data":{"colour":"green"}}'"#);
    assert_eq!(waits.next(), "configmap/settings condition met");
    let mut waits = admin.follows("wait cm/late --for=create --timeout=50s");
    admin.does_with(
        &WEB.replace("name: settings, l", "name: late, l"),
        "apply -f -",
    );
    assert_eq!(waits.next(), "configmap/late condition met");
    let mut waits = admin.follows("wait pod/web --for=condition=Ready --timeout=50s");
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    admin.does(&format!("patch pod web --subresource=status -p '{ready}'"));
    assert_eq!(waits.next(), "pod/web condition met");
    admin.does("delete cm late --wait=false");
    admin.does("wait cm/late --for=delete --timeout=50s");
    let said = admin.fails("wait pod/idle --for=condition=Ready --timeout=1s");
    assert!(
        said.contains("timed out waiting for the condition on pods/idle"),
        "{said}"
    );
}

#[test]
fn delete_takes_what_is_named_or_selected() {
    let admin = with_web();
    admin.does("delete pod idle --grace-period=0 --force");
    assert!(admin.fails("delete pod idle").contains("(NotFound)"));
    admin.does("delete pod idle --ignore-not-found");
    admin.does("delete cm,secret,service -l app=web");
    admin.does("delete deployment web --cascade=foreground");
    admin.does("delete pods --all --now");
    admin.does("delete pvc disk --cascade=orphan");
    assert_eq!(
        admin.does("get pods,services,secrets,pvc,deployments -o name"),
        ""
    );
    let namespace = &admin.namespace;
    admin.does(&format!("delete namespace {namespace} --timeout=30s"));
    assert!(
        admin
            .fails(&format!("get namespace {namespace}"))
            .contains("(NotFound)")
    );
    assert!(
        admin
            .fails("delete namespace default")
            .contains("(Forbidden)")
    );
}

#[test]
fn dependents_go_with_their_owner_or_stay_behind() {
    for (cascade, left) in [
        ("background", ""),
        ("foreground", ""),
        ("orphan", "configmap/child\n"),
    ] {
        let admin = User::admin();
        admin.does_with(SANDBOX_SET, "apply -f -");
        let uid = admin.does("get sbs set -o jsonpath={.metadata.uid}");
        let child = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: child, labels: {{of: set}}, ownerReferences: \
             [{{apiVersion: agents.kruise.io/v1alpha1, kind: SandboxSet, name: set, uid: {uid}, \
             blockOwnerDeletion: true}}]}}}}"
        );
        admin.does_with(&child, "apply -f -");
        admin.does(&format!("delete sbs set --cascade={cascade} --timeout=30s"));
        if left.is_empty() {
            admin.does("wait cm/child --for=delete --timeout=30s");
        }
        assert_eq!(admin.does("get cm -l of=set -o name"), left, "{cascade}");
        let owned = "get cm -l of=set -o jsonpath={..ownerReferences}";
        assert_eq!(admin.does(owned), "", "{cascade}");
    }
}
