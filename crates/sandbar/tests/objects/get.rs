//! `sandbar get`.

use serde_json::json;

use crate::{WEB, server::User};

fn with_web() -> User {
    let user = User::new();
    user.does_with(WEB, "apply -f -");
    user
}

/// Without the ages, which no test can know.
fn without_age(table: &str) -> String {
    let line = |line: &str| {
        let (rest, _) = line.rsplit_once("   ").unwrap();
        format!("{rest}\n")
    };
    table.lines().map(line).collect()
}

#[test]
fn a_table_is_set_as_kubectl_sets_it() {
    let user = with_web();
    assert_eq!(
        without_age(&user.does("get pods")),
        "NAME   READY   STATUS    RESTARTS\nweb    0/1     Pending   0       \n"
    );
    assert_eq!(
        without_age(&user.does("get cm settings other")),
        "NAME       DATA\nsettings   1   \nother      0   \n"
    );
    let wide = user.does("get po web -o wide");
    let mut lines = wide.lines();
    assert_eq!(
        lines.next().unwrap(),
        "NAME   READY   STATUS    RESTARTS   AGE   IP       NODE     NOMINATED NODE   READINESS GATES"
    );
    assert!(
        lines
            .next()
            .unwrap()
            .ends_with("    <none>   <none>   <none>           <none>")
    );
}

#[test]
fn several_kinds_are_several_tables() {
    let user = with_web();
    let said = user.does("get cm,pods,secrets -l app=web");
    assert_eq!(
        without_age(&said.replace("\n\n", "\n")),
        "NAME                 DATA\nconfigmap/settings   1   \n\
         NAME      READY   STATUS    RESTARTS\npod/web   0/1     Pending   0       \n"
    );
    assert_eq!(said.matches("\n\n").count(), 1);
    assert_eq!(
        user.does("get pod/web configmap/other -o name"),
        "pod/web\nconfigmap/other\n"
    );
}

#[test]
fn all_namespaces_have_a_column() {
    let user = with_web();
    let said = user.does("get pods -A");
    assert!(said.starts_with("NAMESPACE   NAME   READY"), "{said}");
    assert!(said.contains("\ndefault     web    0/1 "), "{said}");
    let nodes = user.does("get namespaces -A");
    assert!(nodes.starts_with("NAME "), "{nodes}");
}

#[test]
fn nothing_is_said_to_be_nothing() {
    let user = User::new();
    for (line, expected) in [
        ("get pods", "No resources found in default namespace.\n"),
        (
            "get pods,services -l a=b -n kube-system",
            "No resources found in kube-system namespace.\n",
        ),
        ("get pods -A", "No resources found\n"),
        ("get nodes", "No resources found\n"),
    ] {
        let said = user.run("", line);
        assert_eq!(
            (said.code, said.out.as_str(), said.err.as_str()),
            (0, "", expected)
        );
    }
    assert_eq!(user.does("get pods -o name"), "");
    let list = user.sees("pods");
    assert_eq!(
        list,
        json!({"apiVersion": "v1", "kind": "List", "items": [], "metadata": {"resourceVersion": ""}})
    );
}

#[test]
fn kinds_go_by_every_name() {
    let user = with_web();
    for word in ["pods", "pod", "po", "Pod", "PODS", "pods.v1."] {
        assert_eq!(user.does(&format!("get {word} -o name")), "pod/web\n");
    }
    let word = "customresourcedefinitions.apiextensions.k8s.io";
    assert_eq!(user.does(&format!("get {word} -o name")), "");
    assert_eq!(user.does("get all -o name"), "pod/web\n");
    assert_eq!(
        user.fails("get nope"),
        "sandbar: the server doesn't have a resource type \"nope\"\n"
    );
}

#[test]
fn an_object_is_shown_whole() {
    let user = with_web();
    let yaml = user.does("get cm settings -o yaml");
    assert!(
        yaml.starts_with("apiVersion: v1\ndata:\n  colour: blue\nkind: ConfigMap\nmetadata:\n"),
        "{yaml}"
    );
    assert!(yaml.contains("\n  labels:\n    app: web\n"), "{yaml}");
    assert!(!yaml.contains("managedFields"), "{yaml}");
    let json = user.does("get cm settings -o json");
    assert!(
        json.starts_with("{\n    \"apiVersion\": \"v1\",\n"),
        "{json}"
    );
    let both = user.sees("cm settings other");
    assert_eq!(both["kind"], "List");
    let kinds: Vec<_> = both["items"].as_array().unwrap().iter().collect();
    assert_eq!((kinds.len(), &kinds[1]["kind"]), (2, &json!("ConfigMap")));
    let list = user.does("get pods -o yaml");
    assert!(
        list.starts_with("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n"),
        "{list}"
    );
}

#[test]
fn what_is_not_there_is_missed_and_the_rest_is_shown() {
    let user = with_web();
    let said = user.run("", "get cm settings nobody");
    assert_eq!(said.code, 1);
    assert!(said.out.contains("\nsettings   1 "), "{said:?}");
    assert_eq!(
        said.err,
        "sandbar: error from server (NotFound): configmaps \"nobody\" not found\n"
    );
    let said = user.fails("get pods web -A");
    assert!(
        said.contains("cannot be retrieved by name across all namespaces"),
        "{said}"
    );
    let said = user.fails("get pods web -l a=b");
    assert!(said.contains("named or selected"), "{said}");
}

#[test]
fn a_watch_shows_every_change() {
    let user = with_web();
    let mut watch = user.follows("get cm -l app=web -w");
    assert!(watch.next().starts_with("NAME       DATA   AGE"));
    assert!(watch.next().starts_with("settings   1      "));
    user.does_with(&WEB.replace("blue", "blue, size: '3'"), "apply -f -");
    assert!(watch.next().starts_with("settings   2      "));
    user.does_with(
        &WEB.replace("name: settings,", "name: a-longer-name,"),
        "apply -f -",
    );
    assert!(watch.next().starts_with("a-longer-name   1      "));
    user.does("delete cm settings");
    assert!(watch.next().starts_with("settings        2      "));
    let mut watch = user.follows("get cm other -o name -w");
    assert_eq!(watch.next(), "configmap/other\n");
    assert!(user.fails("get cm nobody -w").contains("(NotFound)"));
    assert!(user.fails("get cm,pods -w").contains("a single kind"));
}

#[test]
fn a_watch_that_finds_nothing_waits_with_its_heading() {
    let user = User::new();
    let mut watch = user.follows("get pods -w");
    user.does_with(WEB, "apply -f -");
    assert!(watch.next().starts_with("NAME   READY "));
    assert!(watch.next().starts_with("web    0/1 "));
}
