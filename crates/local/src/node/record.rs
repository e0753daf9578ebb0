//! What the node writes down, to know it when it comes back. Losing it to a power cut does no harm: the containers that it
//! speaks of are lost with it.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{facts::Made, place::PodPlace};

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

/// To be called before the run is started.
pub(crate) fn save_run(place: &PodPlace, container: &str, made: &Made) -> io::Result<()> {
    save(&place.run_record(container), made)
}

/// What this run of a container was made of.
pub(crate) fn run(place: &PodPlace, container: &str, attempt: u32) -> Option<Made> {
    load(&place.run_record(container)).filter(|made: &Made| made.attempt == attempt)
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
