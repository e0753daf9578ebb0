//! A process whose end is waited for, and what it wrote until then.

use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;

use super::running::{Event, Process};
use super::{Events, Stream};

/// What is kept of each output: more than anybody reads, and as JSON still small when it is all control characters.
const LARGEST: usize = 4 << 20;

/// How long those whom an ended process left behind may still write to its outputs.
const LINGER: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(in crate::daemon) struct Captured {
    pub(in crate::daemon) stdout: Vec<u8>,
    /// The last line says when something was left out.
    pub(in crate::daemon) stderr: Vec<u8>,
    /// Whether it was killed for the time that it took.
    pub(in crate::daemon) timed_out: bool,
    /// `None` only if nobody knows how it ended.
    pub(in crate::daemon) exit: Option<ExitStatus>,
}

/// Waits until the process has ended by itself, or was killed with its group after the limit.
pub(in crate::daemon) async fn capture(
    process: &Process,
    events: &mut Events,
    limit: Option<Duration>,
) -> Captured {
    let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
    let mut timed_out = false;
    {
        let mut collecting = std::pin::pin!(collect(events, &mut stdout, &mut stderr));
        tokio::select! {
            () = &mut collecting => {}
            () = over(limit) => {
                timed_out = true;
                // fails only for one that has just ended
                let _ = process.signal_group(Signal::KILL);
                collecting.await;
            }
            never = leave_behind(process) => never,
        }
    }
    for (name, cut) in [("stdout", stdout.cut), ("stderr", stderr.cut)] {
        if cut {
            let note = format!("\n{name} was cut off after {LARGEST} bytes\n");
            stderr.bytes.extend_from_slice(note.as_bytes());
        }
    }
    Captured {
        stdout: stdout.bytes,
        stderr: stderr.bytes,
        timed_out,
        exit: process.exit(),
    }
}

async fn over(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Has the end not wait for ever for those who hold the outputs of a process that is gone.
async fn leave_behind(process: &Process) {
    process.exited().await;
    tokio::time::sleep(LINGER).await;
    process.cut_off();
    std::future::pending().await
}

#[derive(Default)]
struct Kept {
    /// At most the largest.
    bytes: Vec<u8>,
    cut: bool,
}

impl Kept {
    fn add(&mut self, bytes: &Bytes) {
        let room = LARGEST - self.bytes.len();
        self.cut |= bytes.len() > room;
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

async fn collect(events: &mut Events, stdout: &mut Kept, stderr: &mut Kept) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Data(Stream::Stdout | Stream::Pty, bytes) => stdout.add(&bytes),
            Event::Data(Stream::Stderr, bytes) => stderr.add(&bytes),
            Event::End(_) => return,
        }
    }
}
