//! Clients that vanish, and clients that speak nonsense: what they have started is told, and nobody else notices.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::raw::{Frames, SPDY, Socket, WEBSOCKET};
use crate::stage::{Kubectl, Stage, until};

/// A process that tells, in a file, that its input has ended.
fn reader(stage: &Stage, name: &str) -> String {
    let script = format!(
        "cat > /dev/null; echo told > {}",
        stage.path(name).display()
    );
    let script: String = form_urlencoded::byte_serialize(script.as_bytes()).collect();
    format!("p/exec?container=main&stdin=true&stdout=true&command=sh&command=-c&command={script}")
}

async fn speaks_spdy(stage: &Stage, path: &str) -> (Socket, Frames) {
    let mut socket = stage.upgrade(path, SPDY).await;
    let mut frames = Frames::new();
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        let frame = frames.open(id, &[("streamtype", kind)]);
        socket.write_all(&frame).await.unwrap();
    }
    socket.write_all(&Frames::data(3, b"input")).await.unwrap();
    until(|| stage.host.processes() > 0).await;
    (socket, frames)
}

async fn speaks_websocket(stage: &Stage, path: &str) -> WebSocketStream<Socket> {
    let socket = stage.upgrade(path, WEBSOCKET).await;
    let mut socket = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;
    socket
        .send(Message::binary(b"\x00input".to_vec()))
        .await
        .unwrap();
    until(|| stage.host.processes() > 0).await;
    socket
}

/// Its process has been told, and others are served as before.
async fn assert_told(stage: &Stage, name: &str) {
    until(|| stage.path(name).exists() && stage.host.processes() == 0).await;
    let said = stage
        .does(&Kubectl::newest(), &["exec", "p", "--", "echo", "well"])
        .await;
    assert_eq!(said, "well\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_of_a_client_that_vanishes_is_told() {
    let stage = Stage::new().await;
    let (socket, _) = speaks_spdy(&stage, &reader(&stage, "spdy")).await;
    drop(socket);
    assert_told(&stage, "spdy").await;
    let socket = speaks_websocket(&stage, &reader(&stage, "websocket")).await;
    drop(socket);
    assert_told(&stage, "websocket").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_is_that_of_one_that_hangs_up_only_one_way() {
    let stage = Stage::new().await;
    let (mut socket, _) = speaks_spdy(&stage, &reader(&stage, "spdy")).await;
    socket.shutdown().await.unwrap();
    assert_told(&stage, "spdy").await;
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest).await;
    let mut socket = speaks_websocket(&stage, &reader(&stage, "websocket")).await;
    socket.close(None).await.unwrap();
    assert_told(&stage, "websocket").await;
    while let Some(Ok(_)) = socket.next().await {}
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_over_spdy_ends_the_connection_and_nothing_else() {
    let stage = Stage::new().await;
    let oversized = [
        [0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff].to_vec(),
        vec![0; 70_000],
    ]
    .concat();
    let nonsense: Vec<Vec<u8>> = vec![
        oversized,
        vec![0xff; 1000],
        Frames::control(1, &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 2, 3]),
        Frames::control(77, &[]),
        Frames::data(0, b"to nobody"),
        Frames::control(6, &[1]),
    ];
    for (index, bytes) in nonsense.iter().enumerate() {
        let name = format!("nonsense{index}");
        let (mut socket, _) = speaks_spdy(&stage, &reader(&stage, &name)).await;
        let _ = socket.write_all(bytes).await;
        assert_told(&stage, &name).await;
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_and_surplus_streams_are_refused_while_the_session_goes_on() {
    let stage = Stage::new().await;
    let (mut socket, mut frames) = speaks_spdy(&stage, &reader(&stage, "surplus")).await;
    for (id, kind) in [(7, "stdin"), (9, "data"), (9, "again"), (12, "even")] {
        let frame = frames.open(id, &[("streamtype", kind)]);
        socket.write_all(&frame).await.unwrap();
        socket.write_all(&Frames::data(id, b"lost")).await.unwrap();
    }
    socket.write_all(&Frames::data(99, b"lost")).await.unwrap();
    assert_eq!(stage.host.processes(), 1);
    // the end of standard input, and so of the process
    let mut end = Frames::data(3, b"");
    end[4] = 1;
    socket.write_all(&end).await.unwrap();
    let mut said = Vec::new();
    socket.read_to_end(&mut said).await.unwrap();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains(r#""status":"Success""#), "{said:?}");
    assert_told(&stage, "surplus").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_over_a_websocket_ends_the_connection_and_nothing_else() {
    let stage = Stage::new().await;
    // a frame that is not masked, one of a reserved kind, one that is longer than any, and a close of no channel
    let nonsense: [&[u8]; 4] = [
        &[0x82, 0x02, 0, b'x'],
        &[0x83, 0x80, 0, 0, 0, 0],
        &[
            0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
        ],
        &[0x82, 0x82, 0, 0, 0, 0, 0xff, 9],
    ];
    for (index, bytes) in nonsense.iter().enumerate() {
        let name = format!("nonsense{index}");
        let mut socket = stage.upgrade(&reader(&stage, &name), WEBSOCKET).await;
        until(|| stage.host.processes() > 0).await;
        socket.write_all(bytes).await.unwrap();
        assert_told(&stage, &name).await;
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_while_nothing_is_read_from_it_is_noticed() {
    let stage = Stage::new().await;
    // it never reads, so what is sent to it piles up, and the end of the connection stands behind it
    let path = "p/exec?container=main&stdin=true&stdout=true&command=sleep&command=600";
    let (mut socket, _) = speaks_spdy(&stage, path).await;
    let mut websocket = speaks_websocket(&stage, path).await;
    let piece = [b"\0", [b'x'; 64 * 1024].as_slice()].concat();
    let patience = Duration::from_millis(300);
    let sending = timeout(patience, async {
        loop {
            socket.write_all(&Frames::data(3, &piece)).await.unwrap();
        }
    });
    assert!(sending.await.is_err());
    let sending = timeout(patience, async {
        loop {
            websocket
                .send(Message::binary(piece.clone()))
                .await
                .unwrap();
        }
    });
    assert!(sending.await.is_err());
    assert_eq!(stage.host.sessions(), 2);
    drop((socket, websocket));
    until(|| stage.host.sessions() == 0).await;
}
