//! Doing what was planned for a pool.

use std::collections::HashMap;

use engine::{
    demand::Event,
    member::{Node, Revision, Uid},
    rollout::{Action, Cause, Create, Delete, Update},
};
use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::{
    body::{self, Pattern, generated_name},
    member::{fence, is_for_a_quota, revision, target, time},
    memory::Memory,
    run::{Pools, Round, Troubles},
};
use crate::{
    sigs::sandbox::view::Sandbox,
    write::{Failure, Guard},
};

/// Writes of a pass at a time.
const PARALLEL: usize = 16;

/// A member that is to be made.
struct Order {
    name: String,
    create: Create,
    body: Value,
}

impl Pools {
    /// Creations first, because claims wait for them.
    pub(super) async fn act(&self, round: &Round, memory: &mut Memory, troubles: &mut Troubles) {
        self.create(round, memory, troubles).await;
        let members: HashMap<Uid, &Sandbox> = round
            .members
            .iter()
            .map(|member| (Uid::from(&*member.meta.uid), &**member))
            .collect();
        let mut acts = Vec::new();
        for action in &round.plan.actions {
            let uid = match action {
                Action::Create(_) => continue,
                Action::Delete(delete) => &delete.uid,
                Action::UpdateInPlace(update) => &update.uid,
                Action::Release(uid) => uid,
            };
            if let Some(member) = members.get(uid).copied() {
                acts.push(async move { (action, member, self.do_to(round, action, member).await) });
            }
        }
        let outcomes: Vec<_> = stream::iter(acts)
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        for (action, member, outcome) in outcomes {
            match outcome {
                Ok(()) => self.settle(round, action, member, memory),
                Err(failure) => {
                    if matches!(failure, Failure::Unknown(_)) {
                        memory.lose_count();
                    }
                    troubles.note(&failure);
                }
            }
        }
    }

    async fn do_to(&self, round: &Round, action: &Action, member: &Sandbox) -> Result<(), Failure> {
        let patch = match action {
            Action::Create(_) => None,
            Action::Delete(_) => {
                return self
                    .writer
                    .delete(&self.stores.sandboxes, &member.meta)
                    .await;
            }
            Action::UpdateInPlace(Update { intent, .. }) => {
                let pattern = self.pattern(round);
                pattern.update(member, intent, self.clock.now())
            }
            Action::Release(_) => Some(body::release()),
        };
        match patch {
            Some(patch) => self.change(member, patch).await,
            None => Ok(()),
        }
    }

    /// A member that somebody has claimed meanwhile is not changed.
    pub(super) async fn change(&self, member: &Sandbox, patch: Value) -> Result<(), Failure> {
        let (store, guard) = (&self.stores.sandboxes, Guard::Unchanged);
        let changed = self.writer.patch(store, &member.meta, guard, patch).await;
        changed.map(drop)
    }

    fn pattern(&self, round: &Round) -> Pattern {
        Pattern::new(&round.pool, &round.template, self.options.evictable)
    }

    /// Remembers what was done.
    fn settle(&self, round: &Round, action: &Action, member: &Sandbox, memory: &mut Memory) {
        memory.ledger.done(action);
        let node = member.status.node_name.as_deref().map(Node::from);
        match action {
            Action::Delete(Delete { uid, cause, .. }) => {
                memory.counted.remove(uid);
                let node = node.filter(|_| *cause == Cause::Fallback);
                node.into_iter().for_each(|node| memory.fell_back(node));
            }
            Action::Release(_) => {
                node.iter().for_each(|node| memory.succeeded(node));
                if let Some(fence) = fence(member) {
                    let now = time(self.clock.now());
                    let took = Event::UpdatedInPlace(now.since(time(fence.since)));
                    self.stock.record(&round.pool.meta.uid, took, now);
                }
            }
            Action::Create(_) | Action::UpdateInPlace(_) => {}
        }
    }

    /// One, two, four and so on at a time, so that a server that refuses is not asked a hundred times.
    async fn create(&self, round: &Round, memory: &mut Memory, troubles: &mut Troubles) {
        let mut orders = self.orders(round, memory).into_iter();
        let mut batch = 1;
        let now = time(self.clock.now());
        let was_refused = memory.refusals.until(now).is_some();
        loop {
            // what was refused in this pass is planned without in the next one
            let is_refused = memory.refusals.until(now).is_some();
            let does_without = is_refused && !was_refused;
            let is_wanted = |order: &Order| !(does_without && order.create.for_rollout);
            let next = orders.by_ref().filter(is_wanted).take(batch);
            let next: Vec<Order> = next.collect();
            if next.is_empty() || troubles.are_any() {
                return;
            }
            batch *= 2;
            memory
                .refill
                .spent(u32::try_from(next.len()).unwrap_or(u32::MAX));
            let namespace = &round.pool.meta.key.namespace;
            let writes = next.into_iter().map(async |order: Order| {
                let store = &self.stores.sandboxes;
                let made = self.writer.create(store, namespace, order.body).await;
                (order.name, order.create, made)
            });
            let made: Vec<_> = stream::iter(writes)
                .buffer_unordered(PARALLEL)
                .collect()
                .await;
            for (name, create, made) in made {
                let made = self.made_for_sure(round, &name, made, memory).await;
                let is_surge = create.for_rollout && !was_refused;
                match surge_refused(&name, &made).filter(|_| is_surge) {
                    Some(why) => memory.surge_was_refused(why, now),
                    None => note_creation(name, create, made, memory, troubles),
                }
            }
        }
    }

    /// What came of a creation. One that may have been made before and is refused now is looked for: a server asks its quotas
    /// first, and refuses what is there already. If it is not there, nobody has to wait for it.
    async fn made_for_sure<T>(
        &self,
        round: &Round,
        name: &str,
        made: Result<T, Failure>,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        let why = match made {
            Err(Failure::Refused(why)) if memory.unsure.contains_key(name) => why,
            other => return other.map(drop),
        };
        let key = round.pool.meta.key.beside(name);
        match self.writer.read(&self.stores.sandboxes, &key).await? {
            Some(_) => Err(Failure::Exists(why)),
            None => {
                memory.was_never_made(name);
                Err(Failure::Refused(why))
            }
        }
    }

    /// First those of which nobody knows whether they were done, under the same names.
    fn orders(&self, round: &Round, memory: &Memory) -> Vec<Order> {
        let pool = &round.pool;
        let mut orders = Vec::new();
        for (name, create) in &memory.unsure {
            let body = self.pattern_of(round, &create.revision);
            let body = body.member(pool, name, create.for_rollout);
            orders.push(Order {
                name: name.clone(),
                create: create.clone(),
                body,
            });
        }
        for action in &round.plan.actions {
            let Action::Create(create) = action else {
                continue;
            };
            let pattern = self.pattern_of(round, &create.revision);
            let one = Create {
                count: 1,
                ..create.clone()
            };
            for _ in 0..create.count {
                let name = generated_name(&pool.meta.key.name);
                orders.push(Order {
                    body: pattern.member(pool, &name, create.for_rollout),
                    name,
                    create: one.clone(),
                });
            }
        }
        orders
    }

    /// An older revision is made after one of its members; without any there is only the template.
    fn pattern_of(&self, round: &Round, wanted: &Revision) -> Pattern {
        let is_it = |member: &&std::sync::Arc<Sandbox>| revision(member) == *wanted;
        let older = match *wanted == target(&round.template) {
            true => None,
            false => round.members.iter().find(is_it),
        };
        older
            .and_then(|member| Pattern::like(member))
            .unwrap_or_else(|| self.pattern(round))
    }
}

/// Why a quota does not allow a new member, if so.
fn surge_refused(name: &str, made: &Result<(), Failure>) -> Option<String> {
    match made {
        Err(Failure::Refused(why)) if is_for_a_quota(why) => Some(why.replace(name, "…")),
        _ => None,
    }
}

fn note_creation(
    name: String,
    create: Create,
    made: Result<(), Failure>,
    memory: &mut Memory,
    troubles: &mut Troubles,
) {
    match made {
        // the plan has counted what may have been made before
        Ok(()) if memory.unsure.remove(&name).is_some() => {}
        Ok(()) => {
            if create.for_rollout {
                memory.surge_was_granted();
            }
            memory.ledger.done(&Action::Create(create));
        }
        // the watch will show it
        Err(Failure::Exists(_)) if memory.unsure.contains_key(&name) => {}
        // its name is another one each time, and what is told would change with it
        Err(Failure::Refused(why)) => troubles.note(&Failure::Refused(why.replace(&name, "…"))),
        Err(failure) => {
            // nobody else takes such a name: an attempt whose answer was lost below us has made it
            if matches!(failure, Failure::Unknown(_) | Failure::Exists(_)) {
                memory.unsure.insert(name, create);
                memory.lose_count();
            }
            troubles.note(&failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::{
        member::Revision,
        rollout::{Create, Ledger},
    };

    use super::note_creation;
    use crate::{
        sigs::pool::{memory::Memory, run::Troubles},
        write::Failure,
    };

    fn note(memory: &mut Memory, name: &str, made: Result<(), Failure>) {
        let create = Create {
            revision: Revision::from("x"),
            count: 1,
            for_rollout: true,
        };
        note_creation(
            name.to_owned(),
            create,
            made,
            memory,
            &mut Troubles::default(),
        );
    }

    #[test]
    fn a_creation_is_booked_once() {
        let mut memory = Memory::default();
        memory.ledger = Ledger(Some(0));
        note(&mut memory, "a", Ok(()));
        assert_eq!(memory.ledger, Ledger(Some(1)));
        note(&mut memory, "b", Err(Failure::Unknown("lost".to_owned())));
        assert_eq!(memory.ledger, Ledger(None));
        // the next plan counts both, because the second may be there
        memory.ledger = Ledger(Some(2));
        note(&mut memory, "b", Ok(()));
        assert_eq!((memory.ledger, memory.unsure.len()), (Ledger(Some(2)), 0));
    }

    #[test]
    fn what_is_said_to_be_there_already_is_waited_for() {
        let mut memory = Memory::default();
        memory.ledger = Ledger(Some(0));
        for _ in 0..2 {
            note(&mut memory, "a", Err(Failure::Exists("a".to_owned())));
            assert_eq!((memory.ledger, memory.unsure.len()), (Ledger(None), 1));
        }
    }
}
