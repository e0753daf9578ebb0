//! Volumes as they are on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::{Backing, Sources, Volumes, is_refreshable, prepare, refresh};
use crate::node::documents::Documents;
use crate::node::place::PodPlace;
use crate::node::trouble::Trouble;

/// A pod whose only container mounts all of its volumes.
struct Scene {
    top: tempfile::TempDir,
    pod: Value,
    documents: Documents,
    claims: BTreeMap<String, PathBuf>,
    host_paths: Vec<PathBuf>,
}

impl Scene {
    fn new(volumes: &Value) -> Self {
        let mounts: Vec<Value> = volumes
            .as_array()
            .unwrap()
            .iter()
            .map(|volume| json!({"name": volume["name"], "mountPath": "/m"}))
            .collect();
        let mut documents = Documents::default();
        let data = [
            ("a".to_owned(), b"one".to_vec()),
            ("b".to_owned(), vec![0xff]),
        ];
        documents.secrets.insert("s".to_owned(), data.into());
        let data = [("c".to_owned(), b"three".to_vec())];
        documents.config_maps.insert("m".to_owned(), data.into());
        Self {
            top: tempfile::tempdir().unwrap(),
            pod: json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": "u-1", "labels": {"app": "web"}},
                "spec": {
                    "containers": [{
                        "name": "c", "volumeMounts": mounts,
                        "resources": {"limits": {"cpu": "2"}},
                    }],
                    "volumes": volumes,
                },
            }),
            documents,
            claims: BTreeMap::new(),
            host_paths: Vec::new(),
        }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.top.path().join(relative)
    }

    fn volume(&self, relative: &str) -> PathBuf {
        self.path("pods/u-1/volumes").join(relative)
    }

    fn with<T>(&self, act: impl FnOnce(&Sources<'_>) -> T) -> T {
        let pod: Pod = serde_json::from_value(self.pod.clone()).unwrap();
        act(&Sources {
            pod: &pod,
            place: &PodPlace::new(&self.path("pods"), "u-1"),
            documents: &self.documents,
            claims: &self.claims,
            memory: &self.path("memory"),
            may_mount: false,
            host_paths: &self.host_paths,
            pod_ip: None,
            host_ip: "192.0.2.1",
            allocatable: &[("memory".to_owned(), Quantity("1Gi".to_owned()))].into(),
        })
    }

    fn prepare(&self) -> Result<Volumes, Trouble> {
        self.with(prepare)
    }

    fn only(&self) -> Backing {
        let volumes = self.prepare().unwrap();
        volumes.into_values().next().unwrap()
    }
}

fn writable(path: PathBuf) -> Backing {
    Backing {
        path,
        below: None,
        read_only: false,
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(path: &Path) -> BTreeSet<String> {
    fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// What is seen of a volume: text or bytes of each file that is not hidden.
fn seen(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = names(path);
    let files = names.into_iter().filter(|name| !name.starts_with(".."));
    files
        .map(|name| {
            let content = fs::read(path.join(&name)).unwrap();
            (name, content)
        })
        .collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn an_empty_directory_is_everyones_and_keeps_its_content() {
    let scene = Scene::new(&json!([
        {"name": "disk", "emptyDir": {}},
        {"name": "default"},
        {"name": "fast", "emptyDir": {"medium": "Memory"}},
    ]));
    let volumes = scene.prepare().unwrap();
    for (name, path) in [
        ("disk", scene.volume("disk")),
        ("default", scene.volume("default")),
        ("fast", scene.path("memory/fast")),
    ] {
        assert_eq!(mode(&path), 0o777, "{name}");
        assert_eq!(volumes[name], writable(path));
    }
    let disk = scene.volume("disk");
    fs::write(disk.join("kept"), "content").unwrap();
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(scene.prepare().unwrap(), volumes);
    assert_eq!(fs::read(disk.join("kept")).unwrap(), b"content");
    assert_eq!(mode(&disk), 0o700);
    assert_eq!(
        names(&scene.volume("")),
        ["default", "disk"].map(str::to_owned).into()
    );
}

#[test]
fn an_empty_directory_that_was_never_finished_is_made() {
    let scene = Scene::new(&json!([{"name": "v", "emptyDir": {}}]));
    fs::create_dir_all(scene.volume("..v")).unwrap();
    scene.prepare().unwrap();
    assert_eq!(mode(&scene.volume("v")), 0o777);
    assert_eq!(names(&scene.volume("")), ["v".to_owned()].into());
}

#[test]
fn documents_become_files() {
    let scene = Scene::new(&json!([
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "map", "configMap": {"name": "m"}},
    ]));
    let volumes = scene.prepare().unwrap();
    let secret = scene.volume("secret");
    assert_eq!(
        seen(&secret),
        [("a".into(), b"one".to_vec()), ("b".into(), vec![0xff])].into()
    );
    assert_eq!(
        seen(&scene.volume("map")),
        [("c".into(), b"three".to_vec())].into()
    );
    assert!(volumes["secret"].read_only && volumes["map"].read_only);
    assert_eq!(mode(&secret.join("a")), 0o644);
    assert_eq!(
        fs::read_link(secret.join("a")).unwrap(),
        Path::new("..data/a")
    );
    let data = fs::read_link(secret.join("..data")).unwrap();
    assert!(data.to_str().unwrap().starts_with("..2"), "{data:?}");
    assert_eq!(names(&secret).len(), 4);
}

#[test]
fn items_choose_files_and_modes() {
    let scene = Scene::new(&json!([
        {"name": "v", "secret": {"secretName": "s", "defaultMode": 0o400, "items": [
            {"key": "a", "path": "deep/er/x", "mode": 0o600}, {"key": "b", "path": "deep/y"},
        ]}},
    ]));
    scene.prepare().unwrap();
    let volume = scene.volume("v");
    assert_eq!(fs::read(volume.join("deep/er/x")).unwrap(), b"one");
    assert_eq!(mode(&volume.join("deep/er/x")), 0o600);
    assert_eq!(mode(&volume.join("deep/y")), 0o400);
    assert_eq!(
        fs::read_link(volume.join("deep")).unwrap(),
        Path::new("..data/deep")
    );
    assert_eq!(names(&volume).len(), 3);
}

#[test]
fn a_projected_volume_has_all_of_its_sources_but_no_token() {
    let scene = Scene::new(&json!([
        {"name": "v", "projected": {"defaultMode": 0o640, "sources": [
            {"secret": {"name": "s", "items": [{"key": "a", "path": "a"}]}},
            {"configMap": {"name": "m"}},
            {"configMap": {"name": "none", "optional": true}},
            {"serviceAccountToken": {"path": "token"}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
                {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
            ]}},
        ]}},
        {"name": "d", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]));
    scene.prepare().unwrap();
    let expected = [
        ("a", "one"),
        ("c", "three"),
        ("cpu", "2"),
        ("namespace", "ns"),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(seen(&scene.volume("v")), expected.into());
    assert_eq!(mode(&scene.volume("v/c")), 0o640);
    assert_eq!(fs::read(scene.volume("d/l")).unwrap(), b"app=\"web\"");
}

#[test]
fn what_a_volume_lacks_is_named_and_the_pod_waits() {
    for (source, why) in [
        (
            json!({"secret": {"secretName": "x"}}),
            "secret \"x\" not found",
        ),
        (
            json!({"configMap": {"name": "x"}}),
            "configmap \"x\" not found",
        ),
        (
            json!({"secret": {"secretName": "s", "items": [{"key": "k", "path": "k"}]}}),
            "references non-existent secret key: k",
        ),
        (
            json!({"configMap": {"name": "m", "items": [{"key": "k", "path": "k"}]}}),
            "configmap references non-existent config key: k",
        ),
        (
            json!({"projected": {"sources": [{"secret": {"name": "x"}}, {"configMap": {"name": "y"}}]}}),
            "[secret \"x\" not found, configmap \"y\" not found]",
        ),
    ] {
        let mut volume = source.clone();
        volume["name"] = "v".into();
        let trouble = Scene::new(&json!([volume])).prepare().unwrap_err();
        let message = format!("MountVolume.SetUp failed for volume \"v\" : {why}");
        assert_eq!(trouble, Trouble::new("ContainerCreating", message));
    }
}

#[test]
fn what_is_optional_may_be_missing() {
    let items = json!([{"key": "k", "path": "k"}, {"key": "a", "path": "a"}]);
    for (source, files) in [
        (json!({"secret": {"secretName": "x", "optional": true}}), 0),
        (json!({"configMap": {"name": "x", "optional": true}}), 0),
        (
            json!({"secret": {"secretName": "s", "optional": true, "items": items}}),
            1,
        ),
    ] {
        let mut volume = source.clone();
        volume["name"] = "v".into();
        let scene = Scene::new(&json!([volume]));
        scene.prepare().unwrap();
        assert_eq!(seen(&scene.volume("v")).len(), files, "{source}");
    }
}

#[test]
fn paths_that_leave_a_volume_are_refused() {
    for path in [
        "..",
        "../x",
        "a/../../x",
        "/x",
        "a//b",
        "",
        "..data",
        "./a",
        "a/.",
    ] {
        let items = json!([{"key": "a", "path": path}]);
        let scene =
            Scene::new(&json!([{"name": "v", "secret": {"secretName": "s", "items": items}}]));
        let trouble = scene.prepare().unwrap_err();
        assert!(
            trouble.message.contains("invalid path"),
            "{path}: {trouble:?}"
        );
        assert!(!scene.volume("v").exists(), "{path}");
    }
}

#[test]
fn a_change_is_seen_at_once_and_nothing_old_stays() {
    let mut scene = Scene::new(&json!([
        {"name": "v", "secret": {"secretName": "s"}},
        {"name": "e", "emptyDir": {}},
    ]));
    scene.prepare().unwrap();
    let volume = scene.volume("v");
    let before = fs::read_link(volume.join("..data")).unwrap();
    assert_eq!(scene.with(refresh), Ok(false));
    assert_eq!(fs::read_link(volume.join("..data")).unwrap(), before);
    let data = [
        ("a".to_owned(), b"two".to_vec()),
        ("n".to_owned(), b"new".to_vec()),
    ];
    scene.documents.secrets.insert("s".to_owned(), data.into());
    assert_eq!(scene.with(refresh), Ok(true));
    assert_eq!(
        seen(&volume),
        [("a".into(), b"two".to_vec()), ("n".into(), b"new".to_vec())].into()
    );
    let after = fs::read_link(volume.join("..data")).unwrap();
    let after = after.to_str().unwrap();
    assert_ne!(before, Path::new(after));
    assert_eq!(
        names(&volume),
        ["..data", after, "a", "n"].map(str::to_owned).into()
    );
    assert_eq!(scene.with(refresh), Ok(false));
}

#[test]
fn a_document_that_went_away_leaves_its_files_and_holds_up_no_other() {
    let mut scene = Scene::new(&json!([
        {"name": "v", "secret": {"secretName": "s"}},
        {"name": "w", "configMap": {"name": "m"}},
    ]));
    scene.prepare().unwrap();
    scene.documents.secrets.clear();
    let data = [("c".to_owned(), b"four".to_vec())];
    scene
        .documents
        .config_maps
        .insert("m".to_owned(), data.into());
    let trouble = scene.with(refresh).unwrap_err();
    assert!(
        trouble.message.ends_with("secret \"s\" not found"),
        "{trouble:?}"
    );
    assert_eq!(fs::read(scene.volume("v/a")).unwrap(), b"one");
    assert_eq!(fs::read(scene.volume("w/c")).unwrap(), b"four");
}

#[test]
fn a_writer_that_was_stopped_halfway_is_cleaned_up_after() {
    let scene = Scene::new(&json!([{"name": "v", "secret": {"secretName": "s"}}]));
    scene.prepare().unwrap();
    let volume = scene.volume("v");
    fs::create_dir_all(volume.join("..2001_unfinished/deep")).unwrap();
    symlink("..2001_unfinished", volume.join("..data_tmp")).unwrap();
    symlink("..data/gone", volume.join("gone")).unwrap();
    fs::remove_file(volume.join("a")).unwrap();
    assert_eq!(scene.with(refresh), Ok(false));
    assert_eq!(names(&volume).len(), 4);
    assert_eq!(fs::read(volume.join("a")).unwrap(), b"one");
}

#[test]
fn only_what_is_made_of_documents_and_the_pod_can_change() {
    for (source, expected) in [
        (json!({"emptyDir": {}}), false),
        (json!({"persistentVolumeClaim": {"claimName": "x"}}), false),
        (json!({"secret": {"secretName": "s"}}), true),
        (json!({"configMap": {"name": "s"}}), true),
        (json!({"downwardAPI": {}}), true),
        (json!({"projected": {}}), true),
    ] {
        let mut volume = source.clone();
        volume["name"] = "v".into();
        let scene = Scene::new(&json!([volume]));
        let found = scene.with(|sources| is_refreshable(sources.pod));
        assert_eq!(found, expected, "{source}");
    }
}

#[test]
fn a_volume_that_nobody_mounts_is_not_looked_at() {
    let mut scene = Scene::new(&json!([{"name": "v", "nfs": {"path": "/", "server": "x"}}]));
    scene.pod["spec"]["containers"][0]["volumeMounts"] = json!([]);
    assert_eq!(scene.prepare(), Ok(Volumes::new()));
}

#[test]
fn a_claim_is_the_directory_that_it_is_bound_to() {
    let mut scene = Scene::new(
        &json!([{"name": "v", "persistentVolumeClaim": {"claimName": "x", "readOnly": true}}]),
    );
    let trouble = scene.prepare().unwrap_err();
    let message = "persistentvolumeclaim \"x\" not found or not bound";
    assert_eq!(trouble, Trouble::new("ContainerCreating", message));
    scene.claims.insert("x".to_owned(), "/claims/x".into());
    let bound = scene.only();
    assert_eq!(
        (bound.path.as_path(), bound.read_only),
        (Path::new("/claims/x"), true)
    );

    let mut scene = Scene::new(&json!([{"name": "v", "ephemeral": {}}]));
    scene.claims.insert("p-v".to_owned(), "/claims/p-v".into());
    assert_eq!(scene.only(), writable("/claims/p-v".into()));
}

#[test]
fn paths_of_the_host_are_given_only_below_what_is_allowed() {
    let scene = |path: &Path, kind: &str| {
        let path = path.to_str().unwrap();
        Scene::new(&json!([{"name": "v", "hostPath": {"path": path, "type": kind}}]))
    };
    let top = tempfile::tempdir().unwrap();
    let allowed = top.path().join("allowed");
    fs::create_dir_all(allowed.join("dir")).unwrap();
    fs::write(allowed.join("file"), "").unwrap();
    for path in ["/etc", "/", "relative"] {
        let trouble = scene(Path::new(path), "").prepare().unwrap_err();
        assert_eq!(trouble.reason, "CreateContainerConfigError");
        assert!(trouble.message.contains("--allow-host-path"), "{trouble:?}");
    }
    let beside = top.path().join("allowed-not");
    for path in [
        allowed.join("../allowed-not"),
        beside,
        top.path().to_owned(),
    ] {
        let mut scene = scene(&path, "");
        scene.host_paths.push(allowed.clone());
        assert!(scene.prepare().is_err(), "{path:?}");
    }
    for (below, kind, why) in [
        ("dir", "", None),
        ("dir", "Directory", None),
        ("none", "DirectoryOrCreate", None),
        ("file", "File", None),
        ("file", "Directory", Some("is not a directory")),
        ("none", "Directory", Some("is not a directory")),
        ("none", "FileOrCreate", Some("is not a file")),
        ("file", "Socket", Some("is not a socket file")),
        (
            "file",
            "CharDevice",
            Some("hostPath type CharDevice is not supported by this node"),
        ),
    ] {
        let mut scene = scene(&allowed.join(below), kind);
        scene.host_paths.push(allowed.clone());
        match (scene.prepare(), why) {
            (Ok(volumes), None) => {
                let expected = Backing {
                    below: Some(below.into()),
                    ..writable(allowed.clone())
                };
                assert_eq!(volumes["v"], expected, "{below} {kind}");
            }
            (Err(trouble), Some(why)) => {
                assert!(trouble.message.ends_with(why), "{trouble:?}");
            }
            other => panic!("{below} {kind}: {other:?}"),
        }
    }
    let mut whole = scene(&allowed, "Directory");
    whole.host_paths.push(allowed.clone());
    assert_eq!(whole.only(), writable(allowed));
}

#[test]
fn other_kinds_are_refused_by_name() {
    for (volume, message) in [
        (
            json!({"name": "v", "nfs": {"path": "/", "server": "x"}}),
            "volume \"v\": nfs volumes are not supported by this node",
        ),
        (
            json!({"name": "v", "csi": {"driver": "x"}}),
            "volume \"v\": csi volumes are not supported by this node",
        ),
        (
            json!({"name": "v", "emptyDir": {"medium": "HugePages"}}),
            "volume \"v\": an emptyDir in HugePages is not supported by this node",
        ),
        (
            json!({"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "x"}}]}}),
            "volume \"v\": projected clusterTrustBundle sources are not supported by this node",
        ),
        (
            json!({"name": "../v", "emptyDir": {}}),
            "volume \"../v\": its name must be letters, digits and '-'",
        ),
    ] {
        let trouble = Scene::new(&json!([volume])).prepare().unwrap_err();
        assert_eq!(trouble, Trouble::config(message));
    }
}

#[test]
fn a_group_of_the_pod_may_use_its_volumes_if_root_can_give_them() {
    let mut scene = Scene::new(&json!([
        {"name": "e", "emptyDir": {}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
    ]));
    scene.pod["spec"]["securityContext"] = json!({"fsGroup": 4321});
    let claim = scene.path("claim");
    let outside = scene.path("outside");
    fs::create_dir_all(claim.join("dir")).unwrap();
    fs::set_permissions(claim.join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
    for (path, mode) in [(claim.join("dir/file"), 0o400), (outside.clone(), 0o600)] {
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink(&outside, claim.join("dir/link")).unwrap();
    scene.claims.insert("c".to_owned(), claim.clone());
    scene.prepare().unwrap();
    let ours = fs::metadata(&outside).unwrap().gid();
    let found = |path: &Path| (fs::symlink_metadata(path).unwrap().gid(), mode(path));
    assert_eq!(found(&outside), (ours, 0o600));
    if !is_root() {
        assert_eq!(found(&scene.volume("e")), (ours, 0o777));
        assert_eq!(found(&claim.join("dir/file")), (ours, 0o400));
        return;
    }
    assert_eq!(found(&scene.volume("e")), (4321, 0o2777));
    assert_eq!(
        found(&fs::canonicalize(scene.volume("s/a")).unwrap()),
        (4321, 0o440)
    );
    assert_eq!(scene.with(refresh), Ok(false));
    assert_eq!(found(&claim).0, 4321);
    assert_eq!(mode(&claim) & 0o2770, 0o2770);
    assert_eq!(found(&claim.join("dir")), (4321, 0o2770));
    assert_eq!(found(&claim.join("dir/file")), (4321, 0o660));
    assert_eq!(
        fs::symlink_metadata(claim.join("dir/link")).unwrap().gid(),
        4321
    );
    // what containers did since then is theirs
    fs::set_permissions(claim.join("dir/file"), fs::Permissions::from_mode(0o600)).unwrap();
    scene.prepare().unwrap();
    assert_eq!(mode(&claim.join("dir/file")), 0o600);
}

#[test]
fn a_claim_that_the_pod_may_only_read_keeps_its_group() {
    let mut scene = Scene::new(
        &json!([{"name": "c", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}}]),
    );
    scene.pod["spec"]["securityContext"] = json!({"fsGroup": 4321});
    let claim = scene.path("claim");
    fs::create_dir(&claim).unwrap();
    let found = || (fs::metadata(&claim).unwrap().gid(), mode(&claim));
    let before = found();
    scene.claims.insert("c".to_owned(), claim.clone());
    assert!(scene.only().read_only);
    assert_eq!(found(), before);
}
