#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{CommandProtocol, ForwardProtocol, Version, command, forward, is_wanted};
use crate::server::streams::websocket::Codec;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        let name = HeaderName::from_static(name);
        (name, HeaderValue::from_str(value).unwrap())
    });
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name, value);
    }
    headers
}

fn websocket(protocols: &str) -> HeaderMap {
    let mut headers = headers(&[
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
    ]);
    if !protocols.is_empty() {
        let protocols = HeaderValue::from_str(protocols).unwrap();
        headers.insert("sec-websocket-protocol", protocols);
    }
    headers
}

fn spdy(protocols: &[&str]) -> HeaderMap {
    let mut headers = headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]);
    for protocol in protocols {
        let protocol = HeaderValue::from_str(protocol).unwrap();
        headers.append("x-stream-protocol-version", protocol);
    }
    headers
}

#[test]
fn the_newest_command_protocol_over_a_websocket_is_chosen() {
    for (offered, name, version, codec) in [
        ("", None, Version::One, Codec::Binary),
        (
            "channel.k8s.io",
            Some("channel.k8s.io"),
            Version::One,
            Codec::Binary,
        ),
        (
            "base64.channel.k8s.io",
            Some("base64.channel.k8s.io"),
            Version::One,
            Codec::Base64,
        ),
        (
            "x, v4.base64.channel.k8s.io",
            Some("v4.base64.channel.k8s.io"),
            Version::Four,
            Codec::Base64,
        ),
        (
            "v4.channel.k8s.io,v5.channel.k8s.io",
            Some("v5.channel.k8s.io"),
            Version::Five,
            Codec::Binary,
        ),
    ] {
        let chosen = command(&Method::GET, &websocket(offered)).unwrap();
        let CommandProtocol::WebSocket(dialect, chosen_version) = chosen.protocol else {
            panic!("{offered}");
        };
        assert_eq!(
            (chosen_version, dialect.codec),
            (version, codec),
            "{offered}"
        );
        assert_eq!(dialect.closes_channels, version == Version::Five);
        let answer = chosen.answer();
        assert_eq!(answer.status(), 101);
        let header = |name: &str| {
            answer
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap())
        };
        assert_eq!(header("sec-websocket-protocol"), name);
        // the example of RFC 6455
        assert_eq!(
            header("sec-websocket-accept"),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
    }
    // the real server does not know these over a WebSocket
    let refused = command(
        &Method::GET,
        &websocket("v2.channel.k8s.io, v3.channel.k8s.io"),
    );
    assert_eq!(refused.unwrap_err().answer().status(), 403);
}

#[test]
fn a_handshake_that_is_none_is_refused() {
    let mut keyless = websocket("");
    keyless.remove("sec-websocket-key");
    let mut old = websocket("");
    old.insert("sec-websocket-version", HeaderValue::from_static("8"));
    for (method, headers, code) in [
        (Method::GET, keyless, 400),
        (Method::GET, old, 400),
        (Method::POST, websocket(""), 405),
    ] {
        assert_eq!(command(&method, &headers).unwrap_err().code, code);
    }
    assert!(!is_wanted(&headers(&[("connection", "close")])));
}

#[test]
fn the_first_protocol_that_both_know_is_spoken_over_spdy() {
    for (offered, name, version) in [
        (
            &["v5.channel.k8s.io", "v4.channel.k8s.io"][..],
            "v4.channel.k8s.io",
            Version::Four,
        ),
        (
            &["v3.channel.k8s.io, v4.channel.k8s.io"],
            "v3.channel.k8s.io",
            Version::Three,
        ),
        (&["v2.channel.k8s.io"], "v2.channel.k8s.io", Version::Two),
        (&["channel.k8s.io"], "channel.k8s.io", Version::One),
    ] {
        let chosen = command(&Method::POST, &spdy(offered)).unwrap();
        assert_eq!(chosen.protocol, CommandProtocol::Spdy(version));
        let answer = chosen.answer();
        assert_eq!(answer.headers()["x-stream-protocol-version"], name);
        assert_eq!(answer.headers()["upgrade"], "SPDY/3.1");
    }
    let refused = command(&Method::POST, &spdy(&["v9.channel.k8s.io"])).unwrap_err();
    assert_eq!(
        refused.text,
        "unable to upgrade: unable to negotiate protocol: client supports [v9.channel.k8s.io], server accepts \
         [v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]"
    );
    let answer = refused.answer();
    assert_eq!(answer.status(), 403);
    let accepted = answer
        .headers()
        .get_all("x-accepted-stream-protocol-versions");
    assert_eq!(accepted.iter().count(), 4);
    assert_eq!(command(&Method::POST, &spdy(&[])).unwrap_err().code, 400);
    assert_eq!(
        command(&Method::POST, &spdy(&[" , "])).unwrap_err().code,
        400
    );
}

#[test]
fn ports_are_forwarded_in_three_ways() {
    let chosen = forward(&Method::POST, &spdy(&["portforward.k8s.io"])).unwrap();
    assert_eq!(chosen.protocol, ForwardProtocol::Spdy);
    let offered = websocket("SPDY/3.1+portforward.k8s.io");
    let chosen = forward(&Method::GET, &offered).unwrap();
    assert_eq!(chosen.protocol, ForwardProtocol::Tunnel);
    let answer = chosen.answer();
    assert_eq!(
        answer.headers()["sec-websocket-protocol"],
        "SPDY/3.1+portforward.k8s.io"
    );
    let chosen = forward(&Method::GET, &websocket("v4.channel.k8s.io")).unwrap();
    assert!(matches!(chosen.protocol, ForwardProtocol::Channels(_)));
    for unknown in ["SPDY/3.1+v9.k8s.io", "v5.channel.k8s.io"] {
        assert_eq!(
            forward(&Method::GET, &websocket(unknown)).unwrap_err().code,
            403
        );
    }
}
