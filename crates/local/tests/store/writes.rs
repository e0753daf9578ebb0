//! Who wins, which revision a write gets, and how many writes share a transaction.

use std::collections::BTreeSet;

use local::store::{EventKind, Options, Precondition, Scope, Store, WriteError};

use crate::process::scratch;
use crate::support::{assert_whole, delete, drain, ephemeral, pod, put, put_sized};

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_race_to_create_an_object_exactly_one_wins() {
    let directory = scratch();
    for store in [
        ephemeral(),
        Store::open(Options::directory(directory.path())).unwrap(),
    ] {
        for round in 0..20 {
            let key = pod(&format!("contended-{round}"));
            let racers: Vec<_> = (0..16)
                .map(|_| {
                    let (store, change) = (store.clone(), put(&key, Precondition::Absent));
                    tokio::spawn(async move { store.write(change).await })
                })
                .collect();
            let mut winners = Vec::new();
            for racer in racers {
                match racer.await.unwrap() {
                    Ok(entry) => winners.push(entry),
                    // the loser is told of the winner only when reads show it
                    Err(WriteError::Conflict { current, .. }) => {
                        assert_eq!(current, store.get(&key));
                        assert!(current.is_some());
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(winners.len(), 1);
            assert_eq!(store.get(&key).as_ref(), winners.first());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_under_preconditions_are_never_lost() {
    let directory = scratch();
    let store = Store::open(Options::directory(directory.path())).unwrap();
    let key = pod("counter");
    let count = |value: &[u8]| std::str::from_utf8(value).unwrap().parse::<u32>().unwrap();
    let first = local::store::Change::put(key.clone(), Precondition::Absent, |_| b"0".to_vec());
    store.write(first).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                for _ in 0..20 {
                    loop {
                        let seen = store.get(&key).unwrap();
                        let next = (count(&seen.value.bytes()) + 1).to_string().into_bytes();
                        let only_if = Precondition::Revision(seen.revision);
                        let change = local::store::Change::put(key.clone(), only_if, move |_| next);
                        if store.write(change).await.is_ok() {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(count(&store.get(&key).unwrap().value.bytes()), 160);
}

#[tokio::test]
async fn a_precondition_that_does_not_hold_changes_nothing_and_names_the_current_state() {
    let store = ephemeral();
    let key = pod("one");
    let first = store.write(put(&key, Precondition::Absent)).await.unwrap();
    let second = store
        .write(put(&key, Precondition::Revision(first.revision)))
        .await
        .unwrap();
    let refused = [
        put(&key, Precondition::Absent),
        put(&key, Precondition::Revision(first.revision)),
        delete(&key, Precondition::Revision(first.revision)),
        delete(&key, Precondition::Absent),
    ];
    for change in refused {
        let Err(WriteError::Conflict { current, .. }) = store.write(change).await else {
            panic!("accepted");
        };
        assert_eq!(current.as_ref(), Some(&second));
    }
    let missing = pod("missing");
    for change in [
        put(&missing, Precondition::Revision(second.revision)),
        delete(&missing, Precondition::Any),
    ] {
        let error = store.write(change).await.unwrap_err();
        assert!(matches!(error, WriteError::Conflict { current: None, .. }));
        assert_eq!(error.to_string(), "pods/default/missing does not exist");
    }
    assert_eq!(store.revision(), second.revision);
    assert_eq!(store.get(&key), Some(second));
}

#[tokio::test]
async fn a_builder_that_panics_harms_nobody_else() {
    let store = ephemeral();
    let broken = store.clone();
    let change = local::store::Change::put(pod("broken"), Precondition::Any, |_| -> Vec<u8> {
        panic!("in the builder")
    });
    assert!(
        tokio::spawn(async move { broken.write(change).await })
            .await
            .is_err()
    );
    let entry = store
        .write(put(&pod("fine"), Precondition::Absent))
        .await
        .unwrap();
    assert_eq!(entry.revision, 2);
    assert_eq!(store.snapshot().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_has_its_own_revision_and_no_restart_repeats_one() {
    let directory = scratch();
    let (mut seen, mut highest) = (BTreeSet::new(), 0);
    for session in 0..5 {
        let store = Store::open(Options::directory(directory.path())).unwrap();
        assert!(store.revision() >= highest);
        let writers: Vec<_> = (0..10)
            .map(|i| {
                let (store, key) = (store.clone(), pod(&format!("{session}-{i}")));
                tokio::spawn(async move {
                    let entry = store.write(put(&key, Precondition::Absent)).await.unwrap();
                    let only_if = Precondition::Revision(entry.revision);
                    // so that the highest revision may belong to an object that is gone
                    let gone = store.write(delete(&key, only_if)).await.unwrap();
                    [entry.revision, gone.revision]
                })
            })
            .collect();
        for writer in writers {
            for revision in writer.await.unwrap() {
                assert!(seen.insert(revision), "{revision} was given twice");
                assert!(revision > highest);
            }
        }
        highest = *seen.last().unwrap();
        assert!(store.snapshot().is_empty());
    }
    assert_eq!(seen.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_wait_together_share_a_transaction() {
    let directory = scratch();
    let store = Store::open(Options::directory(directory.path())).unwrap();
    let mut watch = store.watch(Scope::all("pods"), store.revision()).unwrap();
    let writers: Vec<_> = (0..2000)
        .map(|i| {
            let store = store.clone();
            tokio::spawn(async move {
                store
                    .write(put(&pod(&format!("{i}")), Precondition::Absent))
                    .await
                    .unwrap()
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.writes, 2000);
    assert!(stats.commits * 10 < stats.writes, "{stats:?}");
    let revisions: Vec<u64> = drain(&mut watch).iter().map(|e| e.entry.revision).collect();
    assert_eq!(revisions, (2..=2001).collect::<Vec<_>>());
}

#[tokio::test]
async fn objects_of_several_megabytes_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let key = pod("large");
    let store = Store::open(Options::directory(directory.path())).unwrap();
    let mut watch = store.watch(Scope::all("pods"), store.revision()).unwrap();
    let mut written = None;
    for _ in 0..3 {
        written = Some(
            store
                .write(put_sized(&key, Precondition::Any, 8 << 20))
                .await
                .unwrap(),
        );
    }
    let kinds: Vec<EventKind> = drain(&mut watch).iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [EventKind::Added, EventKind::Modified, EventKind::Modified]
    );
    drop(store);
    let store = Store::open(Options::directory(directory.path())).unwrap();
    assert_eq!(store.get(&key), written);
    assert_whole(&store.get(&key).unwrap()).unwrap();
}
