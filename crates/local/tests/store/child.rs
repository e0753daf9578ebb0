//! The programs that other tests of the store run in a process of their own.

use std::io::Write;
use std::process::Command;

use local::store::{Entry, Key, Options, Precondition, Store};

pub(crate) use crate::process::{command, directory, on_a_small_disk, run, under};
use crate::support::{Dice, delete, may_be_deleted, put_sized};

const WRITES: &str = "STORE_TEST_WRITES";
const SESSIONS: &str = "STORE_TEST_SESSIONS";

/// Instead of for ever: so many writes by each writer, then all of it again, so many times in all.
pub(crate) fn limit(command: &mut Command, writes: u64, sessions: u64) {
    command
        .env(WRITES, writes.to_string())
        .env(SESSIONS, sessions.to_string());
}

/// Four writers on their own and on shared objects, for ever or as far as they are told; every answer is printed
/// once it is there.
#[test]
fn writes_and_prints_each_answer() {
    let Some(directory) = directory() else { return };
    let number = |name| std::env::var(name).map(|text| text.parse::<u64>().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for _ in 0..number(SESSIONS).unwrap_or(1) {
        let store = Store::open(Options::directory(&directory)).unwrap();
        runtime.block_on(async {
            let writes = number(WRITES).unwrap_or(u64::MAX);
            let writers: Vec<_> = (0..4)
                .map(|writer| tokio::spawn(write(store.clone(), writer, writes)))
                .collect();
            for writer in writers {
                writer.await.unwrap();
            }
        });
    }
}

async fn write(store: Store, writer: u64, writes: u64) {
    let mut dice = Dice::new(writer + store.revision());
    for _ in 0..writes {
        let name = match dice.roll(4) {
            0 => format!("shared-{}", dice.roll(60)),
            1 => format!("brief-{}", dice.roll(8)),
            2 => "contended".to_owned(),
            _ => format!("own-{writer}-{}", dice.roll(8)),
        };
        let key = Key::new("pods", "default", &name);
        let current = store.get(&key);
        let precondition = current
            .as_ref()
            .map_or(Precondition::Absent, |e| Precondition::Revision(e.revision));
        let deletes = current.is_some() && may_be_deleted(&key);
        // now and then more than a page, so that a torn object can happen at all
        let fill = if dice.roll(8) == 0 { 20_000 } else { 500 };
        let change = if deletes {
            delete(&key, precondition)
        } else {
            put_sized(&key, precondition, fill)
        };
        // losing a race is no event
        if let Ok(entry) = store.write(change).await {
            acknowledge(if deletes { "delete" } else { "put" }, &entry);
        }
    }
}

fn acknowledge(kind: &str, entry: &Entry) {
    let key = &entry.key;
    let (resource, namespace, name) = (key.resource(), key.namespace(), key.name());
    // in one call: a line is there as a whole or not at all
    let line = format!(
        "ack {kind} {resource} {namespace} {name} {}\n",
        entry.revision
    );
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}
