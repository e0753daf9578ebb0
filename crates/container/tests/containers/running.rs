//! How containers start, run and end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use container::{Error, Mount, MountSource, Pod, UserNamespace};

use crate::support::{Machine, ended, eventually, run};

#[tokio::test]
async fn exit_codes_and_signals_are_told_as_a_shell_would() {
    let mut machine = Machine::new();
    let pod = machine.pod("codes").await;
    let exit = run(&pod, &machine.sh("good", "true")).await;
    assert_eq!((exit.code, exit.signal), (0, None));
    let exit = run(&pod, &machine.sh("bad", "exit 7")).await;
    assert_eq!((exit.code, exit.signal), (7, None));
    let mut events = pod.events();
    pod.start(&machine.command("killed", &["sleep", "1000"]))
        .await
        .unwrap();
    pod.kill("killed", 9).await.unwrap();
    let exit = ended(&mut events, "killed").await.exit.unwrap();
    assert_eq!(
        (exit.code, exit.signal, exit.oom_killed),
        (137, Some(9), false)
    );
    let states = pod.containers().await.unwrap();
    let codes: Vec<(String, i32)> = states
        .into_iter()
        .map(|s| (s.name, s.exit.unwrap().code))
        .collect();
    let expected = [("bad", 7), ("good", 0), ("killed", 137)];
    assert_eq!(codes, expected.map(|(name, code)| (name.to_owned(), code)));
    pod.stop(&[], Duration::ZERO).await.unwrap();
    machine.assert_nothing_left().await;
}

#[tokio::test]
async fn a_container_sees_itself_and_nothing_else() {
    let mut machine = Machine::new();
    let pod = machine.pod("alone").await;
    let script = "hostname; echo $$; ls /proc | grep -c '^[0-9]'; ls /sys/class/net; \
        cat /sys/class/net/lo/operstate; id -u; pwd; echo $GREETING $HOME; umask; \
        grep -c . /proc/self/mountinfo > /dev/null && echo mounted; grep SigBlk /proc/self/status; grep SigIgn /proc/self/status";
    let mut settings = machine.sh("main", script);
    settings.env = vec!["GREETING=hello".to_owned()];
    settings.cwd = "/made/for/it".into();
    assert_eq!(run(&pod, &settings).await.code, 0);
    let said = machine.said("main");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["alone", "1"], "{said}");
    assert_eq!(lines[3], "lo", "{said}");
    assert_eq!(
        lines[5..10],
        ["0", "/made/for/it", "hello /root", "0022", "mounted"],
        "{said}"
    );
    assert_eq!(lines[10], "SigBlk:\t0000000000000000");
    // two signals are the C library's own, and stay as whoever started the test has them
    assert!(
        lines[11].starts_with("SigIgn:\t000000") && lines[11].ends_with("0000000"),
        "{said}"
    );
}

#[tokio::test]
async fn containers_of_a_pod_share_its_network_and_ipc_but_not_their_processes() {
    let mut machine = Machine::new();
    let pod = machine.pod("shared").await;
    let script = "readlink /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/uts; readlink /proc/self/ns/pid /proc/self/ns/mnt";
    pod.start(&machine.sh("one", &format!("{script}; sleep 1000")))
        .await
        .unwrap();
    run(&pod, &machine.sh("two", script)).await;
    eventually("one has spoken", || {
        machine.said("one").lines().count() == 5
    })
    .await;
    let (one, two) = (machine.said("one"), machine.said("two"));
    let same: Vec<bool> = one.lines().zip(two.lines()).map(|(a, b)| a == b).collect();
    assert_eq!(same, [true, true, true, false, false], "{one}{two}");
    let own = fs::read_link(pod.network_namespace()).unwrap();
    assert_eq!(one.lines().next().unwrap(), own.to_str().unwrap());
    let host = fs::read_link("/proc/self/ns/net").unwrap();
    assert_ne!(own, host);
}

#[tokio::test]
async fn what_cannot_be_run_is_said_and_leaves_no_trace() {
    let mut machine = Machine::new();
    let pod = machine.pod("wrong").await;
    let cases = [
        (
            "no-such-program",
            "exec: \"no-such-program\": executable file not found in $PATH",
        ),
        ("/etc/passwd", "exec: \"/etc/passwd\": permission denied"),
        (
            "/no/such",
            "exec: \"/no/such\": stat /no/such: no such file or directory",
        ),
    ];
    for (program, expected) in cases {
        match pod.start(&machine.command("main", &[program])).await {
            Err(Error::Unstartable(text)) => assert_eq!(text, expected),
            other => panic!("{other:?}"),
        }
    }
    let mut nowhere = machine.sh("main", "true");
    nowhere.log = "/no/such/log".into();
    match pod.start(&nowhere).await {
        Err(Error::Failed(text)) => assert!(text.contains("/no/such/log"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(pod.containers().await.unwrap(), []);
    assert_eq!(run(&pod, &machine.sh("main", "exit 3")).await.code, 3);
    let config = pod.dir().join("containers/main/0");
    assert_eq!(
        fs::metadata(config).unwrap().permissions().mode() & 0o077,
        0
    );
}

#[tokio::test]
async fn a_program_that_is_still_being_written_is_not_one_that_cannot_be_run() {
    let mut machine = Machine::new();
    let pod = machine.pod("written").await;
    let volume = machine.dir.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let program = volume.join("program");
    fs::copy("/bin/true", &program).unwrap();
    let writer = fs::OpenOptions::new().append(true).open(&program).unwrap();
    let mut settings = machine.command("main", &["/volume/program"]);
    settings.mounts = vec![Mount {
        destination: "/volume".into(),
        source: MountSource::Bind {
            path: volume,
            sub_path: None,
        },
        read_only: false,
    }];
    match pod.start(&settings).await {
        Err(Error::Failed(text)) => assert!(text.contains("Text file busy"), "{text}"),
        other => panic!("{other:?}"),
    }
    drop(writer);
    assert_eq!(run(&pod, &settings).await.code, 0);
}

#[tokio::test]
async fn a_container_that_is_to_start_in_a_file_cannot_be_run() {
    let mut machine = Machine::new();
    let pod = machine.pod("file").await;
    let mut settings = machine.sh("main", "true");
    settings.cwd = "/etc/passwd".into();
    match pod.start(&settings).await {
        Err(Error::Unstartable(text)) => assert!(text.contains("/etc/passwd"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let mut machine = Machine::new();
    let pod = machine.pod("refused").await;
    let mut privileged = machine.sh("main", "true");
    privileged.privileged = true;
    assert!(matches!(
        pod.start(&privileged).await,
        Err(Error::Refused(_))
    ));
    let mut powerful = machine.sh("main", "true");
    powerful.capabilities.add = vec!["SYS_ADMIN".to_owned()];
    assert!(matches!(pod.start(&powerful).await, Err(Error::Failed(_))));
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    let mut again = machine.sh("main", "true");
    again.attempt = 1;
    assert!(matches!(pod.start(&again).await, Err(Error::Refused(_))));
    assert!(matches!(
        pod.kill("other", 9).await,
        Err(Error::NotRunning(_))
    ));
    assert!(matches!(pod.remove("main").await, Err(Error::Refused(_))));
}

#[tokio::test]
async fn a_pod_that_cannot_be_is_refused_with_the_reason() {
    let mut machine = Machine::new();
    let helper = machine.helper.take().unwrap();
    let mut settings = machine.pod_settings("mapped");
    settings.user_namespace = Some(UserNamespace::of_caller());
    match helper.start_pod(&settings).await {
        Err(Error::Failed(text)) => assert!(text.contains("user namespace"), "{text}"),
        _ => panic!("root has a user namespace"),
    }
    settings.user_namespace = None;
    settings.dir = machine.dir.path().join("missing");
    assert!(matches!(
        helper.start_pod(&settings).await,
        Err(Error::Failed(_))
    ));
    settings.cgroup = "../escape".to_owned();
    assert!(matches!(
        helper.start_pod(&settings).await,
        Err(Error::Refused(_))
    ));
    drop(helper);
    machine.assert_nothing_left().await;
}

#[tokio::test]
async fn a_container_is_started_again_from_a_clean_root() {
    let mut machine = Machine::new();
    let pod = machine.pod("again").await;
    let script = "test -e /tmp/mark && echo dirty; touch /tmp/mark; exit 1";
    for attempt in 0..3 {
        let mut settings = machine.sh("main", script);
        settings.attempt = attempt;
        assert_eq!(run(&pod, &settings).await.code, 1);
    }
    assert_eq!(fs::read_to_string(machine.log("main")).unwrap(), "");
    let left = fs::read_dir(pod.dir().join("containers/main/0")).unwrap();
    let left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["state.json"]);
    let states = pod.containers().await.unwrap();
    let attempts: Vec<u32> = states.iter().map(|s| s.attempt).collect();
    assert_eq!(attempts, [0, 1, 2]);
    pod.remove("main").await.unwrap();
    assert_eq!(pod.containers().await.unwrap(), []);
    assert!(!pod.dir().join("containers/main").exists());
}

#[tokio::test]
async fn who_ignores_the_signal_is_killed_after_the_grace() {
    let mut machine = Machine::new();
    let pod = machine.pod("stubborn").await;
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    pod.start(&machine.sh("main", script)).await.unwrap();
    let log = machine.log("main");
    eventually("the trap is set", || {
        fs::read_to_string(&log).unwrap().contains("ready")
    })
    .await;
    let dir = pod.dir().to_owned();
    let pid = pod.pid();
    pod.stop(&[], Duration::from_millis(300)).await.unwrap();
    let states = container::remains(&dir).containers;
    assert_eq!(states[0].exit.as_ref().unwrap().signal, Some(9));
    eventually("the shim has ended", || {
        !std::path::Path::new(&format!("/proc/{pid}/ns")).exists()
            || !container::remains(&dir).shim_alive
    })
    .await;
    assert!(matches!(
        Pod::connect(&dir).await,
        Err(Error::NobodyHome(_))
    ));
    machine.assert_nothing_left().await;
}

#[tokio::test]
async fn who_heeds_the_signal_ends_by_itself() {
    let mut machine = Machine::new();
    let pod = machine.pod("polite").await;
    let heed =
        |signal: &str| format!("trap 'exit 5' {signal}; echo ready; while :; do sleep 0.01; done");
    pod.start(&machine.sh("term", &heed("TERM"))).await.unwrap();
    let mut settings = machine.sh("int", &heed("INT"));
    settings.stop_signal = Some(2);
    pod.start(&settings).await.unwrap();
    for name in ["term", "int"] {
        let log = machine.log(name);
        eventually("the trap is set", || {
            fs::read_to_string(&log).unwrap().contains("ready")
        })
        .await;
    }
    let dir = pod.dir().to_owned();
    pod.stop(&["int".to_owned()], Duration::from_secs(600))
        .await
        .unwrap();
    for state in container::remains(&dir).containers {
        assert_eq!(state.exit.unwrap().code, 5, "{}", state.name);
    }
    machine.assert_nothing_left().await;
}

#[tokio::test]
async fn directories_with_long_names_are_no_hindrance() {
    let mut machine = Machine::new();
    let deep = machine.dir.path().join("d".repeat(200));
    fs::create_dir(&deep).unwrap();
    let mut settings = machine.pod_settings(&format!("{}/pod", "d".repeat(200)));
    settings.hostname = "deep".to_owned();
    settings.cgroup = "pod-deep".to_owned();
    let pod = machine
        .helper
        .as_ref()
        .unwrap()
        .start_pod(&settings)
        .await
        .unwrap();
    let mut container = machine.sh("main", "echo far away");
    container.tty = true;
    assert_eq!(run(&pod, &container).await.code, 0);
    assert_eq!(machine.said("main"), "far away\r\n");
    let second = Pod::connect(&settings.dir).await.unwrap();
    assert_eq!(second.pid(), pod.pid());
    second.stop(&[], Duration::ZERO).await.unwrap();
}
