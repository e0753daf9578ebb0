//! Pods of root with users of their own.

use std::fs;
use std::os::unix::fs::MetadataExt;

use container::{Mount, MountSource, Seccomp};

use crate::support::{FIRST, Machine, SEIZE, assert_newcomers_are_safe, command, own_users, run};

#[tokio::test]
async fn files_belong_to_the_users_of_the_pod_and_to_nobody_outside() {
    let mut machine = Machine::new();
    let pod = machine.own_users("own").await;
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
    let pod = machine.own_users("commands").await;
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
    let pod = machine.own_users("few").await;
    let mut settings = machine.sh("main", "true");
    settings.user.uid = 1000;
    let refused = pod.start(&settings).await.unwrap_err().to_string();
    assert!(refused.contains("not among the users"), "{refused}");
}

#[tokio::test]
async fn who_enters_a_container_cannot_be_taken_over_by_the_root_that_a_pod_has() {
    let mut machine = Machine::new();
    let pod = machine.own_users("prey").await;
    let mut hunter = machine.command("main", &["python3", "-u", "-c", SEIZE]);
    hunter.seccomp = Seccomp::Unconfined;
    assert_newcomers_are_safe(&pod, hunter).await;
}

#[tokio::test]
async fn a_pod_has_the_settings_of_the_kernel_that_it_asked_for_and_the_machine_does_not() {
    const FILES: [&str; 2] = [
        "/proc/sys/net/ipv4/tcp_fin_timeout",
        "/proc/sys/kernel/shm_rmid_forced",
    ];
    let before = FILES.map(|file| fs::read_to_string(file).unwrap());
    let mut machine = Machine::new();
    for (name, has_own_users) in [("root", false), ("own", true)] {
        let mut settings = machine.pod_settings(name);
        settings.sysctls = [
            ("net.ipv4.tcp_fin_timeout", "17"),
            ("kernel.shm_rmid_forced", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        if has_own_users {
            settings.user_namespace = Some(own_users());
        }
        let helper = machine.helper.as_ref().unwrap();
        let pod = helper.start_pod(&settings).await.unwrap();
        let script = format!("cat {}", FILES.join(" "));
        assert_eq!(run(&pod, &machine.sh(name, &script)).await.code, 0);
        assert_eq!(machine.said(name), "17\n1\n");
    }
    assert_eq!(FILES.map(|file| fs::read_to_string(file).unwrap()), before);
}

#[tokio::test]
async fn a_setting_of_the_kernel_that_cannot_be_is_said() {
    let mut machine = Machine::new();
    for (name, value, why) in [
        (
            "net.ipv4.tcp_syncookies",
            "many",
            "setting sysctl net.ipv4.tcp_syncookies to \"many\": ",
        ),
        (
            "net.ipv4.no_such",
            "1",
            "setting sysctl net.ipv4.no_such to \"1\": ",
        ),
        (
            "kernel.panic",
            "1",
            "sysctl \"kernel.panic\" is not the pod's own",
        ),
    ] {
        let mut settings = machine.pod_settings(&name.replace(['.', '_'], "-"));
        settings.sysctls = [(name.to_owned(), value.to_owned())].into();
        let helper = machine.helper.as_ref().unwrap();
        let refused = helper.start_pod(&settings).await.err().unwrap().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn who_has_users_of_their_own_may_see_all_of_proc_and_still_not_change_the_machine() {
    let mut machine = Machine::new();
    let pod = machine.own_users("seeing").await;
    let script = "grep -q . /proc/interrupts && echo shown; \
        sh -c 'echo 1 > /proc/sys/kernel/panic' 2>/dev/null || echo kept";
    run(&pod, &machine.sh("hidden", script)).await;
    assert_eq!(machine.said("hidden"), "kept\n");
    let mut shown = machine.sh("shown", script);
    shown.unmasked_proc = true;
    run(&pod, &shown).await;
    assert_eq!(machine.said("shown"), "shown\nkept\n");
}
