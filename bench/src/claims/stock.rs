//! What a pool has in stock, as somebody sees it who only watches Sandboxes.

use std::collections::HashMap;

use crate::objects::Sandbox;

/// The Sandboxes of one pool and of those who took them.
///
/// Who is to blame for a member that is missing is a matter of bookkeeping: a new member fills the gap of a claim as long as
/// there is one, and is the rollout's otherwise. So what the rollout has out of stock is what is missing less the
/// gaps of claims.
#[derive(Default)]
pub(crate) struct Stock {
    pool: String,
    replicas: usize,
    target: String,
    members: HashMap<String, Member>,
    claimable: usize,
    /// Claimable members that claims took.
    taken: usize,
    /// New members that were made for claims, and those of them that became claimable.
    refills: usize,
    refilled: usize,
    most_allowed_out: usize,
    is_over: bool,
    extremes: Extremes,
}

/// Since [`Stock::begin`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extremes {
    pub(crate) least_claimable: usize,
    /// Less than zero if there always was more than the pool asks for.
    pub(crate) most_out: i64,
    /// How often more was out than the rollout may have out.
    pub(crate) violations: usize,
}

#[derive(Clone, Debug, Default)]
struct Member {
    is_in_pool: bool,
    is_claimable: bool,
    was_claimable: bool,
    is_refill: bool,
    is_gone: bool,
    revision: String,
}

impl Stock {
    /// `pool` may be empty: then all pools are one.
    pub(crate) fn of(pool: &str, replicas: usize, revision: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            replicas,
            target: revision.to_owned(),
            ..Self::default()
        }
    }

    /// A rollout to `revision` begins. Members that are under way now are refills of claims.
    pub(crate) fn begin(&mut self, revision: &str, most_allowed_out: usize) {
        self.target = revision.to_owned();
        self.most_allowed_out = most_allowed_out;
        let mut pending = 0;
        for member in self.members.values_mut() {
            member.is_refill = member.is_in_pool && !member.is_claimable;
            pending += usize::from(member.is_refill);
        }
        self.refills = pending;
        self.refilled = 0;
        self.taken = pending + self.replicas.saturating_sub(self.in_pool());
        self.is_over = false;
        self.extremes = Extremes {
            least_claimable: self.claimable,
            most_out: self.out(),
            violations: 0,
        };
    }

    pub(crate) fn observe(&mut self, sandbox: &Sandbox) {
        let mut member = self.members.remove(sandbox.name()).unwrap_or_default();
        let is_in_pool = sandbox.is_member_of(&self.pool);
        if is_in_pool && !member.is_in_pool && self.taken > self.refills {
            member.is_refill = true;
            self.refills += 1;
        }
        if member.is_in_pool && !is_in_pool {
            let is_handed_out = !sandbox.is_deleting();
            self.leaves(&mut member, is_handed_out);
        }
        member.is_in_pool = is_in_pool;
        member.revision = sandbox.revision();
        self.set_claimable(&mut member, is_in_pool && sandbox.is_claimable());
        self.members.insert(sandbox.name().to_owned(), member);
        self.look();
    }

    /// The Sandbox has been deleted. What it was is remembered: a claim may have been given it.
    pub(crate) fn gone(&mut self, name: &str) {
        let Some(mut member) = self.members.remove(name) else {
            return;
        };
        if member.is_in_pool {
            self.leaves(&mut member, false);
        }
        member.is_in_pool = false;
        member.is_gone = true;
        self.set_claimable(&mut member, false);
        self.members.insert(name.to_owned(), member);
        self.look();
    }

    fn leaves(&mut self, member: &mut Member, is_handed_out: bool) {
        if member.was_claimable {
            self.taken += usize::from(is_handed_out);
        } else if member.is_refill {
            // the gap that it was to fill is open again
            member.is_refill = false;
            self.refills -= 1;
        }
    }

    fn set_claimable(&mut self, member: &mut Member, is_claimable: bool) {
        if is_claimable && !member.was_claimable {
            member.was_claimable = true;
            self.refilled += usize::from(member.is_refill);
        }
        match (member.is_claimable, is_claimable) {
            (false, true) => self.claimable += 1,
            (true, false) => self.claimable -= 1,
            _ => {}
        }
        member.is_claimable = is_claimable;
    }

    fn look(&mut self) {
        let out = self.out();
        let allowed = i64::try_from(self.most_allowed_out).unwrap_or(i64::MAX);
        let extremes = &mut self.extremes;
        extremes.least_claimable = extremes.least_claimable.min(self.claimable);
        extremes.most_out = extremes.most_out.max(out);
        extremes.violations += usize::from(out > allowed && !self.is_over);
        self.is_over = out > allowed;
    }

    /// Members that the rollout has out of stock; less than zero if it has put more in.
    pub(crate) fn out(&self) -> i64 {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let gaps = count(self.taken) - count(self.refilled);
        count(self.replicas) - count(self.claimable) - gaps
    }

    pub(crate) fn claimable(&self) -> usize {
        self.claimable
    }

    pub(crate) fn in_pool(&self) -> usize {
        self.count(|member| member.is_in_pool)
    }

    /// Sandboxes, whoever has them.
    pub(crate) fn existing(&self) -> usize {
        self.count(|member| !member.is_gone)
    }

    /// Members that still have to be replaced or updated, and those that are being updated.
    pub(crate) fn behind(&self) -> usize {
        self.count(|member| {
            let is_updating = member.was_claimable && !member.is_claimable;
            member.is_in_pool && (member.revision != self.target || is_updating)
        })
    }

    /// No member is behind, and nothing that the rollout took out is missing.
    pub(crate) fn is_rolled_out(&self) -> bool {
        self.behind() == 0 && self.out() <= 0
    }

    fn count(&self, fits: impl Fn(&Member) -> bool) -> usize {
        self.members.values().filter(|member| fits(member)).count()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.claimable == self.replicas && self.in_pool() == self.replicas
    }

    pub(crate) fn extremes(&self) -> Extremes {
        self.extremes
    }

    /// Whether the Sandbox never waited in the pool, ready to be taken.
    pub(crate) fn was_cold(&self, name: &str) -> bool {
        self.members
            .get(name)
            .is_none_or(|member| !member.was_claimable)
    }

    pub(crate) fn revision_of(&self, name: &str) -> Option<&str> {
        self.members
            .get(name)
            .map(|member| member.revision.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Stock;
    use crate::objects::Sandbox;
    use serde_json::{Value, json};

    fn sandbox(name: &str, owner: &str, ready: bool, fenced: bool, number: usize) -> Sandbox {
        let annotations = if fenced {
            json!({"sandbar.dev/update": "{}"})
        } else {
            json!({})
        };
        let (kind, ips) = if owner == "pool" {
            ("SandboxWarmPool", json!(["10.0.0.1"]))
        } else {
            ("SandboxClaim", json!(["10.0.0.1"]))
        };
        let object: Value = json!({
            "metadata": {
                "name": name, "annotations": annotations,
                "ownerReferences": [{"kind": kind, "name": owner, "controller": true}],
            },
            "spec": {"podTemplate": {"spec": {"containers": [
                {"image": "image", "env": [{"name": "REVISION", "value": number.to_string()}]},
            ]}}},
            "status": {
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
                "podIPs": ips,
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn ready(name: &str, number: usize) -> Sandbox {
        sandbox(name, "pool", true, false, number)
    }

    fn pending(name: &str, number: usize) -> Sandbox {
        sandbox(name, "pool", false, false, number)
    }

    fn claimed(name: &str, number: usize) -> Sandbox {
        sandbox(name, "claim", true, false, number)
    }

    /// Ten members of the first revision, a rollout to the second that may have two out.
    fn full() -> Stock {
        let mut stock = Stock::of("pool", 10, "image 1");
        for index in 0..10 {
            stock.observe(&ready(&format!("old-{index}"), 1));
        }
        assert!(stock.is_full());
        stock.begin("image 2", 2);
        stock
    }

    #[test]
    fn what_claims_take_is_not_the_rollouts() {
        let mut stock = full();
        for index in 0..5 {
            stock.observe(&claimed(&format!("old-{index}"), 1));
            stock.observe(&pending(&format!("new-{index}"), 2));
        }
        assert_eq!(stock.claimable(), 5);
        assert_eq!(stock.out(), 0);
        stock.observe(&ready("new-0", 2));
        assert_eq!(stock.out(), 0);
        assert_eq!(stock.extremes().least_claimable, 5);
        assert_eq!(stock.extremes().violations, 0);
    }

    #[test]
    fn deleting_before_the_replacement_is_there_is_the_rollouts() {
        let mut stock = full();
        for index in 0..3 {
            stock.gone(&format!("old-{index}"));
            stock.observe(&pending(&format!("new-{index}"), 2));
        }
        assert_eq!(stock.extremes().most_out, 3);
        assert_eq!(stock.extremes().violations, 1);
        stock.observe(&ready("new-0", 2));
        assert_eq!(stock.out(), 2);
    }

    #[test]
    fn a_rollout_is_over_when_what_it_took_is_back() {
        let mut stock = full();
        for index in 0..10 {
            stock.gone(&format!("old-{index}"));
            stock.observe(&pending(&format!("new-{index}"), 2));
        }
        assert_eq!(stock.behind(), 0);
        assert!(!stock.is_rolled_out());
        stock.observe(&ready("new-0", 2));
        stock.observe(&claimed("new-0", 2));
        stock.observe(&pending("new-10", 2));
        for index in 1..10 {
            stock.observe(&ready(&format!("new-{index}"), 2));
        }
        assert!(stock.is_rolled_out(), "only the gap of a claim is left");
    }

    #[test]
    fn surge_that_is_claimable_pays_for_deletions() {
        let mut stock = full();
        for index in 0..2 {
            stock.observe(&pending(&format!("new-{index}"), 2));
            stock.observe(&ready(&format!("new-{index}"), 2));
        }
        assert_eq!(stock.out(), -2);
        stock.gone("old-0");
        stock.gone("old-1");
        assert_eq!(stock.out(), 0);
        assert_eq!(stock.extremes().violations, 0);
    }

    #[test]
    fn members_that_are_fenced_are_out_and_come_back() {
        let mut stock = full();
        stock.observe(&sandbox("old-0", "pool", true, true, 2));
        assert_eq!((stock.out(), stock.behind()), (1, 10));
        stock.observe(&ready("old-0", 2));
        assert_eq!((stock.out(), stock.behind()), (0, 9));
    }

    #[test]
    fn a_refill_that_is_lost_leaves_the_gap_open() {
        let mut stock = full();
        stock.observe(&claimed("old-0", 1));
        stock.observe(&pending("new-0", 2));
        stock.gone("new-0");
        assert_eq!(stock.out(), 0);
        stock.observe(&pending("new-1", 2));
        stock.observe(&ready("new-1", 2));
        assert_eq!((stock.claimable(), stock.out()), (10, 0));
    }

    #[test]
    fn the_next_rollout_does_not_live_on_the_surge_of_the_last() {
        let mut stock = full();
        stock.observe(&pending("new-0", 2));
        stock.observe(&ready("new-0", 2));
        stock.observe(&claimed("new-0", 2));
        assert_eq!(stock.out(), -1);
        stock.begin("image 3", 2);
        assert_eq!(stock.out(), 0);
    }

    #[test]
    fn cold_is_what_never_waited_in_the_pool() {
        let mut stock = full();
        stock.observe(&claimed("old-0", 1));
        stock.gone("old-0");
        stock.observe(&claimed("claim", 2));
        stock.observe(&pending("new-0", 2));
        stock.observe(&claimed("new-0", 2));
        assert!(!stock.was_cold("old-0"));
        assert!(stock.was_cold("claim"), "made for the claim");
        assert!(stock.was_cold("new-0"), "taken before it was ready");
        assert_eq!(stock.revision_of("old-0"), Some("image 1"));
    }
}
