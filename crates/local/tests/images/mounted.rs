//! Layers as overlays show them, in mount namespaces that vanish with the program that looks.

use std::path::{Path, PathBuf};
use std::process::Command;

use local::image::Image;
use tempfile::TempDir;

use crate::process;
use crate::support::{Layer, Layout, Place, Tar};

/// Lists names and contents below the mount.
const SHOW: &str = r#"cd "$MERGED" && find . -mindepth 1 | sort | while read -r path; do
    if [ -f "$path" ]; then echo "$path=$(cat "$path")"; else echo "$path"; fi
done"#;

fn layers() -> [Layer; 3] {
    let bottom = Tar::default()
        .file("kept", "bottom")
        .file("gone", "bottom")
        .file("changed", "bottom")
        .file("opaque/hidden", "bottom")
        .file("renewed/hidden", "bottom")
        .file("removed/deep/file", "bottom");
    let middle = Tar::default()
        .file(".wh.gone", "")
        .file("changed", "middle")
        .directory("opaque", 0o755)
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/shown", "middle")
        .file(".wh.renewed", "")
        .file("renewed/shown", "middle")
        .file(".wh.removed", "");
    let top = Tar::default().file("top", "top").file("removed", "a file");
    [
        Layer::plain(bottom),
        Layer::gzipped(middle),
        Layer::zstd(top),
    ]
}

const SHOWN: &str = "./changed=middle\n./kept=bottom\n./opaque\n./opaque/shown=middle\n./removed=a file\n\
    ./renewed\n./renewed/shown=middle\n./top=top\n";

/// Runs a script where the image is mounted as the root of a container would be.
pub(crate) fn in_overlay(image: &Image, unshare: &[&str], options: &str, script: &str) -> String {
    let scratch = process::scratch();
    let merged = scratch.path().join("merged");
    std::fs::create_dir(&merged).unwrap();
    let mut mounts = vec![mount(
        &image.layers,
        &merged,
        scratch.path(),
        "root",
        options,
    )];
    for (number, overlay) in image.overlays.iter().enumerate() {
        let at = merged.join(overlay.at.strip_prefix("/").unwrap());
        let lower = [overlay.lower.clone()];
        mounts.push(mount(
            &lower,
            &at,
            scratch.path(),
            &number.to_string(),
            options,
        ));
    }
    let tmpfs = format!(
        "mount -t tmpfs tmpfs {0} && mkdir {0}/merged",
        scratch.path().display()
    );
    let script = format!("set -e\n{tmpfs}\n{}\n{script}", mounts.join("\n"));
    let output = Command::new("unshare")
        .args(unshare)
        .args(["--mount", "sh", "-c", &script])
        .env("MERGED", &merged)
        .output()
        .expect("cannot run unshare: install the package `util-linux`");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

fn mount(layers: &[PathBuf], at: &Path, scratch: &Path, name: &str, options: &str) -> String {
    let lower: Vec<String> = layers
        .iter()
        .rev()
        .map(|path| path.display().to_string())
        .collect();
    let (scratch, at) = (scratch.display(), at.display());
    let (upper, work) = (
        format!("{scratch}/{name}-upper"),
        format!("{scratch}/{name}-work"),
    );
    format!(
        "mkdir {upper} {work} && mount -t overlay overlay -o {options}lowerdir={},upperdir={upper},workdir={work} {at}",
        lower.join(":")
    )
}

#[test]
fn an_overlay_of_the_layers_shows_the_image() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    place
        .import(&Layout::default().named("a/b:1", &layers()))
        .unwrap();
    let image = place
        .images
        .get(&"a/b:1".parse().unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(image.layers.len(), 3);
    assert_eq!(in_overlay(&image, &[], "", SHOW), SHOWN);
    // in a user namespace, an overlay reads other attributes
    let user = ["--user", "--map-root-user"];
    assert_eq!(in_overlay(&image, &user, "userxattr,", SHOW), SHOWN);
}

#[test]
fn an_ordinary_user_has_images_too() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = TempDir::new_in("/dev/shm").unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), open).unwrap();
    // the build directory may be closed to others
    let copy = directory.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let program = process::command("mounted::imports_as_an_ordinary_user", directory.path());
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(program.get_args())
        .env("TMPDIR", directory.path());
    for (name, value) in program.get_envs() {
        setpriv.env(name, value.unwrap());
    }
    let output = setpriv.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("it was shown"),
        "{said}"
    );
}

/// Run by the test above.
#[test]
fn imports_as_an_ordinary_user() {
    process::run(
        async |directory| {
            assert!(!rustix::process::geteuid().is_root());
            let images = local::image::Images::open(&directory.join("images")).unwrap();
            let mut owned = crate::support::plain(tar::EntryType::Directory);
            owned.set_uid(12);
            owned.set_mode(0o500);
            let locked = Tar::default()
                .entry(&owned, b"locked", b"", b"")
                .file("locked/file", "x")
                .file(".wh.locked", "");
            let [bottom, middle, top] = layers();
            let layers = [Layer::plain(locked), bottom, middle, top];
            let file = directory.join("archive.tar");
            std::fs::write(&file, Layout::default().named("a/b:1", &layers).archive()).unwrap();
            images.import(&file, None, |_| {}).unwrap();
            let name = "a/b:1".parse().unwrap();
            let image = images.get(&name).unwrap().unwrap();
            let shown = in_overlay(&image, &["--user", "--map-root-user"], "userxattr,", SHOW);
            let expected = SHOWN.replace("./opaque\n", "./locked\n./locked/file=x\n./opaque\n");
            assert_eq!(shown, expected);
            images.remove(&name).unwrap();
            assert_eq!(
                std::fs::read_dir(directory.join("images/layers"))
                    .unwrap()
                    .count(),
                0
            );
        },
        "it was shown",
    );
}
