//! The paths of requests: they stay what they look like, and within a root that they must stay in.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

use runtime::daemon::fuzz::{resolve, resolve_within};
use tempfile::TempDir;

thread_local! {
    static STAGE: TempDir = stage();
}

/// The path.
pub(crate) fn drive(input: &[u8]) {
    let Ok(path) = std::str::from_utf8(input) else {
        return;
    };
    for workdir in [None, Some(Path::new("/work"))] {
        let Some(found) = resolve(path, Path::new("/home/user"), workdir) else {
            continue;
        };
        assert!(found.is_absolute() && !path.contains('\0'));
        let climbs = found.components().any(|part| part == Component::ParentDir);
        assert!(!climbs || path.starts_with('/'));
    }
    STAGE.with(|stage| {
        let root = stage.path().join("top");
        if let Some(found) = resolve_within(&root, path) {
            assert!(found.starts_with(&root), "{found:?}");
            // what is there is where it is said to be
            assert!(found.canonicalize().is_ok_and(|real| real == found) || !found.exists());
        }
    });
}

/// A root with links to everywhere, beside something that is not in it.
fn stage() -> TempDir {
    let parent = std::env::temp_dir().canonicalize().expect("a directory");
    let stage = TempDir::new_in(parent).expect("a directory");
    let root = stage.path().join("top");
    fs::create_dir_all(root.join("a/b")).expect("a directory");
    fs::create_dir(stage.path().join("top-not")).expect("a directory");
    for (link, target) in [
        ("in", "a/../a"),
        ("back", "../top/a"),
        ("out", "/"),
        ("up", ".."),
        ("beside", "../top-not"),
        ("loop", "loop"),
        ("a/far", "../up/top-not"),
    ] {
        symlink(target, root.join(link)).expect("a link");
    }
    stage
}
