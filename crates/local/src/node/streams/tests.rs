use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Doorman, still_runs};
use crate::node::inside::Inside;
use crate::node::place::container_id;
use crate::node::tenants::Tenants;
use crate::node::testing::{Lodge, eventually};
use crate::server::streams::{
    AttachAsk, ExecAsk, LogOptions, LogStream, PodRef, PodStreams as _, Session, Streams,
    TerminalSize,
};

const SOON: Duration = Duration::from_secs(10);

fn pod() -> PodRef {
    PodRef {
        namespace: "default".to_owned(),
        name: "p".to_owned(),
        uid: "uid".to_owned(),
    }
}

fn doorman(lodge: &Lodge) -> Doorman {
    let tenants = Tenants::default();
    tenants.set("uid", lodge.tenant());
    Doorman::new(tenants, Arc::new(Inside::directly()))
}

fn exec(command: &[&str], streams: Streams) -> ExecAsk {
    ExecAsk {
        container: "main".to_owned(),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        streams,
    }
}

const ALL: Streams = Streams {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

const TERMINAL: Streams = Streams {
    stdin: true,
    stdout: true,
    stderr: false,
    tty: true,
};

async fn outputs(session: &mut Session) -> (String, String) {
    let mut texts = [String::new(), String::new()];
    if let Some(mut stdout) = session.stdout.take() {
        stdout.read_to_string(&mut texts[0]).await.unwrap();
    }
    if let Some(mut stderr) = session.stderr.take() {
        stderr.read_to_string(&mut texts[1]).await.unwrap();
    }
    let [stdout, stderr] = texts;
    (stdout, stderr)
}

#[tokio::test]
async fn a_command_speaks_and_learns_when_the_client_has_no_more_to_say() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let door = doorman(&lodge);
    assert!(door.runs(pod(), Some("main".to_owned())).await);
    let ask = exec(&["sh", "-c", "cat; echo oops >&2; exit 3"], ALL);
    let mut session = door.exec(pod(), ask).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"hello").await.unwrap();
    stdin.shutdown().await.unwrap();
    let (stdout, stderr) = timeout(SOON, outputs(&mut session)).await.unwrap();
    assert_eq!((stdout.as_str(), stderr.as_str()), ("hello", "oops\n"));
    assert_eq!(session.exit.await.unwrap(), 3);
    lodge.close().await;
}

#[tokio::test]
async fn streams_that_nobody_wants_hold_no_command_up() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let only_stderr = Streams {
        stderr: true,
        ..Streams::default()
    };
    let much = "head -c 1000000 /dev/zero && echo done >&2";
    let ask = exec(&["sh", "-c", much], only_stderr);
    let mut session = doorman(&lodge).exec(pod(), ask).await.unwrap();
    assert!(session.stdin.is_none() && session.stdout.is_none() && session.resize.is_none());
    let mut stderr = session.stderr.take().unwrap();
    let mut text = String::new();
    let both = async { tokio::join!(session.exit, stderr.read_to_string(&mut text)) };
    let (exit, _) = timeout(SOON, both).await.unwrap();
    assert_eq!((exit.unwrap(), text.as_str()), (0, "done\n"));
    lodge.close().await;
}

#[tokio::test]
async fn a_terminal_is_as_large_as_the_client_says() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let ask = exec(&["sh", "-c", "read line; stty size"], TERMINAL);
    let mut session = doorman(&lodge).exec(pod(), ask).await.unwrap();
    let size = TerminalSize {
        width: 50,
        height: 20,
    };
    let resize = session.resize.take().unwrap();
    resize.send_replace(size);
    // the size is told by a task of its own
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stdin = session.stdin.as_mut().unwrap();
    stdin.write_all(b"go\n").await.unwrap();
    let (said, _) = timeout(SOON, outputs(&mut session)).await.unwrap();
    assert!(said.ends_with("20 50\r\n"), "{said:?}");
    assert_eq!(session.exit.await.unwrap(), 0);
    lodge.close().await;
}

#[tokio::test]
async fn a_command_ends_when_its_client_is_gone() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let door = doorman(&lodge);
    for streams in [ALL, TERMINAL] {
        let script = "echo $$; exec sleep 4242";
        let ask = exec(&["sh", "-c", script], streams);
        let mut session = door.exec(pod(), ask).await.unwrap();
        let mut first = [0; 1];
        let stdout = session.stdout.as_mut().unwrap();
        stdout.read_exact(&mut first).await.unwrap();
        eventually("the command runs", || sleepers(&lodge) == 1).await;
        drop(session);
        eventually("the command has ended", || sleepers(&lodge) == 0).await;
    }
    lodge.close().await;
}

/// How many processes of the pod sleep as the commands of tests do.
fn sleepers(lodge: &Lodge) -> usize {
    let namespace = std::fs::read_link(lodge.pod.network_namespace()).unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let sleepers = processes.filter(|process| {
        let path = process.path();
        let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let is_ours = std::fs::read_link(path.join("ns/net")).is_ok_and(|net| net == namespace);
        is_ours && command == b"sleep\x004242\x00"
    });
    sleepers.count()
}

#[tokio::test]
async fn what_cannot_be_run_is_told() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let door = doorman(&lodge);
    let refused = door.exec(pod(), exec(&["no-such"], ALL)).await;
    let words = "exec: \"no-such\": executable file not found in $PATH";
    assert_eq!(refused.err().unwrap().message(), words);
    lodge.running.send_replace(BTreeMap::new());
    assert!(!door.runs(pod(), Some("main".to_owned())).await);
    assert!(!door.runs(pod(), None).await);
    let refused = door.exec(pod(), exec(&["true"], ALL)).await;
    let words = "container main is not running";
    assert_eq!(refused.err().unwrap().message(), words);
    lodge.close().await;
}

#[tokio::test]
async fn who_attaches_speaks_with_the_container_until_it_ends() {
    let lodge = Lodge::open().await;
    let script = "while read line; do echo got $line; done; echo bye >&2";
    lodge
        .start("main", script, |settings| {
            settings.stdin = true;
            settings.stdin_once = true;
        })
        .await;
    let ask = AttachAsk {
        container: "main".to_owned(),
        streams: Streams {
            stderr: false,
            ..ALL
        },
    };
    let mut session = doorman(&lodge).attach(pod(), ask).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"one\n").await.unwrap();
    stdin.shutdown().await.unwrap();
    let (stdout, _) = timeout(SOON, outputs(&mut session)).await.unwrap();
    assert_eq!(stdout, "got one\n");
    lodge.running.send_replace(BTreeMap::new());
    assert_eq!(timeout(SOON, session.exit).await.unwrap().unwrap(), 0);
    lodge.close().await;
}

fn log_options(attempt: u32, follow: bool) -> LogOptions {
    LogOptions {
        container: "main".to_owned(),
        container_id: container_id("uid", "main", attempt),
        previous: false,
        follow,
        since: None,
        tail: None,
        limit: None,
        timestamps: false,
        stream: LogStream::All,
    }
}

#[tokio::test]
async fn a_log_is_followed_until_that_run_is_over() {
    let lodge = Lodge::open().await;
    let script = "echo one; read line; echo $line";
    lodge
        .start("main", script, |settings| settings.stdin = true)
        .await;
    let door = doorman(&lodge);
    let mut log = door.log(pod(), log_options(0, true)).await.unwrap();
    assert_eq!(log.next().await.unwrap().unwrap(), "one\n");
    let mut events = lodge.pod.events();
    let mut attached = lodge.pod.attach("main").await.unwrap();
    let stdin = attached.streams.stdin.as_mut().unwrap();
    stdin.write_all(b"two\n").await.unwrap();
    while !matches!(events.next().await, Some(container::Event::Exited(_))) {}
    lodge
        .running
        .send_modify(|running| _ = running.insert("main".to_owned(), 1));
    assert_eq!(log.next().await.unwrap().unwrap(), "two\n");
    assert!(timeout(SOON, log.next()).await.unwrap().is_none());
    let mut options = log_options(0, false);
    options.container_id = "docker://abc".to_owned();
    let refused = door.log(pod(), options).await.err().unwrap();
    assert!(refused.message().contains("no run of it"), "{refused:?}");
    lodge.close().await;
}

#[tokio::test]
async fn a_port_without_a_listener_is_told() {
    let lodge = Lodge::open().await;
    lodge.start("main", "sleep 1000", |_| {}).await;
    let door = doorman(&lodge);
    let refused = door.dial(pod(), 81).await.err().unwrap();
    let words =
        "failed to connect to localhost:81 inside the pod: dial tcp 127.0.0.1:81: connect: ";
    assert!(refused.message().starts_with(words), "{refused:?}");
    let nobody = PodRef {
        uid: "other".to_owned(),
        ..pod()
    };
    let refused = door.dial(nobody, 81).await.err().unwrap();
    assert_eq!(refused.message(), "pod not found (\"p_default\")");
    lodge.close().await;
}

#[tokio::test]
async fn only_the_run_that_is_meant_counts_as_running() {
    let all = watch::Sender::new(BTreeMap::from([("main".to_owned(), 1)]));
    let runs = |attempt| still_runs(all.subscribe(), "main".to_owned(), attempt);
    assert!(!*runs(0).borrow());
    let mut present = runs(1);
    assert!(*present.borrow());
    all.send_modify(|running| _ = running.insert("other".to_owned(), 0));
    tokio::task::yield_now().await;
    assert!(present.has_changed().is_ok());
    all.send_modify(|running| _ = running.insert("main".to_owned(), 2));
    assert!(timeout(SOON, present.changed()).await.unwrap().is_err());
}
