//! Taking old members out, within every limit.

use super::Roll;
use super::fences::may_change_in_place;
use crate::member::State;
use crate::rollout::census::{Class, Entry};
use crate::rollout::order::{self, Candidate};
use crate::rollout::stock::Inputs;
use crate::rollout::{Cause, InPlace, Rolling, Wait, whole};

impl Roll<'_> {
    /// Takes old members out, as many as every limit allows.
    pub(super) fn take(&mut self) {
        let Inputs {
            rolling,
            settings,
            census,
            ..
        } = self.inputs;
        let mut surplus = self.surplus(self.tolerated());
        if surplus > 0 {
            self.quota = self.quota.min(settings.delete_limit.into());
        }
        if self.broken.is_some() {
            surplus -= self.drop_unclaimable(surplus, has_ended_or_fails_at_the_target);
        }
        let too_many = census.staying(&self.actions) - self.replicas - i64::from(rolling.max_surge);
        let dropped = self.drop_old_pending(too_many);
        self.quota -= dropped;
        let dropped = dropped.min(too_many.max(0));
        surplus -= dropped;
        surplus -= self.drop_unclaimable(too_many - dropped, is_on_the_way_at_the_target);
        let candidates = self.entries().filter(|(index, _)| !self.decided[*index]);
        let candidates = candidates
            .filter_map(|(index, entry)| candidate(index, entry))
            .collect();
        let all = census
            .entries
            .iter()
            .map(|entry| entry.member.labels.as_deref());
        let on = census.claimable_on();
        let priority = rolling.priority.as_ref();
        for candidate in order::sort(candidates, &on, priority, &rolling.scatter, all) {
            if self.quota <= 0 {
                break;
            }
            match self.take_one(candidate.item, surplus > 0) {
                Ok(()) => {
                    self.quota -= 1;
                    surplus -= 1;
                }
                Err(wait) => self.refuse(wait),
            }
        }
    }

    fn take_one(&mut self, index: usize, surplus: bool) -> Result<(), Wait> {
        let rolling = self.inputs.rolling;
        let entry = &self.inputs.census.entries[index];
        let in_place = !surplus && may_change_in_place(self.inputs, entry);
        if !surplus && !in_place && rolling.in_place == InPlace::Only {
            return Err(Wait::InPlaceOnly { members: 1 });
        }
        if !entry.is_out() {
            self.check_budget(surplus)?;
        }
        let costs_stock = entry.class == Class::Claimable && entry.accepted;
        if costs_stock {
            self.stock.check(self.claimable, in_place, self.out)?;
        }
        if in_place {
            let max = rolling.max_concurrent.unwrap_or(u32::MAX);
            if self.updating >= i64::from(max) {
                return Err(Wait::MaxConcurrent {
                    updating: whole(self.updating),
                    max,
                });
            }
            self.updating += 1;
            self.update(index, self.intent());
        } else {
            let cause = if surplus {
                Cause::Surplus
            } else {
                Cause::Stale
            };
            self.delete(index, cause, true);
        }
        self.out += i64::from(!entry.is_out());
        self.claimable -= i64::from(costs_stock);
        Ok(())
    }

    fn check_budget(&self, surplus: bool) -> Result<(), Wait> {
        let Rolling {
            max_unavailable: max,
            max_surge,
            ..
        } = *self.inputs.rolling;
        match &self.broken {
            Some(broken) if !surplus => Err(broken.clone()),
            _ if max == 0 && max_surge == 0 && !surplus => Err(Wait::NoBudget),
            _ if self.out >= i64::from(max) => Err(Wait::MaxUnavailable { out: self.out, max }),
            _ => Ok(()),
        }
    }

    /// Old members on the way are stock that comes soon; they go only if the pool is too large even for a
    /// rollout, or nobody may have them.
    fn drop_old_pending(&mut self, too_many: i64) -> i64 {
        let mut dropped = 0;
        for (index, entry) in self.entries() {
            if !entry.stale || entry.class != Class::Pending || self.decided[index] {
                continue;
            }
            if dropped >= self.quota {
                break;
            }
            if dropped < too_many {
                self.delete(index, Cause::Surplus, entry.is_out());
                dropped += 1;
            } else if !entry.accepted {
                self.delete(index, Cause::Stale, entry.is_out());
                dropped += 1;
            }
        }
        dropped
    }

    /// Lets go of so many at the most that nobody can claim. A pool without a rollout would lose them as well, so that it is
    /// not the rollout's doing.
    fn drop_unclaimable(&mut self, most: i64, goes: impl Fn(&Entry<'_>) -> bool) -> i64 {
        let mut dropped = 0;
        for (index, entry) in self.entries() {
            if goes(entry) && dropped < most && !self.decided[index] {
                self.delete(index, Cause::Surplus, entry.is_out());
                dropped += 1;
                self.quota -= i64::from(entry.stale);
            }
        }
        dropped
    }
}

fn has_ended_or_fails_at_the_target(entry: &Entry<'_>) -> bool {
    match entry.class {
        Class::Ended => true,
        Class::Failed(_) => !entry.stale,
        _ => false,
    }
}

fn is_on_the_way_at_the_target(entry: &Entry<'_>) -> bool {
    let waits = matches!(entry.class, Class::Pending | Class::Failed(_));
    waits && !entry.stale
}

fn candidate<'a>(index: usize, entry: &'a Entry<'a>) -> Option<Candidate<'a, usize>> {
    let takeable = matches!(
        entry.class,
        Class::Claimable | Class::Young | Class::Failed(_)
    );
    (entry.stale && takeable).then(|| Candidate {
        item: index,
        labels: entry.member.labels.as_deref(),
        node: entry.member.node.as_ref(),
        claimable: entry.class == Class::Claimable,
        idle: match entry.member.state {
            State::Ready { since } => since,
            State::Pending | State::Failed(_) | State::Dead | State::Terminating => {
                entry.member.created
            }
        },
    })
}
