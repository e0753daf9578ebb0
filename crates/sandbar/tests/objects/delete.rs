//! `sandbar delete`.

use crate::{WEB, server::User};

fn with_web() -> User {
    let user = User::new();
    user.does_with(WEB, "apply -f -");
    user
}

#[test]
fn what_is_named_goes() {
    let user = with_web();
    assert_eq!(
        user.does("delete cm settings other"),
        "configmap \"settings\" deleted from default namespace\n\
         configmap \"other\" deleted from default namespace\n"
    );
    assert_eq!(
        user.does("delete pod/web --now"),
        "pod \"web\" deleted from default namespace\n"
    );
    user.does_with(
        "{apiVersion: v1, kind: Namespace, metadata: {name: new}}",
        "apply -f -",
    );
    assert_eq!(user.does("delete ns new"), "namespace \"new\" deleted\n");
    assert!(user.fails("get ns new").contains("(NotFound)"));
    assert_eq!(user.does("get pods -o name"), "");
}

#[test]
fn what_is_written_or_selected_goes() {
    let user = with_web();
    assert_eq!(
        user.does("delete cm,pods -l app=web --grace-period=0"),
        "configmap \"settings\" deleted from default namespace\n\
         pod \"web\" deleted from default namespace\n"
    );
    let said = user.run(WEB, "delete -f -");
    assert_eq!(said.code, 1);
    assert_eq!(
        said.out,
        "configmap \"other\" deleted from default namespace\n"
    );
    let missed: Vec<&str> = said.err.lines().collect();
    assert_eq!(
        missed,
        [
            "sandbar: error from server (NotFound): configmaps \"settings\" not found",
            "sandbar: error from server (NotFound): pods \"web\" not found"
        ]
    );
    assert_eq!(user.does_with(WEB, "delete -f - --ignore-not-found"), "");
    assert_eq!(user.does("delete pods --all"), "No resources found\n");
}

#[test]
fn by_force_what_is_named_goes_at_once_and_is_not_waited_for() {
    const WARNING: &str = "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. \
        The resource may continue to run on the cluster indefinitely.\n";
    let user = with_web();
    // bound to a node that never says that its containers have ended
    let bound = "{apiVersion: v1, kind: Pod, metadata: {name: bound}, spec: {nodeName: gone, containers: [{name: c, image: i}]}}";
    user.does_with(bound, "apply -f -");
    user.does("delete pod bound --wait=false --grace-period=600");
    let grace = &user.sees("pod bound")["metadata"]["deletionGracePeriodSeconds"];
    assert_eq!(*grace, 600);
    let said = user.run("", "delete pod bound --force");
    assert_eq!((said.code, said.err.as_str()), (0, WARNING));
    assert_eq!(said.out, "pod \"bound\" deleted from default namespace\n");
    assert!(user.fails("get pod bound").contains("(NotFound)"));

    let held = "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [a.b/c]}}";
    user.does_with(held, "apply -f -");
    let said = user.run("", "delete cm held --force --grace-period=0");
    assert_eq!((said.code, said.err.as_str()), (0, WARNING));
    assert!(user.sees("cm held")["metadata"]["deletionTimestamp"].is_string());

    let said = user.fails("delete pod web --force --grace-period=5");
    assert!(said.contains("--grace-period greater than 0"), "{said}");
    assert_eq!(user.run("", "delete pod web --force --now").code, 2);
    assert_eq!(user.does("get pods -o name"), "pod/web\n");
}

#[test]
fn nothing_goes_that_nobody_has_named() {
    let user = with_web();
    let said = user.fails("delete pods");
    assert!(said.contains("name the objects to delete"), "{said}");
    let said = user.fails("delete pods web --all");
    assert!(said.contains("named or selected"), "{said}");
    assert_eq!(user.does("get pods -o name"), "pod/web\n");
}

#[test]
fn it_waits_until_the_object_is_gone_and_says_for_what() {
    let user = User::new();
    let held = "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [a.b/c]}}";
    user.does_with(held, "apply -f -");
    let mut waits = user.follows("delete cm held");
    assert_eq!(
        waits.next(),
        "configmap \"held\" deleted from default namespace\n"
    );
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(user.sees("cm held")["metadata"]["deletionTimestamp"].is_string());
    let free = "{apiVersion: v1, kind: ConfigMap, metadata: {name: held}}";
    user.does_with(free, "apply -f -");
    assert_eq!(
        waits.end(),
        (
            0,
            "waiting until configmap \"held\" is gone, which waits for a.b/c\n".to_owned()
        )
    );
    user.does_with(held, "apply -f -");
    user.does("delete cm held --wait=false");
    assert_eq!(user.does("get cm held -o name"), "configmap/held\n");
}
