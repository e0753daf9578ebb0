//! A pool, its claims and its controller in made-up time.
//!
//! The controller sees the pool as it was some passes ago, overlays what it did since, loses races to
//! claims, has requests refused and forgets everything when it restarts. Claims go through the real queue.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unreachable_pub, reason = "a part of one test program")]

mod controller;

use super::random::Random;
use engine::claim::{Choice, Rules, choose};
use engine::demand::{Event, Meter};
use engine::member::{
    Claim, Difference, Failure, Intent, Member, Older, Policy, Pool, Revision, Revisions, State,
    Time, Uid,
};
use engine::queue::Index;
use engine::rollout::{Create, Endings, Ledger, Pace, Plan, Progress, Settings, Strategy};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// Between two passes.
const PASS: u64 = 100;
/// Between the choice of a member and the claim's write.
const COMMIT: u64 = 5;
/// A pod takes so long to go.
const TERMINATION: u64 = 2_000;
/// A claim that was not replenished for so long will not be: it used up surge.
const ABSORBED_AFTER: u64 = 2_000;
const NODES: u64 = 5;

/// What may go wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The snapshot is up to so many passes old.
    pub lag: usize,
    /// The share of requests that are refused, of members that never become Ready, and of updates in place
    /// that hang.
    pub refused: f64,
    pub crashes: f64,
    pub hangs: f64,
    /// The controller restarts on average every so many passes.
    pub restart_every: Option<u64>,
}

/// One run.
pub struct World {
    pub now: u64,
    pub random: Random,
    pub pool: Pool,
    pub settings: Settings,
    pub faults: Faults,
    pub rate: f64,
    pub start: f64,
    pub update: f64,
    /// How members of a revision fail to start; repaired by removing the entry.
    pub broken: BTreeMap<Revision, Failure>,
    pub members: BTreeMap<Uid, Held>,
    pub score: Score,
    version: u64,
    serial: u64,
    index: Index,
    meter: Meter,
    events: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    controller: Controller,
    history: Vec<Shot>,
    replenished: u64,
    claims: Vec<u64>,
}

/// A member, and what only the world knows of it.
#[derive(Clone, Debug)]
pub struct Held {
    pub member: Member,
    version: u64,
    fenced_at: u64,
    arrived: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Claim,
    Commit(Uid, Uid),
    Ready(Uid),
    Updated(Uid),
    Gone(Uid),
    Pass,
}

#[derive(Clone, Default)]
struct Controller {
    ledger: Ledger,
    pace: Pace,
    progress: Option<Progress>,
    endings: Option<Endings>,
    created: Vec<(u64, Create)>,
    deleted: Vec<(u64, Uid)>,
    updated: Vec<(u64, Uid, Intent)>,
    released: Vec<(u64, Uid)>,
}

#[derive(Clone)]
struct Shot {
    version: u64,
    members: Vec<(u64, Member)>,
}

/// What is measured, from the world's side and not the planner's.
#[derive(Clone, Debug, Default)]
pub struct Score {
    pub claims: u32,
    pub cold: u32,
    pub stale: u32,
    pub deleted: u32,
    pub updated: u32,
    pub conflicts: u32,
    pub least_claimable: u32,
    pub most_out: i64,
    pub most_live: u32,
    pub actions_in_last_pass: usize,
    pub last: Option<Plan>,
    /// Out of stock by the rollout: fenced, or deleted before a replacement arrived.
    out: i64,
}

impl World {
    pub fn new(seed: u64, replicas: u32, settings: Settings) -> Self {
        let first: Revision = "r1".into();
        let mut world = Self {
            now: 1_000_000,
            random: Random::new(seed),
            pool: Pool {
                replicas,
                revisions: Revisions {
                    target: first.clone(),
                    current: first,
                    older: Vec::new(),
                },
                policy: Policy::PreferNewest,
            },
            settings,
            faults: Faults::default(),
            rate: 0.0,
            start: 3.0,
            update: 1.5,
            broken: BTreeMap::new(),
            members: BTreeMap::new(),
            score: Score {
                least_claimable: u32::MAX,
                ..Score::default()
            },
            version: 0,
            serial: 0,
            index: Index::default(),
            meter: Meter::default(),
            events: BinaryHeap::new(),
            controller: Controller::default(),
            history: Vec::new(),
            replenished: 0,
            claims: Vec::new(),
        };
        world.at(PASS, Happening::Pass);
        world
    }

    /// Starts the claims, or changes how often they come.
    pub fn claim_at_rate(&mut self, rate: f64) {
        let idle = self.rate <= 0.0;
        self.rate = rate;
        if idle && rate > 0.0 {
            self.next_claim();
        }
    }

    pub fn edit(&mut self, revision: &str, difference: Difference) {
        let revisions = &mut self.pool.revisions;
        let former = std::mem::replace(&mut revisions.target, revision.into());
        revisions
            .older
            .retain(|older| older.revision.as_str() != revision);
        for older in &mut revisions.older {
            older.difference = difference;
        }
        revisions.older.insert(
            0,
            Older {
                revision: former,
                difference,
                retired: false,
            },
        );
        self.reset_score();
    }

    /// Measures from now on.
    pub fn reset_score(&mut self) {
        let out = self.score.out;
        self.score = Score {
            least_claimable: u32::MAX,
            out,
            ..Score::default()
        };
    }

    pub fn run_for(&mut self, seconds: u64) {
        let end = self.now + seconds * 1000;
        while self.now < end {
            self.step();
        }
    }

    /// Seconds until no old member is left, if that happens in time.
    pub fn run_until_rolled(&mut self, limit: u64) -> Option<f64> {
        let began = self.now;
        while self.now < began + limit * 1000 {
            self.step();
            let target = &self.pool.revisions.target;
            if self
                .live()
                .all(|held| held.member.revision == *target && held.member.intent.is_none())
            {
                return Some((self.now - began) as f64 / 1000.0);
            }
        }
        None
    }

    pub fn live(&self) -> impl Iterator<Item = &Held> {
        self.members
            .values()
            .filter(|held| held.member.state != State::Terminating)
    }

    pub fn claimable(&self) -> u32 {
        let ready = self.live().filter(|held| {
            held.member.intent.is_none() && matches!(held.member.state, State::Ready { .. })
        });
        u32::try_from(ready.count()).unwrap()
    }

    pub fn step(&mut self) {
        let Some(Reverse((at, _, happening))) = self.events.pop() else {
            return;
        };
        self.now = at;
        match happening {
            Happening::Claim => {
                self.next_claim();
                self.claim();
            }
            Happening::Commit(member, claim) => self.commit(&member, &claim),
            Happening::Ready(uid) => self.ready(&uid),
            Happening::Updated(uid) => self.finish_update(&uid),
            Happening::Gone(uid) => {
                self.members.remove(&uid);
            }
            Happening::Pass => {
                self.pass();
                self.at(PASS, Happening::Pass);
            }
        }
        self.measure();
    }

    fn measure(&mut self) {
        let live = u32::try_from(self.live().count()).unwrap();
        let old_enough = self.now - ABSORBED_AFTER;
        let due = self.claims.partition_point(|at| *at < old_enough) as u64;
        let absorbed = i64::try_from(due.saturating_sub(self.replenished)).unwrap();
        self.score.most_out = self.score.most_out.max(self.score.out + absorbed);
        self.score.most_live = self.score.most_live.max(live);
        self.score.least_claimable = self.score.least_claimable.min(self.claimable());
    }

    fn at(&mut self, delay: u64, happening: Happening) {
        self.serial += 1;
        self.events
            .push(Reverse((self.now + delay, self.serial, happening)));
    }

    fn next_claim(&mut self) {
        if self.rate > 0.0 {
            let delay = millis(self.random.exponential(self.rate));
            self.at(delay, Happening::Claim);
        }
    }

    fn claim(&mut self) {
        self.score.claims += 1;
        self.meter.record(Event::Claimed, Time(self.now));
        self.serial += 1;
        let uid = Uid::from(format!("claim-{}", self.serial).as_str());
        self.choose_for(uid);
    }

    fn choose_for(&mut self, uid: Uid) {
        let claim = Claim { uid, policy: None };
        let strategy = self.settings.strategy.clone();
        let rules = Rules {
            strategy: &strategy,
            min_ready: self.settings.min_ready,
            overrides: true,
        };
        match choose(
            &mut self.index,
            &"pool".into(),
            &self.pool,
            &claim,
            &rules,
            Time(self.now),
        ) {
            Ok(Choice::Member(chosen)) => {
                assert!(
                    !(chosen.stale && strategy == Strategy::Recreate),
                    "a doomed member"
                );
                self.at(COMMIT, Happening::Commit(chosen.uid, claim.uid));
            }
            Ok(Choice::Nothing { .. }) => self.score.cold += 1,
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    /// The claim's conditional write: it loses if the rollout was faster.
    fn commit(&mut self, uid: &Uid, claim: &Uid) {
        let free = self.members.get(uid).is_some_and(|held| {
            held.member.intent.is_none() && matches!(held.member.state, State::Ready { .. })
        });
        if !free {
            self.score.conflicts += 1;
            self.index.release(uid, claim);
            return self.choose_for(claim.clone());
        }
        let held = self.members.remove(uid).unwrap();
        self.score.stale += u32::from(held.member.revision != self.pool.revisions.target);
        self.index.forget(uid);
        self.version += 1;
        self.claims.push(self.now);
    }

    fn changed(&mut self, uid: &Uid) {
        self.version += 1;
        let version = self.version;
        let held = self.members.get_mut(uid).unwrap();
        held.version = version;
        self.index.observe(&"pool".into(), &held.member);
    }

    fn create(&mut self, create: &Create) {
        for _ in 0..create.count {
            self.serial += 1;
            let uid = Uid::from(format!("m{:06}", self.serial).as_str());
            let node = format!("node-{}", self.random.below(NODES));
            let member = Member {
                uid: uid.clone(),
                revision: create.revision.clone(),
                node: Some(node.as_str().into()),
                created: Time(self.now),
                state: State::Pending,
                intent: None,
                labels: None,
                for_rollout: create.for_rollout,
                reserved: false,
            };
            let held = Held {
                member,
                version: 0,
                fenced_at: 0,
                arrived: false,
            };
            self.members.insert(uid.clone(), held);
            let took = millis(self.random.log_normal(self.start));
            self.at(took, Happening::Ready(uid.clone()));
            self.replenished += u64::from(!create.for_rollout);
            self.changed(&uid);
        }
    }

    fn ready(&mut self, uid: &Uid) {
        let crashes = self.random.chance(self.faults.crashes);
        let Some(held) = self.members.get_mut(uid) else {
            return;
        };
        if !matches!(held.member.state, State::Pending | State::Failed(_)) {
            return;
        }
        let broken = self.broken.get(&held.member.revision).copied();
        if let Some(failure) = broken.or(crashes.then_some(Failure::CrashLoop)) {
            held.member.state = match failure {
                Failure::Ended => State::Dead,
                failure => State::Failed(failure),
            };
            if broken.is_some() && failure != Failure::Ended {
                self.at(5_000, Happening::Ready(uid.clone()));
            }
            return self.changed(uid);
        }
        held.member.state = State::Ready {
            since: Time(self.now),
        };
        self.meter.record(
            Event::Started(Time(self.now).since(held.member.created)),
            Time(self.now),
        );
        if held.member.for_rollout && !held.arrived {
            self.score.out -= 1;
        }
        held.arrived = true;
        self.changed(uid);
    }

    fn finish_update(&mut self, uid: &Uid) {
        let Some(held) = self.members.get_mut(uid) else {
            return;
        };
        let Some(intent) = &held.member.intent else {
            return;
        };
        if held.member.state == State::Terminating || held.member.revision != intent.target {
            return;
        }
        if self.broken.contains_key(&held.member.revision) {
            self.at(1_000, Happening::Updated(uid.clone()));
            return;
        }
        held.member.state = State::Ready {
            since: Time(self.now),
        };
        let took = Duration::from_millis(self.now - held.fenced_at);
        self.meter
            .record(Event::UpdatedInPlace(took), Time(self.now));
        self.changed(uid);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small and positive"
)]
fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}
