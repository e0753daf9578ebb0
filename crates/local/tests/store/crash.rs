//! A process that is killed at any moment keeps its promises.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use local::store::{Options, Scope, Store};

use crate::child;
use crate::process::scratch;
use crate::support::{Dice, Ledger, State, assert_whole, state};

const KILLS: u64 = 200;

#[test]
fn no_acknowledged_write_is_lost_when_the_process_is_killed_200_times() {
    let directory = scratch();
    let mut ledger = Ledger::default();
    let (mut revision, mut acknowledged) = (0, 0);
    for kill in 0..KILLS {
        acknowledged += write_until_killed(directory.path(), kill, &mut ledger);
        let store = Store::open(Options::directory(directory.path())).unwrap();
        let snapshot = store.snapshot();
        ledger
            .check(&snapshot)
            .unwrap_or_else(|e| panic!("after kill {kill}: {e:#}"));
        assert!(snapshot.revision() >= revision, "revisions went back");
        revision = snapshot.revision();
        let entries: State = state(snapshot.list(&Scope::all("pods")));
        for entry in snapshot.list(&Scope::all("pods")) {
            assert_whole(entry).unwrap();
        }
        ledger.adopt(&snapshot, entries);
    }
    assert!(
        acknowledged > KILLS,
        "only {acknowledged} writes in all: nothing was tested"
    );
}

/// The number of answers that came before the end.
fn write_until_killed(directory: &std::path::Path, seed: u64, ledger: &mut Ledger) -> u64 {
    let mut child = child::command("child::writes_and_prints_each_answer", directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // the first answer, so that the random moment lies within the writing and not before it
    let first = lines
        .find(|line| line.as_ref().unwrap().starts_with("ack "))
        .unwrap()
        .unwrap();
    ledger.note(&first);
    std::thread::sleep(Duration::from_micros(Dice::new(seed).roll(12_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    let mut answers = 1;
    for line in lines {
        ledger.note(&line.unwrap());
        answers += 1;
    }
    answers
}
