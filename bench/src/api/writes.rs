//! Durable writes by many at once.

use std::time::Duration;

use anyhow::Result;

use crate::load::{Load, run};
use crate::objects::{CONFIG_MAPS, Template};
use crate::rival::Side;
use crate::table::{Table, Target, Unit};
use bench::client::Ask;
use bench::times::{millis, progress};

const WRITERS: usize = 32;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURE: Duration = Duration::from_secs(5);
const WANTED: f64 = 2000.0;

pub(crate) async fn measure(table: &mut Table, sides: &[&Side]) -> Result<()> {
    for side in sides {
        progress(&format!("writes: {}", side.name));
        create(side, "warm", WARM_UP).await?;
        let before = side.cpu()?;
        let done = create(side, "measured", MEASURE).await?;
        let cpu = (side.cpu()? - before).as_secs_f64() / done.requests as f64;
        let target = if side.is_ours() {
            Target::AtLeast(WANTED)
        } else {
            Target::None
        };
        let rate = done.requests as f64 / done.took.as_secs_f64();
        let what = format!(
            "durable creates/s, 2 KiB, {WRITERS} writers, TLS: {}",
            side.name
        );
        table.row(&what, rate, Unit::PerSecond, target);
        let what = format!("  CPU of the server for one: {}", side.name);
        table.row(
            &what,
            millis(Duration::from_secs_f64(cpu)),
            Unit::Millis,
            Target::None,
        );
    }
    Ok(())
}

async fn create(side: &Side, prefix: &'static str, longest: Duration) -> Result<crate::load::Done> {
    let template = Template::config_map();
    let load = Load {
        clients: WRITERS,
        most: u64::MAX,
        longest,
    };
    run(&side.access, load, move |number| {
        Ask::post(CONFIG_MAPS, template.named(&format!("{prefix}-{number}")))
    })
    .await
}
