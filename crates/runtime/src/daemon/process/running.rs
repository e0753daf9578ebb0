//! One process from its start to its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::termios::tcsetwinsize;
use tokio::sync::{Notify, watch};

use super::input::Input;
use super::outcomes::Tails;
use super::output::Output;
use super::spawn::{Spawned, window};
use super::table::Processes;
use super::{Events, Stream, ending};
use crate::daemon::channel;
use crate::daemon::error::Error;
use crate::daemon::handover::Handover;
use crate::daemon::upgrade::state;
use crate::messages::once::Outcome;
use crate::messages::process::{EndEvent, ProcessConfig, ProcessInfo, Pty};

/// Events that may wait for one subscriber. Each is at most 32 KiB, so that a slow one holds half a megabyte.
const WAITING: usize = 16;

/// What is still read of the pipes of a process that was killed: as much as they can hold.
const LEFTOVER: usize = 64 << 10;

/// How long clients may take to connect to a daemon that has taken over.
const CLIENTS_RETURN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(in crate::daemon) enum Event {
    Data(Stream, Bytes),
    /// Boxed: a channel has room for many events, which are nearly all data.
    End(Box<EndEvent>),
}

pub(in crate::daemon) struct Process {
    /// Never used again, unlike `pid`. Given by the table.
    pub(super) number: u64,
    pub(in crate::daemon) pid: u32,
    pub(super) tag: Option<String>,
    pub(in crate::daemon) input: Input,
    pub(super) config: ProcessConfig,
    /// Those that are read.
    outputs: Mutex<Vec<Arc<Output>>>,
    pub(super) deadline: Option<Instant>,
    /// Until when what it writes stays in the pipes as long as nobody listens.
    unheard_until: Option<Instant>,
    heard: Notify,
    /// Kept of one that has a tag: somebody may ask for it who does not listen.
    tails: Mutex<Tails>,
    pub(super) terminal: Option<OwnedFd>,
    stage: watch::Sender<Stage>,
    subscribers: Mutex<Vec<channel::Sender<Event>>>,
}

#[derive(Default)]
struct Stage {
    /// Set when it was reaped. No signal may be sent after that: its id may be another's.
    exit: Option<ExitStatus>,
    /// Set when a client or its time ended it: then its end does not wait for others who hold its pipes.
    cut_off: bool,
}

impl Stage {
    fn is_over(&self) -> bool {
        self.exit.is_some() && self.cut_off
    }
}

impl Process {
    pub(super) fn new(
        spawned: Spawned,
        config: ProcessConfig,
        tag: Option<String>,
        deadline: Option<Instant>,
    ) -> io::Result<Self> {
        let outputs = spawned.outputs.into_iter();
        let outputs = outputs.map(|(stream, fd)| Output::new(stream, fd).map(Arc::new));
        Ok(Self {
            number: 0,
            pid: spawned.pid,
            tag,
            input: Input::new(spawned.input, spawned.terminal.is_some())?,
            config,
            outputs: Mutex::new(outputs.collect::<io::Result<_>>()?),
            deadline,
            unheard_until: None,
            heard: Notify::new(),
            tails: Mutex::default(),
            terminal: spawned.terminal,
            stage: watch::Sender::default(),
            subscribers: Mutex::default(),
        })
    }

    pub(super) fn outputs(&self) -> MutexGuard<'_, Vec<Arc<Output>>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that another daemon has looked after until now.
    pub(super) fn resume(self, live: &state::Live) -> Self {
        self.stage.send_modify(|stage| {
            stage.exit = live.exit.map(ExitStatus::from_raw);
            stage.cut_off = live.cut_off;
        });
        Self {
            number: live.number,
            tails: Mutex::new(Tails::resume(&live.tails)),
            unheard_until: Instant::now().checked_add(CLIENTS_RETURN),
            ..self
        }
    }

    /// How it was reaped, if it was, and whether it was ended.
    pub(super) fn ending(&self) -> (Option<ExitStatus>, bool) {
        let stage = self.stage.borrow();
        (stage.exit, stage.cut_off)
    }

    pub(super) fn info(&self) -> ProcessInfo {
        ProcessInfo {
            config: Some(self.config.clone()),
            pid: self.pid,
            tag: self.tag.clone(),
        }
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<channel::Sender<Event>>> {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(&self) -> Events {
        let (sender, events) = channel::bounded(WAITING);
        let mut subscribers = self.subscribers();
        // of a process that writes nothing nobody else would notice that some have left
        subscribers.retain(|other| !other.is_closed());
        subscribers.push(sender);
        drop(subscribers);
        self.heard.notify_waiters();
        events
    }

    /// Clients of the daemon before this one come back in a moment, and must not miss anything.
    async fn until_heard(&self) {
        let heard = self.heard.notified();
        if let Some(until) = self.unheard_until
            && self.subscribers().is_empty()
        {
            let _ = tokio::time::timeout_at(until.into(), heard).await;
        }
    }

    pub(super) fn take_subscribers(&self) -> Vec<channel::Sender<Event>> {
        std::mem::take(&mut self.subscribers())
    }

    fn tails(&self) -> MutexGuard<'_, Tails> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outcome(&self, end: Option<EndEvent>) -> Outcome {
        self.tails().outcome(self.pid, end)
    }

    /// Waits for the slowest subscriber; with none, what was written is gone but for the last of it.
    async fn publish(&self, stream: Stream, bytes: Bytes) {
        if self.tag.is_some() {
            self.tails().push(stream, &bytes);
        }
        let subscribers = self.subscribers().clone();
        let mut left = false;
        for subscriber in subscribers {
            let event = Event::Data(stream, bytes.clone());
            left |= subscriber.send(event).await.is_err();
        }
        if left {
            self.subscribers().retain(|s| !s.is_closed());
        }
    }

    pub(super) fn has_exited(&self, status: ExitStatus) {
        self.stage.send_modify(|stage| {
            stage.exit.get_or_insert(status);
        });
    }

    /// Signals this process alone, not what it has started.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        self.signal_by(|pid| kill_process(pid, signal))
    }

    /// Signals it and what it has started, except for those who have left its group.
    pub(in crate::daemon) fn signal_group(&self, signal: Signal) -> io::Result<()> {
        self.signal_by(|pid| kill_process_group(pid, signal))
    }

    fn signal_by(&self, signal: impl FnOnce(Pid) -> Result<(), Errno>) -> io::Result<()> {
        // also for one that does not let itself be ended, as it may do so by itself
        self.cut_off();
        if self.exit().is_none()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            signal(pid)?;
        }
        Ok(())
    }

    /// Has its end not wait for others who hold its pipes.
    pub(super) fn cut_off(&self) {
        self.stage.send_modify(|stage| stage.cut_off = true);
    }

    /// How it ended, if it has.
    pub(super) fn exit(&self) -> Option<ExitStatus> {
        self.stage.borrow().exit
    }

    pub(super) async fn exited(&self) {
        // the sender is part of the process
        let _ = self
            .stage
            .subscribe()
            .wait_for(|stage| stage.exit.is_some())
            .await;
    }

    pub(in crate::daemon) fn resize(&self, pty: Pty) -> Result<(), Error> {
        let terminal = self
            .terminal
            .as_ref()
            .ok_or_else(|| Error::internal("the process has no pty to resize"))?;
        tcsetwinsize(terminal, window(pty))
            .map_err(|e| Error::internal(format!("error resizing the pty: {e}")))
    }
}

/// Ends one that nobody could look after. It must not have been reaped.
pub(super) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // it may have ended by itself
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Reads what the process writes until it has ended and all is told.
pub(super) async fn look_after(process: Arc<Process>, table: Processes, handover: Arc<Handover>) {
    let mut stage = process.stage.subscribe();
    let outputs = process.outputs().clone();
    let pumps: Vec<_> = outputs
        .into_iter()
        .map(|output| {
            let (process, table, handover) =
                (Arc::clone(&process), table.clone(), Arc::clone(&handover));
            tokio::spawn(async move {
                let is_held = pump(&process, &output, &handover).await;
                process
                    .outputs()
                    .retain(|other| !Arc::ptr_eq(other, &output));
                // what it left in the background may go on writing, and is not to be stopped by a pipe that nobody reads
                if is_held {
                    table.discard(output);
                }
            })
        })
        .collect();
    let end = async {
        for pump in pumps {
            // one that panicked has at least stopped reading
            let _ = pump.await;
        }
        match stage.wait_for(|stage| stage.exit.is_some()).await {
            Ok(stage) => stage.exit.map(ending::end_event),
            Err(_) => None,
        }
    };
    let end = tokio::select! {
        end = end => end.unwrap_or_default(),
        never = kill_late(&process) => never,
    };
    for subscriber in table.finish(&process, &end) {
        let _ = subscriber.send(Event::End(Box::new(end.clone()))).await;
    }
}

async fn kill_late(process: &Process) -> EndEvent {
    if let Some(deadline) = process.deadline {
        tokio::time::sleep_until(deadline.into()).await;
        // fails only for one that has ended, whose pipes are then abandoned all the same
        let _ = process.signal(Signal::KILL);
    }
    std::future::pending().await
}

/// Passes on what is written until nobody can write any more, or the process was ended and is gone. Then others may still hold
/// the pipe, and the answer is yes.
async fn pump(process: &Process, output: &Output, handover: &Handover) -> bool {
    process.until_heard().await;
    let mut stage = process.stage.subscribe();
    loop {
        let _reading = handover.reading().await;
        let next = tokio::select! {
            chunk = output.read() => Some(chunk),
            () = handover.pausing() => continue,
            _ = stage.wait_for(Stage::is_over) => None,
        };
        match next {
            Some(Some(bytes)) => process.publish(output.stream(), bytes).await,
            Some(None) => return false,
            None => {
                read_leftover(process, output).await;
                return true;
            }
        }
    }
}

async fn read_leftover(process: &Process, output: &Output) {
    let mut read = 0;
    while read < LEFTOVER
        && let Some(bytes) = output.read_now()
    {
        read += bytes.len();
        process.publish(output.stream(), bytes).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, Process, ProcessConfig, Spawned};

    fn process(pid: u32) -> Process {
        let spawned = Spawned {
            pid,
            input: None,
            outputs: Vec::new(),
            terminal: None,
        };
        Process::new(spawned, ProcessConfig::default(), None, None).unwrap()
    }

    #[tokio::test]
    async fn the_end_of_one_that_may_not_be_signalled_does_not_wait_for_others_either() {
        let process = process(1);
        assert!(process.signal_by(|_| Err(Errno::PERM)).is_err());
        assert_eq!(process.ending(), (None, true));
    }

    #[tokio::test]
    async fn who_has_left_a_silent_process_is_forgotten() {
        let process = process(0);
        let _stays = process.subscribe();
        for _ in 0..10 {
            drop(process.subscribe());
        }
        assert!(process.subscribers().len() <= 2);
    }
}
