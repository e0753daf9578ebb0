//! The processes that clients started: those that run, and for a moment those that have ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitStatus};
use tokio::sync::{Notify, mpsc};

use super::Events;
use super::running::{Event, Process};
use crate::daemon::error::Error;
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

    pub(super) fn insert(&self, mut process: Process) -> Arc<Process> {
        let mut table = self.table();
        table.started += 1;
        process.number = table.started;
        let process = Arc::new(process);
        let same_tag = |ended: &Ended| ended.tag.is_some() && ended.tag == process.tag;
        table
            .ended
            .retain(|ended| ended.pid != process.pid && !same_tag(ended));
        table.live.insert(process.number, Arc::clone(&process));
        process
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
        let (sender, events) = mpsc::channel(1);
        // an empty channel has room for one
        let _ = sender.try_send(Event::End(Box::new(ended.end.clone())));
        Ok((ended.pid, events))
    }

    /// The reaper tells that a process is no more. Its id may be used again from now on.
    pub(in crate::daemon) fn ended(&self, pid: Pid, status: WaitStatus) {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        let found = self.table().find(Selected::Pid(pid));
        if let Some(process) = found {
            process.has_exited(status);
        }
    }

    /// Moves a process to those that have ended. Who listened to it is returned, to be told.
    pub(super) fn finish(&self, process: &Process, end: &EndEvent) -> Vec<mpsc::Sender<Event>> {
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
            let changed = self.0.changed.notified();
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
