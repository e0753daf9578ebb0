#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Codec, Dialect, Said, Tunnel, message, open, understand};
use crate::server::streams::wire::{Outbox, Packet};

const FIVE: Dialect = Dialect {
    codec: Codec::Binary,
    closes_channels: true,
};
const FOUR: Dialect = Dialect {
    codec: Codec::Binary,
    closes_channels: false,
};
const TEXT: Dialect = Dialect {
    codec: Codec::Base64,
    closes_channels: false,
};

async fn client() -> (WebSocketStream<DuplexStream>, DuplexStream) {
    let (client, server) = duplex(64 * 1024);
    let socket = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    (socket, server)
}

#[test]
fn messages_begin_with_their_channel() {
    let said = |dialect, bytes: &'static [u8]| understand(dialect, Bytes::from_static(bytes));
    let data = |channel, bytes: &'static [u8]| Said::Data(channel, Bytes::from_static(bytes));
    assert_eq!(said(FOUR, b"\x00hi"), data(0, b"hi"));
    assert_eq!(said(FOUR, b"\xff\x00"), data(255, b"\x00"));
    assert_eq!(said(FIVE, b"\xff\x00"), Said::Close(0));
    assert_eq!(said(FIVE, b"\xff"), Said::Nonsense);
    assert_eq!(said(FIVE, b"\xff\x00\x00"), Said::Nonsense);
    assert_eq!(said(TEXT, b"0aGk="), data(0, b"hi"));
    assert_eq!(said(TEXT, b"0!!"), Said::Nothing);
    assert_eq!(said(FOUR, b""), Said::Nothing);
    assert_eq!(said(FOUR, b"\x01"), Said::Nothing);
    assert_eq!(
        message(Codec::Binary, 1, b"hi"),
        Message::binary(b"\x01hi".to_vec())
    );
    assert_eq!(message(Codec::Base64, 1, b"hi"), Message::text("1aGk="));
}

#[tokio::test]
async fn a_channel_can_be_closed_while_the_others_go_on() {
    let (mut client, server) = client().await;
    let (queue, mut inboxes, driver) = open(server, FIVE, 5, &[0, 4]);
    let driver = tokio::spawn(driver);
    for sent in [
        b"\x00in".as_slice(),
        b"\x01no",
        b"\x09no",
        b"\xff\x00",
        b"\x00late",
        b"\x04size",
    ] {
        client.send(Message::binary(sent.to_vec())).await.unwrap();
    }
    assert_eq!(inboxes[0].recv().await.unwrap(), "in");
    assert_eq!(inboxes[0].recv().await, None);
    assert_eq!(inboxes[1].recv().await.unwrap(), "size");
    let outbox = Outbox { queue, channel: 1 };
    outbox.send(Bytes::from_static(b"out")).await.unwrap();
    outbox.put(Packet::Close { channel: 1 }).await.unwrap();
    drop(outbox);
    let sent = client.next().await.unwrap().unwrap();
    assert_eq!(sent, Message::binary(b"\x01out".to_vec()));
    let Message::Close(Some(goodbye)) = client.next().await.unwrap().unwrap() else {
        panic!("no goodbye");
    };
    assert_eq!(u16::from(goodbye.code), 1000);
    // its own goodbye is on the way with the next look
    assert!(client.next().await.is_none_or(|end| end.is_err()));
    driver.await.unwrap();
}

#[tokio::test]
async fn a_client_that_vanishes_ends_everything() {
    let (client, server) = client().await;
    let (queue, mut inboxes, driver) = open(server, FOUR, 5, &[0]);
    let driver = tokio::spawn(driver);
    drop(client);
    driver.await.unwrap();
    assert_eq!(inboxes[0].recv().await, None);
    assert!(queue.is_closed());
}

#[tokio::test]
async fn a_ping_is_answered_although_nobody_reads_the_channel() {
    let (mut client, server) = client().await;
    let (_queue, _inboxes, driver) = open(server, FOUR, 5, &[0]);
    tokio::spawn(driver);
    client
        .send(Message::Ping(Bytes::from_static(b"?")))
        .await
        .unwrap();
    let answer = client.next().await.unwrap().unwrap();
    assert_eq!(answer, Message::Pong(Bytes::from_static(b"?")));
}

#[tokio::test]
async fn a_tunnel_is_a_stream_of_bytes() {
    let (mut client, server) = client().await;
    let mut tunnel = Tunnel::new(server).await;
    for sent in [b"ab".as_slice(), b"", b"cdef"] {
        client.send(Message::binary(sent.to_vec())).await.unwrap();
    }
    let mut read = [0; 5];
    tunnel.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"abcde");
    tunnel.write_all(b"back").await.unwrap();
    tunnel.flush().await.unwrap();
    let sent = client.next().await.unwrap().unwrap();
    assert_eq!(sent, Message::binary(b"back".to_vec()));
    tunnel.shutdown().await.unwrap();
    let Message::Close(Some(goodbye)) = client.next().await.unwrap().unwrap() else {
        panic!("no goodbye");
    };
    assert_eq!(u16::from(goodbye.code), 1000);
    drop(client);
    let mut rest = Vec::new();
    let _ = tunnel.read_to_end(&mut rest).await;
    assert_eq!(rest, b"f");
}
