//! What is larger than anybody needs: it is refused with a code, and nobody's memory is filled with it.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::client::{Answer, PATIENCE, envelope_of, send};
use crate::daemon::Daemon;

/// The largest message.
const LARGEST: usize = 64 << 20;

/// The most files of one upload.
const MOST_FILES: usize = 10_000;

const STAT: &str = "/filesystem.Filesystem/Stat";
const JSON: (&str, &str) = ("content-type", "application/json");

/// Zeros that take a two-hundredth of their room.
fn packed_zeros(length: usize) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..length >> 20 {
        packer.write_all(&zeros).unwrap();
    }
    packer.finish().unwrap()
}

#[test]
fn a_message_has_a_largest_size_when_it_is_sent_and_when_it_is_unpacked() {
    let mut daemon = Daemon::launch();
    let large = daemon.request("POST", STAT, &[JSON], &vec![b' '; LARGEST]);
    assert_eq!(large.json()["code"], "invalid_argument");
    let larger = daemon.request("POST", STAT, &[JSON], &vec![b' '; LARGEST + 1]);
    assert_eq!(larger.json()["code"], "resource_exhausted");

    let packed = packed_zeros(8 * LARGEST);
    let gzip = [JSON, ("content-encoding", "gzip")];
    let unpacked = daemon.request("POST", STAT, &gzip, &packed);
    assert_eq!(unpacked.json()["code"], "resource_exhausted");
    let gzip = [
        ("content-type", "application/connect+json"),
        ("connect-content-encoding", "gzip"),
    ];
    let body = envelope_of(1, &packed);
    let stream = daemon.open("POST", "/process.Process/Start", &gzip, &body);
    assert_eq!(stream.end()["error"]["code"], "resource_exhausted");

    let peak = daemon.peak_memory();
    assert!(peak < 4 * LARGEST as u64, "{peak} bytes");
    daemon.assert_alive();
}

#[test]
fn headers_have_a_largest_size_and_a_largest_number() {
    let mut daemon = Daemon::launch();
    let long = "x".repeat(1 << 20);
    let names: Vec<String> = (0..1_000).map(|number| format!("x-{number}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    for headers in [&[("x-long", long.as_str())][..], &many] {
        assert_eq!(daemon.request("GET", "/health", headers, b"").status, 431);
    }
    daemon.assert_alive();
}

/// Sends a body of any length until nobody takes any more of it. How much that was.
fn send_without_end(connection: &mut TcpStream) -> usize {
    let block = vec![0; 1 << 20];
    let blocks = (0..1_000).take_while(|_| connection.write_all(&block).is_ok());
    blocks.count() << 20
}

#[test]
fn a_refused_upload_is_not_read_for_ever() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    let mut connection = daemon.connect();
    let length = (1_usize << 30).to_string();
    let headers = [
        ("content-type", "application/octet-stream"),
        ("content-length", &*length),
    ];
    send(&mut connection, "POST", "/files?path=f", &headers, b"");
    let sent = send_without_end(&mut connection);
    assert!(sent < 100 << 20, "{sent} bytes were taken");
}

#[test]
fn a_form_has_a_largest_number_of_files() {
    let daemon = Daemon::launch();
    let part = |number: usize| {
        let name = format!("many/{number}");
        format!("--XX\r\nContent-Disposition: form-data; name=file; filename={name}\r\n\r\n\r\n")
    };
    let parts: String = (0..=MOST_FILES).map(part).collect();
    let mut connection = daemon.connect();
    // each is made before the next is looked at
    connection.set_read_timeout(Some(10 * PATIENCE)).unwrap();
    let headers = [("content-type", "multipart/form-data; boundary=XX")];
    let body = format!("{parts}--XX--\r\n");
    send(&mut connection, "POST", "/files", &headers, body.as_bytes());
    let refused = Answer::read(connection).finish();
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(refused.message(), "more than 10000 files in one request");
    let written = fs::read_dir(daemon.home().join("many")).unwrap();
    assert_eq!(written.count(), MOST_FILES);
}
