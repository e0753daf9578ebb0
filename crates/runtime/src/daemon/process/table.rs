//! The processes that clients started: those that run, and for a moment those that have ended.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::inherit::{inherit_process, resumed};
use super::outcomes::Outcomes;
use super::output::Output;
use super::running::{self, Event, Process};
use super::{Events, Stream};
use crate::code::Code;
use crate::daemon::channel;
use crate::daemon::error::Error;
use crate::daemon::handover::Handover;
use crate::daemon::upgrade::{Inherit, state};
use crate::daemon::{log, sys};
use crate::messages::once::Outcome;
use crate::messages::process::{EndEvent, ProcessInfo, ProcessSelector};

/// How long the end of a process can be learned by a client that connects after it.
const REMEMBERED: Duration = Duration::from_secs(30);

/// How many ends are remembered at most. A few hundred kilobytes; the oldest are forgotten first.
const MOST_REMEMBERED: usize = 4096;

#[derive(Clone, Default)]
pub(in crate::daemon) struct Processes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Default)]
struct Table {
    /// By the order of their start: a process whose pipes are held by others may outlive the use of its id.
    live: BTreeMap<u64, Arc<Process>>,
    started: u64,
    ended: VecDeque<Ended>,
    outcomes: Outcomes,
    /// Those that are read for the sake of who writes to them.
    abandoned: Vec<Arc<Output>>,
}

struct Ended {
    at: Instant,
    pid: u32,
    tag: Option<String>,
    end: EndEvent,
}

impl Processes {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, mut process: Process, handover: &Arc<Handover>) -> Arc<Process> {
        let mut table = self.table();
        table.started += 1;
        process.number = table.started;
        let same_tag = |ended: &Ended| ended.tag.is_some() && ended.tag == process.tag;
        table
            .ended
            .retain(|ended| ended.pid != process.pid && !same_tag(ended));
        if let Some(tag) = &process.tag {
            table.outcomes.forget(tag);
        }
        drop(table);
        self.look_after(process, handover)
    }

    fn look_after(&self, process: Process, handover: &Arc<Handover>) -> Arc<Process> {
        let process = Arc::new(process);
        self.table()
            .live
            .insert(process.number, Arc::clone(&process));
        let (table, handover) = (self.clone(), Arc::clone(handover));
        tokio::spawn(running::look_after(Arc::clone(&process), table, handover));
        process
    }

    /// Reads a pipe to its end for the sake of those who write to it.
    pub(super) fn discard(&self, output: Arc<Output>) {
        self.table().abandoned.push(Arc::clone(&output));
        let table = self.clone();
        tokio::spawn(async move {
            output.discard().await;
            let mut table = table.table();
            table.abandoned.retain(|other| !Arc::ptr_eq(other, &output));
        });
    }

    pub(in crate::daemon) fn hand_over(&self, inherit: Inherit) -> io::Result<state::Processes> {
        let table = self.table();
        let live = table
            .live
            .values()
            .map(|process| inherit_process(process, inherit));
        let ended = table.ended.iter().map(|ended| state::Ended {
            millis_ago: state::millis(ended.at.elapsed()),
            pid: ended.pid,
            tag: ended.tag.clone(),
            end: ended.end.clone(),
        });
        let abandoned = table
            .abandoned
            .iter()
            .map(|output| inherit(output.fd().as_fd()));
        Ok(state::Processes {
            live: live.collect::<io::Result<_>>()?,
            started: table.started,
            ended: ended.collect(),
            outcomes: table.outcomes.hand_over(),
            abandoned: abandoned.collect::<io::Result<_>>()?,
        })
    }

    /// What cannot be taken over is left behind, and said.
    pub(in crate::daemon) fn take_over(state: state::Processes, handover: &Arc<Handover>) -> Self {
        let ended = state.ended.into_iter().map(|ended| Ended {
            at: state::ago(ended.millis_ago),
            pid: ended.pid,
            tag: ended.tag,
            end: ended.end,
        });
        let processes = Self(Arc::new(Shared {
            table: Mutex::new(Table {
                started: state.started,
                ended: ended.collect(),
                outcomes: Outcomes::take_over(state.outcomes),
                ..Table::default()
            }),
            changed: Notify::new(),
        }));
        for live in state.live {
            match resumed(&live) {
                Ok(process) => drop(processes.look_after(process, handover)),
                Err(error) => log(format_args!("process {} is left: {error}", live.pid)),
            }
        }
        for fd in state.abandoned {
            let output = sys::inherited(fd).and_then(|fd| Output::new(Stream::Stdout, fd));
            if let Ok(output) = output {
                processes.discard(Arc::new(output));
            }
        }
        processes
    }

    pub(super) fn list(&self) -> Vec<ProcessInfo> {
        self.table().live.values().map(|p| p.info()).collect()
    }

    pub(in crate::daemon) fn find(
        &self,
        selector: Option<&ProcessSelector>,
    ) -> Result<Arc<Process>, Error> {
        let selector = chosen(selector)?;
        let found = self.table().find(selector);
        found.ok_or_else(|| not_found(selector))
    }

    /// What happens to a process from now on.
    pub(super) fn join(&self, selector: Option<&ProcessSelector>) -> Result<(u32, Events), Error> {
        let selector = chosen(selector)?;
        let mut table = self.table();
        // under the lock that its end takes too: a subscriber either hears of the end or finds it remembered
        if let Some(process) = table.find(selector) {
            return Ok((process.pid, process.subscribe()));
        }
        table.forget_old();
        let ended = table.ended.iter().rev().find(|ended| match selector {
            Selected::Pid(pid) => ended.pid == pid,
            Selected::Tag(tag) => ended.tag.as_deref() == Some(tag),
        });
        let ended = ended.ok_or_else(|| not_found(selector))?;
        let (sender, events) = channel::bounded(1);
        // an empty channel has room for one
        let _ = sender.offer(Event::End(Box::new(ended.end.clone())));
        Ok((ended.pid, events))
    }

    /// Of the newest with this tag: what is kept of its end, or that it runs.
    pub(super) fn outcome(&self, tag: &str) -> Result<Outcome, Error> {
        let mut table = self.table();
        if let Some(outcome) = table.outcomes.get(tag) {
            return Ok(outcome.clone());
        }
        let selector = Selected::Tag(tag);
        let running = table.find(selector);
        let running = running.ok_or_else(|| not_found(selector))?;
        Ok(running.outcome(None))
    }

    pub(super) fn acknowledge(&self, tag: &str) -> Result<(), Error> {
        let mut table = self.table();
        let selector = Selected::Tag(tag);
        if table.outcomes.forget(tag) {
            Ok(())
        } else if table.find(selector).is_some() {
            let message = format!("the process with tag {tag} has not ended");
            Err(Error::new(Code::FailedPrecondition, message))
        } else {
            Err(not_found(selector))
        }
    }

    /// Resolves when one has ended after this call.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    /// The reaper tells that a process is no more. Its id may be used again from now on.
    pub(in crate::daemon) fn ended(&self, pid: Pid, status: ExitStatus) {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        let found = self.table().find(Selected::Pid(pid));
        if let Some(process) = found {
            process.has_exited(status);
        }
    }

    /// Moves a process to those that have ended. Who listened to it is returned, to be told.
    pub(super) fn finish(&self, process: &Process, end: &EndEvent) -> Vec<channel::Sender<Event>> {
        let mut table = self.table();
        table.live.remove(&process.number);
        table.forget_old();
        if table.ended.len() == MOST_REMEMBERED {
            table.ended.pop_front();
        }
        table.ended.push_back(Ended {
            at: Instant::now(),
            pid: process.pid,
            tag: process.tag.clone(),
            end: end.clone(),
        });
        if let Some(tag) = &process.tag {
            let newer = table.find(Selected::Tag(tag));
            if newer.is_none_or(|other| other.number < process.number) {
                let outcome = process.outcome(Some(end.clone()));
                table.outcomes.keep(tag, process.number, outcome);
            }
        }
        self.0.changed.notify_waiters();
        process.take_subscribers()
    }

    pub(in crate::daemon) fn terminate(&self) {
        for process in self.table().live.values() {
            // one that has just ended needs no signal
            let _ = process.signal(Signal::TERM);
        }
    }

    pub(in crate::daemon) async fn none_left(&self) {
        loop {
            let changed = self.changed();
            if self.table().live.is_empty() {
                return;
            }
            changed.await;
        }
    }
}

impl Table {
    /// The newest that fits.
    fn find(&self, selector: Selected<'_>) -> Option<Arc<Process>> {
        let mut newest_first = self.live.values().rev();
        let found = newest_first.find(|process| match selector {
            Selected::Pid(pid) => process.pid == pid,
            Selected::Tag(tag) => process.tag.as_deref() == Some(tag),
        });
        found.cloned()
    }

    fn forget_old(&mut self) {
        let old = |ended: &Ended| ended.at.elapsed() >= REMEMBERED;
        while self.ended.front().is_some_and(old) {
            self.ended.pop_front();
        }
    }
}

#[derive(Clone, Copy)]
enum Selected<'a> {
    Pid(u32),
    Tag(&'a str),
}

fn chosen(selector: Option<&ProcessSelector>) -> Result<Selected<'_>, Error> {
    let selector = selector.map(|selector| (selector.pid, selector.tag.as_deref()));
    match selector {
        Some((Some(pid), _)) => Ok(Selected::Pid(pid)),
        Some((None, Some(tag))) => Ok(Selected::Tag(tag)),
        None | Some((None, None)) => Err(Error::invalid("no process is selected")),
    }
}

fn not_found(selector: Selected<'_>) -> Error {
    Error::not_found(match selector {
        Selected::Pid(pid) => format!("process with pid {pid} not found"),
        Selected::Tag(tag) => format!("process with tag {tag} not found"),
    })
}
