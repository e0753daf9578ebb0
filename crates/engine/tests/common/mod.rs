//! Pools written as text: `o` old, `n` at the target; `!` failed, `?` pending, `x` ended, `U` updating in place.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses its own part"
)]

use engine::demand::Demand;
use engine::member::{
    Difference, Failure, Intent, Member, Node, Older, Policy, Pool, Revision, Revisions, State,
    Time, Uid,
};
use engine::rollout::{
    Action, Cause, Create, Endings, InPlace, Ledger, Plan, Progress, Rolling, Settings, Snapshot,
    Strategy, plan,
};
use std::collections::BTreeSet;
use std::time::Duration;

pub const NOW: Time = Time(1_000_000_000);

/// A pool between two passes, as a controller holds it.
#[derive(Clone, Debug)]
pub struct Scene {
    pub pool: Pool,
    pub members: Vec<Member>,
    pub in_flight: Vec<Create>,
    pub ledger: Ledger,
    pub lost: u32,
    pub progress: Option<Progress>,
    pub endings: Option<Endings>,
    pub no_surge_until: Option<Time>,
    pub no_in_place: BTreeSet<Node>,
    pub settings: Settings,
    pub demand: Demand,
    pub now: Time,
}

pub fn rolling(max_unavailable: u32, max_surge: u32, in_place: InPlace) -> Rolling {
    Rolling {
        in_place,
        ..Rolling::new(max_unavailable, max_surge)
    }
}

impl Scene {
    pub fn new(replicas: u32, members: &str, rolling: Rolling) -> Self {
        Self::with_strategy(replicas, members, Strategy::RollingUpdate(rolling))
    }

    pub fn with_strategy(replicas: u32, members: &str, strategy: Strategy) -> Self {
        Self {
            pool: Pool {
                replicas,
                revisions: revisions(Difference::Image),
                policy: Policy::PreferNewest,
            },
            members: read(members),
            in_flight: Vec::new(),
            ledger: Ledger::default(),
            lost: 0,
            progress: None,
            endings: None,
            no_surge_until: None,
            no_in_place: BTreeSet::new(),
            settings: Settings::new(strategy),
            demand: Demand {
                start: Duration::from_secs(3),
                ..Demand::default()
            },
            now: NOW,
        }
    }

    pub fn rolling_mut(&mut self) -> &mut Rolling {
        match &mut self.settings.strategy {
            Strategy::RollingUpdate(rolling) => rolling,
            Strategy::OnReplenish | Strategy::Recreate => unreachable!("not a rolling update"),
        }
    }

    pub fn plan(&self) -> Plan {
        let snapshot = Snapshot {
            pool: &self.pool,
            members: &self.members,
            in_flight: &self.in_flight,
            ledger: self.ledger,
            lost: self.lost,
            progress: self.progress.as_ref(),
            endings: self.endings.as_ref(),
            no_surge_until: self.no_surge_until,
            no_in_place: &self.no_in_place,
        };
        plan(&snapshot, &self.settings, &self.demand, self.now)
    }

    /// Shows the plan's actions in the snapshot, as a controller does before it has seen them.
    pub fn expect(&mut self, plan: &Plan) {
        self.ledger = plan.ledger;
        self.lost = 0;
        self.progress = Some(plan.progress.clone());
        self.endings = Some(plan.endings.clone());
        for action in &plan.actions {
            self.ledger.done(action);
            match action {
                Action::Create(create) => self.in_flight.push(create.clone()),
                Action::Delete(delete) => self.member(&delete.uid).state = State::Terminating,
                Action::UpdateInPlace(update) => {
                    let intent = Intent {
                        begun: true,
                        ..update.intent.clone()
                    };
                    self.member(&update.uid).intent = Some(Box::new(intent));
                }
                Action::Release(uid) => self.member(uid).intent = None,
            }
        }
    }

    pub fn member(&mut self, uid: &Uid) -> &mut Member {
        self.members
            .iter_mut()
            .find(|member| member.uid == *uid)
            .unwrap()
    }

    /// Carries the plan out, and lets everything on the way arrive at once.
    pub fn carry_out(&mut self, plan: &Plan) {
        self.expect(plan);
        self.members
            .retain(|member| member.state != State::Terminating);
        self.now = self.now + Duration::from_secs(1);
        for create in std::mem::take(&mut self.in_flight) {
            for number in 0..create.count {
                let name = format!(
                    "{}-{}-{number}",
                    create.revision,
                    self.now.0 + self.members.len() as u64
                );
                let mut created = member(&name, &create.revision, State::Ready { since: self.now });
                created.for_rollout = create.for_rollout;
                self.members.push(created);
            }
        }
        for member in &mut self.members {
            if let Some(intent) = &member.intent {
                member.revision = intent.target.clone();
                member.state = State::Ready { since: self.now };
            }
        }
    }
}

pub fn revisions(difference: Difference) -> Revisions {
    let older = Older {
        revision: "old".into(),
        difference,
        retired: false,
    };
    Revisions {
        target: "new".into(),
        current: "old".into(),
        older: vec![older],
    }
}

pub fn member(name: &str, revision: &Revision, state: State) -> Member {
    Member {
        uid: name.into(),
        revision: revision.clone(),
        node: Some("node".into()),
        created: Time(NOW.0 - 1_000),
        state,
        intent: None,
        labels: None,
        for_rollout: false,
        reserved: false,
    }
}

fn read(text: &str) -> Vec<Member> {
    let mut members = Vec::new();
    for word in text.split_whitespace() {
        let digits = word.find(|letter: char| !letter.is_ascii_digit()).unwrap();
        let (number, kind) = word.split_at(digits);
        for _ in 0..number.parse().unwrap_or(1) {
            members.push(read_one(&format!("m{}", members.len()), kind));
        }
    }
    members
}

fn read_one(name: &str, kind: &str) -> Member {
    let (side, mark) = kind.split_at(1);
    let revision: Revision = if side == "o" {
        "old".into()
    } else {
        "new".into()
    };
    let mut one = member(
        name,
        &revision,
        State::Ready {
            since: Time(NOW.0 - 500),
        },
    );
    one.for_rollout = side == "n";
    match mark {
        "" => {}
        "!" => one.state = State::Failed(Failure::CrashLoop),
        "?" => one.state = State::Pending,
        "x" => one.state = State::Dead,
        "U" => {
            one.state = State::Pending;
            let deadline = NOW + Duration::from_secs(30);
            one.intent = Some(Box::new(Intent {
                target: "new".into(),
                deadline,
                begun: true,
            }));
        }
        other => unreachable!("unknown mark {other}"),
    }
    one
}

/// What a plan does, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub created: u32,
    pub created_old: u32,
    /// Created for the rollout.
    pub marked: u32,
    pub surplus: u32,
    pub replaced: u32,
    pub updated: u32,
}

pub fn tally(plan: &Plan) -> Tally {
    let mut tally = Tally::default();
    for action in &plan.actions {
        match action {
            Action::Create(create) => {
                tally.created += create.count;
                if create.for_rollout {
                    tally.marked += create.count;
                }
                tally.created_old += if create.revision.as_str() == "old" {
                    create.count
                } else {
                    0
                };
            }
            Action::Delete(delete) if delete.cause == Cause::Surplus => tally.surplus += 1,
            Action::Delete(_) => tally.replaced += 1,
            Action::UpdateInPlace(_) => tally.updated += 1,
            Action::Release(_) => {}
        }
    }
    tally
}
