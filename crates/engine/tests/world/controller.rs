//! The controller of the simulated pool: observe late, decide, act under preconditions.

use super::{Controller, Happening, Shot, TERMINATION, World, millis};
use engine::member::{Intent, State, Time, Uid};
use engine::rollout::{Action, Create, Delete, Plan, Snapshot, Update, plan};
use std::collections::BTreeSet;

impl World {
    pub(super) fn pass(&mut self) {
        let every = self.faults.restart_every.unwrap_or(u64::MAX);
        let restarted = every < u64::MAX && self.random.below(every) == 0;
        if restarted {
            self.controller = Controller {
                progress: self.controller.progress.take(),
                ..Controller::default()
            };
        }
        let members = self.members.values();
        let members = members
            .map(|held| (held.version, held.member.clone()))
            .collect();
        self.history.push(Shot {
            version: self.version,
            members,
        });
        let lag = if restarted { 0 } else { self.faults.lag };
        let keep = (lag + 1).min(self.history.len());
        self.history.drain(..self.history.len() - keep);
        let seen = usize::try_from(self.random.below(keep as u64)).unwrap();
        // a watch may be late but never goes back
        self.history.drain(..seen);
        let shot = self.history[0].clone();
        let plan = self.decide(&shot);
        self.act(&plan, &shot);
        if plan.status.current_revision == self.pool.revisions.target {
            self.pool.revisions.current = self.pool.revisions.target.clone();
        }
        self.score.actions_in_last_pass = plan.actions.len();
        self.score.last = Some(plan);
    }

    fn decide(&mut self, shot: &Shot) -> Plan {
        let seen = shot.version;
        let controller = &mut self.controller;
        controller.created.retain(|(version, _)| *version > seen);
        controller.deleted.retain(|(version, _)| *version > seen);
        controller.updated.retain(|(version, ..)| *version > seen);
        controller.released.retain(|(version, _)| *version > seen);
        let mut members: Vec<_> = shot
            .members
            .iter()
            .map(|(_, member)| member.clone())
            .collect();
        for member in &mut members {
            member.reserved = self.index.is_reserved(&member.uid);
            if controller.deleted.iter().any(|(_, uid)| *uid == member.uid) {
                member.state = State::Terminating;
            }
            for (_, uid, intent) in &controller.updated {
                if *uid == member.uid {
                    member.intent = Some(Box::new(Intent {
                        begun: true,
                        ..intent.clone()
                    }));
                }
            }
            if controller
                .released
                .iter()
                .any(|(_, uid)| *uid == member.uid)
            {
                member.intent = None;
            }
        }
        let in_flight: Vec<_> = controller
            .created
            .iter()
            .map(|(_, one)| one.clone())
            .collect();
        let snapshot = Snapshot {
            pool: &self.pool,
            members: &members,
            in_flight: &in_flight,
            ledger: controller.ledger,
            lost: 0,
            progress: controller.progress.as_ref(),
            endings: controller.endings.as_ref(),
            no_surge_until: None,
            no_in_place: &BTreeSet::new(),
        };
        let demand = self.meter.demand(Time(self.now));
        let now = Time(self.now);
        let mut plan = plan(&snapshot, &self.settings, &demand, now);
        let replicas = self.pool.replicas;
        controller
            .pace
            .hold_back(&mut plan, &self.settings, &demand, replicas, now);
        controller.ledger = plan.ledger;
        controller.progress = Some(plan.progress.clone());
        controller.endings = Some(plan.endings.clone());
        plan
    }

    fn act(&mut self, plan: &Plan, shot: &Shot) {
        for action in &plan.actions {
            if self.random.chance(self.faults.refused) {
                continue;
            }
            let accepted = match action {
                Action::Create(create) => {
                    for _ in 0..create.count {
                        let one = Create {
                            count: 1,
                            ..create.clone()
                        };
                        self.create(&one);
                        self.controller.created.push((self.version, one));
                    }
                    true
                }
                Action::Delete(delete) => self.unchanged(&delete.uid, shot) && self.delete(delete),
                Action::UpdateInPlace(update) => {
                    self.unchanged(&update.uid, shot) && self.fence(update)
                }
                Action::Release(uid) => self.unchanged(uid, shot) && self.release(uid),
            };
            if accepted {
                self.controller.ledger.done(action);
            }
        }
    }

    /// The precondition: the member is as the snapshot showed it.
    fn unchanged(&self, uid: &Uid, shot: &Shot) -> bool {
        let seen = shot.members.iter().find(|(_, member)| member.uid == *uid);
        let held = self.members.get(uid);
        matches!((seen, held), (Some((version, _)), Some(held)) if held.version == *version)
    }

    fn delete(&mut self, delete: &Delete) -> bool {
        let held = self.members.get_mut(&delete.uid).unwrap();
        assert!(held.member.state != State::Terminating, "deleted twice");
        let was_ready = matches!(held.member.state, State::Ready { .. });
        // a fenced member was counted when it was fenced
        self.score.out += i64::from(was_ready && held.member.intent.is_none());
        held.member.state = State::Terminating;
        self.score.deleted += 1;
        self.changed(&delete.uid);
        self.controller
            .deleted
            .push((self.version, delete.uid.clone()));
        self.at(TERMINATION, Happening::Gone(delete.uid.clone()));
        true
    }

    fn fence(&mut self, update: &Update) -> bool {
        let hangs = self.random.chance(self.faults.hangs);
        let took = millis(self.random.log_normal(self.update));
        let held = self.members.get_mut(&update.uid).unwrap();
        let was_ready = matches!(held.member.state, State::Ready { .. });
        self.score.out += i64::from(was_ready && held.member.intent.is_none());
        held.member.intent = Some(Box::new(Intent {
            begun: true,
            ..update.intent.clone()
        }));
        held.member.revision = update.intent.target.clone();
        held.member.state = State::Pending;
        held.fenced_at = self.now;
        self.score.updated += 1;
        self.changed(&update.uid);
        let intent = update.intent.clone();
        self.controller
            .updated
            .push((self.version, update.uid.clone(), intent));
        if !hangs {
            self.at(took, Happening::Updated(update.uid.clone()));
        }
        true
    }

    fn release(&mut self, uid: &Uid) -> bool {
        let held = self.members.get_mut(uid).unwrap();
        assert!(
            matches!(held.member.state, State::Ready { .. }),
            "released before it was ready"
        );
        held.member.intent = None;
        self.score.out -= 1;
        self.changed(uid);
        self.controller.released.push((self.version, uid.clone()));
        true
    }
}
