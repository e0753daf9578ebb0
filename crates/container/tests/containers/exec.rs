//! Commands in running containers.

use std::time::Duration;

use container::{Error, ExecSettings, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Machine, command, ended, finish};

fn settings(args: &[&str]) -> ExecSettings {
    ExecSettings {
        args: args.iter().map(|&a| a.to_owned()).collect(),
        ..ExecSettings::default()
    }
}

#[tokio::test]
async fn a_command_has_its_own_streams_and_exit_code() {
    let mut machine = Machine::new();
    let pod = machine.pod("exec").await;
    pod.start(&machine.sh("main", "touch /tmp/here; sleep 1000"))
        .await
        .unwrap();
    let (out, err, exit) = command(
        &pod,
        "main",
        &[
            "sh",
            "-c",
            "until ls /tmp/here >/dev/null 2>&1; do :; done; ls /tmp; echo oops >&2; exit 4",
        ],
    )
    .await;
    assert_eq!(
        (out.as_str(), err.as_str(), exit.code),
        ("here\n", "oops\n", 4)
    );
    let (_, _, exit) = command(&pod, "main", &["sh", "-c", "kill -9 $$"]).await;
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
    assert_eq!(machine.said("main"), "");
}

#[tokio::test]
async fn a_command_reads_what_it_is_sent() {
    let mut machine = Machine::new();
    let pod = machine.pod("stdin").await;
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    let mut exec = pod
        .exec(
            "main",
            &ExecSettings {
                stdin: true,
                ..settings(&["wc", "-c"])
            },
        )
        .await
        .unwrap();
    let mut stdin = exec.streams.stdin.take().unwrap();
    stdin.write_all(&vec![b'x'; 300_000]).await.unwrap();
    drop(stdin);
    let (out, _, exit) = finish(exec).await;
    assert_eq!((out.trim(), exit.code), ("300000", 0));
}

#[tokio::test]
async fn a_command_with_a_terminal_talks_and_is_resized() {
    let mut machine = Machine::new();
    let pod = machine.pod("tty").await;
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    let script =
        "test -t 0 && test -t 2 && echo terminal; read line; stty size; echo $TERM; exit 9";
    let mut exec = pod
        .exec(
            "main",
            &ExecSettings {
                tty: true,
                ..settings(&["sh", "-c", script])
            },
        )
        .await
        .unwrap();
    exec.streams
        .resize(container::TerminalSize {
            rows: 20,
            columns: 50,
        })
        .unwrap();
    exec.streams
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"go\n")
        .await
        .unwrap();
    let mut out = String::new();
    exec.streams
        .stdout
        .as_mut()
        .unwrap()
        .read_to_string(&mut out)
        .await
        .unwrap();
    assert!(
        out.contains("terminal\r\n") && out.ends_with("20 50\r\nxterm\r\n"),
        "{out:?}"
    );
    assert_eq!(exec.wait().await.unwrap().code, 9);
    assert_eq!(exec.wait().await.unwrap().code, 9);
}

#[tokio::test]
async fn a_command_is_as_confined_as_its_container() {
    let mut machine = Machine::new();
    let pod = machine.pod("confined").await;
    let show = "grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status; readlink /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/cgroup; cat /proc/self/cgroup";
    pod.start(&machine.sh("main", &format!("{show}; sleep 1000")))
        .await
        .unwrap();
    let (out, _, _) = command(&pod, "main", &["sh", "-c", show]).await;
    crate::support::eventually("the container has spoken", || {
        machine.said("main").lines().count() == out.lines().count()
    })
    .await;
    assert_eq!(out, machine.said("main"));
    assert!(
        out.contains("NoNewPrivs:\t1") && out.contains("Seccomp:\t2"),
        "{out}"
    );
}

#[tokio::test]
async fn a_command_runs_as_whom_and_where_it_is_told_to() {
    let mut machine = Machine::new();
    let pod = machine.pod("user").await;
    let mut main = machine.sh("main", "sleep 1000");
    main.env = vec!["A=1".to_owned(), "B=1".to_owned()];
    pod.start(&main).await.unwrap();
    let exec = ExecSettings {
        env: vec!["B=2".to_owned()],
        cwd: Some("/tmp".into()),
        user: Some(User {
            uid: 1000,
            gid: 1000,
            additional_gids: vec![7],
        }),
        ..settings(&[
            "sh",
            "-c",
            "id -u; id -g; id -G; pwd; echo $A$B$HOME; echo again > /dev/stdout",
        ])
    };
    let (out, err, _) = finish(pod.exec("main", &exec).await.unwrap()).await;
    assert_eq!(
        out, "1000\n1000\n1000 7\n/tmp\n12/home/user\nagain\n",
        "{err}"
    );
}

#[tokio::test]
async fn a_command_that_cannot_run_says_why() {
    let mut machine = Machine::new();
    let pod = machine.pod("missing").await;
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    match pod.exec("main", &settings(&["no-such"])).await {
        Err(Error::Failed(text)) => {
            assert_eq!(
                text,
                "exec: \"no-such\": executable file not found in $PATH"
            );
        }
        _ => panic!("it ran"),
    }
    assert!(matches!(
        pod.exec("other", &settings(&["true"])).await,
        Err(Error::NotRunning(_))
    ));
}

#[tokio::test]
async fn a_command_can_be_killed_and_dies_with_its_container() {
    let mut machine = Machine::new();
    let pod = machine.pod("killed").await;
    pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
    let mut exec = pod
        .exec("main", &settings(&["sleep", "1000"]))
        .await
        .unwrap();
    exec.kill(15).await.unwrap();
    assert_eq!(exec.wait().await.unwrap().signal, Some(15));
    assert!(matches!(exec.kill(15).await, Err(Error::NotRunning(_))));
    let mut exec = pod
        .exec("main", &settings(&["sleep", "1000"]))
        .await
        .unwrap();
    let mut events = pod.events();
    pod.kill("main", 9).await.unwrap();
    ended(&mut events, "main").await;
    assert_eq!(exec.wait().await.unwrap().signal, Some(9));
}

#[tokio::test]
async fn a_command_that_was_being_started_when_its_pod_ended_says_that_nothing_runs_there() {
    for number in 0..5 {
        let mut machine = Machine::new();
        let pod = machine.pod(&format!("late{number}")).await;
        pod.start(&machine.sh("main", "sleep 1000")).await.unwrap();
        let command = settings(&["sleep", "1000"]);
        let (begun, stopped) =
            tokio::join!(pod.exec("main", &command), pod.stop(&[], Duration::ZERO));
        stopped.unwrap();
        match begun {
            Err(Error::NotRunning(said)) => assert_eq!(said, "container main is not running"),
            Err(error) => panic!("{error}"),
            Ok(_) => {}
        }
    }
}
