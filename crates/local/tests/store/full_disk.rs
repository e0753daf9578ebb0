//! A disk without space: writes fail and say why, all else goes on, and with space everything does.

use std::path::Path;

use local::store::{Options, Precondition, Scope, Store, WriteError};

use crate::child;
use crate::support::{assert_whole, drain, pod, put, put_sized, replay, state};

/// In a mount namespace of its own, with a file system of 4 MiB that vanishes with it. Whoever is not root needs
/// a kernel that lets users have namespaces.
#[test]
fn a_full_disk_fails_writes_until_there_is_space_again() {
    child::on_a_small_disk("full_disk::fills_the_disk", "the disk was full");
}

/// Run by the test above.
#[test]
fn fills_the_disk() {
    child::run(fill, "the disk was full");
}

async fn fill(directory: &Path) {
    let ballast = directory.join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let store = Store::open(Options::directory(directory)).unwrap();
    let scope = Scope::all("pods");
    let mut watch = store.watch(scope.clone(), store.revision()).unwrap();
    let error = write_until_refused(&store, 0).await;
    let said = error.to_string();
    let named = format!(
        "cannot write to the database {}/objects.db: ",
        directory.display()
    );
    assert!(said.starts_with(&named) && said.contains("full"), "{said}");

    // what was answered is there, what was refused is not, and whoever looks or watches sees the same
    let full = store.snapshot();
    full.list(&scope)
        .for_each(|entry| assert_whole(entry).unwrap());
    let mut replayed = Default::default();
    drain(&mut watch)
        .iter()
        .for_each(|event| replay(&mut replayed, event));
    assert_eq!(replayed, state(full.list(&scope)));
    assert!(store.watch(scope.clone(), full.revision()).is_ok());
    let refused = store
        .write(put_sized(&pod("refused"), Precondition::Absent, 1 << 20))
        .await;
    assert!(matches!(refused, Err(WriteError::Storage(_))));
    assert_eq!(store.get(&pod("refused")), None);

    std::fs::remove_file(ballast).unwrap();
    let entry = store
        .write(put(&pod("refused"), Precondition::Absent))
        .await
        .unwrap();
    assert!(entry.revision > full.revision());
    assert_eq!(
        drain(&mut watch).last().map(|event| event.entry.clone()),
        Some(entry)
    );
    let before = state(store.snapshot().list(&scope));
    let revision = store.revision();
    assert!(store.stats().failures >= 2);
    drop((store, watch));
    let store = Store::open(Options::directory(directory)).unwrap();
    assert_eq!(state(store.snapshot().list(&scope)), before);
    assert_eq!(store.revision(), revision);
}

/// Eight writers at once, so that some are accepted on top of a batch that fails.
async fn write_until_refused(store: &Store, first: u64) -> WriteError {
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for i in first.. {
                    let key = pod(&format!("{writer}-{i}"));
                    let change = put_sized(&key, Precondition::Absent, 10_000);
                    match store.write(change).await {
                        Ok(entry) => assert_eq!(store.get(&key), Some(entry)),
                        Err(error) => {
                            assert_eq!(store.get(&key), None);
                            return error;
                        }
                    }
                }
                unreachable!("the disk is endless")
            })
        })
        .collect();
    let mut last = None;
    for writer in writers {
        last = Some(writer.await.unwrap());
    }
    last.unwrap()
}
