//! A machine that loses power keeps what was synced; of all else it keeps nothing, or any part.
//!
//! A process is traced while it writes. From the trace the files are rebuilt as a disk may hold them at some
//! moment, and a store opened on them must have everything that was acknowledged before that moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::Result;
use local::store::{Options, Scope, Store};

use crate::child;
use crate::process::scratch;
use crate::support::{Dice, Ledger, assert_whole};
use crate::trace::{self, Step};

/// What a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// SQLite's log. It is written from the start when it is new and each time it has been copied.
const LOG: &str = "objects.db-wal";

/// What happens to that which was written but not synced.
#[derive(Debug, Clone, Copy)]
enum Loss {
    All,
    /// Each sector, and each new or removed name, by chance.
    Some(u64),
}

#[test]
fn no_acknowledged_write_is_lost_when_the_power_fails() {
    let steps = traced();
    let mut tested = 0;
    let mut dice = Dice::new(7);
    for_some_moments(&steps, |disk, ledger| {
        for loss in [
            Loss::All,
            Loss::Some(dice.roll(1 << 32)),
            Loss::Some(dice.roll(1 << 32)),
        ] {
            let kept = check(&disk.after(loss), ledger);
            kept.unwrap_or_else(|e| panic!("{loss:?} after {} acknowledged: {e:#}", ledger.len()));
            tested += 1;
        }
    });
    assert!(
        tested >= 100,
        "only {tested} moments: the trace is too short"
    );
}

/// The test above can fail: a process that never syncs is caught.
#[test]
fn a_writer_that_does_not_sync_is_caught() {
    let mut steps = traced();
    steps.retain(|step| !matches!(step, Step::SyncFile { .. }));
    let (mut moments, mut caught) = (0, 0);
    for_some_moments(&steps, |disk, ledger| {
        if ledger.len() > 0 {
            moments += 1;
            caught += u32::from(check(&disk.after(Loss::All), ledger).is_err());
        }
    });
    assert!(moments > 0);
    assert_eq!(caught, moments);
}

fn traced() -> Vec<Step> {
    static STEPS: LazyLock<Vec<Step>> = LazyLock::new(trace_a_writer);
    STEPS.clone()
}

fn trace_a_writer() -> Vec<Step> {
    let directory = scratch();
    let mut writer = child::command("child::writes_and_prints_each_answer", directory.path());
    // twice, so that closing and opening again is traced, too; enough for the log to start over
    child::limit(&mut writer, 120, 2);
    let steps = trace::run(&writer, directory.path()).unwrap();
    let is_start = |step: &&Step| matches!(step, Step::Write { name, at: 0, .. } if name == LOG);
    let starts = steps.iter().filter(is_start).count();
    assert!(starts > 2, "the log never started over: write more");
    steps
}

/// All early ones, in which the database is made, and then one in some.
fn for_some_moments(steps: &[Step], mut check: impl FnMut(&Disk, &Ledger)) {
    let every = steps.len() / 60;
    let (mut disk, mut ledger) = (Disk::default(), Ledger::default());
    let mut dice = Dice::new(1);
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Print { text } => text.lines().for_each(|line| ledger.note(line)),
            _ => disk.apply(step),
        }
        if i < 20 || dice.roll(every as u64) == 0 {
            check(&disk, &ledger);
        }
    }
}

fn check(files: &BTreeMap<String, Vec<u8>>, ledger: &Ledger) -> Result<()> {
    let directory = scratch();
    write_files(directory.path(), files)?;
    let store = Store::open(Options::directory(directory.path()))?;
    let snapshot = store.snapshot();
    ledger.check(&snapshot)?;
    snapshot
        .list(&Scope::all("pods"))
        .try_for_each(|entry| assert_whole(entry))
}

fn write_files(directory: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (name, content) in files {
        std::fs::write(directory.join(name), content)?;
    }
    Ok(())
}

/// One directory, as programs see it and as it would be after a loss of power.
#[derive(Default)]
struct Disk {
    files: Vec<File>,
    /// Index into `files`.
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
}

#[derive(Default)]
struct File {
    synced: Vec<u8>,
    /// Writes and truncations since.
    unsynced: Vec<Step>,
}

impl Disk {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Create { name } => {
                self.names.entry(name.clone()).or_insert_with(|| {
                    self.files.push(File::default());
                    self.files.len() - 1
                });
            }
            Step::Unlink { name } => {
                self.names.remove(name);
            }
            Step::Write { name, .. } | Step::Truncate { name, .. } => {
                self.file(name).unsynced.push(step.clone());
            }
            Step::SyncFile { name } => {
                let file = self.file(name);
                for step in std::mem::take(&mut file.unsynced) {
                    change(&mut file.synced, &step, |_| true);
                }
            }
            Step::SyncDirectory => self.synced_names = self.names.clone(),
            Step::Print { .. } => {}
        }
    }

    fn file(&mut self, name: &str) -> &mut File {
        &mut self.files[self.names[name]]
    }

    fn after(&self, loss: Loss) -> BTreeMap<String, Vec<u8>> {
        let (mut dice, keeps) = match loss {
            Loss::All => (Dice::new(0), false),
            Loss::Some(seed) => (Dice::new(seed), true),
        };
        let mut names = BTreeMap::new();
        for name in self.names.keys().chain(self.synced_names.keys()) {
            let newer = keeps && dice.roll(2) == 0;
            let found = if newer {
                self.names.get(name)
            } else {
                self.synced_names.get(name)
            };
            names.extend(found.map(|file| (name.clone(), &self.files[*file])));
        }
        let mut content = |file: &File| {
            let mut content = file.synced.clone();
            for step in &file.unsynced {
                change(&mut content, step, |_| keeps && dice.roll(2) == 0);
            }
            content
        };
        names
            .into_iter()
            .map(|(name, file)| (name, content(file)))
            .collect()
    }
}

/// Applies what `keep` keeps of one write or truncation, asked for each sector.
fn change(content: &mut Vec<u8>, step: &Step, mut keep: impl FnMut(usize) -> bool) {
    match step {
        Step::Write { at, data, .. } => {
            for (i, part) in data.chunks(SECTOR).enumerate().filter(|(i, _)| keep(*i)) {
                let at = at + i * SECTOR;
                content.resize(content.len().max(at + part.len()), 0);
                content[at..at + part.len()].copy_from_slice(part);
            }
        }
        Step::Truncate { length, .. } if keep(0) => content.resize(*length, 0),
        _ => {}
    }
}
