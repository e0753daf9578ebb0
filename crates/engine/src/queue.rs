//! The members that claims may have: one queue for each pool, revision and node, fed by watch events.
//!
//! Every update costs O(log n). A member that was handed to a claim stays known but is not offered again,
//! whatever late events say, until its claim gives it back or the watch shows that it has left the pool.

use crate::member::{Member, Node, Revision, State, Time, Uid};
use std::collections::{BTreeSet, HashMap};

/// All pools of a process.
#[derive(Debug, Default)]
pub struct Index {
    seats: HashMap<Uid, Seat>,
    pools: HashMap<Uid, HashMap<Revision, Queue>>,
}

/// Where a member stands.
#[derive(Clone, Debug)]
struct Seat {
    pool: Uid,
    revision: Revision,
    node: Option<Node>,
    standing: Standing,
    /// The claim that it was handed to.
    claim: Option<Uid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Ready(Time),
    /// It may become Ready.
    Coming,
    /// Fenced or on its way out.
    Out,
}

/// The members of one pool and revision.
#[derive(Debug, Default)]
struct Queue {
    nodes: HashMap<Option<Node>, BTreeSet<(Time, Uid)>>,
    /// The same nodes by how much they hold, so that the fullest is found without a search.
    by_stock: BTreeSet<(usize, Option<Node>)>,
    coming: usize,
}

impl Index {
    /// Takes in what the watch says about an unclaimed member.
    pub fn observe(&mut self, pool: &Uid, member: &Member) {
        let claim = self.unseat(&member.uid).and_then(|seat| seat.claim);
        let standing = match member.state {
            State::Terminating | State::Dead => Standing::Out,
            _ if member.intent.is_some() => Standing::Out,
            State::Ready { since } => Standing::Ready(since),
            State::Pending | State::Failed(_) => Standing::Coming,
        };
        let seat = Seat {
            pool: pool.clone(),
            revision: member.revision.clone(),
            node: member.node.clone(),
            standing,
            claim,
        };
        self.seat(&member.uid, seat);
    }

    /// The member was claimed or is gone.
    pub fn forget(&mut self, member: &Uid) {
        self.unseat(member);
    }

    pub fn forget_pool(&mut self, pool: &Uid) {
        self.pools.remove(pool);
        self.seats.retain(|_, seat| seat.pool != *pool);
    }

    /// Hands the member to a claim. False if somebody else has it, or it cannot be had.
    pub fn reserve(&mut self, member: &Uid, claim: &Uid) -> bool {
        let offered = self.seats.get(member).is_some_and(|seat| {
            seat.claim.is_none() && matches!(seat.standing, Standing::Ready(_))
        });
        if let Some(mut seat) = offered.then(|| self.unseat(member)).flatten() {
            seat.claim = Some(claim.clone());
            self.seat(member, seat);
        }
        offered
    }

    /// The claim could not have it; if the member still stands in its pool it is offered again.
    pub fn release(&mut self, member: &Uid, claim: &Uid) {
        let held = self
            .seats
            .get(member)
            .is_some_and(|seat| seat.claim.as_ref() == Some(claim));
        if let Some(mut seat) = held.then(|| self.unseat(member)).flatten() {
            seat.claim = None;
            self.seat(member, seat);
        }
    }

    /// Whether a claim has it; the rollout leaves such members alone.
    pub fn is_reserved(&self, member: &Uid) -> bool {
        self.seats
            .get(member)
            .is_some_and(|seat| seat.claim.is_some())
    }

    /// The revisions that members of the pool have, in no order.
    pub fn revisions(&self, pool: &Uid) -> impl Iterator<Item = &Revision> {
        self.pools.get(pool).into_iter().flat_map(HashMap::keys)
    }

    /// The member that was Ready for longest on the fullest node, of those Ready by `by`.
    pub fn first(&self, pool: &Uid, revision: &Revision, by: Time) -> Option<&Uid> {
        let queue = self.queue(pool, revision)?;
        queue.by_stock.iter().rev().find_map(|(_, node)| {
            let (since, uid) = queue.nodes.get(node)?.first()?;
            (*since <= by).then_some(uid)
        })
    }

    /// When the earliest member on offer became Ready.
    pub fn earliest(&self, pool: &Uid, revision: &Revision) -> Option<Time> {
        let nodes = self.queue(pool, revision)?.nodes.values();
        nodes
            .filter_map(|members| members.first())
            .map(|(since, _)| *since)
            .min()
    }

    /// Members on offer.
    pub fn ready(&self, pool: &Uid, revision: &Revision) -> usize {
        let stock = self
            .queue(pool, revision)
            .into_iter()
            .flat_map(|queue| &queue.by_stock);
        stock.map(|(count, _)| count).sum()
    }

    /// Members that may become Ready.
    pub fn coming(&self, pool: &Uid, revision: &Revision) -> usize {
        self.queue(pool, revision).map_or(0, |queue| queue.coming)
    }

    fn queue(&self, pool: &Uid, revision: &Revision) -> Option<&Queue> {
        self.pools.get(pool)?.get(revision)
    }

    fn seat(&mut self, uid: &Uid, seat: Seat) {
        if seat.claim.is_none() {
            let pool = self.pools.entry(seat.pool.clone()).or_default();
            let queue = pool.entry(seat.revision.clone()).or_default();
            match seat.standing {
                Standing::Ready(since) => queue.insert(&seat.node, since, uid),
                Standing::Coming => queue.coming += 1,
                Standing::Out => {}
            }
        }
        self.seats.insert(uid.clone(), seat);
    }

    fn unseat(&mut self, uid: &Uid) -> Option<Seat> {
        let seat = self.seats.remove(uid)?;
        if seat.claim.is_none()
            && let Some(pool) = self.pools.get_mut(&seat.pool)
            && let Some(queue) = pool.get_mut(&seat.revision)
        {
            match seat.standing {
                Standing::Ready(since) => queue.remove(&seat.node, since, uid),
                Standing::Coming => queue.coming -= 1,
                Standing::Out => {}
            }
            if queue.nodes.is_empty() && queue.coming == 0 {
                pool.remove(&seat.revision);
            }
        }
        Some(seat)
    }
}

impl Queue {
    fn insert(&mut self, node: &Option<Node>, since: Time, uid: &Uid) {
        let members = self.nodes.entry(node.clone()).or_default();
        self.by_stock.remove(&(members.len(), node.clone()));
        members.insert((since, uid.clone()));
        self.by_stock.insert((members.len(), node.clone()));
    }

    fn remove(&mut self, node: &Option<Node>, since: Time, uid: &Uid) {
        let Some(members) = self.nodes.get_mut(node) else {
            return;
        };
        self.by_stock.remove(&(members.len(), node.clone()));
        members.remove(&(since, uid.clone()));
        if members.is_empty() {
            self.nodes.remove(node);
        } else {
            self.by_stock.insert((members.len(), node.clone()));
        }
    }
}
