//! How much of the stock the rollout may use: the floor, and what claims will need meanwhile.

use super::census::{Census, Class};
use super::{Rolling, Settings, Snapshot, Wait, count, whole};
use crate::demand::Demand;
use crate::member::Time;
use std::time::Duration;

/// A surge member this many times older than the usual start is not waited for.
const OVERDUE: u32 = 3;

/// The bounds of one pass.
pub(super) struct Stock {
    /// F_eff.
    pub(super) floor: i64,
    /// What the load leaves on average, or the floor if that is less.
    typical: i64,
    /// Claims that may come during an update in place, or a start, beyond what arrives meanwhile.
    for_update: i64,
    for_start: i64,
    /// Surge is claimable or comes soon, so patience costs little.
    surge_helps: bool,
    /// The floor was asked for by name.
    explicit: bool,
    /// Claimable members with all of the surge.
    best: i64,
    /// Claimable members that there are on average, with the surge that there is or soon will be.
    usual: i64,
    max_surge: u32,
}

/// What the bounds are made of.
pub(super) struct Inputs<'a> {
    pub(super) snapshot: &'a Snapshot<'a>,
    pub(super) settings: &'a Settings,
    pub(super) rolling: &'a Rolling,
    pub(super) demand: &'a Demand,
    pub(super) census: &'a Census<'a>,
    pub(super) now: Time,
}

impl Stock {
    /// `extra` is what the ledger says, `surge` what this stage of the rollout needs.
    pub(super) fn of(inputs: &Inputs<'_>, extra: i64, surge: i64) -> Self {
        let Inputs {
            snapshot,
            rolling,
            demand,
            census,
            ..
        } = inputs;
        let replicas = i64::from(snapshot.pool.replicas);
        let load = demand.rate * demand.start.as_secs_f64();
        let surge_helps = rolling.max_surge > 0
            && (census.out < extra || extra < surge || inputs.surge_is_coming());
        let floor = match rolling.floor {
            Some(floor) => i64::from(floor),
            None => replicas - i64::from(rolling.max_unavailable),
        };
        let taken = match rolling.floor {
            Some(_) => with_chance(load),
            None => with_chance(load).max(inputs.seen_load(replicas + extra, surge_helps)),
        };
        let lasting = if surge_helps { surge.max(extra) } else { extra };
        Self {
            floor: floor.min(replicas - taken).max(0),
            typical: floor.min(replicas - ceiling(load)).max(0),
            for_update: inputs.reserve(demand.in_place),
            for_start: inputs.reserve(demand.start),
            surge_helps,
            explicit: rolling.floor.is_some(),
            best: replicas + i64::from(rolling.max_surge) - ceiling(load),
            usual: replicas + lasting.max(0) - ceiling(load),
            max_surge: rolling.max_surge,
        }
    }

    /// Whether one of so many claimable members may go, while the rollout has `out` members out.
    ///
    /// `claimable − 1 ≥ floor + reserve` is the rule. While surge can do the work the rollout also leaves
    /// alone what the load leaves on average. Where no surge helps, a default floor and the reserve are
    /// not added up, because the sum could block for ever. With a default floor no more is ever asked for than there
    /// usually is, which in a small pool, or where an update in place takes long, is less than floor and reserve together.
    pub(super) fn check(&self, claimable: i64, in_place: bool, out: i64) -> Result<(), Wait> {
        // surge that is claimable already stands in for a member that is deleted
        let reserve = match (in_place, out < 0) {
            (true, _) => self.for_update,
            (false, true) => 0,
            (false, false) => self.for_start,
        };
        let needed = match (self.explicit, self.surge_helps) {
            (_, true) if out >= 0 => self.typical.max(self.floor + reserve),
            (true, _) | (_, true) => self.floor + reserve,
            (false, false) => self.floor.max(reserve),
        };
        let needed = match self.explicit {
            true => needed,
            false => needed.min(self.usual - 1).max(self.floor),
        };
        if claimable > needed {
            return Ok(());
        }
        let floor = whole(self.floor);
        Err(if self.explicit && self.best <= self.floor {
            Wait::FloorUnsatisfiable {
                floor,
                best: whole(self.best),
                surge: self.max_surge,
            }
        } else {
            let reserve = whole(needed - self.floor);
            Wait::Floor {
                claimable: whole(claimable),
                floor,
                reserve,
            }
        })
    }
}

impl Inputs<'_> {
    fn surge_is_coming(&self) -> bool {
        let overdue = OVERDUE * self.demand.start;
        self.snapshot
            .in_flight
            .iter()
            .any(|create| create.for_rollout)
            || self.census.entries.iter().any(|entry| {
                entry.class == Class::Pending
                    && entry.member.for_rollout
                    && self.now < entry.member.created + overdue
            })
    }

    /// What claims have out of stock now, whatever the estimates say: a default floor must never keep a
    /// rollout from going on. Where no surge helps, as much more as chance may add.
    fn seen_load(&self, size: i64, surge_helps: bool) -> i64 {
        let missing = (size - self.census.live).max(0);
        let seen = self.census.replenishing + missing;
        if surge_helps {
            seen
        } else {
            with_chance(seen as f64)
        }
    }

    /// Claims that may come within `span` beyond the members that arrive meanwhile.
    fn reserve(&self, span: Duration) -> i64 {
        let claims = self.demand.peak * span.as_secs_f64();
        let horizon = self.now + span;
        let arriving = self.census.entries.iter().filter(|entry| {
            let at = match entry.class {
                Class::Pending => Some(entry.member.created + self.demand.start),
                Class::Young => entry.matures,
                _ => None,
            };
            entry.accepted && at.is_some_and(|at| at <= horizon)
        });
        let created = if span < self.demand.start {
            0
        } else {
            self.census.in_flight
        };
        (with_chance(claims) - i64::from(count(arriving.count())) - created).max(0)
    }
}

/// An expected number of claims and what chance may add to it: two standard deviations.
fn with_chance(claims: f64) -> i64 {
    ceiling(claims + 2.0 * claims.sqrt())
}

/// Counts are far below the numbers at which this could lose something.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounded up first; saturates at the bounds"
)]
fn ceiling(number: f64) -> i64 {
    number.ceil() as i64
}
