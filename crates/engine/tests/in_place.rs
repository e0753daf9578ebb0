//! Updates in place, from the fence to its end.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{NOW, Scene, revisions, rolling, tally};
use engine::member::{Difference, Intent, Member, Revision, State, Time};
use engine::rollout::{Action, Cause, InPlace, Ledger, Wait};
use std::time::Duration;

fn fence(member: &mut Member, target: &str, deadline: Time, begun: bool) {
    member.intent = Some(Box::new(Intent {
        target: target.into(),
        deadline,
        begun,
    }));
}

#[test]
fn members_change_in_place_only_where_difference_and_node_allow_it() {
    for (difference, in_place) in [
        (Difference::Reference, true),
        (Difference::Metadata, true),
        (Difference::Resources, true),
        (Difference::Image, true),
        (Difference::Replace, false),
    ] {
        let mut scene = Scene::new(4, "4o", rolling(1, 0, InPlace::IfPossible));
        scene.pool.revisions = revisions(difference);
        let done = tally(&scene.plan());
        assert_eq!(
            (done.updated == 1, done.replaced == 1),
            (in_place, !in_place),
            "{difference:?}"
        );
        scene.no_in_place.insert("node".into());
        assert_eq!(tally(&scene.plan()).replaced, 1);
    }
    let mut scene = Scene::new(4, "4o", rolling(1, 0, InPlace::Never));
    scene.pool.revisions = revisions(Difference::Metadata);
    assert_eq!(tally(&scene.plan()).replaced, 1);
    scene.pool.revisions = revisions(Difference::Same);
    assert_eq!(scene.plan().wait, Wait::Settled);
}

#[test]
fn a_member_that_fails_is_replaced_and_not_changed_in_place() {
    let mut scene = Scene::new(4, "3o 1o!", rolling(1, 0, InPlace::IfPossible));
    let plan = scene.plan();
    let [Action::Delete(delete)] = &plan.actions[..] else {
        panic!("{plan:?}")
    };
    assert!(matches!(scene.member(&delete.uid).state, State::Failed(_)));
}

#[test]
fn members_that_must_not_be_replaced_stay_and_are_counted() {
    let mut scene = Scene::new(4, "4o", rolling(1, 0, InPlace::Only));
    scene.pool.revisions = revisions(Difference::Replace);
    let plan = scene.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.wait, Wait::InPlaceOnly { members: 4 });
    scene.pool.revisions = revisions(Difference::Image);
    fence(&mut scene.members[0], "new", NOW, true);
    scene.members[0].state = State::Pending;
    assert_eq!(scene.plan().wait, Wait::InPlaceLate { members: 1 });
}

#[test]
fn an_update_past_its_deadline_becomes_a_replacement() {
    let mut scene = Scene::new(4, "3o 1nU", rolling(1, 0, InPlace::IfPossible));
    let plan = scene.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(30)));
    scene.now = NOW + Duration::from_secs(30);
    let plan = scene.plan();
    assert!(
        matches!(&plan.actions[..], [Action::Delete(delete)] if delete.cause == Cause::Fallback),
        "{plan:?}"
    );
}

#[test]
fn an_update_has_three_times_as_long_as_usual_and_half_a_minute_at_least() {
    for (usual, deadline) in [(1, 30), (20, 60)] {
        let mut scene = Scene::new(4, "4o", rolling(1, 0, InPlace::IfPossible));
        scene.demand.in_place = Duration::from_secs(usual);
        let plan = scene.plan();
        scene.expect(&plan);
        for member in &mut scene.members {
            if member.intent.is_some() {
                member.revision = "new".into();
                member.state = State::Pending;
            }
        }
        scene.now = NOW + Duration::from_secs(deadline - 1);
        assert!(scene.plan().actions.is_empty());
        scene.now = NOW + Duration::from_secs(deadline);
        assert_eq!(tally(&scene.plan()).replaced, 1);
    }
}

#[test]
fn a_fence_without_its_change_is_carried_on() {
    let mut scene = Scene::new(4, "4o", rolling(1, 0, InPlace::IfPossible));
    fence(
        &mut scene.members[0],
        "new",
        NOW + Duration::from_secs(9),
        false,
    );
    let plan = scene.plan();
    let [Action::UpdateInPlace(update)] = &plan.actions[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(
        (&update.uid, update.intent.deadline),
        (&"m0".into(), NOW + Duration::from_secs(9))
    );
}

#[test]
fn a_fence_for_a_former_target_follows_the_new_one() {
    let mut scene = Scene::new(4, "4o", rolling(1, 0, InPlace::IfPossible));
    fence(
        &mut scene.members[0],
        "former",
        NOW + Duration::from_secs(9),
        true,
    );
    scene.members[0].state = State::Pending;
    let plan = scene.plan();
    assert!(
        matches!(&plan.actions[..], [Action::UpdateInPlace(update)] if update.intent.target == Revision::from("new")),
        "{plan:?}"
    );
    scene.pool.revisions = revisions(Difference::Replace);
    assert_eq!(tally(&scene.plan()).replaced, 1);
}

#[test]
fn a_complete_update_is_released_even_while_paused() {
    let mut scene = Scene::new(4, "3o 1nU", rolling(1, 0, InPlace::IfPossible));
    scene.members[3].state = State::Ready { since: NOW };
    scene.settings.paused = true;
    assert_eq!(scene.plan().actions, [Action::Release("m3".into())]);
}

#[test]
fn a_fence_that_nobody_wants_any_more_is_taken_off() {
    let mut scene = Scene::new(4, "4n", rolling(1, 0, InPlace::IfPossible));
    fence(
        &mut scene.members[0],
        "undone",
        NOW + Duration::from_secs(9),
        false,
    );
    assert_eq!(scene.plan().actions, [Action::Release("m0".into())]);
}

#[test]
fn updates_in_place_respect_their_own_limit() {
    let mut scene = Scene::new(10, "10o", rolling(5, 0, InPlace::IfPossible));
    scene.rolling_mut().max_concurrent = Some(2);
    let plan = scene.plan();
    assert_eq!(tally(&plan).updated, 2);
    assert_eq!(
        plan.wait,
        Wait::MaxConcurrent {
            updating: 2,
            max: 2
        }
    );
}

#[test]
fn an_updated_member_stays_fenced_until_it_was_ready_for_long_enough() {
    let mut scene = Scene::new(4, "3o 1nU", rolling(1, 0, InPlace::IfPossible));
    scene.settings.min_ready = Duration::from_secs(10);
    for member in &mut scene.members[..3] {
        member.state = State::Ready {
            since: Time(NOW.0 - 60_000),
        };
    }
    scene.members[3].state = State::Ready {
        since: Time(NOW.0 - 1_000),
    };
    let plan = scene.plan();
    assert!(plan.actions.is_empty(), "{plan:?}");
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(9)));
    scene.now = NOW + Duration::from_secs(31);
    assert_eq!(
        scene.plan().actions,
        [Action::Release("m3".into())],
        "and it is not late"
    );
}

#[test]
fn a_fenced_member_that_dies_still_counts_as_out() {
    let mut scene = Scene::new(4, "3o 1nU", rolling(1, 0, InPlace::IfPossible));
    scene.ledger = Ledger(Some(0));
    scene.members[3].state = State::Dead;
    let plan = scene.plan();
    let [Action::Delete(delete)] = &plan.actions[..] else {
        panic!("{plan:?}")
    };
    assert!(delete.booked);
    scene.expect(&plan);
    assert_eq!(tally(&scene.plan()).marked, 1);
}
