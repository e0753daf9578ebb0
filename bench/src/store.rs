//! How fast and how large the store of the embedded cluster is. `cargo run --release -p bench --bin bench-store`
//!
//! The directory given as the first argument, or else the current one, decides which disk is measured.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use local::store::{Change, Key, Options, Precondition, Scope, Store};
use tokio::task::JoinSet;

const MEASURE_FOR: Duration = Duration::from_secs(3);
const KIB: usize = 1024;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let disk = match arguments.as_slice() {
        [] => PathBuf::from("."),
        [disk] => disk.clone(),
        [_, filled, ..] => return memory_of(filled),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()?;
    println!("{:<46} {:>14}", "what", "measured");
    runtime.block_on(writes(&disk))?;
    runtime.block_on(opening(&disk))?;
    runtime.block_on(memory(&disk))?;
    runtime.block_on(watching(&disk))
}

fn row(what: &str, measured: &str) {
    println!("{what:<46} {measured:>14}");
}

fn object(revision: u64, size: usize) -> Vec<u8> {
    let mut object = format!(r#"{{"resourceVersion":"{revision}","fill":""#).into_bytes();
    object.resize(size.saturating_sub(2), b'x');
    object.extend(br#""}"#);
    object
}

fn put(name: &str, precondition: Precondition, size: usize) -> Change {
    let key = Key::new("sandboxes.agents.x-k8s.io", "default", name);
    Change::put(key, precondition, move |revision| object(revision, size))
}

async fn writes(disk: &Path) -> Result<()> {
    for writers in [1, 8, 32] {
        let directory = tempfile::tempdir_in(disk)?;
        let store = Store::open(Options::directory(directory.path()))?;
        let rate = write_rate(&store, writers).await?;
        let stats = store.stats();
        row(
            &format!("durable writes/s, 2 KiB, writers: {writers}"),
            &format!("{rate:.0}"),
        );
        let group = stats.writes as f64 / stats.commits.max(1) as f64;
        row("  writes in one transaction", &format!("{group:.1}"));
    }
    let store = Store::open(Options::ephemeral())?;
    let rate = write_rate(&store, 32).await?;
    row(
        "ephemeral writes/s, 2 KiB, writers: 32",
        &format!("{rate:.0}"),
    );
    Ok(())
}

/// Each writer creates an object and then updates it over and over, as status writers do; of every eight writes
/// one makes a new object.
async fn write_rate(store: &Store, writers: usize) -> Result<f64> {
    let written = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for writer in 0..writers {
        let (store, written) = (store.clone(), Arc::clone(&written));
        tasks.spawn(async move {
            for round in 0.. {
                let name = format!("sandbox-{writer}-{round}");
                let mut precondition = Precondition::Absent;
                for _ in 0..8 {
                    let entry = store.write(put(&name, precondition, 2 * KIB)).await?;
                    precondition = Precondition::Revision(entry.revision);
                    written.fetch_add(1, Ordering::Relaxed);
                }
                if start.elapsed() > MEASURE_FOR {
                    break;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(written.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

async fn opening(disk: &Path) -> Result<()> {
    let directory = tempfile::tempdir_in(disk)?;
    fill(directory.path(), 10_000, 2 * KIB).await?;
    let start = Instant::now();
    let store = Store::open(Options::directory(directory.path()))?;
    row(
        "open, 10,000 objects of 2 KiB",
        &format!("{:.0?}", start.elapsed()),
    );
    ensure!(store.snapshot().len() == 10_000, "objects are missing");

    let keys: Vec<Key> = store
        .snapshot()
        .list(&Scope::all("sandboxes.agents.x-k8s.io"))
        .map(|e| e.key.clone())
        .collect();
    let (start, rounds) = (Instant::now(), 1_000_000);
    let mut bytes = 0;
    for i in 0..rounds {
        bytes += store
            .get(&keys[i * 7919 % keys.len()])
            .context("lost object")?
            .value
            .len();
    }
    ensure!(bytes == rounds * 2 * KIB, "wrong objects");
    let each = start.elapsed().as_nanos() / rounds as u128;
    row("get, one of 10,000 at random", &format!("{each} ns"));
    let start = Instant::now();
    let scope = Scope::namespaced("sandboxes.agents.x-k8s.io", "default");
    let bytes: usize = store
        .snapshot()
        .list(&scope)
        .map(|entry| entry.value.len())
        .sum();
    ensure!(bytes == 10_000 * 2 * KIB, "wrong list");
    row(
        "list of 10,000, without copying",
        &format!("{:.0?}", start.elapsed()),
    );
    Ok(())
}

async fn fill(directory: &Path, objects: usize, size: usize) -> Result<()> {
    let store = Store::open(Options::directory(directory))?;
    let mut tasks = JoinSet::new();
    for i in 0..objects {
        let store = store.clone();
        tasks.spawn(async move {
            store
                .write(put(&format!("sandbox-{i}"), Precondition::Absent, size))
                .await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn memory(disk: &Path) -> Result<()> {
    let directory = tempfile::tempdir_in(disk)?;
    fill(directory.path(), 10_000, 4 * KIB).await?;
    // in a process of its own, so that nothing measured before counts
    let mut child = std::process::Command::new(std::env::current_exe()?);
    let status = child.arg(disk).arg(directory.path()).status()?;
    ensure!(status.success(), "the memory measurement failed: {status}");
    Ok(())
}

fn memory_of(filled: &Path) -> Result<()> {
    row(
        "memory, nothing open",
        &format!("{} MiB", resident()? / KIB),
    );
    let store = Store::open(Options::directory(filled))?;
    ensure!(store.snapshot().len() == 10_000, "objects are missing");
    row(
        "memory, 10,000 objects of 4 KiB",
        &format!("{} MiB", resident()? / KIB),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut rewrites = 0;
    for round in [1, 2, 4, 8] {
        while rewrites < round {
            runtime.block_on(update_all(&store, 4 * KIB))?;
            rewrites += 1;
        }
        let what = format!("  and history, after rewriting all {round} times");
        row(&what, &format!("{} MiB", resident()? / KIB));
    }
    Ok(())
}

async fn update_all(store: &Store, size: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for entry in store
        .snapshot()
        .list(&Scope::all("sandboxes.agents.x-k8s.io"))
    {
        let (store, change) = (
            store.clone(),
            put(
                entry.key.name(),
                Precondition::Revision(entry.revision),
                size,
            ),
        );
        tasks.spawn(async move { store.write(change).await });
        if tasks.len() == 64
            && let Some(done) = tasks.join_next().await
        {
            done??;
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// KiB, as the kernel counts it.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS")?;
    Ok(line.trim_end_matches("kB").trim().parse()?)
}

/// From the moment the write is accepted by `write` to the moment a watcher holds the event, and from the moment
/// it became durable.
async fn watching(disk: &Path) -> Result<()> {
    const WATCHERS: usize = 100;
    const WRITES: usize = 500;
    let directory = tempfile::tempdir_in(disk)?;
    let store = Store::open(Options::directory(directory.path()))?;
    let answered: Arc<Vec<OnceLock<Instant>>> =
        Arc::new((0..WRITES).map(|_| OnceLock::new()).collect());
    let first = store.revision() + 1;
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let mut watch = store.watch(Scope::all("sandboxes.agents.x-k8s.io"), store.revision())?;
        watchers.spawn(async move {
            let mut seen = Vec::with_capacity(WRITES);
            while seen.len() < WRITES {
                let event = watch.next().await.context("the store closed")??;
                seen.push((event.entry.revision, Instant::now()));
            }
            anyhow::Ok(seen)
        });
    }
    let mut asked = Vec::with_capacity(WRITES);
    for i in 0..WRITES {
        asked.push(Instant::now());
        store
            .write(put(
                &format!("sandbox-{}", i % 50),
                Precondition::Any,
                2 * KIB,
            ))
            .await?;
        let _ = answered[i].set(Instant::now());
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    let (mut whole, mut delivery) = (Vec::new(), Vec::new());
    while let Some(seen) = watchers.join_next().await {
        for (revision, at) in seen?? {
            let i = usize::try_from(revision - first)?;
            whole.push(at - asked[i]);
            let durable = *answered[i].get().context("no answer")?;
            delivery.push(at.saturating_duration_since(durable));
        }
    }
    for (what, mut times) in [("write to event", whole), ("answer to event", delivery)] {
        times.sort();
        for (name, percent) in [("p50", 50), ("p99", 99)] {
            let time = times[times.len() * percent / 100];
            row(
                &format!("{what}, {WATCHERS} watchers, {name}"),
                &format!("{time:.0?}"),
            );
        }
    }
    Ok(())
}
