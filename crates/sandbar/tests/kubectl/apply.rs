//! Manifests: apply in both ways, create, replace, diff, prune.

use crate::server::{REPOSITORY, Server, User, manifests};
use crate::{SANDBOX, WEB};

#[test]
fn what_the_repository_ships_applies_in_both_ways() {
    let admin = User::new(&Server::own(), "kubeconfig", "default");
    let crds = "deploy/crds";
    for said in ["created", "unchanged"] {
        let (_, stdout, stderr) = admin.run("", &format!("apply -f {REPOSITORY}/{crds}"));
        assert_eq!(stdout.matches(said).count(), manifests(crds), "{stdout}");
        assert_eq!(stderr, "", "no warning of the server");
    }
    admin.does("wait --for=condition=Established crd --all --timeout=30s");
    let stdout = admin.does(&format!("apply --server-side -f {REPOSITORY}/{crds}"));
    assert_eq!(
        stdout.matches("serverside-applied").count(),
        manifests(crds)
    );
    for examples in [
        "examples/sigs/v1beta1",
        "examples/sigs/v1alpha1",
        "examples/kruise",
    ] {
        let path = format!("{REPOSITORY}/{examples}");
        let rows = admin.rows(&format!("apply -f {path}"));
        assert_eq!(rows.len(), manifests(examples), "{rows:?}");
        let rows = admin.rows(&format!("apply --server-side -f {path}"));
        assert!(rows.iter().all(|row| row.ends_with("serverside-applied")));
        assert_eq!(admin.does(&format!("diff -f {path}")), "", "{examples}");
    }
}

#[test]
fn apply_changes_what_differs_and_leaves_what_others_set() {
    let admin = User::admin();
    admin.does_with(WEB, "apply -f -");
    let again = admin.does_with(WEB, "apply -f -");
    assert_eq!(again.matches("unchanged").count(), 7, "{again}");
    admin.does("annotate pod web by=hand");
    let rows = admin.does_with(&WEB.replace("nginx:1\n", "nginx:2\n"), "apply -f -");
    assert_eq!(rows.matches("configured").count(), 1, "{rows}");
    let pod = admin.sees("pod web");
    assert_eq!(pod["spec"]["containers"][0]["image"], "nginx:2");
    assert_eq!(pod["metadata"]["annotations"]["by"], "hand");
    let first = admin.does("apply view-last-applied pod web -o json");
    assert!(first.contains("nginx:2"), "{first}");
}

#[test]
fn managers_who_apply_on_the_server_do_not_overwrite_each_other_unless_forced() {
    let admin = User::admin();
    let apply = "apply --server-side --field-manager";
    admin.does_with(SANDBOX, &format!("{apply}=one -f -"));
    let other = SANDBOX.replace("busybox:1", "busybox:2");
    let conflict = admin.fails_with(&other, &format!("{apply}=two -f -"));
    assert!(conflict.contains("conflict with \"one\""), "{conflict}");
    let image = "sandboxes.agents.x-k8s.io box -o jsonpath={..image}";
    assert_eq!(admin.does(&format!("get {image}")), "busybox:1");
    admin.does_with(&other, &format!("{apply}=two --force-conflicts -f -"));
    assert_eq!(admin.does(&format!("get {image}")), "busybox:2");
}

#[test]
fn a_list_is_applied_item_by_item() {
    let admin = User::admin();
    let items = [WEB, SANDBOX].join("---");
    let items = items.split("---").map(|item| {
        let lines = item.trim().lines().map(|line| format!("  {line}\n"));
        lines.collect::<String>().replacen("  ", "- ", 1)
    });
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}",
        items.collect::<String>()
    );
    assert_eq!(admin.does_with(&list, "apply -f -").lines().count(), 8);
    let wrong = list.replace("nodeName", "nodeNam");
    let said = admin.fails_with(&wrong, "apply -f -");
    assert!(said.contains("unknown field \"nodeNam\""), "{said}");
}

#[test]
fn mistakes_in_manifests_are_named() {
    let admin = User::admin();
    for (manifest, says) in [
        (
            SANDBOX.replace("podTemplate", "podTemplat"),
            "unknown field \"spec.podTemplat\"",
        ),
        (
            SANDBOX.replace(
                "spec: {podTemplate",
                "spec: {operatingMode: Nope, podTemplate",
            ),
            "spec.operatingMode: Unsupported value: \"Nope\"",
        ),
        (
            SANDBOX.replace("Sandbox", "Sandbux"),
            "no matches for kind \"Sandbux\" in version \"agents.x-k8s.io/v1beta1\"\nensure CRDs are installed first",
        ),
        (
            WEB.replace("replicas: 2", "replicas: two"),
            "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas",
        ),
        (
            WEB.replace("image: busybox", "imag: busybox"),
            "unknown field \"spec.containers[0].imag\"",
        ),
        (
            WEB.replace("name: idle,", "name: Idle_1,"),
            "metadata.name: Invalid value: \"Idle_1\"",
        ),
    ] {
        let said = admin.fails_with(&manifest, "apply -f -");
        assert!(said.contains(says), "{says}: {said}");
    }
}

#[test]
fn create_and_replace_insist_on_what_is_there() {
    let admin = User::admin();
    let said = admin.fails_with(SANDBOX, "replace -f -");
    assert!(said.contains("(NotFound)"), "{said}");
    admin.does_with(SANDBOX, "create -f - --dry-run=server");
    admin.does_with(SANDBOX, "create -f -");
    let said = admin.fails_with(SANDBOX, "create -f -");
    assert!(said.contains("(AlreadyExists)"), "{said}");
    admin.does("label sandboxes.agents.x-k8s.io box by=hand");
    admin.does_with(&SANDBOX.replace("busybox:1", "busybox:2"), "replace -f -");
    let sandbox = admin.sees("sandboxes.agents.x-k8s.io box");
    assert_eq!(
        sandbox["metadata"]["labels"],
        serde_json::json!({"team": "a"})
    );
    assert_eq!(sandbox["metadata"]["generation"], 2);
    let old = sandbox["metadata"]["uid"].clone();
    admin.does_with(SANDBOX, "replace --force -f -");
    assert_ne!(
        admin.sees("sandboxes.agents.x-k8s.io box")["metadata"]["uid"],
        old
    );
}

#[test]
fn diff_shows_what_apply_would_do_and_does_not_do_it() {
    let admin = User::admin();
    admin.does_with(SANDBOX, "apply -f -");
    let other = SANDBOX.replace("busybox:1", "busybox:2");
    let (same, shown, _) = admin.run(&other, "diff -f -");
    assert!(!same);
    assert!(
        shown.contains("-      - image: busybox:1\n+      - image: busybox:2\n"),
        "{shown}"
    );
    admin.does_with(SANDBOX, "diff -f -");
}

#[test]
fn prune_deletes_what_is_no_longer_in_the_manifests() {
    let admin = User::admin();
    admin.does_with(WEB, "apply -f -");
    let without = WEB.replace("name: settings, l", "name: other, l");
    let prune = "apply -f - --prune -l app=web --prune-allowlist=core/v1/ConfigMap";
    let said = admin.does_with(&without, prune);
    assert!(said.contains("configmap/settings pruned"), "{said}");
    assert_eq!(
        admin.does("get configmaps -l app=web -o name"),
        "configmap/other\n"
    );
}
