//! What a container sees as its file system.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use container::{Mount, MountSource, Overlay};

use crate::support::{Machine, run};

fn bind(path: &Path, sub_path: Option<&str>, destination: &str, read_only: bool) -> Mount {
    Mount {
        destination: destination.into(),
        source: MountSource::Bind {
            path: path.to_owned(),
            sub_path: sub_path.map(PathBuf::from),
        },
        read_only,
    }
}

#[tokio::test]
async fn what_is_written_stays_in_the_container() {
    let mut machine = Machine::new();
    let pod = machine.pod("writes").await;
    let layer = machine.dir.path().join("layer");
    let before = fs::read(layer.join("etc/passwd")).unwrap();
    let script = "echo mine > /etc/passwd; rm -r /root; touch /new; ls -d /root 2>/dev/null; cat /etc/passwd";
    run(&pod, &machine.sh("main", script)).await;
    assert_eq!(machine.said("main"), "mine\n");
    assert_eq!(fs::read(layer.join("etc/passwd")).unwrap(), before);
    assert!(layer.join("root").exists() && !layer.join("new").exists());
}

#[tokio::test]
async fn layers_lie_on_top_of_each_other() {
    let mut machine = Machine::new();
    let pod = machine.pod("layers").await;
    let top = machine.dir.path().join("a:top,layer");
    fs::create_dir_all(top.join("etc")).unwrap();
    fs::write(top.join("etc/passwd"), "upper\n").unwrap();
    let mut settings = machine.sh(
        "main",
        "cat /etc/passwd; cat /etc/group | head -1; touch /etc/x 2>/dev/null || echo read-only",
    );
    settings.root.layers.push(top);
    settings.root.read_only = true;
    run(&pod, &settings).await;
    let said = machine.said("main");
    assert!(
        said.starts_with("upper\nroot:x:0:\n") && said.ends_with("read-only\n"),
        "{said}"
    );
}

#[tokio::test]
async fn overlays_are_written_to_only_if_they_may() {
    let mut machine = Machine::new();
    let pod = machine.pod("overlays").await;
    let own = machine.dir.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("file"), "host\n").unwrap();
    let mut settings = machine.sh(
        "main",
        "touch /usr/x 2>/dev/null || echo no; echo own > /data/file; cat /data/file",
    );
    settings.overlays.push(Overlay {
        destination: "/data".into(),
        layers: vec![own.clone()],
        read_only: false,
    });
    run(&pod, &settings).await;
    assert!(
        machine.said("main").ends_with("no\nown\n"),
        "{}",
        machine.said("main")
    );
    assert_eq!(fs::read_to_string(own.join("file")).unwrap(), "host\n");
}

#[tokio::test]
async fn volumes_are_mounted_as_asked() {
    let mut machine = Machine::new();
    let pod = machine.pod("volumes").await;
    let volume = machine.dir.path().join("volume");
    fs::create_dir_all(volume.join("inside")).unwrap();
    fs::write(volume.join("inside/file"), "content\n").unwrap();
    fs::write(machine.dir.path().join("message"), "").unwrap();
    let script = "cat /v/inside/file; touch /v/x || echo refused; echo w > /w/file; cat /new/x 2>/dev/null || ls -d /new; \
        echo end > /dev/termination-log; df --output=size -k /t | tail -1 | tr -d ' '; echo y > /t/y; cat /one";
    let mut settings = machine.sh("main", script);
    settings.mounts = vec![
        bind(&volume, None, "/v", true),
        bind(&volume, Some("inside"), "/w", false),
        bind(&volume, Some("not/yet/there"), "/new", false),
        bind(&volume, Some("inside/file"), "/one", true),
        bind(
            &machine.dir.path().join("message"),
            None,
            "/dev/termination-log",
            false,
        ),
        Mount {
            destination: "/t".into(),
            source: MountSource::Tmpfs {
                size: Some(4 << 20),
            },
            read_only: false,
        },
    ];
    assert_eq!(
        run(&pod, &settings).await.code,
        0,
        "{}",
        machine.said("main")
    );
    let said = machine.said("main");
    let expected = ["content", "refused", "/new", "4096", "w"];
    let lines: Vec<&str> = said.lines().filter(|l| !l.starts_with("touch:")).collect();
    assert_eq!(lines, expected);
    assert_eq!(
        fs::read_to_string(volume.join("inside/file")).unwrap(),
        "w\n"
    );
    assert_eq!(
        fs::read_to_string(machine.dir.path().join("message")).unwrap(),
        "end\n"
    );
    assert!(volume.join("not/yet/there").is_dir());
}

#[tokio::test]
async fn no_link_in_a_volume_leads_out_of_it() {
    let mut machine = Machine::new();
    let pod = machine.pod("links").await;
    let volume = machine.dir.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let secret = machine.dir.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), "the secret\n").unwrap();
    symlink(&secret, volume.join("absolute")).unwrap();
    symlink("../secret", volume.join("relative")).unwrap();
    symlink("/proc/self/root", volume.join("magic")).unwrap();
    symlink(secret.join("key"), volume.join("file")).unwrap();
    let ways = [
        "absolute",
        "relative",
        "magic",
        "file",
        "../secret",
        "relative/key",
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let name = format!("try-{number}");
        let mut settings = machine.sh(
            &name,
            "cat /m /m/key /m/secret/key /m/etc/shadow 2>/dev/null; ls -A /m",
        );
        settings.mounts = vec![bind(&volume, Some(way), "/m", false)];
        if pod.start(&settings).await.is_ok() {
            let log = machine.log(&name);
            crate::support::eventually("the try has ended", || {
                container::remains(pod.dir())
                    .containers
                    .iter()
                    .any(|c| c.name == name && c.exit.is_some())
            })
            .await;
            let said = fs::read_to_string(log).unwrap();
            assert!(
                !said.contains("secret") && !said.contains("root:"),
                "{way}: {said}"
            );
        }
    }
    assert_eq!(fs::read_dir(&secret).unwrap().count(), 1);
}

#[tokio::test]
async fn mounts_go_where_the_image_cannot_send_them() {
    let mut machine = Machine::new();
    let pod = machine.pod("destinations").await;
    let target = machine.dir.path().join("target");
    fs::create_dir(&target).unwrap();
    let hostile = machine.dir.path().join("hostile");
    fs::create_dir(&hostile).unwrap();
    symlink(&target, hostile.join("mnt")).unwrap();
    let volume = machine.dir.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let mut settings = machine.sh("main", "touch /mnt/x");
    settings.root.layers.push(hostile);
    settings.mounts = vec![bind(&volume, None, "/mnt/deep", false)];
    let _ = pod.start(&settings).await;
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

#[tokio::test]
async fn devices_are_those_of_every_container() {
    let mut machine = Machine::new();
    let pod = machine.pod("devices").await;
    run(&pod, &machine.sh("main", "ls /dev | grep -v core; echo x > /dev/null; head -c1 /dev/urandom | wc -c; head -c1 /dev/zero | wc -c")).await;
    let said = machine.said("main");
    let expected = [
        "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
        "stdout", "tty", "urandom", "zero", "1", "1",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    assert!(fs::metadata("/dev/null").unwrap().rdev() != 0);
}
