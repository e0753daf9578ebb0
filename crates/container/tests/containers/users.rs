//! Pods of root with users of their own.

use std::fs;
use std::os::unix::fs::MetadataExt;

use container::{IdMap, Mount, MountSource, Pod, UserNamespace};

use crate::support::{Machine, command, run};

const FIRST: u32 = 0x7fff_0000;

async fn own_users(machine: &mut Machine, name: &str) -> Pod {
    let mut settings = machine.pod_settings(name);
    let map = vec![IdMap {
        inside: 0,
        outside: FIRST,
        count: 1000,
    }];
    settings.user_namespace = Some(UserNamespace {
        uids: map.clone(),
        gids: map,
    });
    let helper = machine.helper.as_ref().unwrap();
    helper.start_pod(&settings).await.unwrap()
}

#[tokio::test]
async fn files_belong_to_the_users_of_the_pod_and_to_nobody_outside() {
    let mut machine = Machine::new();
    let pod = own_users(&mut machine, "own").await;
    let volume = machine.dir.path().join("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("before"), "").unwrap();
    let script = "id -u; stat -c %u /etc/passwd /usr/bin/env /volume/before; touch /mine /volume/after; \
        chown 5:6 /volume/after; echo x >> /etc/passwd && echo written; pwd; hostname";
    let mut settings = machine.sh("main", script);
    settings.cwd = "/made/here".into();
    settings.mounts = vec![Mount {
        destination: "/volume".into(),
        source: MountSource::Bind {
            path: volume.clone(),
            sub_path: None,
        },
        read_only: false,
    }];
    assert_eq!(run(&pod, &settings).await.code, 0);
    assert_eq!(
        machine.said("main"),
        "0\n0\n0\n0\nwritten\n/made/here\nown\n"
    );
    let upper = pod.dir().join("containers/main/0/upper");
    assert_eq!(fs::metadata(upper.join("mine")).unwrap().uid(), FIRST);
    assert_eq!(fs::metadata(upper.join("made")).unwrap().uid(), FIRST);
    let after = fs::metadata(volume.join("after")).unwrap();
    assert_eq!((after.uid(), after.gid()), (5, 6));
}

#[tokio::test]
async fn commands_have_the_users_of_their_container() {
    let mut machine = Machine::new();
    let pod = own_users(&mut machine, "commands").await;
    let mut settings = machine.sh("main", "exec sleep 1000");
    settings.user.uid = 7;
    settings.user.gid = 7;
    settings.user.additional_gids = vec![8];
    pod.start(&settings).await.unwrap();
    let script = "id -u; id -G; cat /proc/self/uid_map | tr -s ' '; echo to stdout > /dev/stdout";
    let (out, err, exit) = command(&pod, "main", &["sh", "-c", script]).await;
    let expected = format!("7\n7 8\n 0 {FIRST} 1000\nto stdout\n");
    assert_eq!((out, exit.code), (expected, 0), "{err}");
    let (_, _, exit) = command(&pod, "main", &["mount", "-t", "tmpfs", "none", "/mnt"]).await;
    assert_ne!(exit.code, 0);
}

#[tokio::test]
async fn users_that_a_pod_does_not_have_are_refused() {
    let mut machine = Machine::new();
    let pod = own_users(&mut machine, "few").await;
    let mut settings = machine.sh("main", "true");
    settings.user.uid = 1000;
    let refused = pod.start(&settings).await.unwrap_err().to_string();
    assert!(refused.contains("not among the users"), "{refused}");
}
