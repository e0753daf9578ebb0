//! Images from files, and what becomes of their names, documents and users.

use std::fs;

use local::image::{Auth, Digest, DocumentError, Error, Platform, Progress, UserError, reference};
use serde_json::json;

use crate::support::{INDEX, Layer, Layout, Place, Tar, archive, gzip, plain};

fn layout() -> Layout {
    Layout::default().named(
        "a/b:1",
        &[Layer::plain(Tar::default().file("file", "text"))],
    )
}

#[test]
fn a_layout_is_taken_as_directory_and_as_archive() {
    let layout = layout();
    let packed = [
        layout.archive(),
        gzip(&layout.archive()),
        zstd::encode_all(layout.archive().as_slice(), 3).unwrap(),
    ];
    let place = Place::new();
    let mut sources = vec![layout.directory(&place.directory.path().join("layout"))];
    for (number, content) in packed.iter().enumerate() {
        let path = place.directory.path().join(number.to_string());
        fs::write(&path, content).unwrap();
        sources.push(path);
    }
    for source in sources {
        let place = Place::new();
        let mut last = None;
        let imported = place
            .images
            .import(&source, None, |progress| last = Some(progress));
        let imported = imported.unwrap();
        assert_eq!(imported[0].names, ["docker.io/a/b:1"]);
        assert!(matches!(last, Some(Progress { done, total }) if done == total && total > 0));
        let image = place
            .images
            .get(&"a/b:1".parse().unwrap())
            .unwrap()
            .unwrap();
        assert_eq!(image.id, imported[0].id);
        assert_eq!(image.config.cmd, ["/bin/true"]);
        assert_eq!(fs::read(image.layers[0].join("file")).unwrap(), b"text");
        assert_eq!(place.unfinished(), 0);
    }
}

#[test]
fn what_docker_saves_is_taken() {
    let place = Place::new();
    let layer = Tar::default().file("file", "text").finish();
    let config = json!({
        "os": "linux",
        "architecture": Platform::here().architecture,
        "config": {"Env": ["A=b"], "Cmd": null, "Entrypoint": ["/e"], "User": "1000"},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer).to_string(), Digest::of(&layer).to_string()]},
    });
    let manifest = json!([{
        "Config": "c.json",
        "RepoTags": ["app:1", "app:latest"],
        "Layers": ["one/layer.tar", "two/layer.tar"],
    }]);
    let files = [
        ("c.json", config.to_string().into_bytes()),
        ("one/layer.tar", layer),
        ("manifest.json", manifest.to_string().into_bytes()),
    ];
    let files = files.map(|(name, content)| (name.to_owned(), content));
    let mut content = archive(&files);
    // the second layer is a link to the first, before the end of the archive
    content.truncate(content.len() - 1024);
    content.extend(
        Tar::default()
            .symlink("two/layer.tar", "../one/layer.tar")
            .finish(),
    );
    let file = place.directory.path().join("saved.tar");
    fs::write(&file, content).unwrap();
    let imported = place.images.import(&file, None, |_| {}).unwrap();
    assert_eq!(
        imported[0].names,
        ["docker.io/library/app:1", "docker.io/library/app:latest"]
    );
    let image = place.images.get(&"app".parse().unwrap()).unwrap().unwrap();
    assert_eq!(
        image.id,
        Digest::of(config.to_string().as_bytes()).to_string()
    );
    assert_eq!(image.digest, None);
    assert_eq!(image.config.entrypoint, ["/e"]);
    // an overlay refuses to have a directory twice
    assert_eq!(image.layers.len(), 1);
}

#[test]
fn names_come_from_the_archive_or_from_who_imports() {
    let mut unnamed = Layout::default();
    let entry = unnamed.image(&json!({}), &[]);
    unnamed.manifests.push(entry.clone());
    let place = Place::new();
    let file = place.directory.path().join("a.tar");
    fs::write(&file, unnamed.archive()).unwrap();
    let error = place.images.import(&file, None, |_| {});
    assert!(matches!(error, Err(Error::Unnamed { .. })), "{error:?}");
    let name = reference("team/app").unwrap();
    place.images.import(&file, Some(&name), |_| {}).unwrap();
    let image = place.images.get(&name).unwrap().unwrap();
    assert_eq!(image.name, "docker.io/team/app:latest");
    // an image without layers still is the lower directory of an overlay
    assert_eq!(fs::read_dir(&image.layers[0]).unwrap().count(), 0);
    let two = unnamed.named("x/y:1", &[]);
    fs::write(&file, two.archive()).unwrap();
    let error = place.images.import(&file, Some(&name), |_| {});
    assert!(
        matches!(error, Err(Error::Several { count: 2, .. })),
        "{error:?}"
    );
    for wrong in ["", "UPPER", "a b", "a:b:c", "../a", "a@sha256:12"] {
        assert!(matches!(reference(wrong), Err(Error::Name(..))), "{wrong}");
    }
}

#[test]
fn an_image_is_found_by_tag_and_by_digest() {
    let place = Place::new();
    let layout = layout();
    let digest = layout.manifests[0]["digest"].as_str().unwrap().to_owned();
    place.import(&layout).unwrap();
    for (name, is_found) in [
        ("a/b:1".to_owned(), true),
        ("docker.io/a/b:1".to_owned(), true),
        ("index.docker.io/a/b:1".to_owned(), true),
        (format!("a/b@{digest}"), true),
        (format!("a/b:other@{digest}"), true),
        (format!("a/c@{digest}"), false),
        ("a/b".to_owned(), false),
        ("registry.example/a/b:1".to_owned(), false),
    ] {
        let image = place.images.get(&reference(&name).unwrap()).unwrap();
        assert_eq!(image.is_some(), is_found, "{name}");
        assert!(image.is_none_or(|image| image.digest.as_ref() == Some(&digest)));
    }
}

#[test]
fn the_image_for_this_machine_is_taken_out_of_many() {
    let place = Place::new();
    let mut layout = Layout::default();
    let mut here = layout.image(&json!({"Cmd": ["here"]}), &[]);
    here["platform"] = json!({"os": "linux", "architecture": Platform::here().architecture});
    let mut other = layout.image(&json!({"Cmd": ["other"]}), &[]);
    other["platform"] = json!({"os": "linux", "architecture": "s390x"});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [other, here]});
    let mut entry = layout.blob(INDEX, index.to_string().as_bytes());
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": "a/b:many"});
    layout.manifests = vec![entry];
    place.import(&layout).unwrap();
    let image = place
        .images
        .get(&"a/b:many".parse().unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(image.config.cmd, ["here"]);

    layout.manifests = vec![other.clone()];
    let error = place.import(&layout).unwrap_err();
    let is_said = matches!(
        &error,
        Error::Document {
            reason: DocumentError::Platform(_),
            ..
        }
    );
    assert!(
        is_said && error.to_string().contains("linux/s390x"),
        "{error}"
    );
}

#[test]
fn a_damaged_source_is_refused() {
    let place = Place::new();
    let refused = |layout: &Layout| {
        let error = place.import(layout).unwrap_err();
        assert_eq!(
            (
                place.count("layers"),
                place.count("configs"),
                place.unfinished()
            ),
            (0, 0, 0)
        );
        error
    };
    let mut missing = layout();
    missing.blobs.retain(|_, content| content.len() != 2_048);
    assert!(matches!(refused(&missing), Error::Incomplete { .. }));
    let mut forged = layout();
    let layer = forged
        .blobs
        .values_mut()
        .find(|content| content.len() == 2_048);
    layer.unwrap()[600] ^= 1;
    let error = refused(&forged);
    assert!(error.to_string().contains("damaged or forged"), "{error}");
    let mut forged = layout();
    for content in forged
        .blobs
        .values_mut()
        .filter(|content| content.starts_with(b"{"))
    {
        content.push(b' ');
    }
    assert!(matches!(refused(&forged), Error::Forged { .. }));
    let mut long = layout();
    let hex = long.manifests[0]["digest"]
        .as_str()
        .unwrap()
        .trim_start_matches("sha256:")
        .to_owned();
    long.blobs.get_mut(&hex).unwrap().resize(5 << 20, b' ');
    assert!(matches!(refused(&long), Error::Long { .. }));
    let file = place.directory.path().join("other");
    for content in [&b""[..], b"text", &[0; 4096], &gzip(b"text")] {
        fs::write(&file, content).unwrap();
        let error = place.images.import(&file, None, |_| {});
        assert!(matches!(error, Err(Error::NoImage(_))), "{error:?}");
    }
    let error = place
        .images
        .import(&place.directory.path().join("nowhere"), None, |_| {});
    assert!(matches!(error, Err(Error::Io { .. })), "{error:?}");
}

#[test]
fn a_layer_of_an_unknown_type_is_refused() {
    let place = Place::new();
    let mut layer = Layer::plain(Tar::default());
    layer.kind = "application/vnd.oci.image.layer.v1.tar+encrypted";
    let error = place
        .import(&Layout::default().named("a/b:1", &[layer]))
        .unwrap_err();
    let is_said = matches!(
        &error,
        Error::Document {
            reason: DocumentError::Layer { .. },
            ..
        }
    );
    assert!(is_said, "{error}");
}

#[test]
fn users_are_those_of_the_image() {
    let place = Place::new();
    let bottom = Tar::default()
        .file("etc/passwd", "root:x:0:0::/root:/bin/sh\nold:x:7:7::/:\n")
        .file("etc/group", "root:x:0:\nstaff:x:50:app\n");
    // the upper layer has its users elsewhere, behind links that would lead out of it
    let top = Tar::default()
        .symlink("etc/passwd", "/system/users")
        .symlink("system", "../../data/../usr/system")
        .directory("data", 0o755)
        .file(
            "usr/system/users",
            "root:x:0:0::/root:/bin/sh\napp:x:1234:99::/srv:/bin/sh\n",
        );
    place
        .import(&Layout::default().named("a/b:1", &[Layer::plain(bottom), Layer::plain(top)]))
        .unwrap();
    let image = place
        .images
        .get(&"a/b:1".parse().unwrap())
        .unwrap()
        .unwrap();
    let user = image.user("app").unwrap();
    assert_eq!((user.uid, user.gid, user.groups), (1234, 99, vec![50]));
    assert_eq!(user.home.as_deref(), Some("/srv"));
    assert_eq!(image.user("app:staff").unwrap().gid, 50);
    assert_eq!(image.user("old"), Err(UserError::User("old".to_owned())));
    assert_eq!(image.user("").unwrap().uid, 0);
}

#[test]
fn files_of_users_cannot_lead_out_of_the_image_or_stop_the_reader() {
    let secret = "root:x:0:0::/root:/bin/sh\nsecret:x:4242:4242::/:\n";
    let place = Place::new();
    let outside = place.directory.path().join("passwd");
    fs::write(&outside, secret).unwrap();
    let outside = outside.to_str().unwrap().to_owned();
    let up = format!("{}{outside}", "../".repeat(60));
    let etc = place.directory.path().to_str().unwrap().to_owned();
    let pipe = plain(tar::EntryType::Fifo);
    let hostile = [
        Tar::default().symlink("etc/passwd", &outside),
        Tar::default().symlink("etc/passwd", &up),
        Tar::default().symlink("etc", &etc),
        Tar::default().symlink("etc/passwd", "passwd"),
        Tar::default().symlink("etc/passwd", "/proc/self/fd/0"),
        Tar::default().entry(&pipe, b"etc/passwd", b"", b""),
        Tar::default().directory("etc/passwd", 0o755),
        Tar::default()
            .file("etc/passwd", secret)
            .file("other", "")
            .file("etc", ""),
    ];
    for (number, tar) in hostile.into_iter().enumerate() {
        let place = Place::new();
        place
            .import(&Layout::default().named("a/b:1", &[Layer::plain(tar)]))
            .unwrap();
        let image = place
            .images
            .get(&"a/b:1".parse().unwrap())
            .unwrap()
            .unwrap();
        let user = image.user("secret");
        assert_eq!(user, Err(UserError::User("secret".to_owned())), "{number}");
    }
    let place = Place::new();
    let large = "x".repeat(2 << 20);
    place
        .import(&Layout::default().named(
            "a/b:1",
            &[Layer::plain(Tar::default().file("etc/passwd", &large))],
        ))
        .unwrap();
    let image = place
        .images
        .get(&"a/b:1".parse().unwrap())
        .unwrap()
        .unwrap();
    assert!(matches!(image.user("a"), Err(UserError::File { .. })));
}

#[test]
fn credentials_of_an_image_are_those_of_its_registry() {
    let config = br#"{"auths": {"registry.example": {"username": "u", "password": "p"}}}"#;
    let found = |name: &str| Auth::from_docker_config(config, &name.parse().unwrap());
    assert!(found("registry.example/a").is_some());
    assert_eq!(found("other.example/a"), None);
    assert_eq!(Auth::from_docker_config(b"{", &"a".parse().unwrap()), None);
}
