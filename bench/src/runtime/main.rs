//! The figures of the daemon inside a sandbox, each with its target, and beside another daemon if there is one.
//!
//! `RUSTFLAGS='-C target-feature=+crt-static' cargo build -p runtime --profile runtime --target x86_64-unknown-linux-gnu`, then
//! `cargo build --release -p bench && target/release/bench-runtime --daemon target/x86_64-unknown-linux-gnu/runtime/sandbar-runtime`.

mod daemon;
mod talk;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench::process;
use bench::table::{Bound, Limit, Table, middle_and_last};
use bench::times::{Times, millis, progress};
use clap::Parser;

use crate::daemon::{Daemon, Program};
use crate::talk::Connection;

const STARTS: usize = 20;
const COMMANDS: usize = 1_000;
const PROCESSES: usize = 200;
const FILE: usize = 1 << 30;

/// Long enough for a daemon to give back what its start took.
const IDLE: Duration = Duration::from_secs(7);

/// Prints the figures of the daemon inside a sandbox
#[derive(Parser)]
struct Args {
    /// The program to measure
    #[arg(long, value_name = "FILE")]
    daemon: PathBuf,
    /// A command that starts another daemon of the protocol; {port} in it is replaced
    #[arg(long, value_name = "COMMAND")]
    rival_cmd: Option<String>,
    /// The rival's program, for its size
    #[arg(long, value_name = "FILE")]
    rival_file: Option<PathBuf>,
}

/// What one daemon needs.
struct Figures {
    size: Option<f64>,
    start: Times,
    idle: f64,
    command: Times,
    used: f64,
    per_process: f64,
    upload: f64,
    download: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(
        args.daemon.exists(),
        "there is no {}: the first lines of {} say how to build it",
        args.daemon.display(),
        file!()
    );
    let command = format!("{} --host 127.0.0.1 --port {{port}}", args.daemon.display());
    let file = Some(args.daemon);
    let ours = measure(&Program { command, file }).await;
    let ours = ours.context("measuring the daemon")?;
    let rival = match args.rival_cmd {
        Some(command) => {
            let file = args.rival_file;
            let figures = measure(&Program { command, file }).await;
            Some(figures.context("measuring the rival")?)
        }
        None => None,
    };
    print(&ours, rival.as_ref());
    Ok(())
}

async fn measure(program: &Program) -> Result<Figures> {
    progress("starts");
    let mut start = Vec::new();
    for _ in 0..STARTS {
        let (_, took) = Daemon::start(program).await?;
        start.push(took);
    }
    let (daemon, _) = Daemon::start(program).await?;
    tokio::time::sleep(IDLE).await;
    let idle = process::resident(daemon.pid)?;
    progress("commands");
    let command = commands(&daemon).await?;
    progress("files");
    let (upload, download) = files(&daemon).await?;
    progress("processes");
    tokio::time::sleep(IDLE).await;
    let used = process::resident(daemon.pid)?;
    let per_process = processes(&daemon).await?;
    Ok(Figures {
        size: program.size()?,
        start: Times::new(start),
        idle,
        command,
        used,
        per_process,
        upload,
        download,
    })
}

/// `/bin/true`, one after the other over one connection.
async fn commands(daemon: &Daemon) -> Result<Times> {
    let mut connection = Connection::open(daemon.address).await?;
    let mut times = Vec::new();
    for _ in 0..COMMANDS {
        let begun = Instant::now();
        connection.run(&["/bin/true"]).await?;
        times.push(begun.elapsed());
    }
    Ok(Times::new(times))
}

/// GB/s there and back, of a file in memory.
async fn files(daemon: &Daemon) -> Result<(f64, f64)> {
    let dir = tempfile::Builder::new().tempdir_in("/dev/shm")?;
    let path = dir.path().join("file");
    let path = path.to_str().context("a path that is no text")?;
    let mut connection = Connection::open(daemon.address).await?;
    let begun = Instant::now();
    connection.upload(path, FILE).await?;
    let up = rate(begun.elapsed());
    let begun = Instant::now();
    let read = connection.download(path).await?;
    ensure!(read == FILE, "{read} bytes came back");
    Ok((up, rate(begun.elapsed())))
}

fn rate(took: Duration) -> f64 {
    FILE as f64 / 1e9 / took.as_secs_f64()
}

/// KiB for each process that runs with a client that listens.
async fn processes(daemon: &Daemon) -> Result<f64> {
    let mut listening = Vec::new();
    let mut before = 0.0;
    // the first brings back the code for it
    for number in 0..=PROCESSES {
        let mut connection = Connection::open(daemon.address).await?;
        connection.start(&["/bin/sleep", "1000"]).await?;
        listening.push(connection);
        if number == 0 {
            before = process::resident(daemon.pid)?;
        }
    }
    let grown = process::resident(daemon.pid)? - before;
    Ok(grown * 1024.0 / PROCESSES as f64)
}

/// A row of the table: what it is about, how a side's figure is told, and the bound of ours.
struct Row {
    what: &'static str,
    tell: fn(&Figures) -> String,
    bound: Option<fn(&Figures) -> Bound>,
}

const ROWS: [Row; 8] = [
    Row {
        what: "program",
        tell: |f| f.size.map_or(String::new(), |size| format!("{size:.2} MB")),
        bound: Some(|f| at_most(5.0, "MB", f.size.unwrap_or(f64::MAX))),
    },
    Row {
        what: "start to /health, p50 / p99",
        tell: |f| middle_and_last(&f.start),
        bound: Some(|f| median_at_most(5.0, &f.start)),
    },
    Row {
        what: "RSS idle",
        tell: |f| format!("{:.1} MiB", f.idle),
        bound: Some(|f| at_most(2.5, "MiB", f.idle)),
    },
    Row {
        what: "Start(/bin/true) over one connection, p50 / p99",
        tell: |f| middle_and_last(&f.command),
        bound: Some(|f| median_at_most(1.6, &f.command)),
    },
    Row {
        what: "RSS after commands and files, idle again",
        tell: |f| format!("{:.1} MiB", f.used),
        bound: None,
    },
    Row {
        what: "each running process and its listener",
        tell: |f| format!("{:.0} KiB", f.per_process),
        bound: Some(|f| at_most(25.0, "KiB", f.per_process)),
    },
    Row {
        what: "upload of 1 GiB",
        tell: |f| format!("{:.2} GB/s", f.upload),
        bound: Some(|f| quick_enough(f.upload)),
    },
    Row {
        what: "download of 1 GiB",
        tell: |f| format!("{:.2} GB/s", f.download),
        bound: Some(|f| quick_enough(f.download)),
    },
];

fn print(ours: &Figures, rival: Option<&Figures>) {
    let table = Table::begin(rival.map(|_| "rival"));
    for Row { what, tell, bound } in ROWS {
        let other = rival.map(tell).unwrap_or_default();
        table.row_beside(what, &tell(ours), &other, bound.map(|bound| bound(ours)));
    }
}

fn at_most(most: f64, unit: &'static str, value: f64) -> Bound {
    let limit = Limit::AtMost(most);
    Bound {
        of: "",
        value,
        limit,
        unit,
    }
}

fn median_at_most(most: f64, times: &Times) -> Bound {
    let of = "p50";
    Bound {
        of,
        ..at_most(most, "ms", millis(times.median()))
    }
}

fn quick_enough(value: f64) -> Bound {
    let limit = Limit::AtLeast(1.0);
    Bound {
        of: "",
        value,
        limit,
        unit: "GB/s",
    }
}
