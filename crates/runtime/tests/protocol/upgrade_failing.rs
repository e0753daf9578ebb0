//! A daemon that cannot be replaced after all, and those who are in the way of its being replaced.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Answer, Reply, encode, shell};
use crate::daemon::{Daemon, wait_until};
use crate::load;
use crate::upgrade::{
    TOKEN, begin_upload, join, launch, program, start, until_told_to_come_again, upgrade,
};
use crate::upgrade_state::{enter, open_in_commands, until_exists};

const ASK: &[u8] = b"GET /health HTTP/1.1\r\nhost: sandbox\r\n\r\n";

/// A moment in which a daemon that serves answers.
const A_MOMENT: Duration = Duration::from_millis(300);

/// An upload of which the half is sent, so that the daemon is not replaced before the rest.
pub(crate) struct Held {
    connection: TcpStream,
}

impl Held {
    pub(crate) fn new(daemon: &Daemon) -> Self {
        let path = daemon.path("held");
        let mut connection = begin_upload(daemon, &path);
        connection.write_all(b"first").unwrap();
        wait_until("the upload begins", || fs::exists(&path).unwrap());
        Self { connection }
    }

    pub(crate) fn finish(mut self) {
        self.connection.write_all(b"other").unwrap();
        assert_eq!(Answer::read(self.connection).status, 200);
    }
}

/// Whether it has found that the program starts, and accepts nobody any more.
pub(crate) fn is_draining(daemon: &Daemon) -> bool {
    let mut connection = daemon.connect();
    // a daemon that serves answers within that; those it waits for have longer
    let long = Duration::from_secs(2);
    connection.set_read_timeout(Some(long)).unwrap();
    connection.write_all(ASK).unwrap();
    connection.read(&mut [0]).is_err()
}

pub(crate) fn is_replaced(daemon: &Daemon) -> bool {
    let arguments = fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap();
    String::from_utf8(arguments)
        .unwrap()
        .contains("--take-over")
}

/// A connection on which something was asked and answered.
pub(crate) fn in_use(daemon: &Daemon) -> TcpStream {
    let mut connection = daemon.connect();
    connection.write_all(ASK).unwrap();
    let mut answer = [0; 1000];
    let length = connection.read(&mut answer).unwrap();
    assert!(answer[..length].ends_with(b"\r\n\r\n"));
    connection
}

/// Asks to be replaced by the same program.
pub(crate) fn ask_to_upgrade(connection: &mut TcpStream) {
    let request =
        b"POST /upgrade HTTP/1.1\r\nhost: x\r\nx-access-token: secret\r\ncontent-length: 0\r\n\r\n";
    connection.write_all(request).unwrap();
}

/// Where the daemon has the program that was sent.
fn sent_program(daemon: &Daemon) -> PathBuf {
    let all = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let mut paths = all.map(|one| one.unwrap().path());
    let is_it = |path: &PathBuf| {
        let link = fs::read_link(path);
        link.is_ok_and(|link| link.starts_with("/memfd:sandbar-runtime (deleted)"))
    };
    paths.find(is_it).unwrap()
}

/// Has the new program start when it is tried, and not when it is to take over: it is being written to then.
fn fail_to_upgrade(daemon: &Daemon) -> Reply {
    let held = Held::new(daemon);
    thread::scope(|scope| {
        let upgrading = scope.spawn(|| daemon.request("POST", "/upgrade", &TOKEN, &program()));
        wait_until("the program was tried", || is_draining(daemon));
        let sent = sent_program(daemon);
        let mut writing = None;
        wait_until("it can be written to", || {
            writing = OpenOptions::new().write(true).open(&sent).ok();
            writing.is_some()
        });
        held.finish();
        upgrading.join().unwrap()
    })
}

#[test]
fn a_program_that_cannot_be_run_in_the_end_leaves_everything_as_it_was() {
    let mut daemon = load::launch();
    assert_eq!(daemon.init(&json!({"accessToken": "secret"})).status, 204);
    let limits = |daemon: &Daemon| fs::read(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let before = (limits(&daemon), open_in_commands(&daemon));
    let reads = start(&daemon, &shell("read word; echo $word; exit 5"));
    let mut deaf = start(&daemon, &shell("exec 0<&-; echo ready; sleep 30"));
    assert_eq!(deaf.stdout(), "ready\n");
    let refused = fail_to_upgrade(&daemon);
    assert_eq!(refused.status, 500, "{}", refused.text());
    let message = refused.message();
    assert!(
        message.contains("goes on: the program cannot be run"),
        "{message}"
    );
    let selector = reads.selector();
    assert_eq!(until_told_to_come_again(reads.events), "");
    let again = join(&daemon, &selector);
    enter(&daemon, &again);
    let ran = again.finish();
    assert_eq!((&*ran.stdout, &ran.end["exitCode"]), ("word\n", &json!(5)));
    assert!((limits(&daemon), open_in_commands(&daemon)) == before);
    let input = json!({"process": deaf.selector(), "input": {"stdin": encode("x")}});
    let (status, _) = daemon.unary_with("/process.Process/SendInput", &TOKEN, &input);
    assert_eq!(status, 500);
    daemon.assert_alive();
    upgrade(&daemon, b"");
    assert!(is_replaced(&daemon));
}

#[test]
fn whoever_asks_meanwhile_is_refused_and_whoever_asked_may_leave() {
    let daemon = launch();
    let held = Held::new(&daemon);
    let [mut first, mut second] = [(); 2].map(|()| in_use(&daemon));
    ask_to_upgrade(&mut first);
    wait_until("the program was tried", || is_draining(&daemon));
    ask_to_upgrade(&mut second);
    assert_eq!(Answer::read(second).finish().status, 503);
    drop(first);
    held.finish();
    wait_until("it is replaced", || is_replaced(&daemon));
}

#[test]
fn a_daemon_that_is_told_to_stop_meanwhile_stops() {
    let mut daemon = launch();
    let go = daemon.path("go");
    let told = format!("echo told; {}; exit", until_exists(&go));
    let script = format!("trap '{told}' TERM; echo ready; read word");
    let mut running = start(&daemon, &shell(&script));
    assert_eq!(running.stdout(), "ready\n");
    let held = Held::new(&daemon);
    let mut caller = in_use(&daemon);
    ask_to_upgrade(&mut caller);
    wait_until("the program was tried", || is_draining(&daemon));
    daemon.tell_to_stop();
    assert_eq!(running.stdout(), "told\n");
    held.finish();
    let refused = Answer::read(caller).finish();
    assert_eq!(refused.status, 500, "{}", refused.text());
    fs::write(&go, "").unwrap();
    assert!(daemon.terminate().success());
}

#[test]
fn connections_on_which_nothing_happens_are_not_waited_for() {
    let daemon = launch();
    let _idle = (daemon.connect(), in_use(&daemon));
    let begin = Instant::now();
    upgrade(&daemon, b"");
    // those who are being answered may take ten
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn one_who_has_connected_and_asks_at_the_last_moment_is_answered() {
    let daemon = launch();
    let running = start(&daemon, &shell("read word"));
    let held = Held::new(&daemon);
    let mut quiet = daemon.connect();
    let mut caller = in_use(&daemon);
    ask_to_upgrade(&mut caller);
    wait_until("the program was tried", || is_draining(&daemon));
    held.finish();
    assert_eq!(until_told_to_come_again(running.events), "");
    quiet.write_all(ASK).unwrap();
    assert_eq!(Answer::read(quiet).status, 204);
}

/// Until a command has written all that it can before somebody reads it.
pub(crate) fn wait_until_unread(pid: u64) {
    let written = || fs::read(format!("/proc/{pid}/io")).unwrap();
    wait_until("it waits for its reader", || {
        let before = written();
        thread::sleep(A_MOMENT);
        written() == before
    });
}

#[test]
fn a_client_that_reads_late_misses_nothing() {
    let daemon = launch();
    // more than sockets hold
    let running = start(&daemon, &shell("exec seq 1 3000000"));
    let selector = running.selector();
    wait_until_unread(running.pid);
    let text = thread::scope(|scope| {
        scope.spawn(|| upgrade(&daemon, b""));
        wait_until("the program was tried", || is_draining(&daemon));
        until_told_to_come_again(running.events)
    });
    let text = text + &join(&daemon, &selector).finish().stdout;
    let mut lines = text.lines();
    for number in 1..=3_000_000 {
        assert_eq!(lines.next(), Some(&*number.to_string()));
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn neither_an_upload_that_stalls_nor_a_client_that_does_not_read_is_waited_for_for_ever() {
    let daemon = launch();
    let done = daemon.path("done");
    let script = format!("head -c 20000000 /dev/zero; echo > {done}");
    let _unread = start(&daemon, &shell(&script));
    let _held = Held::new(&daemon);
    let mut caller = daemon.connect();
    ask_to_upgrade(&mut caller);
    let begin = Instant::now();
    while !is_replaced(&daemon) {
        // ten seconds for each step
        assert!(begin.elapsed() < Duration::from_secs(50));
        thread::sleep(A_MOMENT);
    }
    wait_until("the command is done", || fs::exists(&done).unwrap());
}

#[test]
fn what_is_larger_than_any_program_is_refused() {
    let daemon = launch();
    let mut connection = daemon.connect();
    let blocks = 257;
    let head = format!(
        "POST /upgrade HTTP/1.1\r\nhost: x\r\nx-access-token: secret\r\ncontent-length: {}\r\n\r\n",
        blocks << 20
    );
    connection.write_all(head.as_bytes()).unwrap();
    let block = vec![0; 1 << 20];
    for _ in 0..blocks {
        // it is cut off before all is sent
        let _ = connection.write_all(&block);
    }
    assert_eq!(Answer::read(connection).status, 413);
}
