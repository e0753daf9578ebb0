//! What containers are told, for specs and images as people write them.

mod users;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::patch::merge;
use container::{ContainerSettings, MountSource, Seccomp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::{Ask, hostname, settings};
use crate::image::{Config, Image, Overlay};
use crate::node::documents::Documents;
use crate::node::place::PodPlace;
use crate::node::trouble::Trouble;
use crate::node::volumes::{Backing, Volumes};

/// A pod with one container, on an image with two users.
struct Scene {
    layer: tempfile::TempDir,
    pod: Value,
    config: Config,
    documents: Documents,
    volumes: Volumes,
    is_root: bool,
    is_isolated: bool,
}

impl Scene {
    fn new(container: &Value) -> Self {
        let layer = tempfile::tempdir().unwrap();
        let etc = layer.path().join("etc");
        std::fs::create_dir(&etc).unwrap();
        let passwd = "root:x:0:0::/root:/bin/sh\nwww:x:33:34::/var/www:/bin/sh\n";
        std::fs::write(etc.join("passwd"), passwd).unwrap();
        std::fs::write(etc.join("group"), "logs:x:70:www\ndocs:x:71:\n").unwrap();
        let whole = json!({"name": "c", "command": ["run"]});
        let whole = merge::apply(whole, container).unwrap();
        let document = |entries: &[(&str, &[u8])]| {
            let entries = entries.iter();
            entries
                .map(|(key, value)| ((*key).to_owned(), value.to_vec()))
                .collect::<BTreeMap<_, _>>()
        };
        let secret = document(&[("password", b"hunter2"), ("USER", b"me"), ("odd-key", b"1")]);
        let map = document(&[("USER", b"you"), ("bytes", &[0xff]), ("a b", b"space")]);
        Self {
            layer,
            pod: json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": "u-1", "labels": {"app": "web"}},
                "spec": {"nodeName": "machine", "containers": [whole]},
                "status": {"qosClass": "BestEffort"},
            }),
            config: Config::default(),
            documents: Documents {
                secrets: [("s".to_owned(), secret)].into(),
                config_maps: [("m".to_owned(), map)].into(),
            },
            volumes: Volumes::new(),
            is_root: true,
            is_isolated: true,
        }
    }

    fn pod(mut self, spec: &Value) -> Self {
        self.pod["spec"] = merge::apply(self.pod["spec"].take(), spec).unwrap();
        self
    }

    fn image(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    fn volume(mut self, name: &str, path: &str, below: Option<&str>, read_only: bool) -> Self {
        let backing = Backing {
            path: path.into(),
            below: below.map(PathBuf::from),
            read_only,
        };
        self.volumes.insert(name.to_owned(), backing);
        self
    }

    fn ordinary_user(mut self) -> Self {
        self.is_root = false;
        self
    }

    fn settings(&self) -> Result<ContainerSettings, Trouble> {
        let pod: Pod = serde_json::from_value(self.pod.clone()).unwrap();
        let allocatable = [("memory".to_owned(), Quantity("4Gi".to_owned()))].into();
        let image = Image {
            name: "image".to_owned(),
            id: "id".to_owned(),
            digest: None,
            config: self.config.clone(),
            layers: vec![self.layer.path().to_owned()],
            overlays: vec![Overlay {
                at: "/usr".into(),
                lower: "/host/usr".into(),
            }],
            bytes: 0,
            taken: 0,
            is_built_in: false,
        };
        settings(&Ask {
            pod: &pod,
            container: &pod.spec.as_ref().unwrap().containers[0],
            attempt: 3,
            image: &image,
            place: &PodPlace::new(Path::new("/pods"), "u-1"),
            pod_ip: Some("10.88.0.2"),
            host_ip: "192.0.2.1",
            allocatable: &allocatable,
            documents: &self.documents,
            volumes: &self.volumes,
            is_root: self.is_root,
            is_isolated: self.is_isolated,
        })
    }

    fn message(&self) -> String {
        let trouble = self.settings().unwrap_err();
        assert_eq!(trouble.reason, "CreateContainerConfigError", "{trouble:?}");
        trouble.message
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn config(user: &str) -> Config {
    Config {
        user: user.to_owned(),
        ..Config::default()
    }
}

#[test]
fn commands_and_arguments_replace_those_of_the_image_as_kubernetes_has_it() {
    let image = |entrypoint: &[&str], cmd: &[&str]| Config {
        entrypoint: texts(entrypoint),
        cmd: texts(cmd),
        ..Config::default()
    };
    let both = || image(&["entry"], &["cmd"]);
    for (command, args, config, expected) in [
        (json!(null), json!(null), both(), vec!["entry", "cmd"]),
        (json!(["mine"]), json!(null), both(), vec!["mine"]),
        (json!(null), json!(["arg"]), both(), vec!["entry", "arg"]),
        (json!(["mine"]), json!(["arg"]), both(), vec!["mine", "arg"]),
        (json!([]), json!([]), both(), vec!["entry", "cmd"]),
        (
            json!(null),
            json!(["arg"]),
            image(&[], &["cmd"]),
            vec!["arg"],
        ),
        (json!(null), json!(null), image(&[], &["cmd"]), vec!["cmd"]),
        (
            json!(["$(A)"]),
            json!(["$(B)", "$$(A)", "$(IMAGE)"]),
            both(),
            vec!["1", "2", "$(A)", "$(IMAGE)"],
        ),
    ] {
        let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
        let spec = json!({"command": command, "args": args, "env": env});
        let settings = Scene::new(&spec).image(config).settings().unwrap();
        assert_eq!(settings.args, expected, "{spec}");
    }
    let nothing = Scene::new(&json!({"command": null}))
        .settings()
        .unwrap_err();
    assert_eq!(nothing, Trouble::create("no command specified"));
}

#[test]
fn later_variables_override_earlier_ones() {
    let image = Config {
        env: texts(&["PATH=/bin", "USER=image", "HOSTNAME=image", "KEPT=a=b"]),
        ..Config::default()
    };
    let scene = Scene::new(&json!({
        "envFrom": [
            {"configMapRef": {"name": "m"}},
            {"secretRef": {"name": "s"}, "prefix": "S_"},
            {"secretRef": {"name": "none", "optional": true}},
        ],
        "env": [
            {"name": "FIRST", "value": "$(SECOND) $(S_password)"},
            {"name": "SECOND", "value": "$(USER)"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "USER"}}},
            {"name": "ABSENT", "valueFrom": {"secretKeyRef": {"name": "s", "key": "x", "optional": true}}},
            {"name": "BYTES", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "bytes", "optional": true}}},
            {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": true}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "EMPTY"},
            {"name": "S_USER", "value": "own"},
        ],
    }));
    let settings = scene.image(image).settings().unwrap();
    let expected = [
        "PATH=/bin",
        "USER=you",
        "HOSTNAME=p",
        "KEPT=a=b",
        "HOME=/root",
        "a b=space",
        "S_USER=own",
        "S_odd-key=1",
        "S_password=hunter2",
        "FIRST=$(SECOND) hunter2",
        "SECOND=you",
        "KEY=me",
        "POD=p",
        "APP=web",
        "MEMORY=4096",
        "EMPTY=",
    ];
    assert_eq!(settings.env, expected);
}

#[test]
fn what_the_environment_lacks_is_named_as_a_kubelet_does() {
    let of = |env: Value| Scene::new(&json!({"env": [env]})).message();
    let from = |from: Value| Scene::new(&json!({"envFrom": [from]})).message();
    let secret = |name: &str, key: &str| {
        of(json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}))
    };
    let map = |name: &str, key: &str| {
        of(json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}))
    };
    assert_eq!(secret("x", "k"), "secret \"x\" not found");
    assert_eq!(secret("s", "k"), "couldn't find key k in Secret ns/s");
    assert_eq!(map("x", "k"), "configmap \"x\" not found");
    assert_eq!(map("m", "k"), "couldn't find key k in ConfigMap ns/m");
    assert_eq!(
        from(json!({"secretRef": {"name": "x"}})),
        "secret \"x\" not found"
    );
    assert_eq!(
        from(json!({"configMapRef": {"name": "x"}})),
        "configmap \"x\" not found"
    );
    let file = json!({"name": "A", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}});
    assert_eq!(
        of(file),
        "environment variable A: fileKeyRef is not supported by this node"
    );
}

#[test]
fn a_secret_that_is_no_text_is_refused_as_a_variable() {
    let mut scene = Scene::new(&json!({"envFrom": [{"secretRef": {"name": "s"}}]}));
    let secret = scene.documents.secrets.get_mut("s").unwrap();
    secret.insert("bin".to_owned(), vec![0xff]);
    assert_eq!(
        scene.message(),
        "key bin of secret \"s\" is not text and cannot be an environment variable"
    );
}

#[test]
fn nothing_of_the_machine_is_given_away() {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        let message = Scene::new(&json!({})).pod(&json!({field: true})).message();
        assert_eq!(
            message,
            format!("{field} is never granted by this node: leave {field} out")
        );
        let without = Scene::new(&json!({})).pod(&json!({field: false}));
        assert!(without.settings().is_ok(), "{field}");
    }
    let local = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}});
    let message = Scene::new(&json!({"securityContext": local})).message();
    assert!(
        message.starts_with("seccompProfile Localhost is not supported"),
        "{message}"
    );
}

#[test]
fn wishes_are_passed_on() {
    let scene = Scene::new(&json!({
        "workingDir": "/srv",
        "stdin": true, "stdinOnce": true, "tty": true,
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "lifecycle": {"stopSignal": "SIGUSR1"},
        "securityContext": {
            "readOnlyRootFilesystem": true,
            "privileged": true,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "seccompProfile": {"type": "Unconfined"},
        },
    }));
    let settings = scene.settings().unwrap();
    assert_eq!((settings.name.as_str(), settings.attempt), ("c", 3));
    assert_eq!(settings.cwd, Path::new("/srv"));
    assert!(settings.stdin && settings.stdin_once && settings.tty && settings.privileged);
    assert!(settings.root.read_only);
    assert_eq!(settings.root.layers, [scene.layer.path()]);
    assert_eq!(settings.overlays[0].destination, Path::new("/usr"));
    assert_eq!(settings.overlays[0].layers, [Path::new("/host/usr")]);
    assert!(settings.overlays[0].read_only);
    assert_eq!(settings.capabilities.add, ["NET_ADMIN"]);
    assert_eq!(settings.capabilities.drop, ["ALL"]);
    assert_eq!(settings.seccomp, Seccomp::Unconfined);
    assert_eq!(settings.limits.cpu_quota, Some(100_000));
    assert_eq!(settings.oom_score_adj, Some(1000));
    assert_eq!(settings.stop_signal, Some(10));
    assert_eq!(settings.log, Path::new("/pods/u-1/logs/c/3.log"));
}

#[test]
fn what_nobody_asks_for_is_as_the_image_has_it() {
    let image = Config {
        working_dir: "app/./x".to_owned(),
        stop_signal: "SIGINT".to_owned(),
        ..Config::default()
    };
    let settings = Scene::new(&json!({})).image(image).settings().unwrap();
    assert_eq!(settings.cwd, Path::new("/app/x"));
    assert_eq!(settings.stop_signal, Some(2));
    assert_eq!(settings.seccomp, Seccomp::Default);
    assert!(!settings.stdin && !settings.tty && !settings.privileged && !settings.root.read_only);
    let bare = Scene::new(&json!({})).settings().unwrap();
    assert_eq!(bare.cwd, Path::new("/"));
    assert_eq!(bare.stop_signal, None);
}

/// Destination, source, what of it, and whether it is read-only.
fn mounts(settings: &ContainerSettings) -> Vec<(String, String, String, bool)> {
    let shown = |path: &Path| path.display().to_string();
    let mounts = settings.mounts.iter();
    mounts
        .map(|mount| match &mount.source {
            MountSource::Bind { path, sub_path } => {
                let below = sub_path.as_deref().map(shown).unwrap_or_default();
                (
                    shown(&mount.destination),
                    shown(path),
                    below,
                    mount.read_only,
                )
            }
            MountSource::Tmpfs { .. } => panic!("{mount:?}"),
        })
        .collect()
}

#[test]
fn mounts_come_in_an_order_in_which_none_hides_another() {
    let scene = Scene::new(&json!({
        "env": [{"name": "POD", "value": "p"}],
        "volumeMounts": [
            {"name": "data", "mountPath": "/data/deep/down", "subPath": "a/b"},
            {"name": "conf", "mountPath": "/conf"},
            {"name": "data", "mountPath": "data", "readOnly": true},
            {"name": "data", "mountPath": "/data/deep", "subPathExpr": "x/$(POD)"},
            {"name": "host", "mountPath": "/host/", "subPath": "sub"},
        ],
    }));
    let scene = scene
        .volume("data", "/v/data", None, false)
        .volume("conf", "/v/conf", None, true)
        .volume("host", "/allowed", Some("below"), false);
    let settings = scene.settings().unwrap();
    let expected = [
        ("/etc/hosts", "/pods/u-1/etc/hosts", "", false),
        ("/etc/hostname", "/pods/u-1/etc/hostname", "", false),
        ("/etc/resolv.conf", "/pods/u-1/etc/resolv.conf", "", false),
        ("/data", "/v/data", "", true),
        ("/data/deep", "/v/data", "x/p", false),
        ("/data/deep/down", "/v/data", "a/b", false),
        ("/conf", "/v/conf", "", true),
        ("/host", "/allowed", "below/sub", false),
        (
            "/dev/termination-log",
            "/pods/u-1/last-words/c/3",
            "",
            false,
        ),
    ];
    let expected: Vec<_> = expected
        .map(|(to, from, below, ro)| (to.to_owned(), from.to_owned(), below.to_owned(), ro))
        .into();
    assert_eq!(mounts(&settings), expected);
}

#[test]
fn a_volume_over_a_file_of_etc_stands_for_it() {
    let destinations = |path: &str| {
        let scene = Scene::new(&json!({
            "volumeMounts": [{"name": "v", "mountPath": path}],
            "terminationMessagePath": "/tmp/last",
            "securityContext": {"readOnlyRootFilesystem": true},
        }));
        let settings = scene.volume("v", "/v", None, false).settings().unwrap();
        let all = mounts(&settings).into_iter();
        all.map(|(to, _, _, read_only)| format!("{to}{}", if read_only { " ro" } else { "" }))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        destinations("/etc/hosts"),
        [
            "/etc/hostname ro",
            "/etc/resolv.conf ro",
            "/etc/hosts",
            "/tmp/last"
        ]
    );
    assert_eq!(destinations("/etc"), ["/etc", "/tmp/last"]);
    assert_eq!(
        destinations("/etc/hosts.d"),
        [
            "/etc/hosts",
            "/etc/hostname ro",
            "/etc/resolv.conf ro",
            "/etc/hosts.d",
            "/tmp/last"
        ]
    );
}

#[test]
fn mounts_that_cannot_be_are_refused() {
    for (mount, message) in [
        (
            json!({"name": "none", "mountPath": "/a"}),
            "cannot find volume \"none\" to mount into container \"c\"",
        ),
        (
            json!({"name": "v", "mountPath": "/a", "subPath": "/etc"}),
            "error SubPath `/etc` must not be an absolute path",
        ),
        (
            json!({"name": "v", "mountPath": "/a", "subPath": "a/../../b"}),
            "unable to provision SubPath `a/../../b`: must not contain '..'",
        ),
        (
            json!({"name": "v", "mountPath": "/a", "subPathExpr": "$(UP)"}),
            "unable to provision SubPath `..`: must not contain '..'",
        ),
        (
            json!({"name": "v", "mountPath": "/a", "subPathExpr": "$(B)/$(A)/$(EMPTY)"}),
            "missing value for A, B, EMPTY",
        ),
    ] {
        let env = json!([{"name": "UP", "value": ".."}, {"name": "EMPTY", "value": ""}]);
        let scene = Scene::new(&json!({"env": env, "volumeMounts": [mount]}));
        assert_eq!(scene.volume("v", "/v", None, false).message(), message);
    }
    let block = json!({"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]});
    let message = Scene::new(&block).message();
    assert_eq!(
        message,
        "container \"c\": volumeDevices are not supported by this node"
    );
}

#[test]
fn a_pod_is_called_what_it_asks_for() {
    let long = "a".repeat(62) + "-b";
    for (name, spec, expected) in [
        ("p", json!({}), "p"),
        ("p", json!({"hostname": "h"}), "h"),
        ("p", json!({"hostname": "h", "hostnameOverride": "o"}), "o"),
        (&long, json!({}), &long[..62]),
    ] {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(hostname(&pod), expected);
    }
}
