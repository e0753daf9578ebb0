//! What pods are given: variables, files, volumes, users.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::instance::{Instance, eventually, sh};

#[tokio::test]
async fn variables_come_from_everywhere() {
    let up = Instance::start().await;
    up.create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"word": "hush"}}))
        .await;
    up.create::<ConfigMap>(json!({"metadata": {"name": "c"}, "data": {"COLOUR": "blue"}}))
        .await;
    let mut one = sh(
        "main",
        "echo $WORD $COLOUR $NAME $ADDRESS $CORES $BOTH; exec sleep 1000",
    );
    one["resources"] = json!({"limits": {"cpu": "2"}});
    one["envFrom"] = json!([{"configMapRef": {"name": "c"}}]);
    one["env"] = json!([
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "word"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "BOTH", "value": "$(WORD)-$(COLOUR)"},
    ]);
    up.pod("named", json!({"containers": [one]})).await;
    let pod = up.ready("named").await;
    let address = pod.status.unwrap().pod_ip.unwrap();
    let said = up.says("named", "hush").await;
    assert_eq!(said, format!("hush blue named {address} 2 hush-blue\n"));
}

#[tokio::test]
async fn a_pod_waits_for_what_it_lacks_and_says_so() {
    let up = Instance::start().await;
    let mut one = sh("main", "cat /late/word; exec sleep 1000");
    one["volumeMounts"] = json!([{"name": "late", "mountPath": "/late"}]);
    let volumes = json!([{"name": "late", "secret": {"secretName": "late"}}]);
    up.pod("patient", json!({"volumes": volumes, "containers": [one]}))
        .await;
    let says = |pod: &Pod| {
        serde_json::to_string(&pod.status)
            .unwrap()
            .contains("secret \\\"late\\\" not found")
    };
    up.until("patient", "said what it lacks", says).await;
    up.create::<Secret>(json!({"metadata": {"name": "late"}, "stringData": {"word": "come\n"}}))
        .await;
    up.ready("patient").await;
    assert_eq!(up.says("patient", "come").await, "come\n");
}

#[tokio::test]
async fn volumes_are_shared_in_a_pod_and_files_of_secrets_are_read_only() {
    let up = Instance::start().await;
    up.create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"word": "hush"}}))
        .await;
    let mounts = json!([
        {"name": "disk", "mountPath": "/disk"},
        {"name": "memory", "mountPath": "/memory"},
        {"name": "secret", "mountPath": "/secret"},
        {"name": "about", "mountPath": "/about"},
    ]);
    let with = |mut one: serde_json::Value| {
        one["volumeMounts"] = mounts.clone();
        one
    };
    let volumes = json!([
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o444}},
        {"name": "about", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]);
    let write = "echo on disk > /disk/f; echo in memory > /memory/f; exec sleep 1000";
    up.pod(
        "shares",
        json!({"volumes": volumes, "containers": [
        with(sh("writer", write)), with(sh("reader", "exec sleep 1000"))]}),
    )
    .await;
    up.ready("shares").await;
    let script = "until [ -s /memory/f ]; do sleep 0.05; done; cat /disk/f /memory/f /secret/word /about/labels; \
        echo; touch /secret/mine 2>/dev/null || echo refused; stat -Lc %a /secret/word";
    let (out, code) = up.exec("shares", &["sh", "-c", script]);
    assert_eq!(code, 0, "{out}");
    let expected = "on disk\nin memory\nhushname=\"shares\"\nrefused\n444\n";
    assert!(out.starts_with(expected), "{out}");
}

#[tokio::test]
async fn containers_that_start_together_have_one_volume_in_memory_between_them() {
    let up = Instance::start().await;
    let one = |number: u32| {
        let mut one = sh(
            &format!("c{number}"),
            &format!("touch /memory/{number}; exec sleep 1000"),
        );
        one["volumeMounts"] = json!([{"name": "memory", "mountPath": "/memory"}]);
        one
    };
    let all: Vec<_> = (0..6).map(one).collect();
    let volumes = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    up.pod("crowd", json!({"volumes": volumes, "containers": all}))
        .await;
    up.ready("crowd").await;
    eventually("each sees what all have written", async || {
        let (seen, _) = up.exec("crowd", &["ls", "/memory"]);
        seen.starts_with("0\n1\n2\n3\n4\n5\n")
    })
    .await;
}

#[tokio::test]
async fn files_come_from_everywhere() {
    let up = Instance::start().await;
    up.create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"word": "hush"}}))
        .await;
    let settings = json!({"colour": "blue", "size": "large"});
    up.create::<ConfigMap>(json!({"metadata": {"name": "c"}, "data": settings}))
        .await;
    let mut one = sh("main", "exec sleep 1000");
    one["resources"] = json!({"limits": {"cpu": "1500m", "memory": "64Mi"}});
    one["env"] =
        json!([{"name": "OWN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    one["volumeMounts"] = json!([
        {"name": "settings", "mountPath": "/settings"},
        {"name": "settings", "mountPath": "/single/colour", "subPath": "colour"},
        {"name": "all", "mountPath": "/all"},
        {"name": "about", "mountPath": "/about"},
        {"name": "disk", "mountPath": "/disk"},
        {"name": "disk", "mountPath": "/own", "subPathExpr": "of/$(OWN)"},
    ]);
    let limit = |path: &str, resource: &str, divisor: &str| {
        let limit = json!({"containerName": "main", "resource": resource, "divisor": divisor});
        json!({"path": path, "resourceFieldRef": limit})
    };
    let name = json!({"path": "deep/name", "fieldRef": {"fieldPath": "metadata.name"}});
    let volumes = json!([
        {"name": "settings", "configMap": {"name": "c", "defaultMode": 0o440, "items": [
            {"key": "colour", "path": "colour"}, {"key": "size", "path": "deep/size", "mode": 0o400}]}},
        {"name": "all", "projected": {"sources": [
            {"secret": {"name": "s"}}, {"configMap": {"name": "c"}}, {"downwardAPI": {"items": [name]}}]}},
        {"name": "about", "downwardAPI": {"items": [
            limit("cores", "limits.cpu", "1m"), limit("memory", "limits.memory", "1Mi")]}},
        {"name": "disk", "emptyDir": {}},
    ]);
    // its files are those of root, as some modes are
    one["securityContext"] = json!({"runAsUser": 0});
    up.pod("reader", json!({"volumes": volumes, "containers": [one]}))
        .await;
    up.ready("reader").await;
    for (file, text) in [
        ("/settings/colour", "blue"),
        ("/settings/deep/size", "large"),
        ("/single/colour", "blue"),
        ("/all/word", "hush"),
        ("/all/colour", "blue"),
        ("/all/size", "large"),
        ("/all/deep/name", "reader"),
        ("/about/cores", "1500"),
        ("/about/memory", "64"),
    ] {
        assert_eq!(
            up.exec("reader", &["cat", file]),
            (text.to_owned(), 0),
            "{file}"
        );
    }
    let modes = [
        "stat",
        "-Lc",
        "%a",
        "/settings/colour",
        "/settings/deep/size",
    ];
    assert_eq!(up.exec("reader", &modes).0, "440\n400\n");
    let script = "echo here > /own/file; cat /disk/of/reader/file";
    let (said, code) = up.exec("reader", &["sh", "-c", script]);
    assert_eq!((said.as_str(), code), ("here\n", 0));
}

#[tokio::test]
async fn a_claim_keeps_its_files_from_pod_to_pod_and_its_directory_goes_with_it() {
    let up = Instance::start().await;
    up.disk("kept").await;
    let volumes = json!([{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}]);
    for (name, script) in [("writes", "echo kept > /kept/f"), ("reads", "cat /kept/f")] {
        let mut one = sh("main", script);
        one["volumeMounts"] = json!([{"name": "kept", "mountPath": "/kept"}]);
        up.pod(
            name,
            json!({"restartPolicy": "Never", "volumes": volumes, "containers": [one]}),
        )
        .await;
        up.phase(name, "Succeeded").await;
    }
    assert_eq!(up.logs("reads").await, "kept\n");
    let claims = up.api::<PersistentVolumeClaim>();
    assert_eq!(
        claims
            .get("kept")
            .await
            .unwrap()
            .status
            .unwrap()
            .phase
            .as_deref(),
        Some("Bound")
    );
    up.delete("writes").await;
    up.delete("reads").await;
    claims
        .delete("kept", &DeleteParams::default())
        .await
        .unwrap();
    let volumes = up.data().join("node/volumes");
    eventually("the directory is gone", async || {
        volumes.read_dir().unwrap().count() == 0
    })
    .await;
}

#[tokio::test]
async fn what_is_for_reading_only_cannot_be_written_to() {
    let up = Instance::start().await;
    up.disk("kept").await;
    up.create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"word": "hush"}}))
        .await;
    let mut one = sh("main", "exec sleep 1000");
    one["securityContext"] = json!({"runAsUser": 0, "readOnlyRootFilesystem": true});
    one["volumeMounts"] = json!([
        {"name": "disk", "mountPath": "/disk"},
        {"name": "disk", "mountPath": "/shown", "readOnly": true},
        {"name": "disk", "mountPath": "/below", "subPath": "a/b"},
        {"name": "kept", "mountPath": "/kept"},
        {"name": "secret", "mountPath": "/secret"},
    ]);
    let volumes = json!([
        {"name": "disk", "emptyDir": {}},
        {"name": "kept", "persistentVolumeClaim": {"claimName": "kept", "readOnly": true}},
        {"name": "secret", "secret": {"secretName": "s"}},
    ]);
    up.pod("reader", json!({"volumes": volumes, "containers": [one]}))
        .await;
    up.ready("reader").await;
    for place in ["/", "/etc", "/usr", "/shown", "/kept", "/secret"] {
        let (said, code) = up.exec("reader", &["touch", &format!("{place}/file")]);
        let is_refused = code != 0 && said.contains("Read-only file system");
        assert!(is_refused, "{place}: {code} {said}");
    }
    let script = "echo here > /below/file; cat /disk/a/b/file /shown/a/b/file";
    let (said, code) = up.exec("reader", &["sh", "-c", script]);
    assert_eq!((said.as_str(), code), ("here\nhere\n", 0));
}

/// A minute passes between two looks, as with a kubelet.
#[tokio::test]
async fn a_secret_that_changes_changes_in_the_volumes_of_those_who_run() {
    let up = Instance::start().await;
    let secret = |word: &str| json!({"metadata": {"name": "s"}, "stringData": {"word": word}});
    up.create::<Secret>(secret("old")).await;
    let script = "until grep -q new /secret/word; do sleep 0.2; done; echo changed";
    let mut one = sh("main", script);
    one["volumeMounts"] = json!([{"name": "secret", "mountPath": "/secret"}]);
    let volumes = json!([{"name": "secret", "secret": {"secretName": "s"}}]);
    let spec = json!({"restartPolicy": "Never", "activeDeadlineSeconds": 150, "volumes": volumes, "containers": [one]});
    up.pod("reader", spec).await;
    up.ready("reader").await;
    let patch = Patch::Merge(secret("new"));
    let options = PatchParams::default();
    up.api::<Secret>()
        .patch("s", &options, &patch)
        .await
        .unwrap();
    let is_over = |pod: &Pod| pod.status.as_ref().unwrap().phase.as_deref() != Some("Running");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(140) {
        if is_over(&up.pods().get("reader").await.unwrap()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(up.logs("reader").await, "changed\n");
}

#[tokio::test]
async fn users_and_groups_are_those_of_the_spec() {
    let up = Instance::start().await;
    let mut one = sh(
        "main",
        "id -u; id -g; id -G; touch /disk/f && stat -c %g /disk/f; exec sleep 1000",
    );
    one["volumeMounts"] = json!([{"name": "disk", "mountPath": "/disk"}]);
    up.pod("somebody", json!({
        "securityContext": {"runAsUser": 1234, "runAsGroup": 2345, "fsGroup": 3456, "runAsNonRoot": true},
        "volumes": [{"name": "disk", "emptyDir": {}}],
        "containers": [one],
    })).await;
    up.ready("somebody").await;
    assert_eq!(
        up.says("somebody", "3456\n3456").await,
        "1234\n2345\n2345 3456\n3456\n"
    );
}

#[tokio::test]
async fn nothing_of_the_machine_is_given_away() {
    let up = Instance::start().await;
    let main = || sh("main", "exec sleep 1000");
    let mut privileged = main();
    privileged["securityContext"] = json!({"privileged": true});
    let mut mounts = main();
    mounts["volumeMounts"] = json!([{"name": "etc", "mountPath": "/host"}]);
    let host = json!([{"name": "etc", "hostPath": {"path": "/etc"}}]);
    for (name, spec, word) in [
        (
            "privileged",
            json!({"containers": [privileged]}),
            "privileged",
        ),
        (
            "host-path",
            json!({"volumes": host, "containers": [mounts]}),
            "--allow-host-path",
        ),
        (
            "host-pid",
            json!({"hostPID": true, "containers": [main()]}),
            "hostPID",
        ),
        (
            "host-net",
            json!({"hostNetwork": true, "containers": [main()]}),
            "hostNetwork",
        ),
    ] {
        up.pod(name, spec).await;
        let says = |pod: &Pod| serde_json::to_string(&pod.status).unwrap().contains(word);
        let pod = up.until(name, "was refused", says).await;
        assert_eq!(
            pod.status.unwrap().phase.as_deref(),
            Some("Pending"),
            "{name}"
        );
    }
}

/// Prints the files that hold one of its arguments, but for those of the machine's own programs.
const SEARCH: &str = r#"
for word; do set -- "$@" -e "$word"; shift; done
for place in /*; do
    case $place in /bin|/lib*|/proc|/sbin|/sys|/usr) ;; *) grep -rlsF "$@" "$place" ;; esac
done
cat /proc/[0-9]*/environ | grep -qF "$@" && echo variables
true
"#;

#[tokio::test]
async fn the_tokens_of_the_api_are_nowhere_in_a_sandbox() {
    let up = Instance::start().await;
    let mut one = sh("main", "exec sleep 1000");
    one["securityContext"] = json!({"runAsUser": 0});
    up.pod("inside", json!({"containers": [one]})).await;
    up.ready("inside").await;
    let files = std::fs::read_dir(up.data().join("tokens")).unwrap();
    let read = |file: std::fs::DirEntry| std::fs::read_to_string(file.path()).unwrap();
    let tokens: Vec<String> = files.map(|file| read(file.unwrap())).collect();
    let tokens: Vec<&str> = tokens.iter().map(|token| token.trim()).collect();
    assert_eq!(
        tokens.len(),
        2,
        "of those who may read and of those who may write"
    );
    let search = || {
        let command = [&["sh", "-c", SEARCH, "sh"], &tokens[..]].concat();
        up.exec("inside", &command)
    };
    assert_eq!(search(), (String::new(), 0));
    let (home, _) = up.exec("inside", &["sh", "-c", "echo ~"]);
    let home = home.trim();
    for token in &tokens {
        let plant = format!("umask 077; echo 'token: {token}' > ~/planted");
        assert_eq!(up.exec("inside", &["sh", "-c", &plant]).1, 0);
        assert_eq!(search(), (format!("{home}/planted\n"), 0));
    }
}

#[tokio::test]
async fn a_policy_is_enforced_between_pods() {
    let up = Instance::start().await;
    let serve = "exec python3 -m http.server 8000";
    up.run("server", serve).await;
    up.run("client", "exec sleep 1000").await;
    let server = up.ready("server").await;
    up.ready("client").await;
    let address = server.status.unwrap().pod_ip.unwrap();
    let fetch = format!(
        "import urllib.request as r; print(r.urlopen('http://{address}:8000/', timeout=1).status)"
    );
    let ask = || {
        up.exec("client", &["python3", "-c", &fetch])
            .0
            .contains("200")
    };
    assert!(!ask(), "pods are apart unless a policy says otherwise");
    let policy = json!({"metadata": {"name": "let-in"}, "spec": {
        "podSelector": {"matchLabels": {"name": "server"}}, "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"name": "client"}}}]}]}});
    up.create::<k8s_openapi::api::networking::v1::NetworkPolicy>(policy)
        .await;
    eventually("the client is let in", async || ask()).await;
    let patch = Patch::Merge(json!({"spec": {"ingress": []}}));
    let policies = up.api::<k8s_openapi::api::networking::v1::NetworkPolicy>();
    policies
        .patch("let-in", &PatchParams::default(), &patch)
        .await
        .unwrap();
    eventually("the client is kept out", async || !ask()).await;
}
