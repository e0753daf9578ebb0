//! What queues hold and how passes end, as controller-runtime tells it.

use std::{sync::Arc, time::Duration};

use super::{
    Metrics,
    text::{Bounds, Counter, Family, Gauge, Histogram, Text},
};
use crate::queue::Next;

struct PassSeconds;

impl Bounds for PassSeconds {
    const BOUNDS: &'static [f64] = &[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0,
        15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ];
}

struct QueueSeconds;

impl Bounds for QueueSeconds {
    const BOUNDS: &'static [f64] = &[
        1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
    ];
}

const OF_A_QUEUE: [&str; 2] = ["controller", "name"];
const RESULTS: [&str; 4] = ["success", "requeue_after", "requeue", "error"];

pub(super) struct Controllers {
    passes: Family<Counter, 2>,
    errors: Family<Counter, 1>,
    panics: Family<Counter, 1>,
    seconds: Family<Histogram, 1>,
    active: Family<Gauge, 1>,
    at_a_time: Family<Gauge, 1>,
    depth: Family<Gauge, 2>,
    adds: Family<Counter, 2>,
    waited: Family<Histogram, 2>,
    worked: Family<Histogram, 2>,
    retries: Family<Counter, 2>,
}

impl Default for Controllers {
    fn default() -> Self {
        let one = ["controller"];
        Self {
            passes: Family::new(
                "controller_runtime_reconcile_total",
                ["controller", "result"],
                "Passes over one object, by how they ended.",
            ),
            errors: Family::new(
                "controller_runtime_reconcile_errors_total",
                one,
                "Passes that failed.",
            ),
            panics: Family::new(
                "controller_runtime_reconcile_panics_total",
                one,
                "Passes that panicked.",
            ),
            seconds: Family::of::<PassSeconds>(
                "controller_runtime_reconcile_time_seconds",
                one,
                "How long a pass took, in seconds.",
            ),
            active: Family::new(
                "controller_runtime_active_workers",
                one,
                "Passes under way.",
            ),
            at_a_time: Family::new(
                "controller_runtime_max_concurrent_reconciles",
                one,
                "How many passes may be under way at a time.",
            ),
            depth: Family::new("workqueue_depth", OF_A_QUEUE, "Objects that wait."),
            adds: Family::new(
                "workqueue_adds_total",
                OF_A_QUEUE,
                "Objects that began to wait.",
            ),
            waited: Family::of::<QueueSeconds>(
                "workqueue_queue_duration_seconds",
                OF_A_QUEUE,
                "How long an object waited, in seconds.",
            ),
            worked: Family::of::<QueueSeconds>(
                "workqueue_work_duration_seconds",
                OF_A_QUEUE,
                "How long an object was worked on, in seconds.",
            ),
            retries: Family::new(
                "workqueue_retries_total",
                OF_A_QUEUE,
                "Objects that wait because a pass failed.",
            ),
        }
    }
}

impl Controllers {
    pub(super) fn write(&self, to: &mut Text) {
        let Self {
            passes,
            errors,
            panics,
            seconds,
            active,
            at_a_time,
            depth,
            adds,
            waited,
            worked,
            retries,
        } = self;
        passes.write(to);
        errors.write(to);
        panics.write(to);
        seconds.write(to);
        active.write(to);
        at_a_time.write(to);
        depth.write(to);
        adds.write(to);
        waited.write(to);
        worked.write(to);
        retries.write(to);
    }
}

/// The metrics of one controller and its queue.
#[derive(Clone)]
pub(crate) struct Work {
    passes: [Arc<Counter>; 4],
    errors: Arc<Counter>,
    panics: Arc<Counter>,
    seconds: Arc<Histogram>,
    active: Arc<Gauge>,
    at_a_time: Arc<Gauge>,
    depth: Arc<Gauge>,
    adds: Arc<Counter>,
    waited: Arc<Histogram>,
    worked: Arc<Histogram>,
    retries: Arc<Counter>,
}

impl Metrics {
    pub(crate) fn work(&self, controller: &'static str) -> Work {
        let all = &self.0.controllers;
        let (one, both) = ([controller], [controller, controller]);
        Work {
            passes: RESULTS.map(|result| all.passes.with([controller, result])),
            errors: all.errors.with(one),
            panics: all.panics.with(one),
            seconds: all.seconds.with(one),
            active: all.active.with(one),
            at_a_time: all.at_a_time.with(one),
            depth: all.depth.with(both),
            adds: all.adds.with(both),
            waited: all.waited.with(both),
            worked: all.worked.with(both),
            retries: all.retries.with(both),
        }
    }
}

impl Work {
    /// So many wait, of which these have come since the last time.
    pub(crate) fn waiting(&self, depth: usize, new: u64) {
        self.depth.set(depth);
        self.adds.add(new);
    }

    pub(crate) fn working(&self, passes: usize, at_a_time: usize) {
        self.active.set(passes);
        self.at_a_time.set(at_a_time);
    }

    pub(crate) fn took(&self, waited: Duration) {
        self.waited.observe(waited.as_secs_f64());
    }

    pub(crate) fn ended(&self, next: Next, worked: Duration) {
        let [success, requeue_after, _, error] = &self.passes;
        match next {
            Next::Never => success.add(1),
            Next::In(_) => requeue_after.add(1),
            Next::Retry => {
                error.add(1);
                self.errors.add(1);
                self.retries.add(1);
            }
        }
        self.seconds.observe(worked.as_secs_f64());
        self.worked.observe(worked.as_secs_f64());
    }

    pub(crate) fn panicked(&self) {
        self.panics.add(1);
    }
}
