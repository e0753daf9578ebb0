//! Which images and layers stay, which go, and what several processes do to each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use local::image::{Error, Images, reference};

use crate::process;
use crate::support::{Layer, Layout, Place, Tar};

fn layer(name: &str) -> Layer {
    Layer::plain(Tar::default().file(name, name))
}

fn names(images: &Images) -> Vec<String> {
    let all = images.list().unwrap().into_iter();
    all.filter(|image| !image.is_built_in)
        .map(|image| image.name)
        .collect()
}

#[test]
fn layers_go_with_the_last_image_that_needs_them() {
    let place = Place::new();
    let layout = Layout::default()
        .named("a/one:1", &[layer("shared"), layer("one")])
        .named("a/two:1", &[layer("shared"), layer("two")]);
    place.import(&layout).unwrap();
    // each layer has a note of its size
    assert_eq!(place.count("layers"), 6);
    let freed = place.images.remove(&"a/one:1".parse().unwrap()).unwrap();
    assert_eq!(freed, 2_048);
    assert_eq!(place.count("layers"), 4);
    let two = place
        .images
        .get(&"a/two:1".parse().unwrap())
        .unwrap()
        .unwrap();
    assert!(two.layers.iter().all(|layer| layer.is_dir()));
    place.images.remove(&"a/two:1".parse().unwrap()).unwrap();
    assert_eq!((place.count("layers"), place.count("configs")), (0, 0));
    let error = place.images.remove(&"a/two:1".parse().unwrap());
    assert!(matches!(error, Err(Error::Absent(_))), "{error:?}");
}

#[test]
fn a_name_that_moves_on_leaves_nothing_behind() {
    let place = Place::new();
    place
        .import(&Layout::default().named("a/b:1", &[layer("old")]))
        .unwrap();
    place
        .import(&Layout::default().named("a/b:1", &[layer("new")]))
        .unwrap();
    assert_eq!((place.count("layers"), place.count("configs")), (2, 1));
    let image = place
        .images
        .get(&"a/b:1".parse().unwrap())
        .unwrap()
        .unwrap();
    assert!(image.layers[0].join("new").exists());
}

#[test]
fn an_image_in_use_stays_until_its_containers_are_gone() {
    let place = Place::new();
    let name = reference("a/b:1").unwrap();
    place
        .import(&Layout::default().named("a/b:1", &[layer("old")]))
        .unwrap();
    let image = place.images.get(&name).unwrap().unwrap();
    for container in ["c1", "c2"] {
        place.images.hold(container, &image).unwrap();
    }
    // another process knows, too
    let other = Images::open(&place.directory.path().join("images")).unwrap();
    let error = other.remove(&name).unwrap_err();
    assert_eq!(
        error.to_string(),
        "image docker.io/a/b:1 is used by 2 running containers, among them c1: delete their pods first"
    );
    // what runs keeps its layers even if the name moves on
    place
        .import(&Layout::default().named("a/b:1", &[layer("new")]))
        .unwrap();
    assert!(image.layers[0].join("old").exists());
    assert_eq!(place.images.holds().unwrap().len(), 2);
    for container in ["c1", "c2", "never"] {
        place.images.release(container).unwrap();
    }
    other.remove(&name).unwrap();
    assert_eq!(place.count("layers"), 0);
    let error = place.images.hold("c3", &image);
    assert!(matches!(error, Err(Error::Vanished(_))), "{error:?}");
    for container in ["", "..", "a/b", ".hidden"] {
        let error = place.images.hold(container, &image);
        assert!(matches!(error, Err(Error::Holder(_))), "{error:?}");
    }
}

#[test]
fn an_image_with_another_name_can_lose_one_while_in_use() {
    let place = Place::new();
    let layout = Layout::default()
        .named("a/b:1", &[layer("x")])
        .named("a/b:2", &[layer("x")]);
    place.import(&layout).unwrap();
    let image = place
        .images
        .get(&"a/b:1".parse().unwrap())
        .unwrap()
        .unwrap();
    place.images.hold("c", &image).unwrap();
    place.images.remove(&"a/b:1".parse().unwrap()).unwrap();
    assert_eq!(names(&place.images), ["docker.io/a/b:2"]);
    assert!(place.images.remove(&"a/b:2".parse().unwrap()).is_err());
}

#[test]
fn the_built_in_image_is_neither_replaced_nor_removed() {
    let place = Place::new();
    let name = reference("sandbar/base").unwrap();
    let error = place.import(&Layout::default().named("sandbar/base:latest", &[]));
    assert!(matches!(error, Err(Error::BuiltIn(_))), "{error:?}");
    let error = place.images.remove(&name);
    assert!(matches!(error, Err(Error::BuiltIn(_))), "{error:?}");
    assert!(place.images.get(&name).unwrap().unwrap().is_built_in);
    assert_eq!(place.images.list().unwrap().len(), 1);
}

#[test]
fn nobody_else_can_reach_what_is_unpacked() {
    let place = Place::new();
    let about = fs::metadata(place.directory.path().join("images")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&about.permissions());
    assert_eq!(mode & 0o777, 0o700);
}

fn start(program: &str, directory: &Path) -> Child {
    let mut command = process::command(program, directory);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// An archive with a few hundred files, so that an import takes a while.
fn write_archive(directory: &Path) {
    let mut tar = Tar::default();
    for number in 0..400 {
        tar = tar.file(&format!("{}/{number}", number % 7), &"x".repeat(3_000));
    }
    let layers = [layer("small"), Layer::gzipped(tar)];
    fs::write(
        directory.join("archive.tar"),
        Layout::default().named("a/b:1", &layers).archive(),
    )
    .unwrap();
}

/// Whether some process has a layer under construction, or had when it died.
fn is_under_way(directory: &Path) -> bool {
    let Ok(work) = fs::read_dir(directory.join("images/work")) else {
        return false;
    };
    let mut inside = work.flatten().map(|entry| fs::read_dir(entry.path()));
    inside.any(|entries| entries.is_ok_and(|mut entries| entries.next().is_some()))
}

#[test]
fn an_import_that_is_killed_leaves_nothing_that_counts() {
    let directory = process::scratch();
    write_archive(directory.path());
    let mut interrupted = 0;
    for round in 0..12 {
        let mut child = start("keeping::imports_for_ever", directory.path());
        let give_up = Instant::now() + Duration::from_secs(60);
        while !is_under_way(directory.path()) {
            assert!(Instant::now() < give_up, "nothing is imported");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(3 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        interrupted += usize::from(is_under_way(directory.path()));
        let images = Images::open(&directory.path().join("images")).unwrap();
        let work = fs::read_dir(directory.path().join("images/work")).unwrap();
        // the lock and the directory of this process alone
        assert_eq!(work.count(), 2);
        let all = images.list().unwrap();
        for image in all.iter().filter(|image| !image.is_built_in) {
            assert!(image.layers.iter().all(|layer| layer.is_dir()));
            let files = fs::read_dir(image.layers[1].join("3")).unwrap();
            assert_eq!(files.count(), 57);
        }
    }
    assert!(interrupted > 0);
}

/// Run by the test above.
#[test]
fn imports_for_ever() {
    let Some(directory) = process::directory() else {
        return;
    };
    let name = "a/b:1".parse().unwrap();
    loop {
        let images = Images::open(&directory.join("images")).unwrap();
        images
            .import(&directory.join("archive.tar"), None, |_| {})
            .unwrap();
        images.remove(&name).unwrap();
    }
}

#[test]
fn several_processes_import_and_remove_at_once() {
    let directory = process::scratch();
    write_archive(directory.path());
    let children: Vec<Child> = (0..4)
        .map(|_| start("keeping::imports_and_removes", directory.path()))
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let images = Images::open(&directory.path().join("images")).unwrap();
    images
        .import(&directory.path().join("archive.tar"), None, |_| {})
        .unwrap();
    let image = images.get(&"a/b:1".parse().unwrap()).unwrap().unwrap();
    let there: BTreeSet<_> = image.layers.iter().filter(|layer| layer.is_dir()).collect();
    assert_eq!(there.len(), 2);
}

/// Run by the test above.
#[test]
fn imports_and_removes() {
    let Some(directory) = process::directory() else {
        return;
    };
    let images = Images::open(&directory.join("images")).unwrap();
    let name = "a/b:1".parse().unwrap();
    for _ in 0..8 {
        match images.import(&directory.join("archive.tar"), None, |_| {}) {
            // the others remove faster than this process unpacks
            Ok(_) | Err(Error::Vanished(_)) => {}
            Err(error) => panic!("{error}"),
        }
        match images.remove(&name) {
            Ok(_) | Err(Error::Absent(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_process_that_ends_sweeps_after_itself() {
    let place = Place::new();
    let path = place.directory.path().join("images/work");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    let Place { directory, images } = place;
    drop(images);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    drop(directory);
}
