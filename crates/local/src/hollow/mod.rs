//! Nodes whose pods only pretend to run.
//!
//! A hollow node is a scheduler and a kubelet without containers. It knows the cluster through a
//! client only, so it serves any API server, and its time is that of the clock it is given.
//! What becomes of its pods is decided in `plan`, which is pure; the rest it has in common with every node
//! (`kubelet`). It keeps nothing that the objects do not say: one that starts anew goes on where the
//! last one stopped.

mod address;
mod container;
mod failure;
mod keep;
mod plan;
mod resize;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use tokio::{sync::watch, task::JoinHandle};

pub use failure::{EXIT_AFTER, EXIT_CODE, FAIL, Failure, START_DELAY, Target};

use crate::clock::Clock;
use failure::Rule;

#[derive(Clone, Debug)]
pub struct Options {
    /// The names of the nodes.
    pub nodes: Vec<String>,
    /// Whether pods without a node are given one of these.
    pub schedule: bool,
    /// How long a pod takes from being seen to running.
    pub start_delay: Duration,
    /// How long a container takes to come back after a change in place that stops it.
    pub restart_delay: Duration,
    /// How long a resize in place takes.
    pub resize_delay: Duration,
    /// How long containers take to end; no longer than the pod's grace period lets them.
    pub stop_delay: Duration,
    /// What each node has.
    pub capacity: BTreeMap<String, Quantity>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: vec!["hollow".to_owned()],
            schedule: true,
            start_delay: Duration::ZERO,
            restart_delay: Duration::ZERO,
            resize_delay: Duration::ZERO,
            stop_delay: Duration::ZERO,
            capacity: keep::default_capacity(),
        }
    }
}

impl Options {
    /// This many nodes: `hollow-0`, `hollow-1`, …
    #[must_use]
    pub fn with_nodes(self, count: usize) -> Self {
        Self {
            nodes: (0..count).map(|index| format!("hollow-{index}")).collect(),
            ..self
        }
    }
}

/// Running hollow nodes. Dropping the handle stops them; their objects and pods stay as they are.
pub struct Hollow {
    rules: watch::Sender<Vec<Rule>>,
    orders: AtomicU64,
    trouble: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

/// A failure that was ordered, to be taken back with [`Hollow::heal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order(u64);

impl Hollow {
    /// Must be called within a Tokio runtime.
    pub fn start(client: Client, clock: Clock, options: Options) -> Self {
        let (rules, heard) = watch::channel(Vec::new());
        let (complain, trouble) = watch::channel(None);
        let engine = keep::engine(client, clock, options, heard, complain);
        Self {
            rules,
            orders: AtomicU64::new(0),
            trouble,
            task: tokio::spawn(engine.run()),
        }
    }

    /// From now on this befalls all targets, those that are there and those to come.
    pub fn fail(&self, target: Target, failure: Failure) -> Order {
        let id = self.orders.fetch_add(1, Ordering::Relaxed);
        let rule = Rule {
            id,
            target,
            failure,
        };
        self.rules.send_modify(|rules| rules.push(rule));
        Order(id)
    }

    /// Takes an order back. What failed because of it recovers.
    pub fn heal(&self, order: Order) {
        self.rules
            .send_modify(|rules| rules.retain(|rule| rule.id != order.0));
    }

    /// The last error of the API server that was neither a conflict nor an object's absence.
    pub fn last_error(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// Stops and waits until nothing more will be written.
    pub async fn stop(mut self) {
        self.task.abort();
        // it was asked to end before it was done, which is what its error would say
        let _ = (&mut self.task).await;
    }
}

impl Drop for Hollow {
    fn drop(&mut self) {
        self.task.abort();
    }
}
