//! What a snapshot holds, and in which order.

use local::store::{Key, Options, Precondition, Scope, Store};

use crate::process::scratch;
use crate::support::{delete, ephemeral, pod, put, state};

#[tokio::test]
async fn lists_cover_one_resource_or_one_namespace_in_the_order_of_keys() {
    let store = ephemeral();
    // neighbours in every way: namespaces and resources that begin alike, and objects without a namespace
    let keys = [
        Key::new("pods", "a", "z"),
        Key::new("pods", "a", "b"),
        Key::new("pods", "a-b", "a"),
        Key::new("pods", "ab", "c"),
        Key::new("pods", "", "a"),
        Key::new("podtemplates", "a", "b"),
        Key::new("pod", "a", "b"),
        Key::new("pods.metrics.k8s.io", "a", "b"),
    ];
    for key in &keys {
        store.write(put(key, Precondition::Absent)).await.unwrap();
    }
    let snapshot = store.snapshot();
    let list = |scope: Scope| -> Vec<String> {
        snapshot
            .list(&scope)
            .map(|entry| entry.key.to_string())
            .collect()
    };
    let all = ["pods/a", "pods/a/b", "pods/a/z", "pods/a-b/a", "pods/ab/c"];
    assert_eq!(list(Scope::all("pods")), all);
    assert_eq!(
        list(Scope::namespaced("pods", "a")),
        ["pods/a/b", "pods/a/z"]
    );
    assert_eq!(list(Scope::namespaced("pods", "")), ["pods/a"]);
    assert_eq!(list(Scope::namespaced("pods", "b")), [""; 0]);
    assert_eq!(list(Scope::all("pod")), ["pod/a/b"]);
    assert_eq!(list(Scope::all("nodes")), [""; 0]);
}

#[tokio::test]
async fn pages_of_one_snapshot_make_up_its_list_whatever_is_written_meanwhile() {
    let store = ephemeral();
    for i in 0..100 {
        store
            .write(put(&pod(&format!("{i:03}")), Precondition::Absent))
            .await
            .unwrap();
    }
    let (snapshot, scope) = (store.snapshot(), Scope::namespaced("pods", "default"));
    let mut paged = Vec::new();
    let mut next = Key::new("pods", "a", "before all");
    for page in 0.. {
        let entries: Vec<_> = snapshot.list_from(&scope, next).take(7).cloned().collect();
        let Some(end) = entries.last() else { break };
        let last = end.key.clone();
        // no name lies between one and the same with a zero behind it
        next = Key::new("pods", last.namespace(), &format!("{}\0", last.name()));
        paged.extend(entries);
        store.write(delete(&last, Precondition::Any)).await.unwrap();
        store
            .write(put(&pod(&format!("{page:03}x")), Precondition::Absent))
            .await
            .unwrap();
    }
    assert_eq!(paged.len(), 100);
    assert!(paged.iter().eq(snapshot.list(&scope)));
}

#[tokio::test]
async fn a_snapshot_does_not_change() {
    let store = ephemeral();
    let (one, two) = (pod("one"), pod("two"));
    let first = store.write(put(&one, Precondition::Absent)).await.unwrap();
    let snapshot = store.snapshot();
    store.write(put(&one, Precondition::Any)).await.unwrap();
    store.write(put(&two, Precondition::Absent)).await.unwrap();
    store.write(delete(&one, Precondition::Any)).await.unwrap();
    assert_eq!(snapshot.revision(), first.revision);
    assert_eq!(snapshot.get(&one), Some(&first));
    assert_eq!(snapshot.get(&two), None);
    assert_eq!(snapshot.len(), 1);
    assert_eq!(store.get(&one), None);
}

#[tokio::test]
async fn the_parts_of_a_key_cannot_run_into_each_other() {
    let store = ephemeral();
    let keys = [
        Key::new("pods", "a", "bc"),
        Key::new("pods", "ab", "c"),
        Key::new("pods", "", "abc"),
    ];
    for key in &keys {
        store.write(put(key, Precondition::Absent)).await.unwrap();
    }
    assert_eq!(store.snapshot().len(), 3);
    assert_eq!(store.get(&Key::new("podsa", "b", "c")), None);
}

#[tokio::test]
async fn a_store_opened_again_holds_the_same_objects_at_the_same_revisions() {
    let directory = scratch();
    let store = Store::open(Options::directory(directory.path())).unwrap();
    for i in 0..50 {
        store
            .write(put(&pod(&format!("{i}")), Precondition::Absent))
            .await
            .unwrap();
    }
    for i in 0..50 {
        let key = pod(&format!("{i}"));
        match i % 3 {
            0 => store.write(put(&key, Precondition::Any)).await.unwrap(),
            1 => store.write(delete(&key, Precondition::Any)).await.unwrap(),
            _ => continue,
        };
    }
    // the same name again, as another object
    store
        .write(put(&pod("1"), Precondition::Absent))
        .await
        .unwrap();
    let (revision, before) = (
        store.revision(),
        state(store.snapshot().list(&Scope::all("pods"))),
    );
    drop(store);
    let store = Store::open(Options::directory(directory.path())).unwrap();
    assert_eq!(store.revision(), revision);
    assert_eq!(state(store.snapshot().list(&Scope::all("pods"))), before);
}
