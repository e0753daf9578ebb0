//! The client that the rest of Sandbar uses, with a real daemon at the other end and a wire between them that may break.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runtime::client::{Client, Code, Command, Error, Init};
use runtime::messages::once::{Outcome, Tail};

use crate::daemon::Daemon;

/// More than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// What becomes of a connection.
#[derive(Clone, Copy)]
enum Fate {
    Refused,
    /// The request arrives, and of the answer this much.
    CutAfter(usize),
    To(SocketAddr),
}

/// A way to a daemon on which each of the first connections has a fate of its own, and all others go to the last.
fn wire(fates: impl IntoIterator<Item = Fate>) -> (Client, Arc<Mutex<VecDeque<Fate>>>) {
    let fates = Arc::new(Mutex::new(fates.into_iter().collect::<VecDeque<_>>()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(listener.local_addr().unwrap().to_string());
    let plan = Arc::clone(&fates);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut plan = plan.lock().unwrap();
            let fate = plan[0];
            if plan.len() > 1 {
                plan.pop_front();
            }
            let last = plan[plan.len() - 1];
            let target = match (fate, last) {
                (Fate::To(target), _) | (_, Fate::To(target)) => target,
                (Fate::Refused | Fate::CutAfter(_), _) => panic!("the last is no way"),
            };
            pass(connection.unwrap(), fate, target);
        }
    });
    (client, fates)
}

fn pass(near: TcpStream, fate: Fate, target: SocketAddr) {
    let most = match fate {
        Fate::Refused => return,
        Fate::CutAfter(most) => most,
        Fate::To(_) => usize::MAX,
    };
    let far = TcpStream::connect(target).unwrap();
    let there = (near.try_clone().unwrap(), far.try_clone().unwrap());
    std::thread::spawn(move || copy(there.0, there.1, usize::MAX));
    std::thread::spawn(move || copy(far, near, most));
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut most: usize) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let length = length.min(most);
        most -= length;
        if to.write_all(&buffer[..length]).is_err() || most == 0 {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(std::net::Shutdown::Both);
    }
}

fn client(daemon: &Daemon) -> Client {
    Client::new(daemon.address.to_string())
}

fn sh(script: &str) -> Command {
    Command::new(["/bin/sh", "-c", script])
}

fn text(tail: Option<&Tail>) -> String {
    let bytes = tail.unwrap().last.as_ref().unwrap().to_vec();
    String::from_utf8(bytes).unwrap()
}

fn exit_code(outcome: &Outcome) -> i32 {
    outcome.end.as_ref().unwrap().exit_code
}

#[tokio::test]
async fn a_command_runs_to_its_end_and_what_it_wrote_is_told() {
    let daemon = Daemon::launch();
    let mut command = sh("echo $WORD; pwd >&2; exit 3");
    command.envs.insert("WORD".to_owned(), "hello".to_owned());
    command.cwd = Some("/usr".to_owned());
    let ran = client(&daemon).run(&command, LONG).await.unwrap();
    assert_eq!(exit_code(&ran), 3);
    assert!(!ran.is_success());
    assert_eq!(text(ran.stdout.as_ref()), "hello\n");
    assert_eq!(text(ran.stderr.as_ref()), "/usr\n");
    let fine = client(&daemon).run(&sh("cat"), LONG).await.unwrap();
    assert!(fine.is_success(), "there is nothing to read");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended() {
    let daemon = Daemon::launch();
    let pid = daemon.path("pid");
    let limit = Duration::from_secs(3);
    let command = sh(&format!("echo $$ > {pid}; exec sleep 100"));
    let late = client(&daemon).run(&command, limit).await;
    assert_eq!(late, Err(Error::Late(limit)));
    let pid = std::fs::read_to_string(pid).unwrap();
    let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
    let ended = async {
        while process.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, ended).await.unwrap();
}

#[tokio::test]
async fn a_refusal_says_what_was_wrong_and_a_daemon_that_is_not_there_where_it_was_sought() {
    let daemon = Daemon::launch();
    let none = client(&daemon).run(&Command::new(["/no/such"]), LONG).await;
    assert!(
        none.as_ref()
            .unwrap_err()
            .is_refused_as(Code::InvalidArgument)
    );
    assert!(none.unwrap_err().to_string().contains("/no/such"));
    let stranger = client(&daemon).as_user("nobody-knows");
    let refused = stranger.run(&sh("true"), LONG).await.unwrap_err();
    assert!(refused.is_refused_as(Code::Unauthenticated), "{refused}");

    let address = daemon.address.to_string();
    drop(daemon);
    let gone = Client::new(&address).health().await.unwrap_err();
    assert!(gone.to_string().contains(&address), "{gone}");
}

#[tokio::test]
async fn files_are_written_and_read_back_whatever_is_in_them() {
    let daemon = Daemon::launch();
    let client = client(&daemon).as_user("user");
    let content: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let path = daemon.path("new dir/ä&b?c");
    client.write(&path, &content, LONG).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
    let read = client.read(&path, content.len(), LONG).await.unwrap();
    assert_eq!(read, content);
    let large = client.read(&path, content.len() - 1, LONG).await;
    assert!(large.unwrap_err().is_refused_as(Code::ResourceExhausted));
    let missing = client.read("/no/such", 1, LONG).await.unwrap_err();
    assert!(missing.is_refused_as(Code::NotFound), "{missing}");
}

#[tokio::test]
async fn init_is_tried_again_until_the_daemon_is_there_but_not_when_it_refuses() {
    let daemon = Daemon::launch();
    let (client, fates) = wire([Fate::Refused, Fate::Refused, Fate::To(daemon.address)]);
    let mut init = Init {
        access_token: Some("secret".to_owned()),
        ..Init::default()
    };
    init.env_vars.insert("WORD".to_owned(), "hello".to_owned());
    client.init(&init).await.unwrap();
    let with_token = client.clone().with_token(Some("secret".to_owned()));
    let ran = with_token.run(&sh("echo $WORD"), LONG).await.unwrap();
    assert_eq!(text(ran.stdout.as_ref()), "hello\n");

    let ways = [Fate::To(daemon.address); 3];
    fates.lock().unwrap().extend(ways);
    init.access_token = Some("other".to_owned());
    let refused = client.init(&init).await.unwrap_err();
    assert!(refused.is_refused_as(Code::Unauthenticated), "{refused}");
    assert_eq!(fates.lock().unwrap().len(), ways.len(), "it was asked once");
}

/// A command that says in a file that it ran, and waits for another.
fn counted(daemon: &Daemon) -> (Command, String, String) {
    let (ran, go) = (daemon.path("ran"), daemon.path("go"));
    let script = format!("echo x >> {ran}; while [ ! -e {go} ]; do sleep 0.01; done; exit 4");
    (sh(&script), ran, go)
}

#[tokio::test]
async fn whoever_asks_again_for_what_runs_once_learns_the_outcome() {
    let daemon = Daemon::launch();
    let client = client(&daemon);
    let (command, ran, go) = counted(&daemon);
    let dies = client.run_once("hook", &command, LONG);
    let died = tokio::time::timeout(Duration::from_millis(500), dies).await;
    assert!(died.is_err(), "{died:?}");
    std::fs::write(go, "").unwrap();
    for _ in 0..2 {
        let outcome = client.run_once("hook", &command, LONG).await.unwrap();
        assert_eq!(exit_code(&outcome), 4);
    }
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "x\n");
    for _ in 0..2 {
        client.acknowledge("hook").await.unwrap();
    }
    client.run_once("hook", &command, LONG).await.unwrap();
    assert_eq!(std::fs::read_to_string(ran).unwrap(), "x\nx\n");
}

#[tokio::test]
async fn a_wire_that_breaks_at_any_point_makes_nothing_run_twice() {
    for cut in [0, 1, 50, 150] {
        let daemon = Daemon::launch();
        let broken = [Fate::Refused, Fate::CutAfter(cut), Fate::CutAfter(cut)];
        let fates = broken.into_iter().chain([Fate::To(daemon.address)]);
        let (client, _) = wire(fates);
        let (command, ran, go) = counted(&daemon);
        std::fs::write(go, "").unwrap();
        let outcome = client.run_once("hook", &command, LONG).await.unwrap();
        assert_eq!(exit_code(&outcome), 4, "cut after {cut}");
        assert_eq!(std::fs::read_to_string(ran).unwrap(), "x\n");
    }
}

#[tokio::test]
async fn what_a_daemon_has_taken_with_it_is_not_run_again_by_another() {
    let [first, second] = [Daemon::launch(), Daemon::launch()];
    let (client, fates) = wire([Fate::To(first.address); 3]);
    let (command, _, _) = counted(&first);
    let waiting = tokio::spawn(async move { client.run_once("hook", &command, LONG).await });
    let asked_for_its_outcome = async {
        while fates.lock().unwrap().len() > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let started = tokio::time::timeout(LONG, asked_for_its_outcome);
    started.await.unwrap();
    *fates.lock().unwrap() = [Fate::To(second.address)].into();
    drop(first);
    let lost = waiting.await.unwrap();
    let tag = "hook".to_owned();
    assert_eq!(lost, Err(Error::Lost { tag }));
    let list = second.call("/process.Process/List", &serde_json::json!({}));
    assert_eq!(list["processes"], serde_json::json!([]));
}

#[tokio::test]
async fn a_daemon_that_knows_nothing_of_running_once_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(listener.local_addr().unwrap().to_string());
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        let _ = connection.read(&mut buffer).unwrap();
        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone";
        connection.write_all(answer).unwrap();
    });
    let refused = client
        .run_once("hook", &sh("true"), LONG)
        .await
        .unwrap_err();
    assert!(refused.is_refused_as(Code::Unimplemented), "{refused}");
}

#[tokio::test]
async fn whoever_does_not_answer_is_not_waited_for_longer_than_one_may() {
    // what connects waits in its queue for ever
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(silent.local_addr().unwrap().to_string());
    let limit = Duration::from_millis(200);
    let read = tokio::time::timeout(LONG, client.read("/etc/hostname", 100, limit)).await;
    assert_eq!(read.unwrap(), Err(Error::Late(limit)));
    let written = tokio::time::timeout(LONG, client.write("/tmp/file", b"", limit)).await;
    assert_eq!(written.unwrap(), Err(Error::Late(limit)));
}
