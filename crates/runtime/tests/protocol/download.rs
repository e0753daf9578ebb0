//! `GET /files`.

use std::fs;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use flate2::read::GzDecoder;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::daemon::Daemon;

#[test]
fn a_file_is_sent_with_what_it_is() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("a b.txt"), "hello").unwrap();
    let reply = daemon.get("/files?path=a%20b.txt");
    assert_eq!((reply.status, reply.text()), (200, "hello"));
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(reply.header("vary"), Some("Accept-Encoding"));
    assert_eq!(reply.header("content-length"), Some("5"));
    let disposition = reply.header("content-disposition");
    assert_eq!(disposition, Some("inline; filename=\"a b.txt\""));
}

#[test]
fn an_empty_file_is_an_empty_answer() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("empty"), "").unwrap();
    for accepted in ["identity", "gzip"] {
        let headers = [("accept-encoding", accepted)];
        let reply = daemon.request("GET", "/files?path=empty", &headers, b"");
        assert_eq!(reply.status, 200);
        assert_eq!(reply.body.is_empty(), accepted == "identity");
    }
}

#[test]
fn what_cannot_be_sent_is_said_in_words_that_clients_match() {
    let daemon = Daemon::launch();
    let home = daemon.home().display().to_string();
    rustix::fs::mkfifoat(rustix::fs::CWD, daemon.home().join("pipe"), 0o666.into()).unwrap();
    for (query, status, message) in [
        (
            "path=none".to_owned(),
            404,
            format!("path '{home}/none' does not exist"),
        ),
        (
            "path=~".to_owned(),
            400,
            format!("path '{home}' is a directory"),
        ),
        (
            "path=x&username=who".to_owned(),
            401,
            "invalid username: 'who'".to_owned(),
        ),
        (
            "path=pipe".to_owned(),
            400,
            format!("path '{home}/pipe' is not a regular file"),
        ),
    ] {
        let reply = daemon.get(&format!("/files?{query}"));
        assert_eq!(reply.status, status, "{query}");
        assert_eq!(reply.json(), json!({"code": status, "message": message}));
    }
    assert_eq!(daemon.get("/files?path=~other").status, 400);
}

#[test]
fn gzip_is_sent_to_who_prefers_it_and_nothing_to_who_takes_nothing() {
    let daemon = Daemon::launch();
    let content = "all work and no play ".repeat(50_000);
    fs::write(daemon.home().join("f"), &content).unwrap();
    let get = |accepted| {
        daemon.request(
            "GET",
            "/files?path=f",
            &[("accept-encoding", accepted)],
            b"",
        )
    };
    let reply = get("gzip, deflate");
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    assert_eq!(reply.header("accept-ranges"), None);
    let mut unpacked = String::new();
    GzDecoder::new(&*reply.body)
        .read_to_string(&mut unpacked)
        .unwrap();
    assert!(unpacked == content);
    let reply = get("br, zstd");
    assert_eq!(reply.header("content-encoding"), None);
    assert_eq!(reply.header("accept-ranges"), Some("bytes"));
    assert!(reply.body == content.as_bytes());
    assert_eq!(get("identity;q=0").status, 406);
}

#[test]
fn ranges_and_conditions_are_about_the_file_as_it_is_stored() {
    let daemon = Daemon::launch();
    fs::write(daemon.home().join("f"), "0123456789").unwrap();
    let get = |name, value| {
        let headers = [("accept-encoding", "gzip"), (name, value)];
        daemon.request("GET", "/files?path=f", &headers, b"")
    };
    let reply = get("range", "bytes=2-4");
    assert_eq!((reply.status, reply.text()), (206, "234"));
    assert_eq!(reply.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(reply.header("content-encoding"), None);
    let reply = get("range", "bytes=10-");
    assert_eq!(reply.status, 416);
    assert_eq!(reply.header("content-range"), Some("bytes */10"));
    let modified = daemon.get("/files?path=f");
    let modified = modified.header("last-modified").unwrap();
    let reply = get("if-modified-since", modified);
    assert_eq!((reply.status, reply.text()), (304, ""));
    assert_eq!(
        get("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT").status,
        412
    );
}

#[test]
fn a_large_file_arrives_whole() {
    let daemon = Daemon::launch();
    let content: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 251) as u8).collect();
    fs::write(daemon.home().join("f"), &content).unwrap();
    assert!(daemon.get("/files?path=f").body == content);
    let tail = [("range", "bytes=-2000001")];
    let reply = daemon.request("GET", "/files?path=f", &tail, b"");
    assert!(reply.body == content[1_000_000..]);
}

fn sign(text: &str) -> String {
    let signature = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
    signature.replace('+', "%2B").replace('/', "%2F")
}

#[test]
fn with_a_token_a_file_is_for_those_who_have_it_or_a_signed_url() {
    let daemon = Daemon::launch();
    daemon.init(&json!({"accessToken": "secret"}));
    fs::write(daemon.home().join("f"), "hello").unwrap();
    let get = |query: &str| daemon.get(&format!("/files?{query}"));

    let header = |token| daemon.request("GET", "/files?path=f", &[("x-access-token", token)], b"");
    assert_eq!(header("secret").text(), "hello");
    let wrong = header("other");
    assert_eq!(wrong.status, 401);
    assert_eq!(
        wrong.message(),
        "access token present in header but does not match"
    );
    assert_eq!(get("path=f").message(), "missing signature query parameter");
    assert_eq!(get("path=f&signature=v1_x").message(), "invalid signature");

    let good = sign("f:read:user:secret");
    assert_eq!(
        get(&format!("path=f&username=user&signature={good}")).text(),
        "hello"
    );
    // for another path, another user, another operation
    for query in ["path=g&username=user", "path=f", "path=f&username=root"] {
        let reply = get(&format!("{query}&signature={good}"));
        assert_eq!(
            (reply.status, reply.message()),
            (401, "invalid signature".into())
        );
    }
    let write = sign("f:write::secret");
    assert_eq!(
        get(&format!("path=f&signature={write}")).message(),
        "invalid signature"
    );

    let until = |seconds: u64| {
        let signature = sign(&format!("f:read::secret:{seconds}"));
        get(&format!(
            "path=f&signature={signature}&signature_expiration={seconds}"
        ))
    };
    assert_eq!(until(99_999_999_999).text(), "hello");
    let expired = until(1);
    assert_eq!(expired.status, 401);
    assert_eq!(
        expired.json(),
        json!({"code": 401, "message": "signature is already expired"})
    );
}
