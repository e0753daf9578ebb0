//! What a merge patch of a Sandbox costs the server.

use std::time::Duration;

use anyhow::Result;

use crate::load::{Done, Load, run};
use crate::objects::{SANDBOXES, Template, change};
use crate::rival::Side;
use crate::table::{Table, Target, Unit};
use bench::client::Ask;
use bench::times::{micros, progress};

const CLIENTS: usize = 4;
const SANDBOX_COUNT: u64 = 64;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURE: Duration = Duration::from_secs(4);
/// µs
const WANTED: f64 = 200.0;

pub(crate) async fn measure(table: &mut Table, sides: &[&Side]) -> Result<()> {
    for side in sides {
        progress(&format!("patches: {}", side.name));
        let template = Template::sandbox();
        let load = Load {
            clients: CLIENTS,
            most: SANDBOX_COUNT,
            longest: Duration::MAX,
        };
        run(&side.access, load, move |number| {
            Ask::post(SANDBOXES, template.named(&format!("patched-{number}")))
        })
        .await?;
        patch(side, 0, WARM_UP).await?;
        let before = side.cpu()?;
        let done = patch(side, 1, MEASURE).await?;
        let cpu = (side.cpu()? - before).div_f64(done.requests as f64);
        let target = if side.is_ours() {
            Target::AtMost(WANTED)
        } else {
            Target::None
        };
        let what = format!(
            "CPU of the server for a merge patch of a Sandbox, TLS: {}",
            side.name
        );
        table.row(&what, micros(cpu), Unit::Micros, target);
        let what = format!("  patches/s, durable, {CLIENTS} clients: {}", side.name);
        let rate = done.requests as f64 / done.took.as_secs_f64();
        table.row(&what, rate, Unit::PerSecond, Target::None);
    }
    Ok(())
}

async fn patch(side: &Side, first: u64, longest: Duration) -> Result<Done> {
    let load = Load {
        clients: CLIENTS,
        most: u64::MAX,
        longest,
    };
    run(&side.access, load, move |number| {
        let (object, round) = (number % SANDBOX_COUNT, number / SANDBOX_COUNT + first);
        change(&format!("{SANDBOXES}/patched-{object}"), round)
    })
    .await
}
