//! How much memory the server holds.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::load::{Load, run};
use crate::objects::{SANDBOXES, Template, all_definitions};
use crate::sandbar::{Program, Server};
use crate::table::{Table, Target, Unit};
use bench::client::Ask;
use bench::definitions::define;
use bench::times::progress;

const SANDBOX_COUNT: u64 = 10_000;
/// What a start leaves to be done in the background is over by then.
const SETTLED: Duration = Duration::from_millis(500);

/// A directory that is gone when nobody needs it any more.
pub(crate) struct Filled(tempfile::TempDir);

impl std::ops::Deref for Filled {
    type Target = std::path::Path;

    fn deref(&self) -> &std::path::Path {
        self.0.path()
    }
}

/// Fills a directory, looking at the memory on the way if `shown`.
pub(crate) async fn measure(table: &mut Table, program: &Program, shown: bool) -> Result<Filled> {
    let filled = Filled(program.directory()?);
    let path: PathBuf = filled.0.path().to_owned();
    let mut report = |what: &str, memory: f64, target: Target| {
        if shown {
            table.row(what, memory, Unit::MiB, target);
        }
    };
    let server = program.start(&path).await?;
    report("RSS, nothing in it", settled(&server).await?, Target::None);
    define(&server.side.access, all_definitions()?).await?;
    report(
        "RSS, all CRDs, just installed",
        settled(&server).await?,
        Target::None,
    );
    server.stop().await?;
    let server = program.start(&path).await?;
    report(
        "RSS, all CRDs, idle after a start",
        settled(&server).await?,
        Target::AtMost(25.0),
    );

    progress("creating 10,000 Sandboxes");
    let template = Template::sandbox();
    let load = Load {
        clients: 32,
        most: SANDBOX_COUNT,
        longest: Duration::MAX,
    };
    let size = template.size();
    run(&server.side.access, load, move |number| {
        Ask::post(SANDBOXES, template.named(&format!("sandbox-{number}")))
    })
    .await?;
    let stored = server.side.access.connect().await?;
    let stored = stored
        .whole(Ask::get(&format!("{SANDBOXES}/sandbox-0")))
        .await?;
    let most = Target::AtMost(120.0);
    report(
        "RSS, 10,000 Sandboxes, just created",
        settled(&server).await?,
        most,
    );
    server.stop().await?;
    let server = program.start(&path).await?;
    report(
        "RSS, 10,000 Sandboxes, after a start",
        settled(&server).await?,
        most,
    );
    server.stop().await?;
    if shown {
        let sizes = format!("{size} / {} bytes", stored.len());
        table.note("  one of them, as sent / as stored", &sizes);
    }
    Ok(filled)
}

async fn settled(server: &Server) -> Result<f64> {
    tokio::time::sleep(SETTLED).await;
    server.resident()
}
