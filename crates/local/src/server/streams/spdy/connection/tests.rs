#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::{Connection, Stream, WAITING, open};
use crate::server::streams::spdy::frame::tests::syn_stream;
use crate::server::streams::spdy::frame::{Decoder, Encoder, Event, Reset};
use crate::server::streams::spdy::headers::Packer;

/// The client's side of a connection.
struct Client {
    socket: DuplexStream,
    packer: Packer,
    decoder: Decoder,
    buffer: BytesMut,
}

fn connect(most: usize) -> (Client, Connection, JoinHandle<()>) {
    let (socket, server) = duplex(1024 * 1024);
    let (connection, driver) = open(server, most);
    let client = Client {
        socket,
        packer: Packer::new(),
        decoder: Decoder::default(),
        buffer: BytesMut::new(),
    };
    (client, connection, tokio::spawn(driver))
}

impl Client {
    async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    async fn open(&mut self, id: u32) {
        let frame = syn_stream(&mut self.packer, id, &[("n", &id.to_string())]);
        self.send(&frame).await;
    }

    async fn data(&mut self, id: u32, bytes: &[u8], is_last: bool) {
        let head = Encoder::data(id, bytes.len(), is_last);
        self.send(&head).await;
        self.send(bytes).await;
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.decoder.decode(&mut self.buffer).unwrap() {
                return Some(event);
            }
            if self.socket.read_buf(&mut self.buffer).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

async fn accepted(client: &mut Client, connection: &mut Connection, id: u32) -> Stream {
    client.open(id).await;
    let stream = connection.next().await.unwrap();
    assert_eq!(stream.headers.get("n"), Some(id.to_string().as_str()));
    stream.accept().await;
    assert_eq!(client.next().await, Some(Event::Other { ended: None }));
    stream
}

fn data(stream: u32, bytes: &'static [u8], is_last: bool) -> Option<Event> {
    let bytes = Bytes::from_static(bytes);
    Some(Event::Data {
        stream,
        bytes,
        is_last,
    })
}

#[tokio::test]
async fn a_stream_carries_bytes_both_ways_and_is_closed_by_halves() {
    let (mut client, mut connection, _driver) = connect(8);
    let mut stream = accepted(&mut client, &mut connection, 1).await;
    client.data(1, b"to", false).await;
    client.data(1, b"", true).await;
    assert_eq!(stream.inbox.recv().await.unwrap(), "to");
    assert_eq!(stream.inbox.recv().await, None);
    stream
        .outbox
        .send(Bytes::from_static(b"fro"))
        .await
        .unwrap();
    stream.outbox.close().await;
    assert_eq!(client.next().await, data(1, b"fro", false));
    assert_eq!(client.next().await, data(1, b"", true));
}

#[tokio::test]
async fn when_nobody_holds_the_connection_it_says_goodbye() {
    let (mut client, mut connection, driver) = connect(8);
    let stream = accepted(&mut client, &mut connection, 1).await;
    stream
        .outbox
        .send(Bytes::from_static(b"last"))
        .await
        .unwrap();
    drop((stream, connection));
    assert_eq!(client.next().await, data(1, b"last", false));
    assert_eq!(client.next().await, Some(Event::GoAway));
    assert_eq!(client.next().await, None);
    drop(client);
    driver.await.unwrap();
}

#[tokio::test]
async fn a_stream_that_the_client_resets_is_told_so() {
    let (mut client, mut connection, _driver) = connect(8);
    let mut stream = accepted(&mut client, &mut connection, 1).await;
    client.send(&Encoder::reset(1, Reset::Cancel)).await;
    assert_eq!(stream.reset.await, Ok(()));
    assert_eq!(stream.inbox.recv().await, None);
}

#[tokio::test]
async fn streams_out_of_order_and_of_the_wrong_side_are_refused() {
    let (mut client, mut connection, _driver) = connect(8);
    let _stream = accepted(&mut client, &mut connection, 5).await;
    for id in [3, 5, 6] {
        client.open(id).await;
        assert_eq!(client.next().await, Some(Event::Reset { stream: id }));
    }
    let _another = accepted(&mut client, &mut connection, 7).await;
}

#[tokio::test]
async fn no_more_streams_are_open_than_there_may_be() {
    let (mut client, mut connection, _driver) = connect(1);
    let stream = accepted(&mut client, &mut connection, 1).await;
    client.open(3).await;
    assert_eq!(client.next().await, Some(Event::Reset { stream: 3 }));
    client.data(1, b"", true).await;
    stream.outbox.close().await;
    assert_eq!(client.next().await, data(1, b"", true));
    let _another = accepted(&mut client, &mut connection, 5).await;
}

#[tokio::test]
async fn questions_are_answered_and_unknown_streams_ignored() {
    let (mut client, _connection, _driver) = connect(8);
    client.data(99, b"nobody", false).await;
    client.send(&Encoder::reset(99, Reset::Cancel)).await;
    client.send(&Encoder::ping(2)).await;
    client.send(&Encoder::ping(3)).await;
    assert_eq!(client.next().await, Some(Event::Ping(3)));
}

#[tokio::test]
async fn what_nobody_reads_is_not_kept_without_bounds() {
    let (mut client, mut connection, driver) = connect(8);
    let mut stream = accepted(&mut client, &mut connection, 1).await;
    let piece = vec![b'x'; 32 * 1024];
    let writing = tokio::spawn(async move {
        for _ in 0..10 * WAITING {
            client.data(1, &piece, false).await;
        }
        client
    });
    tokio::task::yield_now().await;
    // the writer is held up by the socket: what waits for the stream is bounded
    assert!(stream.inbox.len() <= WAITING);
    assert!(!writing.is_finished());
    let mut read = 0;
    while read < 10 * WAITING * 32 * 1024 {
        read += stream.inbox.recv().await.unwrap().len();
    }
    drop(writing.await.unwrap());
    driver.await.unwrap();
    assert_eq!(stream.inbox.recv().await, None);
    assert!(connection.next().await.is_none());
}

#[tokio::test]
async fn nonsense_ends_the_connection() {
    let (mut client, mut connection, driver) = connect(8);
    let mut stream = accepted(&mut client, &mut connection, 1).await;
    client.send(&[0xff; 64]).await;
    driver.await.unwrap();
    assert_eq!(stream.inbox.recv().await, None);
    assert!(stream.outbox.send(Bytes::new()).await.is_err());
}
