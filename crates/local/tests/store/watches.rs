//! What watches are told: everything, once, in order, or that they are too late.

use std::time::Duration;

use local::store::{EventKind, Key, Options, Precondition, Scope, Store, WatchError};

use crate::process::scratch;
use crate::support::{Dice, State, delete, drain, ephemeral, pod, put, replay, state};

fn pods() -> Scope {
    Scope::all("pods")
}

#[tokio::test]
async fn events_tell_the_new_and_the_previous_state() {
    let store = ephemeral();
    let mut watch = store.watch(pods(), store.revision()).unwrap();
    let key = pod("one");
    let added = store.write(put(&key, Precondition::Absent)).await.unwrap();
    let modified = store.write(put(&key, Precondition::Any)).await.unwrap();
    let deleted = store.write(delete(&key, Precondition::Any)).await.unwrap();
    let again = store.write(put(&key, Precondition::Absent)).await.unwrap();
    let told: Vec<_> = drain(&mut watch)
        .into_iter()
        .map(|e| (e.kind, e.entry, e.previous))
        .collect();
    let expected = [
        (EventKind::Added, added.clone(), None),
        (EventKind::Modified, modified.clone(), Some(added)),
        (EventKind::Deleted, deleted, Some(modified)),
        (EventKind::Added, again, None),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_delete_event_carries_the_last_state_with_the_revision_of_the_delete() {
    let store = ephemeral();
    let key = pod("one");
    store.write(put(&key, Precondition::Absent)).await.unwrap();
    let mut watch = store.watch(pods(), store.revision()).unwrap();
    store.write(delete(&key, Precondition::Any)).await.unwrap();
    let event = watch.next().await.unwrap().unwrap();
    let object: serde_json::Value = serde_json::from_slice(&event.entry.value.bytes()).unwrap();
    assert_eq!(event.kind, EventKind::Deleted);
    assert_eq!(event.entry.revision, store.revision());
    assert_eq!(object["revision"], store.revision());
}

#[tokio::test]
async fn a_watch_is_told_only_of_its_resource_and_namespace() {
    let store = ephemeral();
    let start = store.revision();
    let mut all = store.watch(pods(), start).unwrap();
    let mut one = store.watch(Scope::namespaced("pods", "a"), start).unwrap();
    let mut none = store.watch(Scope::namespaced("pods", ""), start).unwrap();
    for (resource, namespace) in [("pods", "a"), ("pods", "ab"), ("nodes", ""), ("pod", "a")] {
        let key = Key::new(resource, namespace, "x");
        store.write(put(&key, Precondition::Absent)).await.unwrap();
    }
    let told = |watch: &mut _| -> Vec<String> {
        drain(watch)
            .iter()
            .map(|event| event.entry.key.to_string())
            .collect()
    };
    assert_eq!(told(&mut all), ["pods/a/x", "pods/ab/x"]);
    assert_eq!(told(&mut one), ["pods/a/x"]);
    assert_eq!(told(&mut none), [""; 0]);
}

/// Lists, then watches, while others write; the list with the events replayed must be the final state.
async fn hand_over(store: Store, seed: u64) {
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut dice = Dice::new(seed * 31 + writer);
                for _ in 0..40 {
                    let namespace = ["a", "b"][usize::from(dice.roll(2) == 0)];
                    let resource = ["pods", "nodes"][usize::from(dice.roll(5) == 0)];
                    let key = Key::new(resource, namespace, &dice.roll(6).to_string());
                    let change = match dice.roll(3) {
                        0 => delete(&key, Precondition::Any),
                        1 => put(&key, Precondition::Absent),
                        _ => put(&key, Precondition::Any),
                    };
                    // a conflict is as good as any other outcome
                    let _ = store.write(change).await;
                    if dice.roll(4) == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    let mut dice = Dice::new(seed);
    let mut watchers = Vec::new();
    for scope in [pods(), Scope::namespaced("pods", "a"), Scope::all("nodes")] {
        tokio::time::sleep(Duration::from_micros(dice.roll(3000))).await;
        let snapshot = store.snapshot();
        let mut replayed: State = state(snapshot.list(&scope));
        let mut watch = store.watch(scope.clone(), snapshot.revision()).unwrap();
        let mut last = snapshot.revision();
        // ends when the store does
        watchers.push(tokio::spawn(async move {
            while let Some(event) = watch.next().await {
                let event = event.unwrap();
                assert!(event.entry.revision > last, "{event:?} after {last}");
                last = event.entry.revision;
                assert!(scope.contains(&event.entry.key));
                replay(&mut replayed, &event);
                assert!(watch.progress() >= last);
            }
            (scope, replayed)
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let end = store.snapshot();
    drop(store);
    for watcher in watchers {
        let (scope, replayed) = watcher.await.unwrap();
        assert_eq!(replayed, state(end.list(&scope)), "seed {seed}, {scope:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_and_the_watch_after_it_miss_nothing_and_repeat_nothing() {
    for seed in 0..300 {
        hand_over(ephemeral(), seed).await;
    }
    let directory = scratch();
    for seed in 0..40 {
        let store = Store::open(Options::directory(directory.path())).unwrap();
        hand_over(store, seed).await;
    }
}

fn with_history(history: usize, history_bytes: usize) -> Store {
    Store::open(Options {
        history,
        history_bytes,
        ..Options::ephemeral()
    })
    .unwrap()
}

#[tokio::test]
async fn a_watch_from_before_the_kept_history_is_gone_and_told_where_history_begins() {
    let store = with_history(5, usize::MAX);
    let start = store.revision();
    for _ in 0..8 {
        store
            .write(put(&pod("one"), Precondition::Any))
            .await
            .unwrap();
    }
    let oldest = start + 3;
    for requested in start..oldest {
        let error = store.watch(pods(), requested).err();
        assert_eq!(error, Some(WatchError::Gone { requested, oldest }));
    }
    let mut watch = store.watch(pods(), oldest).unwrap();
    assert_eq!(drain(&mut watch).len(), 5);
}

#[tokio::test]
async fn history_is_bounded_by_bytes_but_keeps_the_newest_event() {
    let store = with_history(1000, 1000);
    let start = store.revision();
    for _ in 0..20 {
        store
            .write(put(&pod("one"), Precondition::Any))
            .await
            .unwrap();
    }
    let Some(WatchError::Gone { oldest, .. }) = store.watch(pods(), start).err() else {
        panic!("20 objects of 100 bytes and more fit into 1000 bytes");
    };
    assert!(
        oldest < store.revision() - 1,
        "1000 bytes hold more than one of them"
    );
    let store = with_history(1000, 1);
    store
        .write(put(&pod("one"), Precondition::Any))
        .await
        .unwrap();
    let last = store
        .write(put(&pod("one"), Precondition::Any))
        .await
        .unwrap();
    let mut watch = store.watch(pods(), last.revision - 1).unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().entry, last);
}

#[tokio::test]
async fn a_busy_resource_does_not_take_the_history_of_a_quiet_one() {
    let store = with_history(5, usize::MAX);
    let start = store.revision();
    let node = Key::new("nodes", "", "one");
    let entry = store.write(put(&node, Precondition::Absent)).await.unwrap();
    for _ in 0..100 {
        store
            .write(put(&pod("one"), Precondition::Any))
            .await
            .unwrap();
    }
    let mut watch = store.watch(Scope::all("nodes"), start).unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().entry, entry);
    assert!(store.watch(Scope::all("secrets"), start).is_ok());
}

#[tokio::test]
async fn a_slow_watcher_is_gone_while_writers_and_others_go_on() {
    let store = with_history(100, usize::MAX);
    let start = store.revision();
    let mut slow = store.watch(pods(), start).unwrap();
    let mut quick = store.watch(pods(), start).unwrap();
    for i in 1..=1000 {
        store
            .write(put(&pod("one"), Precondition::Any))
            .await
            .unwrap();
        assert_eq!(
            quick.next().await.unwrap().unwrap().entry.revision,
            start + i
        );
        if i == 1 {
            assert_eq!(
                slow.next().await.unwrap().unwrap().entry.revision,
                start + 1
            );
        }
    }
    let gone = slow.next().await.unwrap().unwrap_err();
    assert_eq!(
        gone,
        WatchError::Gone {
            requested: start + 1,
            oldest: store.revision() - 100
        }
    );
    assert_eq!(slow.next().await, None);
}

#[tokio::test]
async fn progress_follows_every_write_but_never_runs_ahead_of_what_was_given() {
    let store = ephemeral();
    let mut watch = store.watch(pods(), store.revision()).unwrap();
    let node = Key::new("nodes", "", "one");
    let elsewhere = store.write(put(&node, Precondition::Absent)).await.unwrap();
    assert_eq!(watch.progress(), elsewhere.revision);
    let first = store
        .write(put(&pod("one"), Precondition::Any))
        .await
        .unwrap();
    store
        .write(put(&pod("one"), Precondition::Any))
        .await
        .unwrap();
    assert_eq!(watch.progress(), elsewhere.revision);
    assert_eq!(watch.next().await.unwrap().unwrap().entry, first);
    assert_eq!(watch.progress(), first.revision);
    watch.next().await.unwrap().unwrap();
    store.write(put(&node, Precondition::Any)).await.unwrap();
    assert_eq!(watch.progress(), store.revision());
    let mut resumed = store.watch(pods(), watch.progress()).unwrap();
    assert_eq!(drain(&mut resumed), []);
}

#[tokio::test]
async fn a_revision_that_was_never_given_is_refused() {
    let store = ephemeral();
    let (current, requested) = (store.revision(), store.revision() + 1);
    let error = store.watch(pods(), requested).err();
    assert_eq!(error, Some(WatchError::Ahead { requested, current }));
}

#[tokio::test]
async fn after_a_restart_watches_go_on_from_the_current_revision_only() {
    let directory = scratch();
    let store = Store::open(Options::directory(directory.path())).unwrap();
    for _ in 0..3 {
        store
            .write(put(&pod("one"), Precondition::Any))
            .await
            .unwrap();
    }
    let oldest = store.revision();
    drop(store);
    let store = Store::open(Options::directory(directory.path())).unwrap();
    let requested = oldest - 1;
    let error = store.watch(pods(), requested).err();
    assert_eq!(error, Some(WatchError::Gone { requested, oldest }));
    let mut watch = store.watch(pods(), oldest).unwrap();
    let entry = store
        .write(put(&pod("one"), Precondition::Any))
        .await
        .unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().entry, entry);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_after_an_event_finds_its_state_or_a_later_one() {
    let directory = scratch();
    let store = Store::open(Options::directory(directory.path())).unwrap();
    let mut watch = store.watch(pods(), store.revision()).unwrap();
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        for _ in 0..200 {
            writer
                .write(put(&pod("one"), Precondition::Any))
                .await
                .unwrap();
        }
    });
    for _ in 0..200 {
        let event = watch.next().await.unwrap().unwrap();
        assert!(store.get(&event.entry.key).unwrap().revision >= event.entry.revision);
    }
    writing.await.unwrap();
}
