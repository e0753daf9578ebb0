//! Layers that are made to fill disks, memory or time.

use std::fs;
use std::path::Path;

use local::image::layer::LayerError;
use local::image::{Error, Images, Limits, Options};
use tar::EntryType;

use crate::process;
use crate::support::{Layer, Layout, Place, Stage, Tar, gzip, plain};

const SMALL: Limits = Limits {
    bytes: 4 << 20,
    entries: 1_000,
    ratio: 500,
};

/// A file of zeros, and the headers around it.
fn zeros(size: usize) -> Vec<u8> {
    let mut header = plain(EntryType::Regular);
    header.set_size(size as u64);
    let tar = Tar::default().entry(&header, b"zeros", b"", &vec![0; size]);
    tar.finish()
}

#[test]
fn more_bytes_than_allowed_are_refused() {
    for blob in [zeros(5 << 20), gzip(&zeros(5 << 20))] {
        let error = Stage::new().unpack_with(&blob, SMALL);
        assert!(
            matches!(error, Err(LayerError::Bytes(bytes)) if bytes == SMALL.bytes),
            "{error:?}"
        );
    }
}

#[test]
fn bytes_behind_the_archive_count() {
    let blob = [zeros(10), vec![0; 5 << 20]].concat();
    let error = Stage::new().unpack_with(&blob, SMALL);
    assert!(matches!(error, Err(LayerError::Bytes(_))), "{error:?}");
}

#[test]
fn a_ratio_that_no_real_layer_has_is_refused() {
    let blob = gzip(&zeros(3 << 20));
    assert!(blob.len() < 10_000);
    let error = Stage::new().unpack_with(&blob, SMALL);
    assert!(matches!(error, Err(LayerError::Ratio(500))), "{error:?}");
    Stage::new()
        .unpack_with(&gzip(&zeros(1 << 20)), SMALL)
        .unwrap();
}

#[test]
fn a_size_that_is_only_claimed_is_refused_at_once() {
    for kind in [EntryType::Regular, EntryType::Directory, EntryType::Symlink] {
        let mut header = plain(kind);
        header.set_size(1 << 60);
        let error = Stage::new().unpack(Tar::default().entry(&header, b"a", b"b", b""));
        assert!(
            matches!(error, Err(LayerError::Bytes(_))),
            "{kind:?} {error:?}"
        );
    }
}

#[test]
fn holes_of_sparse_files_count() {
    let mut header = plain(EntryType::GNUSparse);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.realsize = *b"77777777777\0";
    gnu.sparse[0].offset = *b"77777777777\0";
    gnu.sparse[0].numbytes = *b"00000000000\0";
    let tar = Tar::default().entry(&header, b"sparse", b"", b"").finish();
    let error = Stage::new().unpack_with(&tar, SMALL);
    assert!(matches!(error, Err(LayerError::Bytes(_))), "{error:?}");
}

#[test]
fn more_entries_than_allowed_are_refused() {
    let mut tar = Tar::default();
    for number in 0..1_001 {
        tar = tar.file(&number.to_string(), "");
    }
    let error = Stage::new().unpack_with(&tar.finish(), SMALL);
    assert!(
        matches!(error, Err(LayerError::Entries(1_000))),
        "{error:?}"
    );
}

#[test]
fn a_name_is_not_read_into_memory_whatever_its_length() {
    let name = vec![b'n'; 2 << 20];
    for kind in [b'L', b'K', b'x'] {
        let mut header = plain(EntryType::new(kind));
        header.set_size(name.len() as u64);
        let tar = Tar::default()
            .entry(&header, b"name", b"", &name)
            .file("a", "x");
        let error = Stage::new().unpack(tar);
        assert!(matches!(error, Err(LayerError::Metadata)), "{error:?}");
    }
}

#[test]
fn the_limits_are_for_all_layers_together() {
    let directory = process::scratch();
    let options = Options {
        limits: SMALL,
        ..Options::default()
    };
    let images = Images::open_with(&directory.path().join("images"), options).unwrap();
    let text = "0123456789".repeat(250_000);
    let layers = ["a", "b"].map(|name| Layer::plain(Tar::default().file(name, &text)));
    let file = directory.path().join("archive.tar");
    fs::write(&file, Layout::default().named("a/b:1", &layers).archive()).unwrap();
    let error = images.import(&file, None, |_| {}).unwrap_err();
    let is_said = matches!(
        &error,
        Error::Layer { reason: LayerError::Bytes(bytes), .. } if *bytes == SMALL.bytes
    );
    assert!(is_said, "{error}");
}

/// Deeper than a process may have files open, which a path alone cannot be: a link leads to the end of the first half.
fn deep() -> Tar {
    let half = vec!["d"; 1_500].join("/");
    let tar = Tar::default().directory(&half, 0o755).symlink("s", &half);
    tar.file(&format!("s/{half}/file"), "x")
}

#[test]
fn a_tree_deeper_than_any_path_goes_away_again() {
    let place = Place::new();
    place
        .import(&Layout::default().named("a/b:1", &[Layer::plain(deep())]))
        .unwrap();
    assert_eq!(place.count("layers"), 2);
    let name = "a/b:1".parse().unwrap();
    place.images.remove(&name).unwrap();
    assert_eq!(place.count("layers"), 0);
    assert_eq!(place.unfinished(), 0);
    // and when it is refused half way
    let mut layer = Layer::plain(deep().file("../x", ""));
    layer.kind = "application/vnd.oci.image.layer.v1.tar";
    let error = place.import(&Layout::default().named("a/b:1", &[layer]));
    assert!(matches!(error, Err(Error::Layer { .. })), "{error:?}");
    assert_eq!((place.count("layers"), place.unfinished()), (0, 0));
}

#[test]
fn a_full_disk_is_said_and_nothing_is_left() {
    process::on_a_small_disk("bombs::fills_the_disk", "the disk was full");
}

/// Run by the test above.
#[test]
fn fills_the_disk() {
    process::run(fill, "the disk was full");
}

async fn fill(directory: &Path) {
    let images = Images::open(&directory.join("images")).unwrap();
    let text = "0123456789".repeat(300_000);
    let large = Layout::default().named(
        "a/large:1",
        &[Layer::gzipped(
            Tar::default().file("a", &text).file("b", &text),
        )],
    );
    let file = directory.join("archive.tar");
    fs::write(&file, large.archive()).unwrap();
    let error = images.import(&file, None, |_| {}).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("no space is left on the disk to unpack"),
        "{error}"
    );
    assert_eq!(images.get(&"a/large:1".parse().unwrap()).unwrap(), None);
    // what fits is taken afterwards
    let text = &text[..1 << 20];
    let small = Layout::default().named(
        "a/small:1",
        &[Layer::gzipped(Tar::default().file("a", text))],
    );
    fs::write(&file, small.archive()).unwrap();
    images.import(&file, None, |_| {}).unwrap();
    assert!(images.get(&"a/small:1".parse().unwrap()).unwrap().is_some());
}
