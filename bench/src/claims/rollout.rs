//! What claims notice of a template that is edited under load.

use std::time::{Duration, Instant};

use anyhow::Result;
use bench::times::{millis, progress};

use crate::arrivals::Pace;
use crate::desk::{OpenLoop, Outcome, lock, lost, slowest, waits};
use crate::objects::Content;
use crate::report::{Column, Figure, Target, Unit};
use crate::session::Session;
use crate::stock::Extremes;

const LOOK: Duration = Duration::from_millis(20);
const SAY: Duration = Duration::from_secs(5);

/// How members can follow the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    /// By being replaced.
    Env,
    /// Where they are.
    Image,
}

impl Edit {
    fn of(self, content: Content) -> Content {
        match self {
            Self::Env => Content {
                number: content.number + 1,
                ..content
            },
            Self::Image => Content {
                image: content.image + 1,
                ..content
            },
        }
    }
}

/// Rotations of pools, one load after the other.
pub(crate) struct Rotations {
    title: &'static str,
    edit: Edit,
    /// λ·τ/R: the share of the pool that the load alone has out of stock.
    ratios: &'static [f64],
    /// Of a hundred members of the usual pool so many, and so many of its claims.
    percent: usize,
}

impl Rotations {
    const RATIOS: &'static [f64] = &[0.05, 0.2, 0.3, 0.6];
    pub(crate) const REPLACED: Self = Self {
        title: "rotation",
        edit: Edit::Env,
        ratios: Self::RATIOS,
        percent: 100,
    };
    pub(crate) const IN_PLACE: Self = Self {
        title: "rotation in place",
        edit: Edit::Image,
        ..Self::REPLACED
    };
    /// A single node has neither room for a hundred pods nor the time to start several a second.
    pub(crate) const ON_A_KUBELET: Self = Self {
        title: "rotation in place on a kubelet",
        edit: Edit::Image,
        ratios: &[0.2, 0.5],
        percent: 20,
    };
}

struct Plan {
    pool: String,
    replicas: usize,
    /// Claims a second.
    rate: f64,
    pace: Pace,
    edit: Edit,
    /// The least number of claims, before rollouts and during them.
    claims_before: usize,
    claims_during: usize,
}

/// One rollout.
struct Round {
    revision: String,
    began: Instant,
    /// When the edit was answered.
    edited: Instant,
    ended: Instant,
    is_finished: bool,
    extremes: Extremes,
}

#[derive(Default)]
struct Findings {
    /// Milliseconds.
    before: f64,
    during: f64,
    claims_before: usize,
    claims_during: usize,
    cold: usize,
    stale: usize,
    lost: usize,
    least: usize,
    most_out: i64,
    violations: usize,
    /// Of the slowest rollout; none if one did not finish.
    seconds: Option<f64>,
    rounds: usize,
}

pub(crate) async fn edit(session: &mut Session, column: &mut Column) -> Result<()> {
    let sizes = session.setup.sizes.rollouts.clone();
    let plan = Plan {
        pool: "edited".to_owned(),
        replicas: sizes.edited_pool,
        rate: sizes.edited_rate,
        pace: Pace::Even,
        edit: Edit::Env,
        claims_before: sizes.claims_before,
        claims_during: sizes.claims_during,
    };
    let found = roll(session, &plan).await?;
    let strategy = &session.setup.strategy;
    let what = format!(
        "template edit at {} claims/s, {} s pod starts, a pool of {}, {strategy}: least stock; p99",
        plan.rate,
        sizes.start.as_secs(),
        plan.replicas,
    );
    let enough = Target::AtLeast(plan.replicas as f64 * 22.0 / 40.0);
    column.add(
        Figure::new(what, "Recreate: 0; 4,700 ms")
            .part("least", found.least as f64, Unit::Number, enough)
            .part("p99", found.during, Unit::Millis, Target::AtMost(60.0)),
    );
    column.add(details(
        "  stale hand-outs / cold starts / most out by the rollout / p99 before / time",
        &found,
    ));
    Ok(())
}

fn details(what: &str, found: &Findings) -> Figure {
    let number = |figure: Figure, key: &str, value: usize| {
        figure.part(key, value as f64, Unit::Number, Target::None)
    };
    let figure = number(Figure::new(what, ""), "stale", found.stale);
    let figure = number(figure, "cold", found.cold);
    let out = found.most_out as f64;
    let figure = figure.part("most out", out, Unit::Number, Target::None);
    let figure = figure.part("p99 before", found.before, Unit::Millis, Target::None);
    with_counts(took(figure, found), found)
}

fn took(figure: Figure, found: &Findings) -> Figure {
    match found.seconds {
        Some(seconds) => figure.part("seconds", seconds, Unit::Seconds, Target::None),
        None => figure.word("seconds", "not finished", Some(false)),
    }
}

fn with_counts(figure: Figure, found: &Findings) -> Figure {
    figure
        .detail("claims before", found.claims_before)
        .detail("claims during", found.claims_during)
        .detail("rollouts", found.rounds)
        .detail("lost", found.lost)
}

pub(crate) async fn rotations(
    session: &mut Session,
    column: &mut Column,
    rotations: &Rotations,
) -> Result<()> {
    let sizes = session.setup.sizes.rollouts.clone();
    let replicas = (sizes.rotated_pool * rotations.percent / 100).max(5);
    for (index, ratio) in rotations.ratios.iter().enumerate() {
        let plan = Plan {
            pool: format!("rotated-{index}"),
            replicas,
            rate: ratio * replicas as f64 / sizes.start.as_secs_f64(),
            pace: Pace::Random,
            edit: rotations.edit,
            claims_before: sizes.claims_before * rotations.percent / 100,
            claims_during: sizes.claims_during * rotations.percent / 100,
        };
        progress(&format!("{} at λ·τ/R {ratio}", rotations.title));
        let found = roll(session, &plan).await?;
        report(column, rotations.title, replicas, *ratio, &found);
        session.remove_pool(&plan.pool).await?;
    }
    Ok(())
}

fn report(column: &mut Column, title: &str, replicas: usize, ratio: f64, found: &Findings) {
    let what = format!(
        "{title} of {replicas} at λ·τ/R {ratio}: cold starts / floor violations / p99 during ÷ before / time"
    );
    let share = found.during / found.before.max(f64::MIN_POSITIVE);
    let none = Target::AtMost(0.0);
    let figure = Figure::new(what, "")
        .part("cold", found.cold as f64, Unit::Number, none)
        .part("violations", found.violations as f64, Unit::Number, none)
        .part("p99 ratio", share, Unit::Number, Target::AtMost(1.2));
    column.add(with_counts(took(figure, found), found));
    let what = format!(
        "  {title} at {ratio}: least claimable / most out by the rollout / stale hand-outs / p99 before / p99 during"
    );
    let (number, late) = (Unit::Number, Unit::Millis);
    column.add(
        Figure::new(what, "")
            .part("least", found.least as f64, number, Target::None)
            .part("most out", found.most_out as f64, number, Target::None)
            .part("stale", found.stale as f64, number, Target::None)
            .part("p99 before", found.before, late, Target::None)
            .part("p99 during", found.during, late, Target::None),
    );
}

/// Edits the template under load until there is enough to tell.
async fn roll(session: &mut Session, plan: &Plan) -> Result<Findings> {
    let sizes = session.setup.sizes.rollouts.clone();
    session
        .fill_pool(&plan.pool, plan.replicas, sizes.start)
        .await?;
    let desk = session.desk.clone();
    let mut load = desk.open_loop(&plan.pool, plan.rate, plan.pace);
    let begun = Instant::now();
    progress(&format!("{:.1} claims/s", plan.rate));
    while begun.elapsed() < sizes.before || load.answered() < plan.claims_before {
        session.pass(SAY.min(sizes.before)).await?;
        load.check().await?;
    }
    let (mut rounds, mut content): (Vec<Round>, _) = (Vec::new(), Content::FIRST);
    let mut claims = 0;
    while rounds.len() < sizes.rounds {
        content = plan.edit.of(content);
        let before = load.answered();
        let round = follow(session, plan, content, &mut load).await?;
        claims += load.answered() - before;
        let is_finished = round.is_finished;
        rounds.push(round);
        if !is_finished || claims >= plan.claims_during {
            break;
        }
        session.pass(2 * sizes.start).await?;
    }
    let outcomes = load.stop().await?;
    progress(&format!("the slowest claims: {}", slowest(&outcomes)));
    session.pass(sizes.start).await?;
    Ok(findings(session, &outcomes, &rounds))
}

/// One rollout, from the edit to the last member.
async fn follow(
    session: &mut Session,
    plan: &Plan,
    content: Content,
    load: &mut OpenLoop,
) -> Result<Round> {
    let sizes = session.setup.sizes.rollouts.clone();
    let revision = content.revision();
    // 20 %, rounded down, is what pools may have out if they do not say otherwise
    lock(&session.stock).begin(&revision, plan.replicas / 5);
    let began = Instant::now();
    session.edit(&plan.pool, content, sizes.start).await?;
    let (edited, mut said) = (Instant::now(), Instant::now());
    let is_finished = loop {
        let (is_over, behind, claimable) = {
            let stock = lock(&session.stock);
            (stock.is_rolled_out(), stock.behind(), stock.claimable())
        };
        if is_over {
            break true;
        }
        if began.elapsed() > sizes.give_up {
            break false;
        }
        if said.elapsed() > SAY {
            said = Instant::now();
            progress(&format!(
                "{behind} members are behind, {claimable} claimable"
            ));
        }
        session.check().await?;
        load.check().await?;
        tokio::time::sleep(LOOK).await;
    };
    Ok(Round {
        revision,
        began,
        edited,
        ended: Instant::now(),
        is_finished,
        extremes: lock(&session.stock).extremes(),
    })
}

fn findings(session: &Session, outcomes: &[Outcome], rounds: &[Round]) -> Findings {
    let stock = lock(&session.stock);
    let first = rounds.first().map(|round| round.began);
    let before = |one: &&Outcome| first.is_none_or(|first| one.sent < first);
    let quiet = waits(outcomes.iter().filter(before));
    let in_any = |one: &&Outcome| rounds.iter().any(|round| round.saw(one));
    let busy = waits(outcomes.iter().filter(in_any));
    let mut found = Findings {
        before: millis(quiet.percentile(99)),
        during: millis(busy.percentile(99)),
        claims_before: quiet.len(),
        claims_during: busy.len(),
        lost: lost(outcomes),
        least: usize::MAX,
        most_out: i64::MIN,
        rounds: rounds.len(),
        seconds: Some(0.0),
        ..Findings::default()
    };
    for round in rounds {
        let claims = outcomes.iter().filter(|one| round.saw(one));
        for outcome in claims {
            let Some(sandbox) = outcome.sandbox() else {
                found.cold += 1;
                continue;
            };
            found.cold += usize::from(stock.was_cold(sandbox));
            let is_stale = stock.revision_of(sandbox) != Some(&round.revision);
            found.stale += usize::from(is_stale && outcome.sent > round.edited);
        }
        let Extremes {
            least_claimable,
            most_out,
            violations,
        } = round.extremes;
        found.least = found.least.min(least_claimable);
        found.most_out = found.most_out.max(most_out);
        found.violations += violations;
        let took = (round.ended - round.began).as_secs_f64();
        found.seconds = found
            .seconds
            .filter(|_| round.is_finished)
            .map(|most| most.max(took));
    }
    found
}

impl Round {
    fn saw(&self, outcome: &Outcome) -> bool {
        (self.began..=self.ended).contains(&outcome.sent)
    }
}
