//! Updates in place: who may have one, and what becomes of those that were begun.

use super::Roll;
use crate::member::{Difference, Intent};
use crate::rollout::census::{Class, Entry};
use crate::rollout::stock::Inputs;
use crate::rollout::{Action, Cause, InPlace, Wait};

impl Roll<'_> {
    /// Ends or carries on what fenced members were taken out for.
    pub(super) fn settle_fences(&mut self) {
        for (index, entry) in self.entries() {
            if let (Class::Fenced, Some(intent)) = (entry.class, &entry.member.intent) {
                self.settle_fence(index, entry, intent);
            }
        }
    }

    fn settle_fence(&mut self, index: usize, entry: &Entry<'_>, intent: &Intent) {
        let late = self.inputs.now >= intent.deadline;
        let only = self.inputs.rolling.in_place == InPlace::Only;
        let paused = self.inputs.settings.paused;
        let kept = entry.stale && self.quota <= 0;
        let finished = entry.difference == Difference::Same || kept || (paused && !intent.begun);
        let mature = entry.matures.is_some_and(|at| self.inputs.now >= at);
        if finished && mature {
            self.decided[index] = true;
            self.actions.push(Action::Release(entry.member.uid.clone()));
        } else if paused || (finished && entry.is_ready()) {
            // what has begun goes on by itself; nothing new is done to it
        } else if entry.stale && !kept && may_change_in_place(self.inputs, entry) {
            self.quota -= 1;
            self.update(index, self.intent());
        } else if entry.stale && only {
            self.refuse(Wait::InPlaceOnly { members: 1 });
        } else if entry.stale {
            let cause = if kept { Cause::Fallback } else { Cause::Stale };
            self.quota -= 1;
            self.delete(index, cause, true);
        } else if late && only {
            self.refuse(Wait::InPlaceLate { members: 1 });
        } else if late {
            self.delete(index, Cause::Fallback, true);
        } else if !intent.begun {
            self.update(index, intent.clone());
        }
    }
}

pub(super) fn may_change_in_place(inputs: &Inputs<'_>, entry: &Entry<'_>) -> bool {
    let healthy = !matches!(entry.class, Class::Failed(_));
    let node = entry.member.node.as_ref();
    let node_allows = node.is_some_and(|node| !inputs.snapshot.no_in_place.contains(node));
    let allowed = match inputs.rolling.in_place {
        InPlace::Never => false,
        InPlace::IfPossible => healthy && node_allows,
        InPlace::Only => true,
    };
    let possible = match entry.difference {
        Difference::Reference
        | Difference::Metadata
        | Difference::Resources
        | Difference::Image => true,
        Difference::Same | Difference::Replace => false,
    };
    allowed && possible
}
