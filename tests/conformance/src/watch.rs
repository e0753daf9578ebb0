//! An open watch, read event by event.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

pub(crate) struct Watch {
    body: Body,
    /// Received and not yet a whole line.
    buffer: Vec<u8>,
    ended: bool,
}

pub(crate) enum Next {
    Event(Value),
    End,
    /// Nothing came in time; the watch goes on.
    Nothing,
}

impl Watch {
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            buffer: Vec::new(),
            ended: false,
        }
    }

    pub(crate) async fn next(&mut self, patience: Duration) -> Next {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Next::Event(event(&line));
            }
            if self.ended {
                return match std::mem::take(&mut self.buffer) {
                    rest if rest.is_empty() => Next::End,
                    rest => Next::Event(event(&rest)),
                };
            }
            match tokio::time::timeout(patience, self.body.frame()).await {
                Err(_) => return Next::Nothing,
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Ok(None | Some(Err(_))) => self.ended = true,
            }
        }
    }
}

fn event(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(line).trim().to_owned();
        json!({"type": "(not an event)", "object": text})
    })
}
