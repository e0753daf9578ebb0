//! What the controller needs when there is a lot, and how soon it is back.

use std::time::{Duration, Instant};

use anyhow::Result;
use bench::times::progress;

use crate::desk::lock;
use crate::objects::Content;
use crate::report::{Column, Figure, Target, Unit};
use crate::session::Session;
use crate::stock::Stock;

const LOOK: Duration = Duration::from_millis(10);

pub(crate) async fn measure(session: &mut Session, column: &mut Column) -> Result<()> {
    let sizes = session.setup.sizes.scale.clone();
    let count = sizes.pools * sizes.each;
    progress(&format!("filling pools with {count} sandboxes"));
    *lock(&session.stock) = Stock::of("", count, &Content::FIRST.revision());
    for index in 0..sizes.pools {
        let name = format!("pool-{index}");
        session
            .create_pool(&name, sizes.each, Duration::ZERO)
            .await?;
    }
    session.settle().await?;
    session.pass(session.setup.sizes.idle).await?;
    let idle = session.idle(sizes.idle).await?;
    let what = |what: &str| format!("{count} sandboxes: {what}");
    memory(session, column, &what("RSS / peak"), "458 / 499 MiB")?;
    let share = idle.controller * 100.0;
    column.add(Figure::new(what("idle CPU"), "").part(
        "idle CPU",
        share,
        Unit::Percent,
        Target::Below(1.0),
    ));
    restart(
        session,
        column,
        &what("restart to first reconcile / to the answer of a claim"),
    )
    .await?;
    session.pass(session.setup.sizes.idle).await?;
    memory(session, column, &what("RSS / peak after the restart"), "")
}

fn memory(
    session: &mut Session,
    column: &mut Column,
    what: &str,
    reference: &'static str,
) -> Result<()> {
    let (now, most) = session.controller()?.memory()?;
    column.add(
        Figure::new(what, reference)
            .part("RSS", now, Unit::MiB, Target::AtMost(60.0))
            .part("peak", most, Unit::MiB, Target::AtMost(80.0)),
    );
    Ok(())
}

/// A claim that was made while nobody was there tells when somebody is.
async fn restart(session: &mut Session, column: &mut Column, what: &str) -> Result<()> {
    progress("restarting the controller");
    session.stop_controller().await?;
    let desk = session.desk.clone();
    let claim = tokio::spawn(async move {
        let (name, outcome) = desk.claim("pool-0").await?;
        desk.give_back(&name).await?;
        anyhow::Ok(outcome)
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    session.start_controller()?;
    let started = session.controller()?.started;
    let first = first_reconcile(session, || claim.is_finished()).await?;
    let outcome = claim.await??;
    let answered = outcome.sent + outcome.waited();
    let seconds = |at: Instant| at.saturating_duration_since(started).as_secs_f64();
    let soon = Target::AtMost(3.0);
    let figure = Figure::new(what, "");
    let figure = match first {
        Some(at) => figure.part("first reconcile", seconds(at), Unit::Seconds, soon),
        None => figure.word("first reconcile", "not told", None),
    };
    column.add(figure.part("first answer", seconds(answered), Unit::Seconds, soon));
    Ok(())
}

/// When the controller first told of a pass; none if it has answered without telling.
async fn first_reconcile(
    session: &mut Session,
    is_answered: impl Fn() -> bool,
) -> Result<Option<Instant>> {
    while !is_answered() {
        if session
            .reconciles()
            .await
            .is_some_and(|passes| passes > 0.0)
        {
            return Ok(Some(Instant::now()));
        }
        session.check().await?;
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}
