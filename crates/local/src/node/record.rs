//! What the node writes down, to know it when it comes back. Losing it to a power cut does no harm: the containers that it
//! speaks of are lost with it.

use std::{fs, io, path::Path};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    end,
    facts::{Made, Run},
    place::PodPlace,
};

/// What the containers of a pod live in.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct ShellRecord {
    /// Counts those that the pod has had.
    pub(crate) number: u32,
    /// Whether it has all that containers need.
    pub(crate) is_whole: bool,
    /// Whether its containers are plain processes, which they stay.
    #[serde(default)]
    pub(crate) is_plain: bool,
}

pub(crate) fn save_shell(place: &PodPlace, record: &ShellRecord) -> io::Result<()> {
    save(&place.shell_record(), record)
}

pub(crate) fn shell(place: &PodPlace) -> ShellRecord {
    load(&place.shell_record()).unwrap_or_default()
}

/// The first of the ids that the users of a pod are on the machine.
#[derive(Serialize, Deserialize)]
struct IdsRecord {
    first: u32,
}

pub(crate) fn save_ids(place: &PodPlace, first: u32) -> io::Result<()> {
    save(&place.ids(), &IdsRecord { first })
}

pub(crate) fn ids(place: &PodPlace) -> Option<u32> {
    load(&place.ids()).map(|record: IdsRecord| record.first)
}

/// The last run of a container.
#[derive(Serialize, Deserialize)]
struct RunRecord {
    #[serde(flatten)]
    made: Made,
    /// Why it could not be started. Shims keep nothing of such a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unstarted: Option<Unstarted>,
    /// The last one before it that could not be started. It counts until a shim knows of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Failed>,
}

#[derive(Serialize, Deserialize)]
struct Unstarted {
    message: String,
    at: Time,
}

#[derive(Serialize, Deserialize)]
struct Failed {
    made: Made,
    why: Unstarted,
}

impl RunRecord {
    fn last_failed(self) -> Option<Failed> {
        let Self { made, .. } = self;
        match self.unstarted {
            Some(why) => Some(Failed { made, why }),
            None => self.before,
        }
    }
}

/// To be called before the run is started.
pub(crate) fn save_run(place: &PodPlace, container: &str, made: &Made) -> io::Result<()> {
    let path = place.run_record(container);
    let last: Option<RunRecord> = load(&path);
    let record = RunRecord {
        made: made.clone(),
        unstarted: None,
        before: last.and_then(RunRecord::last_failed),
    };
    save(&path, &record)
}

/// To be called when a run could not be started.
pub(crate) fn save_unstarted(place: &PodPlace, container: &str, run: &Run) -> io::Result<()> {
    let unstarted = run.end.as_ref().map(|end| Unstarted {
        message: end.message.clone().unwrap_or_default(),
        at: Time(end.at),
    });
    let record = RunRecord {
        made: run.made.clone(),
        unstarted,
        before: None,
    };
    save(&place.run_record(container), &record)
}

/// What this run of a container was made of.
pub(crate) fn run(place: &PodPlace, container: &str, attempt: u32) -> Option<Made> {
    let record: RunRecord = load(&place.run_record(container))?;
    (record.made.attempt == attempt).then_some(record.made)
}

/// The last run of a container that could not be started, though another may have been begun since.
pub(crate) fn unstarted(place: &PodPlace, container: &str) -> Option<Run> {
    let record: RunRecord = load(&place.run_record(container))?;
    let Failed { made, why } = record.last_failed()?;
    let Unstarted { message, at } = why;
    Some(Run {
        made,
        started_at: at.0,
        end: Some(end::unstarted(message, at.0)),
    })
}

fn save(path: &Path, record: &impl Serialize) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let fresh = path.with_extension("new");
    fs::write(&fresh, serde_json::to_vec(record)?)?;
    fs::rename(fresh, path)
}

/// What cannot be read is as good as lost.
fn load<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::{run, save_run, save_unstarted, unstarted};
    use crate::node::{
        end,
        facts::{Made, Run},
        place::PodPlace,
    };

    fn made(attempt: u32) -> Made {
        Made {
            attempt,
            shell: 1,
            image: "i".to_owned(),
            image_id: String::new(),
            resources: Default::default(),
            stop_signal: 15,
            crashes: attempt,
        }
    }

    #[test]
    fn what_could_not_be_started_is_known_until_something_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let place = PodPlace::new(directory.path(), "u");
        save_run(&place, "c", &made(3)).unwrap();
        assert!(unstarted(&place, "c").is_none(), "it may yet start");
        let at: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let failed = Run {
            made: made(3),
            started_at: at,
            end: Some(end::unstarted("no such program".to_owned(), at)),
        };
        save_unstarted(&place, "c", &failed).unwrap();
        // whoever dies in an attempt may have begun it more than once
        for _ in 0..2 {
            save_run(&place, "c", &made(4)).unwrap();
            let last = unstarted(&place, "c").unwrap();
            assert_eq!((last.made, last.started_at), (made(3), at));
            assert_eq!(run(&place, "c", 4), Some(made(4)));
        }
    }
}
