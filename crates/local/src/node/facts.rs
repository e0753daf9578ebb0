//! What is known of a pod on this machine. `plan` says what to do about it, `report` what to tell.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, ResourceRequirements},
    jiff::Timestamp,
};
use serde::{Deserialize, Serialize};

use super::place::container_id;
use super::trouble::Trouble;
use crate::kubelet::container::stamp;

/// All that is known of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) shell: Shell,
    pub(crate) containers: BTreeMap<String, Inmate>,
    /// It uses more of the disk than it may: what, and how much that is.
    pub(crate) evicted: Option<String>,
    /// Why it is never run here.
    pub(crate) rejected: Option<Trouble>,
}

/// What a pod's containers live in: a shim, its namespaces, and an address.
#[derive(Clone, Debug, Default)]
pub(crate) enum Shell {
    #[default]
    Absent,
    Making,
    Whole {
        /// Counts those that the pod has had.
        number: u32,
        ip: Option<String>,
    },
    /// It could not be made, and is tried again.
    Broken(Setback),
    Ending,
    Ended,
}

/// One container, through all its runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inmate {
    /// The last run; of an earlier one only its end is kept.
    pub(crate) run: Option<Run>,
    pub(crate) before: Option<ContainerStateTerminated>,
    /// Something is being done about it; what comes next waits.
    pub(crate) busy: Option<Busy>,
    /// The image that it was last to be started with.
    pub(crate) tried: Option<String>,
    /// Why it could not be started, or changed.
    pub(crate) setback: Option<Setback>,
    /// By its probes, and only while it runs.
    pub(crate) health: Health,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    Starting,
    Stopping,
    Resizing,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Health {
    pub(crate) started: bool,
    pub(crate) ready: bool,
    /// A probe has given it up. Its own grace, if it has one.
    pub(crate) lost: Option<Option<i64>>,
}

/// Something that did not work, and how often in a row.
#[derive(Clone, Debug)]
pub(crate) struct Setback {
    pub(crate) trouble: Trouble,
    pub(crate) at: Timestamp,
    pub(crate) times: u32,
}

/// One run of a container.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) made: Made,
    pub(crate) started_at: Timestamp,
    pub(crate) end: Option<End>,
}

/// What a run was made of. Kept on disk, because nothing else tells it when this process has been restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) attempt: u32,
    /// The number of the shell it lives in.
    pub(crate) shell: u32,
    /// As the spec names it.
    pub(crate) image: String,
    pub(crate) image_id: String,
    /// Those in force.
    pub(crate) resources: ResourceRequirements,
    pub(crate) stop_signal: i32,
    /// How often in a row it had ended by itself before.
    #[serde(default)]
    pub(crate) crashes: u32,
}

/// The reason of the end of a run whose program could not be run at all.
pub(crate) const START_ERROR: &str = "StartError";

#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: Option<String>,
    pub(crate) at: Timestamp,
}

/// What a run that begins knows of those before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    /// The number of the run, unless it is taken.
    pub(crate) first_attempt: u32,
    pub(crate) crashes: u32,
}

impl Inmate {
    /// The run that lives now.
    pub(crate) fn alive(&self) -> Option<&Run> {
        self.run.as_ref().filter(|run| run.end.is_none())
    }

    /// When it could last not be started, if it does not run now.
    pub(crate) fn failed_at(&self) -> Option<Timestamp> {
        let end = self.run.as_ref().and_then(|run| run.end.as_ref());
        let unstarted = end.filter(|end| end.reason == START_ERROR);
        let setback = self.setback.as_ref().map(|setback| setback.at);
        setback.or(unstarted.map(|end| end.at))
    }

    /// The number of the next run.
    pub(crate) fn next_attempt(&self) -> u32 {
        self.run.as_ref().map_or(0, |run| run.made.attempt + 1)
    }
}

impl Run {
    /// The end of the run, as a status tells it.
    pub(crate) fn terminated(&self, uid: &str, name: &str) -> Option<ContainerStateTerminated> {
        let end = self.end.as_ref()?;
        Some(ContainerStateTerminated {
            container_id: Some(container_id(uid, name, self.made.attempt)),
            exit_code: end.code,
            finished_at: Some(stamp(end.at)),
            message: end.message.clone(),
            reason: Some(end.reason.to_owned()),
            signal: None,
            started_at: Some(stamp(self.started_at)),
        })
    }
}
