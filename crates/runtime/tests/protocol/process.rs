//! `process.Process`: commands.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::client::{Running, basic, encode, envelope, shell};
use crate::daemon::{Daemon, user_ids};

const SECOND: Duration = Duration::from_secs(1);

fn signal(daemon: &Daemon, process: &Value, name: &str) {
    let request = json!({"process": process, "signal": name});
    daemon.call("/process.Process/SendSignal", &request);
}

fn send(daemon: &Daemon, running: &Running, text: &str) {
    let input = json!({"stdin": encode(text)});
    let request = json!({"process": running.selector(), "input": input});
    daemon.call("/process.Process/SendInput", &request);
}

fn listed(daemon: &Daemon) -> Vec<u64> {
    let list = daemon.call("/process.Process/List", &json!({}));
    let processes = list["processes"].as_array().unwrap();
    processes
        .iter()
        .map(|p| p["pid"].as_u64().unwrap())
        .collect()
}

/// Whether it runs; one that waits to be reaped does not.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| &rest[..1]);
    !matches!(state, "Z" | "X")
}

/// Waits until something is so, which it must become.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < 60 * SECOND, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn output_and_exit_code_are_told() {
    let daemon = Daemon::launch();
    let ran = daemon.run("echo out; echo err >&2");
    assert_eq!((&*ran.stdout, &*ran.stderr), ("out\n", "err\n"));
    assert_eq!(
        ran.end,
        json!({"exitCode": 0, "exited": true, "status": "exit status 0"})
    );
    let ran = daemon.run("exit 7");
    let end =
        json!({"exitCode": 7, "exited": true, "status": "exit status 7", "error": "exit status 7"});
    assert_eq!(ran.end, end);
}

#[test]
fn bytes_pass_unchanged_though_they_are_no_text() {
    let daemon = Daemon::launch();
    let mut running = daemon.start(r"printf '\377\000\376'");
    assert_eq!(running.event()["data"]["stdout"], "/wD+");
}

#[test]
fn what_is_written_at_once_arrives_at_once() {
    let daemon = Daemon::launch();
    let mut running = daemon.start("while read line; do echo $line; done");
    for text in ["one", "two", "three"] {
        send(&daemon, &running, &format!("{text}\n"));
        assert_eq!(running.stdout(), format!("{text}\n"));
    }
}

#[test]
fn a_process_gets_its_own_environment_and_nothing_of_the_daemons() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"envVars": {"A": "init", "B": "init"}}));
    let request = json!({"process": {"cmd": "/usr/bin/env", "envs": {"B": "request"}}});
    let ran = daemon.start_with_request(&[], &request).finish();
    let mut variables: Vec<&str> = ran.stdout.lines().collect();
    variables.sort_unstable();
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let home = format!("HOME={}", daemon.home().display());
    let expected = [
        "A=init",
        "B=request",
        "E2B_SANDBOX=true",
        &home,
        "LOGNAME=user",
        &path,
        "USER=user",
    ];
    assert_eq!(variables, expected);
}

#[test]
fn a_process_runs_as_its_user_with_all_groups_in_its_home() {
    let daemon = Daemon::launch();
    let (uid, gid) = user_ids();
    let ran = daemon.run("id -u; id -g; pwd");
    assert_eq!(
        ran.stdout,
        format!("{uid}\n{gid}\n{}\n", daemon.home().display())
    );
    if !geteuid().is_root() {
        return;
    }
    let groups = daemon.run("id -G").stdout;
    assert_eq!(groups.trim(), format!("{gid} 4242"));
    let root = basic("root");
    let headers = [("authorization", root.as_str())];
    let ran = daemon
        .start_with_request(&headers, &shell("id -u; id -G"))
        .finish();
    assert_eq!(ran.stdout, "0\n0\n");
}

#[test]
fn a_working_directory_follows_the_rules_of_paths() {
    let daemon = Daemon::launch();
    fs::create_dir(daemon.home().join("sub")).unwrap();
    let run_in = |cwd: &str| {
        let request = json!({"process": {"cmd": "pwd", "cwd": cwd}});
        daemon.start_with_request(&[], &request).finish().stdout
    };
    assert_eq!(run_in("/"), "/\n");
    assert_eq!(run_in("sub"), format!("{}\n", daemon.path("sub")));
    assert_eq!(run_in("~/sub/.."), format!("{}\n", daemon.home().display()));
    let request = json!({"process": {"cmd": "pwd", "cwd": "/not/there"}});
    let end = daemon.stream("/process.Process/Start", &request).end();
    let error = json!({"code": "invalid_argument", "message": "cwd '/not/there' does not exist"});
    assert_eq!(end["error"], error);
}

#[test]
fn a_program_that_is_not_there_is_an_invalid_argument() {
    let mut daemon = Daemon::launch();
    for cmd in ["/not/there", "no-such-program", "/", "a\u{0}b", ""] {
        let request = json!({"process": {"cmd": cmd}});
        let end = daemon.stream("/process.Process/Start", &request).end();
        assert_eq!(end["error"]["code"], "invalid_argument", "{cmd}: {end}");
    }
    assert_eq!(listed(&daemon), [0; 0]);
    daemon.assert_alive();
}

#[test]
fn stdin_is_a_pipe_unless_it_is_refused() {
    let daemon = Daemon::launch();
    // it is still there when its input has ended
    let mut legacy = daemon.start("cat; while [ ! -e go ]; do sleep 0.01; done");
    send(&daemon, &legacy, "hello");
    assert_eq!(legacy.stdout(), "hello");
    let close = json!({"process": legacy.selector()});
    daemon.call("/process.Process/CloseStdin", &close);
    daemon.call("/process.Process/CloseStdin", &close);
    let input = json!({"process": legacy.selector(), "input": {"stdin": ""}});
    let late = daemon.unary("/process.Process/SendInput", &input);
    assert_eq!(late.1["message"], "stdin not enabled or closed", "{late:?}");
    fs::write(daemon.home().join("go"), "").unwrap();
    assert_eq!(legacy.finish().end["exitCode"], 0);

    let mut request = shell("cat; exec sleep 30");
    request["stdin"] = json!(false);
    let without = daemon.start_with_request(&[], &request);
    let input = json!({"process": without.selector(), "input": {"stdin": encode("x")}});
    let refusal = daemon.refusal("/process.Process/SendInput", &input);
    assert_eq!(
        refusal,
        ("internal".into(), "stdin not enabled or closed".into())
    );
    signal(&daemon, &without.selector(), "SIGNAL_SIGKILL");
}

#[test]
fn input_can_be_streamed() {
    let daemon = Daemon::launch();
    let mut running = daemon.start("cat");
    let data = |text| envelope(0, &json!({"data": {"input": {"stdin": encode(text)}}}));
    let stream = [
        envelope(0, &json!({"start": {"process": running.selector()}})),
        data("one "),
        envelope(0, &json!({"keepalive": {}})),
        data("two"),
    ];
    let headers = [("content-type", "application/connect+json")];
    let mut answer = daemon.open(
        "POST",
        "/process.Process/StreamInput",
        &headers,
        &stream.concat(),
    );
    assert_eq!(answer.message(), json!({}));
    assert_eq!(answer.end(), json!({}));
    let mut read = String::new();
    while read.len() < 7 {
        read += &running.stdout();
    }
    assert_eq!(read, "one two");
    let headless = data("three");
    let answer = daemon.open("POST", "/process.Process/StreamInput", &headers, &headless);
    assert_eq!(answer.end()["error"]["code"], "invalid_argument");
}

#[test]
fn closing_the_input_ends_a_write_that_waits_for_ever() {
    let daemon = Daemon::launch();
    let running = daemon.start("exec sleep 30");
    let input = json!({"stdin": encode("x".repeat(1_000_000))});
    let request = json!({"process": running.selector(), "input": input}).to_string();
    let mut connection = daemon.connect();
    let head = format!(
        "POST /process.Process/SendInput HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        request.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let close = json!({"process": running.selector()});
    daemon.call("/process.Process/CloseStdin", &close);
    let answer = crate::client::Answer::read(connection).finish();
    assert_eq!(answer.status, 500, "{}", answer.text());
    signal(&daemon, &running.selector(), "SIGNAL_SIGKILL");
}

#[test]
fn a_timeout_kills_the_process_and_not_what_it_left_in_the_background() {
    let daemon = Daemon::launch();
    let timeout = [("connect-timeout-ms", "3000")];
    let request = shell("sleep 30 & echo $!; exec sleep 31");
    let mut running = daemon.start_with_request(&timeout, &request);
    let background = running.stdout().trim().to_owned();
    let pid = running.pid.to_string();
    let end = running.events.end();
    assert_eq!(end["error"]["code"], "deadline_exceeded", "{end}");
    eventually("the process is killed", || !is_alive(&pid));
    eventually("it is forgotten", || listed(&daemon).is_empty());
    assert!(is_alive(&background));
    let connect = json!({"process": {"pid": running.pid}});
    let mut late = daemon.stream("/process.Process/Connect", &connect);
    assert_eq!(late.message()["event"]["start"]["pid"], running.pid);
    assert_eq!(late.message()["event"]["end"]["status"], "signal: killed");
    daemon.run(&format!("kill {background}"));
}

#[test]
fn a_client_that_leaves_ends_nothing() {
    let daemon = Daemon::launch();
    let running = daemon.start("read line; i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; touch finished");
    let pid = running.pid;
    send(&daemon, &running, "go\n");
    drop(running.events);
    // far more than a pipe holds: it would stand still if nobody read it
    eventually("it goes on to its end", || {
        daemon.home().join("finished").exists()
    });
    eventually("it has ended", || !is_alive(&pid.to_string()));
}

#[test]
fn a_timeout_counts_though_the_client_has_left() {
    let daemon = Daemon::launch();
    let timeout = [("connect-timeout-ms", "3000")];
    let running = daemon.start_with_request(&timeout, &shell("exec sleep 30"));
    let pid = running.pid.to_string();
    drop(running);
    eventually("the process is killed", || !is_alive(&pid));
}

#[test]
fn the_end_waits_for_those_who_hold_the_output_unless_it_was_killed() {
    let daemon = Daemon::launch();
    let script = "(read line; echo late) <&0 & exit 5";
    let mut request = shell(&format!("exec 3<&0; {}", script.replace("<&0 &", "<&3 &")));
    request["stdin"] = json!(true);
    let running = daemon.start_with_request(&[], &request);
    eventually("it has exited", || !is_alive(&running.pid.to_string()));
    assert_eq!(listed(&daemon), [running.pid]);
    send(&daemon, &running, "go\n");
    let ran = running.finish();
    assert_eq!((&*ran.stdout, &ran.end["exitCode"]), ("late\n", &json!(5)));

    let held = daemon.start("sleep 30 & echo $!; exit 6");
    eventually("it has exited", || !is_alive(&held.pid.to_string()));
    signal(&daemon, &held.selector(), "SIGNAL_SIGTERM");
    let ran = held.finish();
    assert_eq!(ran.end["exitCode"], 6);
    assert!(is_alive(ran.stdout.trim()));
    daemon.run(&format!("kill {}", ran.stdout.trim()));
}

#[test]
fn signals_reach_the_one_process_and_are_told_by_name() {
    let daemon = Daemon::launch();
    for (name, status) in [
        ("SIGNAL_SIGKILL", "signal: killed"),
        ("SIGNAL_SIGTERM", "signal: terminated"),
    ] {
        let running = daemon.start("sleep 29 & echo $!; wait");
        signal(&daemon, &running.selector(), name);
        let ran = running.finish();
        let end = json!({"exitCode": -1, "exited": false, "status": status, "error": status});
        assert_eq!(ran.end, end);
        if let Ok(child) = ran.stdout.trim().parse::<u32>() {
            assert!(is_alive(&child.to_string()));
            daemon.run(&format!("kill {child}"));
        }
    }
    let running = daemon.start("exec sleep 30");
    let other = json!({"process": running.selector(), "signal": 2});
    assert_eq!(
        daemon.refusal("/process.Process/SendSignal", &other).0,
        "unimplemented"
    );
    signal(&daemon, &running.selector(), "SIGNAL_SIGKILL");
    let gone = json!({"process": {"pid": 4_194_304}, "signal": 9});
    let refusal = daemon.refusal("/process.Process/SendSignal", &gone);
    assert_eq!(
        refusal,
        (
            "not_found".into(),
            "process with pid 4194304 not found".into()
        )
    );
}

#[test]
fn whoever_connects_hears_what_happens_from_then_on() {
    let daemon = Daemon::launch();
    let mut request = shell("echo before; while read line; do echo $line; done; exit 4");
    request["tag"] = json!("mine");
    let mut first = daemon.start_with_request(&[], &request);
    assert_eq!(first.stdout(), "before\n");
    let connect = |selector: Value| {
        let request = json!({"process": selector});
        let mut events = daemon.stream("/process.Process/Connect", &request);
        let pid = events.message()["event"]["start"]["pid"].as_u64().unwrap();
        Running { pid, events }
    };
    let mut by_pid = connect(first.selector());
    let mut by_tag = connect(json!({"tag": "mine"}));
    assert_eq!((by_pid.pid, by_tag.pid), (first.pid, first.pid));
    send(&daemon, &first, "now\n");
    for running in [&mut first, &mut by_pid, &mut by_tag] {
        assert_eq!(running.stdout(), "now\n");
    }
    let list = daemon.call("/process.Process/List", &json!({}));
    assert_eq!(list["processes"][0]["tag"], "mine");
    assert_eq!(list["processes"][0]["config"]["cmd"], "/bin/sh");
    drop(by_pid);
    let select = json!({"process": {"tag": "mine"}});
    daemon.call("/process.Process/CloseStdin", &select);
    assert_eq!(first.finish().end["exitCode"], 4);
    assert_eq!(by_tag.finish().end["exitCode"], 4);
    // its end is remembered for a while
    assert_eq!(connect(json!({"tag": "mine"})).finish().end["exitCode"], 4);
    assert_eq!(listed(&daemon), [0; 0]);
}

#[test]
fn a_new_process_of_the_same_tag_is_the_one_that_is_meant() {
    let daemon = Daemon::launch();
    let mut request = shell("exit 1");
    request["tag"] = json!("t");
    assert_eq!(
        daemon.start_with_request(&[], &request).finish().end["exitCode"],
        1
    );
    request["process"]["args"] = json!(["-c", "read line; exit 2"]);
    let second = daemon.start_with_request(&[], &request);
    let select = json!({"process": {"tag": "t"}});
    let mut joined = daemon.stream("/process.Process/Connect", &select);
    assert_eq!(joined.message()["event"]["start"]["pid"], second.pid);
    daemon.call("/process.Process/CloseStdin", &select);
    assert_eq!(second.finish().end["exitCode"], 2);
}

#[test]
fn a_slow_reader_slows_the_process_and_loses_nothing() {
    let daemon = Daemon::launch();
    const LINES: usize = 2_000_000;
    let running = daemon.start(&format!("seq 1 {LINES}; touch written"));
    let written = daemon.home().join("written");
    let memory = || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    // nobody reads: the process must come to stand before it has written its 14 megabytes
    let mut last = u64::MAX;
    eventually("the process stands still", || {
        std::thread::sleep(Duration::from_millis(50));
        let wchan = fs::read_to_string(format!("/proc/{}/io", running.pid)).unwrap_or_default();
        let now = memory();
        let still = now == last && !wchan.is_empty();
        last = now;
        still
    });
    assert!(!written.exists());
    assert!(memory() < 40_000, "{} kB", memory());
    let ran = running.finish();
    let mut expected = 0;
    for line in ran.stdout.lines() {
        expected += 1;
        assert_eq!(line.parse(), Ok(expected));
    }
    assert_eq!(expected, LINES);
    assert!(written.exists());
}

#[test]
fn many_processes_at_once_are_all_heard() {
    let daemon = Daemon::launch();
    let all: Vec<Running> = (0..100)
        .map(|n| daemon.start(&format!("read line; echo {n}; exit {}", n % 10)))
        .collect();
    assert_eq!(listed(&daemon).len(), 100);
    for running in &all {
        send(&daemon, running, "go\n");
    }
    for (n, running) in all.into_iter().enumerate() {
        let ran = running.finish();
        assert_eq!(
            (ran.stdout, &ran.end["exitCode"]),
            (format!("{n}\n"), &json!(n % 10))
        );
    }
    assert_eq!(listed(&daemon), [0; 0]);
}

#[test]
fn the_first_process_of_a_sandbox_reaps_orphans_and_tells_them_to_end() {
    if !geteuid().is_root() {
        return;
    }
    let mut daemon = Daemon::launch_first();
    let orphan = "trap 'touch told; exit' TERM; touch ready; while :; do sleep 0.01; done";
    daemon.run(&format!(
        "setsid sh -c \"{orphan}\" > /dev/null 2>&1 & setsid true > /dev/null 2>&1 & exit"
    ));
    eventually("the orphan runs", || daemon.home().join("ready").exists());
    let zombies = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '";
    eventually("no dead process is left", || {
        daemon.run(zombies).stdout == "0\n"
    });
    assert!(daemon.terminate().success());
    assert!(daemon.home().join("told").exists());
}

#[test]
fn sigterm_is_passed_on_and_waits_for_the_processes() {
    let mut daemon = Daemon::launch();
    let mut running =
        daemon.start("trap 'touch told; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
    assert_eq!(running.stdout(), "ready\n");
    assert!(daemon.terminate().success());
    assert!(daemon.home().join("told").exists());
}
