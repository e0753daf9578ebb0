//! What may be opened, and what is said about that which may not.

use std::fs;
use std::path::Path;

use local::store::{Change, OpenError, Options, Precondition, Scope, Store, Value, WriteError};

use crate::process::scratch;
use crate::support::{pod, put};

async fn filled(directory: &Path) {
    let store = Store::open(Options::directory(directory)).unwrap();
    for i in 0..200 {
        store
            .write(put(&pod(&format!("{i}")), Precondition::Absent))
            .await
            .unwrap();
    }
}

fn error(directory: &Path) -> OpenError {
    Store::open(Options::directory(directory))
        .err()
        .expect("it was opened")
}

fn database(directory: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(directory.join("objects.db")).unwrap()
}

#[tokio::test]
async fn a_directory_has_one_store_at_a_time() {
    let parent = scratch();
    let directory = parent.path().join("made").join("on demand");
    let store = Store::open(Options::directory(&directory)).unwrap();
    let second = error(&directory);
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    assert!(
        second.to_string().contains(directory.to_str().unwrap()),
        "{second}"
    );
    let clone = store.clone();
    drop(store);
    error(&directory);
    drop(clone);
    Store::open(Options::directory(&directory)).unwrap();
}

#[tokio::test]
async fn a_closed_store_frees_its_directory_and_only_reads_whoever_still_has_it() {
    let directory = scratch();
    let store = Store::open(Options::directory(directory.path())).unwrap();
    let entry = store.write(put(&pod("a"), Precondition::Absent)).await;
    let (_, mut follow) = store.follow();
    let watch = |store: &Store, resource: &str| {
        store.watch(Scope::all(resource), store.revision()).unwrap()
    };
    let mut before = watch(&store, "pods");
    store.close();
    let next = Store::open(Options::directory(directory.path())).unwrap();
    assert_eq!(next.get(&pod("a")).as_deref(), entry.as_deref().ok());
    assert_eq!(store.get(&pod("a")).as_ref(), entry.as_ref().ok());
    let refused = store.write(put(&pod("b"), Precondition::Absent)).await;
    assert!(matches!(refused, Err(WriteError::Closed)), "{refused:?}");
    assert!(before.next().await.is_none());
    assert!(watch(&store, "pods").next().await.is_none());
    assert!(watch(&store, "never written").next().await.is_none());
    assert!(follow.next().await.is_none());
    assert!(store.follow().1.next().await.is_none());
}

#[tokio::test]
async fn a_value_in_pieces_is_on_disk_as_its_bytes() {
    let directory = scratch();
    let options = || Options::directory(directory.path());
    let store = Store::open(options()).unwrap();
    let build = |_| Value::in_pieces("ad".into(), 1, ["b".into(), "c".into()].into());
    let change = Change::put(pod("a"), Precondition::Absent, build);
    let written = store.write(change).await.unwrap();
    assert_eq!(written.value.rest(), "ad");
    drop(store);
    let whole = Store::open(options()).unwrap().get(&pod("a")).unwrap();
    assert_eq!(whole.value.bytes(), "abcd");
    let store = Store::open(Options {
        read: |bytes| Value::from([b"read ", bytes].concat()),
        ..options()
    });
    let read = store.unwrap().get(&pod("a")).unwrap();
    assert_eq!(read.value.bytes(), "read abcd");
}

#[test]
fn another_process_is_kept_out_too() {
    let directory = scratch();
    let _store = Store::open(Options::directory(directory.path())).unwrap();
    let mut other = crate::child::command("child::writes_and_prints_each_answer", directory.path());
    let output = other.output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("InUse"), "{said}");
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_as_it_is() {
    let directory = scratch();
    filled(directory.path()).await;
    database(directory.path())
        .pragma_update(None, "user_version", 7)
        .unwrap();
    let before = fs::read(directory.path().join("objects.db")).unwrap();
    let refused = error(directory.path());
    assert!(
        matches!(
            refused,
            OpenError::Newer {
                found: 7,
                supported: 1,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(
        fs::read(directory.path().join("objects.db")).unwrap(),
        before
    );
}

#[test]
fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    let directory = scratch();
    database(directory.path())
        .execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    let refused = error(directory.path());
    assert!(
        matches!(
            refused,
            OpenError::Foreign {
                application_id: 0,
                ..
            }
        ),
        "{refused}"
    );
    let rows = database(directory.path()).query_row("SELECT count(*) FROM t", [], |row| row.get(0));
    assert_eq!(rows, Ok(1));
}

#[tokio::test]
async fn a_damaged_database_is_named_and_never_opened_in_part() {
    let overwrite = |file: &Path, at: usize, length: usize| {
        let mut bytes = fs::read(file).unwrap();
        let end = (at + length).min(bytes.len());
        bytes[at..end].fill(0xa5);
        fs::write(file, bytes).unwrap();
    };
    let truncate = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    };
    type Damage<'a> = &'a dyn Fn(&Path);
    let damages: [(&str, Damage<'_>); 5] = [
        ("header", &|file| overwrite(file, 0, 100)),
        ("a page in the middle", &|file| {
            overwrite(file, 5 * 4096, 4096)
        }),
        ("all but the header", &|file| {
            overwrite(file, 4096, usize::MAX / 2)
        }),
        ("cut in half", &truncate),
        ("not a database at all", &|file| {
            fs::write(file, "hello".repeat(1000)).unwrap()
        }),
    ];
    for (what, damage) in damages {
        let directory = scratch();
        filled(directory.path()).await;
        damage(&directory.path().join("objects.db"));
        let refused = error(directory.path());
        assert!(
            matches!(refused, OpenError::Damaged { .. }),
            "{what}: {refused:?}"
        );
        let said = refused.to_string();
        assert!(said.contains("objects.db is damaged: "), "{what}: {said}");
    }
}

#[tokio::test]
async fn contents_that_cannot_be_are_called_damage() {
    let statements = [
        "UPDATE objects SET revision = 1000000 WHERE name = '7'",
        "UPDATE objects SET name = '8' WHERE name = '7'",
        "UPDATE objects SET revision = -5 WHERE name = '7'",
        "DELETE FROM latest",
        "DROP TABLE objects",
    ];
    for statement in statements {
        let directory = scratch();
        filled(directory.path()).await;
        database(directory.path()).execute_batch(statement).unwrap();
        let refused = error(directory.path());
        assert!(
            matches!(refused, OpenError::Damaged { .. }),
            "{statement}: {refused:?}"
        );
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let parent = scratch();
    let file = parent.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let refused = error(&file.join("data"));
    assert!(matches!(refused, OpenError::Directory { .. }), "{refused}");
    assert!(refused.to_string().contains("file/data"), "{refused}");
}
