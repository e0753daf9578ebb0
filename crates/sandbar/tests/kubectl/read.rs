//! What people look at: get, watch, describe, explain, discovery.

use crate::server::User;
use crate::{SANDBOX, SANDBOX_SET, WEB};

#[test]
fn get_prints_tables_names_and_fields() {
    let admin = User::admin();
    admin.does_with(WEB, "apply -f -");
    let pods = admin.rows("get pods");
    assert_eq!(pods[0], "NAME READY STATUS RESTARTS AGE");
    assert!(pods[1].starts_with("idle 0/1 Pending 0 "), "{pods:?}");
    let wide = admin.rows("get pods -o wide --sort-by=.spec.nodeName");
    assert!(
        wide[0].ends_with("AGE IP NODE NOMINATED NODE READINESS GATES"),
        "{wide:?}"
    );
    assert!(
        wide[2].contains("<none> far-away <none> <none>"),
        "{wide:?}"
    );
    let deployment = admin.rows("get deployment web -o wide");
    assert!(
        deployment[1].ends_with("main,side nginx:1,side:1 app=web"),
        "{deployment:?}"
    );
    assert_eq!(
        admin.does("get pods,services -o name"),
        "pod/idle\npod/web\nservice/web\n"
    );
    let columns = "custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image";
    assert_eq!(
        admin.rows(&format!("get pods -o {columns}"))[2],
        "web nginx:1"
    );
    assert_eq!(
        admin.does("get cm settings -o jsonpath={.data.colour}"),
        "blue"
    );
    let yaml = admin.does("get service web -o yaml");
    assert!(
        yaml.starts_with("apiVersion: v1\nkind: Service\n"),
        "{yaml}"
    );
    let everywhere = admin.rows("get pods --all-namespaces");
    let row = format!("{} web 0/1", admin.namespace);
    assert!(
        everywhere.iter().any(|one| one.starts_with(&row)),
        "{everywhere:?}"
    );
    let missing = admin.fails("get pod nobody");
    assert_eq!(
        missing,
        "Error from server (NotFound): pods \"nobody\" not found\n"
    );
}

#[test]
fn get_selects_by_labels_and_fields() {
    let admin = User::admin();
    admin.does_with(WEB, "apply -f -");
    admin.does_with(SANDBOX, "apply -f -");
    for (selection, names) in [
        ("pods -l app=web", "pod/web\n"),
        ("pods -l 'app notin (web)'", "pod/idle\n"),
        ("pods --field-selector=spec.nodeName=far-away", "pod/idle\n"),
        ("pods --field-selector=status.phase!=Pending", ""),
        (
            "cm --field-selector=metadata.name=settings",
            "configmap/settings\n",
        ),
        (
            "sandboxes.agents.x-k8s.io -l team",
            "sandbox.agents.x-k8s.io/box\n",
        ),
        (
            "sandboxes.agents.x-k8s.io --field-selector=metadata.name=other",
            "",
        ),
    ] {
        assert_eq!(
            admin.does(&format!("get {selection} -o name")),
            names,
            "{selection}"
        );
    }
    let said = admin.fails("get sandboxes.agents.x-k8s.io --field-selector=spec.x=y");
    assert!(said.contains("field label not supported: spec.x"), "{said}");
    assert_eq!(
        admin.rows("get pods -L app --no-headers")[1]
            .rsplit(' ')
            .next(),
        Some("web")
    );
}

#[test]
fn a_watch_shows_every_change_as_it_happens() {
    let admin = User::admin();
    admin.does_with(SANDBOX_SET, "apply -f -");
    let mut watch = admin.follows("get sbs -w --output-watch-events --request-timeout=50s");
    assert!(watch.next().starts_with("EVENT NAME "));
    assert!(watch.next().starts_with("ADDED set "));
    admin.does_with(&SANDBOX_SET.replace("name: set", "name: two"), "apply -f -");
    assert!(watch.next().starts_with("ADDED two "));
    admin.does("scale sbs two --replicas=4");
    assert!(watch.next().starts_with("MODIFIED two "));
    admin.does("delete sbs set");
    assert!(watch.next().starts_with("DELETED set "));
}

#[test]
fn describe_tells_about_core_objects_and_their_events() {
    let admin = User::admin();
    admin.does_with(WEB, "apply -f -");
    let uid = admin.does("get pod web -o jsonpath={.metadata.uid}");
    let event = format!(
        "{{apiVersion: v1, kind: Event, metadata: {{name: web.1}}, reason: Pulled, message: it is here, \
         type: Normal, count: 3, source: {{component: me}}, lastTimestamp: '2026-01-01T00:00:00Z', \
         involvedObject: {{apiVersion: v1, kind: Pod, name: web, namespace: {}, uid: {uid}}}}}",
        admin.namespace
    );
    admin.does_with(&event, "create -f -");
    let node = format!("node-of-{}", admin.namespace);
    let manifest = format!("{{apiVersion: v1, kind: Node, metadata: {{name: {node}}}}}");
    admin.does_with(&manifest, "create -f -");
    let namespace = admin.namespace.clone();
    for (what, tells) in [
        (
            "pod web",
            &[
                "Image: nginx:1",
                "<set to the key 'colour' of config map 'settings'>",
                "Normal Pulled",
                "it is here",
            ][..],
        ),
        (
            "service web",
            &["Selector: app=web", "TargetPort: 8080/TCP"],
        ),
        ("pvc disk", &["Status: Pending", "VolumeMode: Filesystem"]),
        ("cm settings", &["colour: ---- blue", "Events: <none>"]),
        ("secret key", &["password: 7 bytes"]),
        (
            "deployment web",
            &["Replicas: 2 desired", "StrategyType: RollingUpdate"],
        ),
        (&format!("namespace {namespace}"), &["Status: Active"]),
        (
            &format!("node {node}"),
            &["Taints:", "Non-terminated Pods: (0 in total)"],
        ),
    ] {
        let told = admin.rows(&format!("describe {what}")).join(" ");
        for tell in tells {
            assert!(told.contains(tell), "{what}, {tell}: {told}");
        }
    }
    let events = admin.rows("get events --field-selector=involvedObject.name=web");
    assert!(
        events[1].ends_with("Normal Pulled pod/web it is here"),
        "{events:?}"
    );
    let events = admin.rows("events --for=pod/web");
    assert!(
        events[1].ends_with("Normal Pulled Pod/web it is here"),
        "{events:?}"
    );
    admin.does(&format!("delete node {node}"));
}

#[test]
fn explain_knows_built_in_and_custom_kinds() {
    let admin = User::admin();
    for (what, tells) in [
        ("pod", "spec <PodSpec>"),
        (
            "pod.spec.containers.resources.limits",
            "FIELD: limits <map[string]Quantity>",
        ),
        ("deployment --recursive", "maxSurge <IntOrString>"),
        (
            "sandboxes.spec.operatingMode --api-version=agents.x-k8s.io/v1beta1",
            "ENUM: Running Suspended",
        ),
        (
            "sandboxes.spec --api-version=agents.x-k8s.io/v1alpha1",
            "replicas <integer>",
        ),
        ("sandboxsets --recursive", "maxUnavailable <"),
        (
            "sandboxsets --recursive --output=plaintext-openapiv2",
            "maxUnavailable <",
        ),
    ] {
        let told = admin.rows(&format!("explain {what}")).join(" ");
        assert!(told.contains(tells), "{what}, {tells}: {told}");
    }
    let said = admin.fails("explain pod.spec.nothing");
    assert_eq!(said, "error: field \"nothing\" does not exist\n");
}

#[test]
fn discovery_tells_what_is_there() {
    let admin = User::admin();
    let resources = admin.rows("api-resources");
    for row in [
        "pods po v1 true Pod",
        "deployments deploy apps/v1 true Deployment",
        "sandboxsets sbs agents.kruise.io/v1alpha1 true SandboxSet",
        "sandboxes sandbox agents.x-k8s.io/v1beta1 true Sandbox",
    ] {
        assert!(
            resources.iter().any(|one| one.starts_with(row)),
            "{row}: {resources:?}"
        );
    }
    let versions = admin.does("api-versions");
    assert!(
        versions.contains("agents.x-k8s.io/v1alpha1\nagents.x-k8s.io/v1beta1\n"),
        "{versions}"
    );
    assert!(admin.does("version").contains("Server Version: v1.36"));
    assert!(admin.does("cluster-info").contains("control plane"));
    assert_eq!(
        admin.fails("top pods"),
        "error: Metrics API not available\n"
    );
}
