//! The API keeps its promises when its process is killed, and says what is wrong when its disk is full.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Client, ResourceExt as _};
use local::store::Location;
use local::{Cluster, Options};
use serde_json::{Value, json};

use process::{command, directory, on_a_small_disk, run, scratch};

const SEED: &str = "DURABILITY_TEST_SEED";
const KILLS: u64 = 25;
/// Fewer answers than that say nothing about lost writes.
const ENOUGH: usize = 200;
const FINALIZER: &str = "example.com/hold";
/// For what controllers do in their own time.
const PATIENCE: Duration = Duration::from_secs(20);

async fn open(directory: &Path) -> Cluster {
    let options = Options::at(Location::Directory(directory.to_owned()));
    Cluster::open(options).await.unwrap()
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

/// An object whose parts agree with each other, so that a torn one is told.
fn config_map(name: &str, round: u64) -> ConfigMap {
    let fill = format!("{name}@{round} ").repeat(40);
    let data = json!({"round": round.to_string(), "fill": fill});
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

fn assert_whole(object: &ConfigMap) {
    let data = object.data.as_ref().unwrap();
    let round = data["round"].parse().unwrap();
    let expected = config_map(&object.name_any(), round);
    assert_eq!(
        *data,
        expected.data.unwrap(),
        "{} is torn",
        object.name_any()
    );
}

/// What has been answered about an object: its version, or that it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    At(u64),
    Ending(u64),
    Gone,
}

/// The writers of one process, for ever; every answer is printed once it is there.
#[test]
fn writes_and_prints_each_answer() {
    let Some(directory) = directory() else { return };
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let cluster = open(&directory).await;
        let client = cluster.client();
        let writers: Vec<_> = (0..3)
            .map(|writer| tokio::spawn(write(client.clone(), seed, writer)))
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// One life after the other: created, patched, given dependents, marked for deletion, released.
async fn write(client: Client, seed: u64, writer: u64) {
    let api = config_maps(&client);
    let patch = PatchParams::default();
    for life in 0_u64.. {
        let name = format!("o-{seed}-{writer}-{life}");
        let mut owner = config_map(&name, 0);
        owner.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        let made = api.create(&PostParams::default(), &owner).await.unwrap();
        say("at", &made);
        let mut dependent = config_map(&format!("{name}-d"), 0);
        dependent.metadata.owner_references = Some(vec![
            serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.uid().unwrap(),
            }))
            .unwrap(),
        ]);
        let dependent = api
            .create(&PostParams::default(), &dependent)
            .await
            .unwrap();
        say("at", &dependent);
        for round in 1..4 {
            let change = json!({"data": config_map(&name, round).data});
            let changed = api.patch(&name, &patch, &Patch::Merge(change)).await;
            say("at", &changed.unwrap());
        }
        if life % 3 == 0 {
            continue;
        }
        let ending = api
            .delete(&name, &DeleteParams::background())
            .await
            .unwrap();
        say("ending", &ending.left().unwrap());
        if life % 3 == 1 {
            let release = json!({"metadata": {"finalizers": null}});
            let gone = api.patch(&name, &patch, &Patch::Merge(release)).await;
            say("gone", &gone.unwrap());
        }
    }
}

fn say(what: &str, object: &ConfigMap) {
    let version = object.resource_version().unwrap();
    // in one call: a line is there as a whole or not at all
    let line = format!("ack {what} {} {version}\n", object.name_any());
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

type Ledger = BTreeMap<String, Known>;

fn note(ledger: &mut Ledger, line: &str) -> bool {
    let Some(line) = line.split("ack ").nth(1) else {
        return false;
    };
    let [what, name, version] = line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{line:?}");
    };
    let version = version.parse().unwrap();
    let known = match what {
        "at" => Known::At(version),
        "ending" => Known::Ending(version),
        _ => Known::Gone,
    };
    ledger.insert(name.to_owned(), known);
    true
}

/// Lets the writers write until a random moment. Returns how many answers came.
fn write_until_killed(directory: &Path, kill: u64, ledger: &mut Ledger) -> usize {
    let mut child = command("writes_and_prints_each_answer", directory)
        .env(SEED, kill.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // the first answer, so that the moment lies within the writing and not before it
    let first = lines
        .find(|line| line.as_ref().unwrap().contains("ack "))
        .unwrap();
    note(ledger, &first.unwrap());
    let moment = kill.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 40_000;
    std::thread::sleep(Duration::from_micros(moment));
    child.kill().unwrap();
    child.wait().unwrap();
    1 + lines
        .filter(|line| note(ledger, line.as_ref().unwrap()))
        .count()
}

#[test]
fn no_acknowledged_write_is_lost_when_the_api_is_killed_25_times() {
    let scratch = scratch();
    let mut ledger = Ledger::new();
    let (mut answers, mut kill) = (0, 0);
    // on a slow machine more often, until there is something to be lost
    while kill < KILLS || (answers <= ENOUGH && kill < 20 * KILLS) {
        kill += 1;
        answers += write_until_killed(scratch.path(), kill, &mut ledger);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let cluster = open(scratch.path()).await;
            let client = cluster.client();
            check(&client, &mut ledger, kill).await;
            cluster.close().await;
        });
    }
    assert!(
        answers > ENOUGH,
        "only {answers} answers: nothing was tested"
    );
}

/// Compares the server with what was answered, and takes over what it says.
async fn check(client: &Client, ledger: &mut Ledger, kill: u64) {
    let api = config_maps(client);
    let last_seen = ledger.values().filter_map(|known| match known {
        Known::At(version) | Known::Ending(version) => Some(*version),
        Known::Gone => None,
    });
    let last_seen = last_seen.max().unwrap_or_default();
    let list = api.list(&ListParams::default()).await.unwrap();
    let found: BTreeMap<String, &ConfigMap> = list
        .items
        .iter()
        .map(|item| (item.name_any(), item))
        .collect();
    let lists_at: u64 = list
        .metadata
        .resource_version
        .as_deref()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        lists_at >= last_seen,
        "after kill {kill}: versions went back"
    );
    for object in list
        .items
        .iter()
        .filter(|item| item.name_any().starts_with("o-"))
    {
        assert_whole(object);
    }
    for (name, known) in ledger.iter() {
        let version = found
            .get(name)
            .map(|found| -> u64 { found.resource_version().unwrap().parse().unwrap() });
        let is_dependent = name.ends_with("-d");
        match (known, version) {
            (Known::Gone, None) => {}
            // the write that was on its way when the process died may have been made
            (Known::At(known), Some(version)) => {
                assert!(version >= *known, "{name} after kill {kill}")
            }
            (Known::Ending(known), Some(version)) => {
                assert!(version >= *known, "{name} after kill {kill}");
                let ending = found[name].metadata.deletion_timestamp.is_some();
                assert!(ending, "{name} lives again after kill {kill}");
            }
            // released, or collected after its owner
            (Known::Ending(_), None) => {}
            (Known::At(_), None) if is_dependent => {
                let owner = name.trim_end_matches("-d");
                assert!(
                    !found.contains_key(owner),
                    "{name} is lost after kill {kill}"
                );
            }
            (Known::At(_), None) => panic!("{name} is lost after kill {kill}"),
            (Known::Gone, Some(_)) => panic!("{name} is back after kill {kill}"),
        }
    }
    watch_resumes(&api, last_seen, lists_at).await;
    collected(&api, kill).await;
    let list = api.list(&ListParams::default()).await.unwrap();
    let left: BTreeSet<String> = list.items.iter().map(ConfigMap::name_any).collect();
    ledger.retain(|name, _| left.contains(name));
}

/// From the last version that was seen: events up to now, or 410.
async fn watch_resumes(api: &Api<ConfigMap>, version: u64, now: u64) {
    let params = WatchParams::default().timeout(1);
    let events = api.watch(&params, &version.to_string()).await;
    let mut events = match events {
        Ok(events) => events.boxed(),
        Err(kube::Error::Api(status)) => return assert_eq!(status.code, 410, "{status:?}"),
        Err(error) => panic!("{error}"),
    };
    let mut last = version;
    while last < now
        && let Some(event) = events.next().await
    {
        match event.unwrap() {
            WatchEvent::Added(object)
            | WatchEvent::Modified(object)
            | WatchEvent::Deleted(object) => {
                let seen = object.resource_version().unwrap().parse().unwrap();
                assert!(seen > last, "a watch goes back in time");
                last = seen;
            }
            WatchEvent::Error(status) => return assert_eq!(status.code, 410, "{status:?}"),
            WatchEvent::Bookmark(_) => {}
        }
    }
}

/// Whatever lost its owner goes, also if the owner went in an earlier life.
async fn collected(api: &Api<ConfigMap>, kill: u64) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let list = api.list(&ListParams::default()).await.unwrap();
        let uids: BTreeSet<String> = list.items.iter().filter_map(ConfigMap::uid).collect();
        let orphan = list.items.iter().find(|item| {
            let owners = item.owner_references();
            !owners.is_empty() && owners.iter().all(|owner| !uids.contains(&owner.uid))
        });
        let Some(orphan) = orphan else { return };
        let name = orphan.name_any();
        assert!(
            Instant::now() < give_up,
            "{name} outlives its owner after kill {kill}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// In a mount namespace of its own, with a file system of 4 MiB that vanishes with it.
#[test]
fn a_full_disk_refuses_writes_in_clear_words_until_there_is_space() {
    on_a_small_disk("fills_the_disk", "the disk was full");
}

/// Run by the test above.
#[test]
fn fills_the_disk() {
    run(fill, "the disk was full");
}

async fn fill(directory: &Path) {
    let ballast = directory.join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let cluster = open(directory).await;
    let client = cluster.client();
    let api = config_maps(&client);
    let large = |name: &str| -> ConfigMap {
        let data = json!({"k": "x".repeat(20_000)});
        serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
    };
    let mut made = Vec::new();
    let (refused, status) = loop {
        let name = format!("o-{}", made.len());
        match api.create(&PostParams::default(), &large(&name)).await {
            Ok(_) => made.push(name),
            Err(kube::Error::Api(status)) => break (name, status),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(
        (status.code, status.reason.as_str()),
        (500, "InternalError")
    );
    let file = format!("{}/objects.db", directory.display());
    for part in [
        file.as_str(),
        "full",
        "Nothing of this request was stored",
        "Free space",
    ] {
        assert!(
            status.message.contains(part),
            "{part:?} is not in {:?}",
            status.message
        );
    }
    assert_eq!(status.details.as_ref().unwrap().name, refused);

    // reads and watches go on, and what was refused is not there
    let list = api.list(&ListParams::default()).await.unwrap();
    let found: Vec<String> = list.items.iter().map(ConfigMap::name_any).collect();
    assert!(made.iter().all(|name| found.contains(name)));
    assert!(api.get_opt(&refused).await.unwrap().is_none());
    let first = &made[0];
    let grow = json!({"data": {"l": "y".repeat(200_000)}});
    let error = api
        .patch(first, &PatchParams::default(), &Patch::Merge(&grow))
        .await
        .unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 500));
    let kept: Value = serde_json::to_value(api.get(first).await.unwrap()).unwrap();
    assert!(kept["data"]["l"].is_null());

    std::fs::remove_file(ballast).unwrap();
    api.create(&PostParams::default(), &large(&refused))
        .await
        .unwrap();
    api.patch(first, &PatchParams::default(), &Patch::Merge(&grow))
        .await
        .unwrap();
    api.delete(first, &DeleteParams::default()).await.unwrap();
    cluster.close().await;
    let cluster = open(directory).await;
    let api = config_maps(&cluster.client());
    assert!(api.get_opt(first).await.unwrap().is_none());
    assert!(api.get_opt(&refused).await.unwrap().is_some());
}
