//! The built-in image, run as far as a test without the node can run it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flate2::{Compression, write::GzEncoder};
use local::image::{Daemon, Image, Images, Options, reference, write_runtime_image};
use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};

use crate::mounted::in_overlay;
use crate::support::{Layer, Layout, Place, Tar};

fn image(place: &Place) -> Image {
    let name = reference("sandbar/base").unwrap();
    place.images.get(&name).unwrap().unwrap()
}

#[test]
fn the_built_in_image_is_there_without_any_import() {
    let place = Place::new();
    let image = image(&place);
    assert_eq!(image.name, "docker.io/sandbar/base:latest");
    assert_eq!(image.config.user, "user");
    assert!(image.config.env.contains(&"HOME=/home/user".to_owned()));
    let user = image.user(&image.config.user).unwrap();
    assert_eq!(
        (user.uid, user.gid, user.home.as_deref()),
        (1000, 1000, Some("/home/user"))
    );
    assert!(
        image
            .overlays
            .iter()
            .any(|overlay| overlay.at.as_os_str() == "/usr")
    );
    let again = Images::open(&place.directory.path().join("images")).unwrap();
    let name = reference("docker.io/sandbar/base:latest").unwrap();
    assert_eq!(again.get(&name).unwrap(), Some(image));
    assert_eq!(place.count("base"), 1);
}

#[test]
fn another_recipe_replaces_the_layer_once_nobody_runs_on_it() {
    let place = Place::new();
    let old = "1".repeat(64);
    let held = "2".repeat(64);
    let images = place.directory.path().join("images");
    for hex in [&old, &held] {
        fs::create_dir(images.join("base").join(hex)).unwrap();
    }
    fs::write(images.join("holds/container"), format!("sha256:{held}")).unwrap();
    let image = image(&place);
    assert!(!images.join("base").join(&old).exists());
    assert!(images.join("base").join(&held).exists());
    place.images.hold("other", &image).unwrap();
}

#[test]
fn programs_of_the_host_run_in_it_as_its_user() {
    if !geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let mut script = r#"cd "$MERGED"
        mount --bind /dev dev
        run() { chroot --userspec=1000:1000 . /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/home/user "$@"; }
        run sh -c 'id -un; id -gn; cd; pwd; touch file /tmp/file; stat -c %U file'
        run sh -c 'test ! -w /etc/passwd && test ! -w /usr/bin && echo closed'
    "#
    .to_owned();
    let mut expected = "user\nuser\n/home/user\nuser\nclosed\n".to_owned();
    for (program, arguments) in [
        (
            "python3",
            r#"-c 'import json, ssl; print("python", len(ssl.create_default_context().get_ca_certs()) >= 0)'"#,
        ),
        ("git", "init -q /tmp/repository && echo git"),
        ("perl", r#"-MPOSIX -e 'print "perl\n"'"#),
        ("curl", "--version > /dev/null && echo curl"),
    ] {
        if fs::exists(format!("/usr/bin/{program}")).unwrap() {
            script.push_str(&format!("run /usr/bin/{program} {arguments}\n"));
            let said = if program == "python3" {
                "python True"
            } else {
                program
            };
            expected.push_str(&format!("{said}\n"));
        }
    }
    assert_eq!(in_overlay(&image(&place), &[], "", &script), expected);
    // what it wrote is in the container, not on the host
    assert!(!fs::exists("/tmp/repository").unwrap());
}

/// Whatever happens, the process is gone with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn its_command_waits_until_it_is_asked_to_end() {
    if !geteuid().is_root() {
        return;
    }
    let command = image(&Place::new()).config.cmd;
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--fork", "--kill-child", "--"])
        .args(command);
    let mut running = Running(unshare.spawn().unwrap());
    let outer = running.0.id();
    let give_up = Instant::now() + Duration::from_secs(30);
    let status = loop {
        assert!(Instant::now() < give_up, "it does not end");
        // process 1 loses signals that come before it is ready for them
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"));
        let children = children.unwrap_or_default();
        if let Some(first) = children.split_whitespace().next() {
            let pid = Pid::from_raw(first.parse().unwrap()).unwrap();
            let _ = kill_process(pid, Signal::TERM);
        }
        if let Some(status) = running.0.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(0));
}

const DAEMON: Daemon = Daemon(b"the daemon");

fn with_daemon(place: &Place) -> Images {
    let options = Options {
        daemon: Some(DAEMON),
        ..Options::default()
    };
    Images::open_with(&place.directory.path().join("images"), options).unwrap()
}

fn text(image: &Image, path: &str) -> String {
    let at = image.layers.iter().rev().map(|layer| layer.join(path));
    fs::read_to_string(at.into_iter().find(|at| at.exists()).unwrap()).unwrap()
}

#[test]
fn built_in_images_carry_the_daemon_where_there_is_one() {
    let place = Place::new();
    let images = with_daemon(&place);
    let names: Vec<String> = images
        .list()
        .unwrap()
        .into_iter()
        .map(|one| one.name)
        .collect();
    let both = [
        "docker.io/sandbar/base:latest",
        "docker.io/sandbar/runtime:latest",
    ];
    assert_eq!(names, both);
    let base = images
        .get(&reference("sandbar/base").unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(base.config.cmd[0], "/opt/sandbar/runtime");
    assert_eq!(text(&base, "opt/sandbar/runtime"), "the daemon");
    let runtime = images
        .get(&reference("sandbar/runtime").unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(
        runtime.config.entrypoint,
        ["sh", "/workspace/entrypoint.sh"]
    );
    for name in ["envd", "sandbox-runtime-storage"] {
        assert_eq!(text(&runtime, &format!("workspace/{name}")), "the daemon");
    }
    assert_eq!(place.count("base"), 2, "neither replaces the other");
    assert_eq!(
        place.images.list().unwrap().len(),
        1,
        "without one there is nothing to carry"
    );
}

#[test]
fn the_image_for_clusters_is_its_base_with_one_layer_more() {
    let place = Place::new();
    let file = place.directory.path().join("runtime.tar");
    let base = place.directory.path().join("base.tar");
    let mut shell = Layer::plain(Tar::default().file("bin/sh", "a shell"));
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&shell.blob).unwrap();
    shell.blob = packed.finish().unwrap();
    let plain = Layer::plain(Tar::default().file("etc/motd", "hello"));
    let layers = [shell, plain];
    let layout = Layout::default().named("example/base:1", &layers);
    fs::write(&base, layout.archive()).unwrap();
    let name = reference("example/runtime:1").unwrap();
    write_runtime_image(&base, &name, DAEMON, &file).unwrap();
    place.images.import(&file, None, |_| {}).unwrap();
    let image = place.images.get(&name).unwrap().unwrap();
    assert_eq!(image.config.entrypoint, ["sh", "/workspace/entrypoint.sh"]);
    assert_eq!(image.config.working_dir, "/workspace");
    for (path, expected) in [
        ("bin/sh", "a shell"),
        ("etc/motd", "hello"),
        ("workspace/envd", "the daemon"),
        ("workspace/sandbox-runtime-storage", "the daemon"),
    ] {
        assert_eq!(text(&image, path), expected);
    }
    let docker = Place::new();
    let saved = docker.directory.path().join("saved.tar");
    keep_what_docker_reads(&file, &saved);
    docker.images.import(&saved, None, |_| {}).unwrap();
    let image = docker.images.get(&name).unwrap().unwrap();
    assert_eq!(text(&image, "workspace/envd"), "the daemon");
    let refused = write_runtime_image(&file.with_extension("missing"), &name, DAEMON, &file);
    assert!(refused.is_err());
    assert!(file.exists(), "what was there is not lost");
    assert_eq!(
        fs::read_dir(place.directory.path()).unwrap().count(),
        3,
        "nothing unfinished"
    );
}

/// Docker goes by a description of its own and does not know that of layouts.
fn keep_what_docker_reads(file: &Path, saved: &Path) {
    let mut all = tar::Archive::new(fs::File::open(file).unwrap());
    let mut kept = tar::Builder::new(fs::File::create(saved).unwrap());
    for entry in all.entries().unwrap() {
        let entry = entry.unwrap();
        if *entry.path().unwrap() != *"index.json" {
            kept.append(&entry.header().clone(), entry).unwrap();
        }
    }
    kept.finish().unwrap();
}

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/image/built_in");

#[test]
fn the_sidecar_finds_its_files_however_it_is_called() {
    for called in [
        "entrypoint.sh",
        "./entrypoint.sh",
        "../workspace/entrypoint.sh",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (workspace, shared) = (
            directory.path().join("workspace"),
            directory.path().join("shared"),
        );
        fs::create_dir(&workspace).unwrap();
        for script in ["entrypoint.sh", "envd-run.sh"] {
            fs::copy(format!("{SCRIPTS}/{script}"), workspace.join(script)).unwrap();
        }
        for program in ["envd", "sandbox-runtime-storage"] {
            fs::write(workspace.join(program), "").unwrap();
        }
        let mut sidecar = Command::new("sh")
            .arg(called)
            .current_dir(&workspace)
            .env("ENVD_DIR", &shared)
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut output = BufReader::new(sidecar.stdout.take().unwrap());
        output.read_line(&mut said).unwrap();
        let group = Pid::from_child(&sidecar);
        let _ = kill_process_group(group, Signal::KILL);
        sidecar.wait().unwrap();
        assert!(
            said.starts_with("Files successfully copied"),
            "{called}: {said}"
        );
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 3, "{called}");
    }
}

#[test]
fn the_script_of_the_hook_adds_its_user_to_a_file_without_a_last_newline() {
    if !geteuid().is_root() {
        return;
    }
    let accounts = "mount -t tmpfs tmpfs /etc && mount -t tmpfs tmpfs /home \
        && printf root:x:0:0::/root:/bin/sh > /etc/passwd && printf root:x:0: > /etc/group \
        && ENVD_DIR=/nowhere sh \"$0\" --nolog -- cat /etc/passwd /etc/group";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", accounts])
        .arg(format!("{SCRIPTS}/envd-run.sh"))
        // without useradd
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = files
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(names, ["root", "user", "root", "user"], "{files}");
}
