//! Servers on loopback addresses, reached at the sandbox's own.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::alone::{OUTWARD_V4, OUTWARD_V6, alone};
use crate::client::PATIENCE;
use crate::daemon::{Daemon, PROGRAM, wait_until};
use crate::upgrade::upgrade;

/// A few looks of the daemon. Too short, a test would see less than it could; it would not fail for it.
const LOOKS: Duration = Duration::from_millis(2500);

fn launch(options: &[&str]) -> Daemon {
    let mut command = Command::new(PROGRAM);
    command.args(options);
    Daemon::launch_by(command, "::")
}

fn outward(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), port)
}

fn reach(address: SocketAddr) -> TcpStream {
    let mut connection = None;
    wait_until(&format!("{address} is reached"), || {
        connection = TcpStream::connect(address).ok();
        connection.is_some()
    });
    let connection = connection.unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

fn read_all(mut connection: &TcpStream) -> String {
    let mut said = String::new();
    connection.read_to_string(&mut said).unwrap();
    said
}

/// Hears every client out, and answers with its own name and what it heard, backwards.
fn serve(listener: TcpListener, name: &'static str) {
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let heard = read_all(&client);
            let answer: String = heard.chars().rev().collect();
            let _ = write!(client, "{name}:{answer}");
        }
    });
}

/// Says something, that it was all, and reads the answer.
fn ask(mut connection: &TcpStream, question: &str) -> String {
    connection.write_all(question.as_bytes()).unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    read_all(connection)
}

#[test]
fn a_server_on_loopback_is_reached_from_outside() {
    alone(
        "forward::a_server_on_loopback_is_reached_from_outside",
        || {
            let _daemon = launch(&[]);
            for server in ["127.0.0.1:0", "[::1]:0"] {
                let listener = TcpListener::bind(server).unwrap();
                let port = listener.local_addr().unwrap().port();
                serve(listener, "server");
                for address in [OUTWARD_V4, OUTWARD_V6] {
                    let connection = reach(outward(address, port));
                    assert_eq!(ask(&connection, "olleh"), "server:hello", "{server}");
                }
            }
        },
    );
}

#[test]
fn either_side_may_say_all_it_has_and_still_listen() {
    alone(
        "forward::either_side_may_say_all_it_has_and_still_listen",
        || {
            let _daemon = launch(&[]);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = reach(outward(OUTWARD_V4, port));
            let (mut server, _) = listener.accept().unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            server.write_all(b"the server's all").unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&client), "the server's all");
            let long = "the client goes on; ".repeat(50_000);
            let said = long.clone();
            let client = thread::spawn(move || ask(&client, &said));
            assert_eq!(read_all(&server), long);
            assert_eq!(client.join().unwrap(), "");
        },
    );
}

#[test]
fn a_port_is_free_again_when_its_server_has_ended() {
    alone(
        "forward::a_port_is_free_again_when_its_server_has_ended",
        || {
            let mut daemon = launch(&[]);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let address = outward(OUTWARD_V4, port);
            let client = reach(address);
            let (mut server, _) = listener.accept().unwrap();
            drop(listener);
            wait_until("the port is refused", || is_refused(address));
            // somebody else may have it, on all addresses
            let everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
            serve(everywhere, "next");
            assert_eq!(ask(&reach(address), "x"), "next:x");
            // who was connected still is
            server.write_all(b"still here").unwrap();
            drop(server);
            assert_eq!(read_all(&client), "still here");
            daemon.assert_alive();
        },
    );
}

#[test]
fn a_server_that_is_reached_without_help_is_left_alone() {
    alone(
        "forward::a_server_that_is_reached_without_help_is_left_alone",
        || {
            let mut daemon = launch(&[]);
            let outer = TcpListener::bind((OUTWARD_V4, 0)).unwrap();
            let address = outer.local_addr().unwrap();
            let inner = TcpListener::bind((Ipv4Addr::LOCALHOST, address.port())).unwrap();
            serve(inner, "inner");
            serve(outer, "outer");
            thread::sleep(LOOKS);
            assert_eq!(ask(&reach(address), "x"), "outer:x");
            // the daemon itself is one of these
            let own = daemon.address.port();
            let mut connection = reach(outward(OUTWARD_V4, own));
            connection
                .write_all(b"GET /health HTTP/1.0\r\n\r\n")
                .unwrap();
            assert!(read_all(&connection).starts_with("HTTP/1.0 204"));
            daemon.assert_alive();
        },
    );
}

#[test]
fn a_port_that_may_not_be_had_harms_no_other() {
    alone("forward::a_port_that_may_not_be_had_harms_no_other", || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_bind_service", PROGRAM]);
        let mut daemon = Daemon::launch_by(command, "::");
        let privileged = TcpListener::bind("127.0.0.1:80").unwrap();
        serve(privileged, "privileged");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        serve(listener, "ordinary");
        assert_eq!(ask(&reach(outward(OUTWARD_V4, port)), "x"), "ordinary:x");
        assert!(is_refused(outward(OUTWARD_V4, 80)));
        daemon.assert_alive();
    });
}

#[test]
fn servers_stay_where_the_daemon_is_and_are_left_alone_if_it_is_told_so() {
    alone(
        "forward::servers_stay_where_the_daemon_is_and_are_left_alone_if_it_is_told_so",
        || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            serve(listener, "server");
            let hidden = || {
                thread::sleep(LOOKS);
                [OUTWARD_V4, OUTWARD_V6].map(|address| is_refused(outward(address, port)))
            };
            let told = launch(&["--no-forwarding"]);
            assert_eq!(hidden(), [true, true]);
            drop(told);
            let inside = Daemon::launch();
            assert_eq!(hidden(), [true, true]);
            drop(inside);
            let _on_one = Daemon::launch_by(Command::new(PROGRAM), OUTWARD_V6);
            assert_eq!(ask(&reach(outward(OUTWARD_V6, port)), "x"), "server:x");
            assert!(is_refused(outward(OUTWARD_V4, port)));
        },
    );
}

#[test]
fn a_published_port_stays_so_while_the_daemon_is_replaced() {
    alone(
        "forward::a_published_port_stays_so_while_the_daemon_is_replaced",
        || {
            let daemon = launch(&[]);
            assert_eq!(
                daemon
                    .init(&serde_json::json!({"accessToken": "secret"}))
                    .status,
                204
            );
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = outward(OUTWARD_V4, listener.local_addr().unwrap().port());
            serve(listener, "server");
            reach(address);
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                let visits = scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        TcpStream::connect(address).unwrap();
                        // one after the other: whoever finds no room in the queue tries again only after a second
                        thread::sleep(Duration::from_millis(1));
                    }
                });
                upgrade(&daemon, b"");
                // until the next one serves
                assert_eq!(daemon.get("/health").status, 204);
                is_over.store(true, Ordering::Relaxed);
                visits.join().unwrap();
            });
            assert_eq!(ask(&reach(address), "olleh"), "server:hello");
        },
    );
}
