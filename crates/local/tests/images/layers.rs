//! One layer at a time: what it becomes, and what is refused.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};

use local::image::layer::{Expected, LayerError, unpack};
use local::image::{Digest, Limits};
use tar::EntryType;

use crate::support::{Stage, Tar, gzip, plain};

#[test]
fn a_layer_becomes_what_it_says() {
    let stage = Stage::new();
    let mut program = plain(EntryType::Regular);
    program.set_mode(0o4755);
    program.set_size(3);
    program.set_uid(12);
    program.set_gid(34);
    let is_root = rustix::process::geteuid().is_root();
    let tar = Tar::default()
        .directory("./", 0o755)
        .directory("bin/", 0o711)
        .entry(&program, b"bin/program", b"", b"abc")
        .hard_link("bin/other", "bin/program")
        .symlink("link", "/etc/passwd")
        .entry(&plain(EntryType::Fifo), b"pipe", b"", b"")
        .file("implied/deep/file", "x");
    let report = stage.unpack(tar).unwrap();
    assert_eq!(report.entries, 7);
    let about = fs::metadata(stage.path("bin/program")).unwrap();
    assert_eq!(about.permissions().mode() & 0o7777, 0o4755);
    assert_eq!(about.mtime(), 1_000_000_000);
    assert_eq!(about.nlink(), 2);
    if is_root {
        assert_eq!((about.uid(), about.gid()), (12, 34));
    }
    let directory = fs::metadata(stage.path("bin")).unwrap();
    assert_eq!(directory.permissions().mode() & 0o7777, 0o711);
    assert_eq!(directory.mtime(), 1_000_000_000);
    assert_eq!(fs::metadata(stage.path("")).unwrap().mtime(), 1_000_000_000);
    assert_eq!(
        fs::read_link(stage.path("link")).unwrap().to_str(),
        Some("/etc/passwd")
    );
    assert!(
        fs::metadata(stage.path("pipe"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
    assert_eq!(fs::read(stage.path("implied/deep/file")).unwrap(), b"x");
}

#[test]
fn a_layer_cannot_write_outside_its_root() {
    let outside = |stage: &Stage| stage.outside().to_str().unwrap().to_owned();
    let hostile: [fn(&str) -> Tar; 10] = [
        |_| Tar::default().file("../outside/kept", "x"),
        |_| Tar::default().file("a/../../outside/kept", "x"),
        |_| {
            Tar::default()
                .symlink("a", "../outside")
                .file("a/kept", "x")
        },
        |outside| Tar::default().symlink("a", outside).file("a/kept", "x"),
        |outside| Tar::default().symlink("a", outside).directory("a/b", 0o755),
        |_| {
            let tar = Tar::default().directory("d", 0o755).symlink("d/a", "../b");
            tar.symlink("b", "..").file("d/a/outside/kept", "x")
        },
        |_| Tar::default().hard_link("a", "../outside/kept"),
        |_| {
            Tar::default()
                .symlink("a", "../outside")
                .hard_link("b", "a/kept")
        },
        |outside| {
            Tar::default()
                .symlink("a", outside)
                .hard_link("b", "a/kept")
        },
        |outside| Tar::default().symlink("a", outside).file("a/.wh.kept", ""),
    ];
    for (number, make) in hostile.iter().enumerate() {
        let stage = Stage::new();
        let error = stage.unpack(make(&outside(&stage))).unwrap_err();
        let is_said = matches!(error, LayerError::Escapes(_) | LayerError::Link { .. });
        assert!(is_said, "{number}: {error}");
    }
}

#[test]
fn an_absolute_path_is_one_inside_the_layer() {
    let stage = Stage::new();
    let path = stage.outside().join("kept").to_str().unwrap().to_owned();
    stage.unpack(Tar::default().file(&path, "new")).unwrap();
    let inside = stage.path(path.trim_start_matches('/'));
    assert_eq!(fs::read(inside).unwrap(), b"new");
}

#[test]
fn a_link_is_replaced_and_never_written_through() {
    let stage = Stage::new();
    let kept = stage.outside().join("kept").to_str().unwrap().to_owned();
    let outside = stage.outside().to_str().unwrap().to_owned();
    let tar = Tar::default()
        .symlink("a", &kept)
        .file("a", "new")
        .symlink("b", &outside)
        .directory("b", 0o700)
        .symlink("c", &outside)
        .file("c", "file")
        .symlink("d", &kept)
        .hard_link("e", "d");
    stage.unpack(tar).unwrap();
    assert!(fs::symlink_metadata(stage.path("a")).unwrap().is_file());
    assert!(fs::symlink_metadata(stage.path("b")).unwrap().is_dir());
    assert!(fs::symlink_metadata(stage.path("c")).unwrap().is_file());
    assert!(stage.path("e").is_symlink());
}

#[test]
fn the_last_of_several_entries_with_a_name_counts() {
    let stage = Stage::new();
    let tar = Tar::default()
        .file("a", "first")
        .file("a", "second")
        .file("b/c/d", "x")
        .file("b", "file over a directory")
        .file("e", "x")
        .directory("e", 0o755)
        .file("e/f", "file in what was a file")
        .directory("g", 0o700)
        .file("g/kept", "x")
        .directory("g", 0o750);
    stage.unpack(tar).unwrap();
    let read = |path: &str| fs::read_to_string(stage.path(path)).unwrap();
    assert_eq!(read("a"), "second");
    assert_eq!(read("b"), "file over a directory");
    assert_eq!(read("e/f"), "file in what was a file");
    assert_eq!(read("g/kept"), "x");
    let mode = fs::metadata(stage.path("g")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
}

#[test]
fn a_file_is_no_directory_for_others() {
    let error = Stage::new().unpack(Tar::default().file("a", "x").file("a/b", "y"));
    assert!(matches!(error, Err(LayerError::Entry { .. })), "{error:?}");
}

#[test]
fn device_nodes_are_left_out_and_named() {
    let stage = Stage::new();
    let mut tar = Tar::default();
    for (kind, name) in [(EntryType::Char, "mem"), (EntryType::Block, "sda")] {
        let mut header = plain(kind);
        header.set_device_major(1).unwrap();
        header.set_device_minor(1).unwrap();
        tar = tar.entry(&header, name.as_bytes(), b"", b"");
    }
    let report = stage.unpack(tar.file("file", "x")).unwrap();
    assert_eq!(report.left_out, ["\"mem\"", "\"sda\""]);
    assert!(!stage.path("mem").exists() && !stage.path("sda").exists());
    assert!(stage.path("file").exists());
}

#[test]
fn attributes_of_a_layer_are_not_taken() {
    let stage = Stage::new();
    let records = [
        ("SCHILY.xattr.trusted.overlay.redirect", "/../../etc"),
        ("SCHILY.xattr.trusted.overlay.opaque", "y"),
        ("SCHILY.xattr.user.overlay.opaque", "y"),
        ("SCHILY.xattr.user.note", "x"),
    ];
    stage
        .unpack(Tar::default().pax(&records).directory("a", 0o755))
        .unwrap();
    let mut names = [0_u8; 256];
    let length = rustix::fs::listxattr(stage.path("a"), names.as_mut_slice()).unwrap();
    assert_eq!(length, 0);
}

#[test]
fn names_of_whiteouts_lead_nowhere_else() {
    for name in [".wh.", ".wh..", ".wh...", "a/.wh..."] {
        let error = Stage::new().unpack(Tar::default().file(name, ""));
        assert!(
            matches!(error, Err(LayerError::Escapes(_))),
            "{name}: {error:?}"
        );
    }
    let stage = Stage::new();
    stage
        .unpack(
            Tar::default()
                .file(".wh..wh.plnk/1", "x")
                .file(".wh..wh.aufs", ""),
        )
        .unwrap();
    assert!(!stage.path(".wh..wh.aufs").exists());
}

#[test]
fn long_names_are_read_as_gnu_and_posix_write_them() {
    let stage = Stage::new();
    let long = vec!["n".repeat(200); 19].join("/");
    assert!(long.len() > 3_800);
    let tar = Tar::default()
        .file(&format!("{long}/gnu"), "gnu")
        .pax(&[("path", &format!("{long}/pax"))])
        .file("short", "pax")
        .symlink("link", &"t".repeat(4_000));
    stage.unpack(tar).unwrap();
    let in_layer = |name: &str| fs::read_to_string(stage.path(&format!("{long}/{name}")));
    assert_eq!(in_layer("gnu").unwrap(), "gnu");
    assert_eq!(in_layer("pax").unwrap(), "pax");
    assert!(!stage.path("short").exists());
    for name in ["n".repeat(4_096), format!("{long}/{long}/x")] {
        let error = Stage::new()
            .unpack(Tar::default().file(&name, "x"))
            .unwrap_err();
        assert!(matches!(error, LayerError::Entry { .. }), "{error}");
        assert!(error.to_string().len() < 400, "{error}");
    }
}

#[test]
fn sparse_files_have_their_holes() {
    let mut header = plain(EntryType::GNUSparse);
    let gnu = header.as_gnu_mut().unwrap();
    // 3 bytes at 5 of 10
    for (field, number) in [
        (&mut gnu.sparse[0].offset, 5),
        (&mut gnu.sparse[0].numbytes, 3),
        (&mut gnu.realsize, 10),
    ] {
        field[..11].copy_from_slice(format!("{number:011o}").as_bytes());
    }
    gnu.sparse[1].offset[..11].copy_from_slice(b"00000000012");
    gnu.sparse[1].numbytes[..11].copy_from_slice(b"00000000000");
    header.set_size(3);
    let stage = Stage::new();
    stage
        .unpack(Tar::default().entry(&header, b"sparse", b"", b"abc"))
        .unwrap();
    assert_eq!(
        fs::read(stage.path("sparse")).unwrap(),
        b"\0\0\0\0\0abc\0\0"
    );
    let error = Stage::new().unpack(
        Tar::default()
            .pax(&[("GNU.sparse.major", "1")])
            .file("x", "y"),
    );
    assert!(matches!(error, Err(LayerError::Sparse(_))), "{error:?}");
}

#[test]
fn owners_that_nobody_can_be_are_refused() {
    for uid in [u64::from(u32::MAX), u64::from(u32::MAX) + 1] {
        let mut header = plain(EntryType::Regular);
        header.set_uid(uid);
        let error = Stage::new().unpack(Tar::default().entry(&header, b"a", b"", b""));
        assert!(matches!(error, Err(LayerError::Owner(_))), "{error:?}");
    }
}

#[test]
fn numbers_that_are_left_out_are_zero() {
    let mut header = plain(EntryType::Regular);
    let fields = header.as_old_mut();
    (fields.uid, fields.gid, fields.mtime) = ([0; 8], [b' '; 8], [0; 12]);
    let stage = Stage::new();
    stage
        .unpack(Tar::default().entry(&header, b"a", b"", b""))
        .unwrap();
    let about = fs::metadata(stage.path("a")).unwrap();
    assert_eq!(about.mtime(), 0);
    let mut header = plain(EntryType::Regular);
    header.as_old_mut().uid = *b"nobody\0\0";
    let error = Stage::new().unpack(Tar::default().entry(&header, b"a", b"", b""));
    assert!(matches!(error, Err(LayerError::Archive(_))), "{error:?}");
}

#[test]
fn hard_links_lead_only_to_files_of_the_layer() {
    for tar in [
        Tar::default().hard_link("a", "nothing"),
        Tar::default().directory("d", 0o755).hard_link("a", "d"),
        Tar::default().hard_link("a", "/"),
        Tar::default().file(".wh.gone", "").hard_link("a", "gone"),
        Tar::default().hard_link("a", "b\u{0}c"),
    ] {
        let error = Stage::new().unpack(tar).unwrap_err();
        assert!(matches!(error, LayerError::Link { .. }), "{error}");
    }
    let stage = Stage::new();
    let tar = Tar::default().file("a", "x").hard_link("a", "./a");
    stage.unpack(tar).unwrap();
    assert_eq!(fs::read(stage.path("a")).unwrap(), b"x");
}

#[test]
fn what_is_read_is_what_was_promised() {
    let archive = Tar::default().file("a", "x").finish();
    let packed = gzip(&archive);
    let (digest, diff_id) = (Digest::of(&packed), Digest::of(&archive));
    let other = Digest::of(b"other");
    for (expected, is_fine) in [
        ((Some(&digest), Some(&diff_id)), true),
        ((Some(&other), Some(&diff_id)), false),
        ((Some(&digest), Some(&other)), false),
    ] {
        let stage = Stage::new();
        let expected = Expected {
            digest: expected.0.cloned(),
            diff_id: expected.1.cloned(),
        };
        let result = unpack(
            packed.as_slice(),
            &expected,
            &stage.path(""),
            Limits::default(),
        );
        match is_fine {
            true => assert!(result.is_ok(), "{result:?}"),
            false => assert!(
                matches!(result, Err(LayerError::Digest { .. })),
                "{result:?}"
            ),
        }
    }
    // bytes behind the end of the archive are part of what is promised
    let stage = Stage::new();
    let longer = [archive.as_slice(), &[0; 5_000]].concat();
    let expected = Expected {
        digest: None,
        diff_id: Some(Digest::of(&longer)),
    };
    unpack(
        longer.as_slice(),
        &expected,
        &stage.path(""),
        Limits::default(),
    )
    .unwrap();
}

#[test]
fn an_archive_that_ends_early_is_refused() {
    let archive = Tar::default().file("a", &"x".repeat(5_000)).finish();
    for length in [100, 513, 3_000] {
        let error = Stage::new().unpack_with(&archive[..length], Limits::default());
        assert!(
            matches!(error, Err(LayerError::Archive(_))),
            "{length}: {error:?}"
        );
    }
    let packed = gzip(&archive);
    let error = Stage::new().unpack_with(&packed[..packed.len() - 9], Limits::default());
    assert!(matches!(error, Err(LayerError::Archive(_))), "{error:?}");
}
