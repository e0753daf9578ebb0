//! Keeping pools in stock.

use std::{collections::HashMap, sync::Arc, time::Duration};

use engine::{
    member::{Difference, Member, Time, Uid},
    revision::name_hash,
    rollout::{Create, Plan, Snapshot, plan},
};
use serde_json::json;

use super::{
    body,
    member::{self, Labelling, is_for_a_quota, time},
    memory::{Memories, Memory},
    settings::{Invalid, replicas, settings},
    status,
    view::Pool,
};
use crate::{
    clock::Clock,
    meta::Key,
    queue::{Next, Pass},
    rush::Rush,
    sigs::{
        names,
        run::{Common, Controller},
        sandbox::view::Sandbox,
        stock::Stock,
        stores::Stores,
        template::view::Template,
    },
    store::Store,
    write::{Failure, Writer},
};

/// The name under which the controller writes and tells.
pub(crate) const CONTROLLER: &str = "sandboxwarmpool-controller";
/// No pass plans more often, whatever others do to what it writes.
const MOST_ROUNDS: usize = 8;

#[derive(Clone, Debug)]
pub struct Options {
    /// How many pools are worked on at a time.
    pub at_a_time: usize,
    /// Creations, and deletions of members beyond the wanted number, at most in one pass.
    pub batch: u32,
    /// A member that is not Ready at this age is replaced, unless no node has room for it.
    pub ready_grace: Duration,
    /// How often members without room are looked at again.
    pub recheck: Duration,
    /// How long a pool that was drawn from waits before it makes up for it.
    pub replenish_delay: Duration,
    /// Creations a second for each pool; no limit at 0.
    pub refill_rate: f64,
    /// Whether an autoscaler may evict idle members.
    pub evictable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            at_a_time: 10,
            batch: 300,
            ready_grace: Duration::from_secs(300),
            recheck: Duration::from_secs(60),
            replenish_delay: Duration::ZERO,
            refill_rate: 0.0,
            evictable: true,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Pools {
    pub(super) stores: Stores,
    pub(super) stock: Stock,
    pub(super) writer: Writer,
    pub(super) clock: Clock,
    pub(super) options: Arc<Options>,
    memories: Memories,
    rush: Rush,
}

impl Controller for Pools {
    type View = Pool;
    const SPAN: &'static str = "ReconcileSandboxWarmPool";

    fn store(&self) -> &Store<Pool> {
        &self.stores.pools
    }

    async fn pass(&self, pass: Pass<Key>) -> Next {
        self.rush.over().await;
        let Some(pool) = self.stores.pools.get(&pass.key) else {
            self.forget_the_gone();
            return Next::Never;
        };
        let uid = pool.meta.uid.clone();
        let mut memory = self.memories.take(&uid);
        let next = self.tend(&pass, &mut memory).await;
        self.memories.put(&uid, memory);
        next
    }
}

/// What one look at a pool has found.
pub(super) struct Round {
    pub(super) pool: Arc<Pool>,
    pub(super) template: Arc<Template>,
    pub(super) members: Vec<Arc<Sandbox>>,
    pub(super) plan: Plan,
    pub(super) invalid: Option<Invalid>,
    /// When more may be done.
    pub(super) again: Option<Time>,
}

impl Round {
    fn is_settled(&self) -> bool {
        let status = &self.plan.status;
        status.current_revision == status.update_revision && status.failed + status.updating == 0
    }
}

/// What did not work.
#[derive(Default)]
pub(super) struct Troubles {
    /// The view is old, or the server did not say: another pass will do.
    pub(super) is_passing: bool,
    pub(super) refused: Option<String>,
    /// A quota leaves no room for members that the pool should have.
    pub(super) no_room: Option<String>,
}

impl Troubles {
    pub(super) fn note(&mut self, failure: &Failure) {
        match failure {
            Failure::Refused(why) => {
                let place = match is_for_a_quota(why) {
                    true => &mut self.no_room,
                    false => &mut self.refused,
                };
                place.get_or_insert_with(|| why.clone());
            }
            Failure::Exists(_) | Failure::Changed(_) | Failure::Gone(_) | Failure::Unknown(_) => {
                self.is_passing = true;
            }
        }
    }

    fn add(&mut self, others: Self) {
        self.is_passing |= others.is_passing;
        self.refused = self.refused.take().or(others.refused);
        self.no_room = self.no_room.take().or(others.no_room);
    }

    pub(super) fn are_any(&self) -> bool {
        self.is_passing || self.refused.is_some() || self.no_room.is_some()
    }
}

impl Pools {
    pub(crate) fn new(common: &Common, options: Options) -> Self {
        Self {
            stores: common.stores.clone(),
            stock: common.stock.clone(),
            writer: common.writer(CONTROLLER),
            clock: common.clock.clone(),
            options: options.into(),
            memories: Memories::default(),
            rush: common.rush.clone(),
        }
    }

    fn forget_the_gone(&self) {
        let pools = self.stores.pools.all();
        let gone = self
            .memories
            .retain(|uid| pools.iter().any(|pool| *pool.meta.uid == *uid));
        for uid in gone {
            self.stock.forget_pool(&uid);
        }
    }

    /// Plans and acts until there is nothing left to do.
    async fn tend(&self, pass: &Pass<Key>, memory: &mut Memory) -> Next {
        for _ in 0..MOST_ROUNDS {
            pass.look();
            let pool = self
                .stores
                .pools
                .get(&pass.key)
                .filter(|pool| !pool.meta.is_deleting);
            let Some(pool) = pool else {
                return Next::Never;
            };
            let members = self.members(&pool);
            let next = match self.stores.templates.get(&pool.template()) {
                Some(template) => self.round(pool, template, members, memory).await,
                None => self.report_no_template(&pool, &members, memory).await,
            };
            if let Some(next) = next {
                return next;
            }
        }
        Next::In(Duration::ZERO)
    }

    /// Does what is to be done now. Nothing is returned if the pool is to be looked at again at once.
    async fn round(
        &self,
        pool: Arc<Pool>,
        template: Arc<Template>,
        mut members: Vec<Arc<Sandbox>>,
        memory: &mut Memory,
    ) -> Option<Next> {
        let mut chores = Troubles::default();
        let is_changed = self
            .do_chores(&pool, &template, &members, &mut chores)
            .await;
        if is_changed {
            members = self.members(&pool);
        }
        let round = self.look(pool, template, members, memory);
        let is_done = round.plan.actions.is_empty() && memory.unsure.is_empty();
        let is_settled = is_done && round.is_settled();
        self.stock.settle(&round.pool.meta.uid, is_settled);
        let mut troubles = Troubles::default();
        // one member that cannot be put right keeps nobody from being made
        if !is_done && !chores.is_passing {
            self.act(&round, memory, &mut troubles).await;
        }
        troubles.add(chores);
        match is_done || troubles.are_any() || !memory.unsure.is_empty() {
            true => self.report(&round, memory, &troubles).await,
            false => None,
        }
    }

    fn members(&self, pool: &Pool) -> Vec<Arc<Sandbox>> {
        let hash = name_hash(&pool.meta.key.name);
        let mut members = self.stores.sandboxes.owned_by(&pool.meta.uid);
        members.retain(|member| member.meta.labels.get(names::WARM_POOL) == Some(&*hash));
        members
    }

    /// Takes in or removes members that nobody owns, and labels those that somebody else made. Whether there were any.
    async fn do_chores(
        &self,
        pool: &Pool,
        template: &Template,
        members: &[Arc<Sandbox>],
        troubles: &mut Troubles,
    ) -> bool {
        let mut were_any = false;
        let Key { namespace, name } = &pool.meta.key;
        for key in self.stock.orphans(namespace, &name_hash(name)) {
            let Some(orphan) = self.stores.sandboxes.get(&key) else {
                continue;
            };
            were_any = true;
            let is_fresh = match self.stock.content_differs(&orphan, template) {
                Difference::Same | Difference::Metadata => true,
                Difference::Reference
                | Difference::Resources
                | Difference::Image
                | Difference::Replace => false,
            };
            let done = match is_fresh {
                true => self.change(&orphan, body::adoption(pool)).await,
                false => {
                    self.writer
                        .delete(&self.stores.sandboxes, &orphan.meta)
                        .await
                }
            };
            done.unwrap_or_else(|failure| troubles.note(&failure));
        }
        let unlabelled = members.iter().filter(|member| {
            !member.meta.is_deleting && member.meta.labels.get(names::LAUNCH_TYPE).is_none()
        });
        for member in unlabelled {
            were_any = true;
            let label = json!({names::LAUNCH_TYPE: names::WARM});
            let patch = json!({"metadata": {"labels": label}});
            let done = self.change(member, patch).await;
            done.unwrap_or_else(|failure| troubles.note(&failure));
        }
        were_any
    }

    fn look(
        &self,
        pool: Arc<Pool>,
        template: Arc<Template>,
        members: Vec<Arc<Sandbox>>,
        memory: &mut Memory,
    ) -> Round {
        memory.unsure.retain(|name, _| {
            let known = self.stores.sandboxes.get(&pool.meta.key.beside(name));
            known.is_none()
        });
        let now = time(self.clock.now());
        let described = self.stock.describe(&pool, &template);
        let (mut settings, invalid) = settings(&pool, &self.options);
        let mut labels = settings.looks_at_labels().then(Labelling::default);
        let promised = self.stock.promised();
        let seen = members.iter().map(|sandbox| {
            let mut member = member::member_and_pod(sandbox, &self.stores.pods);
            member.labels = labels.as_mut().map(|labels| labels.of(sandbox));
            member.reserved = promised.contains(&member.uid);
            member
        });
        let seen: Vec<Member> = seen.collect();
        let replicas = replicas(&pool);
        let active = members
            .iter()
            .filter(|member| !member.meta.is_deleting)
            .count();
        let allowed = memory.refill.allow(
            now,
            u32::try_from(active).unwrap_or(u32::MAX),
            replicas,
            self.options.replenish_delay,
            self.options.refill_rate,
        );
        settings.create_limit = settings.create_limit.min(allowed.count);
        let target = &described.revisions.target;
        let restored = || status::progress(&pool, target, &settings);
        let progress = memory.progress.take().or_else(restored);
        let in_flight: Vec<Create> = memory.unsure.values().cloned().collect();
        let counted = counted(&members);
        let lost = self.lost(&memory.counted, &counted);
        let snapshot = Snapshot {
            pool: &described,
            members: &seen,
            in_flight: &in_flight,
            ledger: memory.ledger,
            lost,
            progress: progress.as_ref(),
            endings: memory.endings.as_ref(),
            no_surge_until: memory.refusals.until(now),
            no_in_place: &memory.no_in_place(),
        };
        let demand = self.stock.demand(&pool.meta.uid, now);
        let mut plan = plan(&snapshot, &settings, &demand, now);
        let paced = memory
            .pace
            .hold_back(&mut plan, &settings, &demand, replicas, now);
        memory.ledger = plan.ledger;
        // without a ledger nothing is booked
        memory.counted = plan.ledger.0.map(|_| counted).unwrap_or_default();
        memory.progress = Some(plan.progress.clone());
        memory.endings = Some(plan.endings.clone());
        Round {
            pool,
            template,
            members,
            plan,
            invalid,
            again: allowed.again.into_iter().chain(paced).min(),
        }
    }

    /// How many members have ended that were not claimed before. One that was claimed and ended since the last look is
    /// taken for lost, which can only make a rollout slower.
    fn lost(&self, before: &HashMap<Uid, Key>, now: &HashMap<Uid, Key>) -> u32 {
        let left = before.iter().filter(|(uid, _)| !now.contains_key(uid));
        let lost = left.filter(|(uid, key)| {
            let known = self.stores.sandboxes.get(key);
            let known = known.filter(|sandbox| *sandbox.meta.uid == *uid.as_str());
            known.is_none_or(|sandbox| {
                let meta = &sandbox.meta;
                meta.is_deleting && meta.is_controlled_by_a(names::EXTENSIONS, member::KIND)
            })
        });
        u32::try_from(lost.count()).unwrap_or(u32::MAX)
    }
}

fn counted(members: &[Arc<Sandbox>]) -> HashMap<Uid, Key> {
    let staying = members.iter().filter(|member| !member.meta.is_deleting);
    let counted = staying.map(|member| (Uid::from(&*member.meta.uid), member.meta.key.clone()));
    counted.collect()
}
