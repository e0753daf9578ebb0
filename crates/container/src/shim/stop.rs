//! The end of a pod: asked politely, then not, then nothing is left of it.

use std::time::{Duration, Instant};

use super::{Record, Shim};
use crate::wire::{Failure, Reply};
use crate::{strays, sys};

/// A pod on its way out.
pub(super) struct Stopping {
    deadline: Instant,
    killed: bool,
    /// Who waits for it, and for which call.
    waiting: Vec<(u64, u64)>,
}

impl Stopping {
    /// When patience ends, if it has not ended yet.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.killed).then_some(self.deadline)
    }
}

impl Shim {
    /// Signals all containers, those named first in their order. Whoever stops again can only shorten the grace.
    pub(super) fn stop(&mut self, peer: u64, call: u64, order: &[String], grace_millis: u64) {
        let now = Instant::now();
        let deadline = now
            .checked_add(Duration::from_millis(grace_millis))
            .unwrap_or(now);
        match &mut self.stopping {
            Some(stopping) => {
                stopping.deadline = stopping.deadline.min(deadline);
                stopping.waiting.push((peer, call));
            }
            None => {
                self.stopping = Some(Stopping {
                    deadline,
                    killed: false,
                    waiting: vec![(peer, call)],
                });
                self.signal_in_order(order);
            }
        }
    }

    fn signal_in_order(&self, order: &[String]) {
        let place = |name: &str| order.iter().position(|n| n == name).unwrap_or(usize::MAX);
        let mut running: Vec<_> = self
            .containers
            .iter()
            .filter(|c| c.pid().is_some())
            .collect();
        running.sort_by_key(|c| place(&c.name));
        for container in running {
            // it may just have ended
            let _ = container.signal(container.stop_signal);
        }
    }

    /// Called after each turn: kills when the time has come, and ends this process when all have ended.
    pub(super) fn go_on_stopping(&mut self) {
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        if !stopping.killed && Instant::now() >= stopping.deadline {
            stopping.killed = true;
        }
        let busy = !self.builders.is_empty() || self.containers.iter().any(|c| !c.has_ended());
        if stopping.killed && busy {
            self.kill_all();
        }
        if !busy {
            self.finish();
        }
    }

    /// Builders too: what they were building is not wanted any more.
    fn kill_all(&self) {
        let containers = self.containers.iter().filter_map(|c| c.process.as_ref());
        for process in containers.chain(self.builders.iter().map(|b| &b.process)) {
            let _ = process.signal(libc::SIGKILL);
        }
    }

    fn finish(&mut self) -> ! {
        if !self.settings.isolated {
            strays::kill_marked(&self.settings.dir);
            strays::kill_children();
        }
        let removed = self.cgroups.remove_pod();
        self.cgroups.leave_shims();
        // without the record nobody would find what could not be removed
        if removed.is_ok() {
            Record::remove(&self.settings.dir);
        }
        let waiting = self.stopping.take().map(|s| s.waiting).unwrap_or_default();
        for (peer, call) in waiting {
            let reply = match &removed {
                Ok(()) => Reply::Done,
                Err(error) => {
                    let text = format!("removing the pod's cgroups: {error}");
                    Reply::Failed(Failure::Failed(text))
                }
            };
            self.reply(peer, call, reply, Vec::new());
        }
        sys::exit_child(0)
    }
}
