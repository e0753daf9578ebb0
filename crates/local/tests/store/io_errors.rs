//! A disk that fails now and then: a write is refused or kept, and nothing in between.

use std::path::Path;
use std::process::{Command, Output};

use local::store::{Options, Precondition, Scope, Store, WriteError};

use crate::child;
use crate::process::scratch;
use crate::support::{Dice, Ledger, State, delete, digest, drain, pod, put_sized, replay, state};

/// Every seventh sync, every hundredth write to a file.
#[test]
fn failing_calls_fail_their_writes_and_no_others() {
    let faults = [
        ("fsync", "error=EIO:when=5+7"),
        ("pwrite64", "error=EIO:when=50+100"),
        ("pwrite64", "error=ENOSPC:when=50+100"),
    ];
    for (call, fault) in faults {
        let directory = scratch();
        let program = child::command("io_errors::writes_while_calls_fail", directory.path());
        let output = run_with(call, fault, &program);
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("calls have failed"),
            "{fault}: {said}"
        );
        // and what is there afterwards can be opened where nothing fails
        Store::open(Options::directory(directory.path())).unwrap();
    }
}

/// Each of the first calls in turn, in which the database is made.
#[test]
fn a_store_whose_first_opening_failed_anywhere_can_be_opened_later() {
    let mut failed = 0;
    for call in ["fsync", "pwrite64", "openat", "ftruncate", "unlink"] {
        for nth in 1..=16 {
            let directory = scratch();
            let mut program =
                child::command("child::writes_and_prints_each_answer", directory.path());
            child::limit(&mut program, 1, 1);
            let output = run_with(call, &format!("error=EIO:when={nth}"), &program);
            failed += u32::from(!output.status.success());
            let mut ledger = Ledger::default();
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .for_each(|line| ledger.note(line));
            let store = Store::open(Options::directory(directory.path()))
                .unwrap_or_else(|e| panic!("after failure {nth} of {call}: {e}"));
            ledger.check(&store.snapshot()).unwrap();
        }
    }
    assert!(
        failed >= 10,
        "only {failed} openings failed: the faults miss their aim"
    );
}

/// strace lets calls fail as told, counting those of each thread.
fn run_with(call: &str, fault: &str, program: &Command) -> Output {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"))
        .args(["-e", &format!("inject={call}:{fault}")]);
    child::under(&mut strace, program)
        .output()
        .expect("cannot run strace: install the package `strace`")
}

/// Run by the first test above.
#[test]
fn writes_while_calls_fail() {
    child::run(write, "calls have failed");
}

async fn write(directory: &Path) {
    let store = open_at_last(directory);
    let scope = Scope::all("pods");
    let mut watch = store.watch(scope.clone(), store.revision()).unwrap();
    let (mut expected, mut seen) = (State::new(), State::new());
    let (mut dice, mut refused, mut succeeded_since) = (Dice::new(3), 0, 0);
    for _ in 0..300 {
        let key = pod(&format!("{}", dice.roll(20)));
        let deletes = expected.contains_key(&key) && dice.roll(3) == 0;
        let change = if deletes {
            delete(&key, Precondition::Any)
        } else {
            put_sized(&key, Precondition::Any, 20_000)
        };
        match store.write(change).await {
            Ok(_) if deletes => {
                expected.remove(&key);
                succeeded_since += 1;
            }
            Ok(entry) => {
                expected.insert(key, digest(&entry));
                succeeded_since += 1;
            }
            Err(WriteError::Storage(error)) => {
                assert!(error.to_string().contains("objects.db: "), "{error}");
                (refused, succeeded_since) = (refused + 1, 0);
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(state(store.snapshot().list(&scope)), expected);
        drain(&mut watch)
            .iter()
            .for_each(|event| replay(&mut seen, event));
        assert_eq!(seen, expected);
    }
    assert!(refused > 3 && succeeded_since > 0, "{refused} refused");
    assert_eq!(store.stats().failures, refused);
    let revision = store.revision();
    drop((store, watch));
    let again = open_at_last(directory);
    assert_eq!(state(again.snapshot().list(&scope)), expected);
    assert_eq!(again.revision(), revision);
}

/// Opening may be what fails.
fn open_at_last(directory: &Path) -> Store {
    (0..20)
        .find_map(|_| Store::open(Options::directory(directory)).ok())
        .unwrap()
}
