//! Output: to the log, and to whoever watches.

use std::time::Duration;

use container::Pod;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Machine, ended, eventually, run};

#[tokio::test]
async fn the_log_has_every_line_of_both_streams() {
    let mut machine = Machine::new();
    let pod = machine.pod("lines").await;
    run(
        &pod,
        &machine.sh("main", "echo out; echo err >&2; printf unfinished"),
    )
    .await;
    let log = std::fs::read_to_string(machine.log("main")).unwrap();
    let mut rest: Vec<&str> = log.lines().map(|l| l.split_once(' ').unwrap().1).collect();
    rest.sort_unstable();
    assert_eq!(
        rest,
        ["stderr F err", "stdout F out", "stdout P unfinished"]
    );
}

#[tokio::test]
async fn what_is_said_in_the_last_moment_is_not_lost() {
    let mut machine = Machine::new();
    let pod = machine.pod("last").await;
    for attempt in 0..20 {
        let mut settings = machine.command("main", &["printf", "%060000d\\n", "7"]);
        settings.attempt = attempt;
        run(&pod, &settings).await;
        let said = machine.said("main");
        let last = said.lines().last().unwrap();
        assert_eq!(
            (last.len(), said.lines().count()),
            (60_000, attempt as usize + 1)
        );
    }
}

#[tokio::test]
async fn thousands_of_lines_and_very_long_ones_arrive_whole() {
    let mut machine = Machine::new();
    let pod = machine.pod("many").await;
    let script = "i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done; head -c 100000 /dev/zero | tr '\\0' x; echo";
    run(&pod, &machine.sh("main", script)).await;
    let mut expected: String = (0..30_000).map(|i| format!("line {i}\n")).collect();
    expected += &"x".repeat(100_000);
    expected.push('\n');
    assert!(
        machine.said("main") == expected,
        "the log is not what was said"
    );
}

#[tokio::test]
async fn who_attaches_hears_what_is_said_from_then_on() {
    let mut machine = Machine::new();
    let pod = machine.pod("attach").await;
    let mut settings = machine.sh("main", "read line; echo heard $line; echo aside >&2; cat");
    settings.stdin = true;
    settings.stdin_once = true;
    let mut events = pod.events();
    pod.start(&settings).await.unwrap();
    let mut attached = pod.attach("main").await.unwrap();
    let mut stdin = attached.streams.stdin.take().unwrap();
    stdin.write_all(b"hello\nand more\n").await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    attached
        .streams
        .stdout
        .unwrap()
        .read_to_string(&mut out)
        .await
        .unwrap();
    attached
        .streams
        .stderr
        .unwrap()
        .read_to_string(&mut err)
        .await
        .unwrap();
    assert_eq!(
        (out.as_str(), err.as_str()),
        ("heard hello\nand more\n", "aside\n")
    );
    assert_eq!(ended(&mut events, "main").await.exit.unwrap().code, 0);
}

#[tokio::test]
async fn a_terminal_is_attached_to_and_resized() {
    let mut machine = Machine::new();
    let pod = machine.pod("terminal").await;
    let mut settings = machine.sh(
        "main",
        "read line; stty size; test -t 0 && test -t 1 && test -t 2 && echo all",
    );
    settings.tty = true;
    pod.start(&settings).await.unwrap();
    let mut attached = pod.attach("main").await.unwrap();
    attached
        .streams
        .resize(container::TerminalSize {
            rows: 33,
            columns: 77,
        })
        .unwrap();
    attached
        .streams
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"go\n")
        .await
        .unwrap();
    let mut out = String::new();
    attached
        .streams
        .stdout
        .as_mut()
        .unwrap()
        .read_to_string(&mut out)
        .await
        .unwrap();
    assert_eq!(out, "go\r\n33 77\r\nall\r\n");
}

#[tokio::test]
async fn a_watcher_who_does_not_read_holds_nobody_up() {
    let mut machine = Machine::new();
    let pod = machine.pod("slow").await;
    let mut settings = machine.sh(
        "main",
        "read go; head -c 8000000 /dev/zero | tr '\\0' 'x' | fold -w 1000; echo; echo done",
    );
    settings.stdin = true;
    let mut events = pod.events();
    pod.start(&settings).await.unwrap();
    let idle = pod.attach("main").await.unwrap();
    let mut active = pod.attach("main").await.unwrap();
    active
        .streams
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"go\n")
        .await
        .unwrap();
    assert_eq!(ended(&mut events, "main").await.exit.unwrap().code, 0);
    drop(idle);
    let said = machine.said("main");
    assert_eq!(said.matches('x').count(), 8_000_000);
    assert!(said.ends_with("done\n"));
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_costs_no_line() {
    let mut machine = Machine::new();
    let pod = machine.pod("leaver").await;
    let script = "read go; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); [ $((i % 100)) = 0 ] && sleep 0.01; done";
    let mut settings = machine.sh("main", script);
    settings.stdin = true;
    pod.start(&settings).await.unwrap();
    let watcher = Pod::connect(pod.dir()).await.unwrap();
    let mut attached = watcher.attach("main").await.unwrap();
    let stdin = attached.streams.stdin.as_mut().unwrap();
    stdin.write_all(b"go\n").await.unwrap();
    let mut some = [0_u8; 100];
    attached
        .streams
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut some)
        .await
        .unwrap();
    drop(attached);
    drop(watcher);
    let dir = pod.dir().to_owned();
    drop(pod);
    eventually("the container has ended", || {
        container::remains(&dir)
            .containers
            .iter()
            .all(|c| c.exit.is_some())
    })
    .await;
    let expected: String = (0..2000).map(|i| format!("line {i}\n")).collect();
    assert!(machine.said("main") == expected);
    Pod::connect(&dir)
        .await
        .unwrap()
        .stop(&[], Duration::ZERO)
        .await
        .unwrap();
    machine.assert_nothing_left().await;
}
