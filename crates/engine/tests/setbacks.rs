//! What keeps a rolling update from going as it should, besides a target that does not work.

mod common;

use common::{NOW, Scene, rolling, tally};
use engine::member::{Failure, State};
use engine::rollout::{Action, InPlace, Ledger, Reason, Replenish, Wait};
use std::time::Duration;

/// A target that cannot be pulled, and old members whose pods end as well.
fn doubly_broken(members: &str) -> Scene {
    let mut scene = Scene::new(4, members, rolling(1, 1, InPlace::Never));
    scene.rolling_mut().replenish = Replenish::LastGood;
    for member in &mut scene.members {
        if member.revision == "new".into() {
            member.state = State::Failed(Failure::ImagePull);
            member.for_rollout = true;
        }
    }
    scene
}

#[test]
fn while_the_target_is_broken_old_members_that_end_are_not_made_again_and_again() {
    let mut scene = doubly_broken("4ox 1n!");
    let mut made = 0;
    for second in 0..300 {
        let plan = scene.plan();
        made += tally(&plan).created_old;
        let stalled = &plan.conditions.stalled;
        assert_eq!((stalled.status, stalled.reason), (true, Reason::ImagePull));
        if second > 30 {
            let words = "of the old ones have ended and are replaced later";
            assert!(stalled.message.contains(words), "{}", stalled.message);
        }
        scene.carry_out(&plan);
        for member in &mut scene.members {
            member.state = match member.revision == "old".into() {
                true => State::Dead,
                false => State::Failed(Failure::ImagePull),
            };
        }
    }
    // four in their places, and then one at a time
    assert!((4..=10).contains(&made), "{made}");
}

#[test]
fn one_old_member_that_ends_among_others_that_work_is_made_up_for_at_once() {
    let mut scene = doubly_broken("3o 1ox 1n!");
    let plan = scene.plan();
    assert_eq!(tally(&plan).replaced, 1);
    assert!(!plan.conditions.stalled.message.contains("ended"));
    scene.carry_out(&plan);
    assert_eq!(tally(&scene.plan()).created_old, 1);
}

#[test]
fn a_smaller_pool_with_a_broken_target_loses_old_members_that_have_ended_before_those_that_work() {
    let mut scene = doubly_broken("2o 2ox 1n!");
    let plan = scene.plan();
    scene.expect(&plan);
    for member in &mut scene.members[2..4] {
        member.state = State::Dead;
    }
    assert!(scene.plan().actions.is_empty(), "they are kept");
    scene.pool.replicas = 2;
    for _ in 0..4 {
        let plan = scene.plan();
        scene.carry_out(&plan);
    }
    let working = scene
        .members
        .iter()
        .filter(|member| member.state.is_ready());
    assert_eq!(working.count(), 2, "{:?}", scene.members);
    let is_dead = |state: State| state == State::Dead;
    assert!(!scene.members.iter().any(|member| is_dead(member.state)));
}

/// A pool of four that is rolled, with surge that waits for room.
fn without_room(members: &str, max_unavailable: u32) -> Scene {
    let mut scene = Scene::new(4, members, rolling(max_unavailable, 1, InPlace::Never));
    for member in &mut scene.members {
        if let State::Failed(failure) = &mut member.state {
            *failure = Failure::Quota;
            member.for_rollout = true;
        }
    }
    scene.ledger = Ledger(Some(1));
    scene
}

#[test]
fn surge_whose_pods_a_quota_refuses_does_not_stop_a_rollout_that_may_take_members_out() {
    let plan = without_room("4o 1n!", 1).plan();
    assert_eq!((tally(&plan).created, tally(&plan).replaced), (0, 1));
    let progressing = &plan.conditions.progressing;
    assert_eq!(
        (progressing.status, progressing.reason),
        (true, Reason::QuotaExceeded)
    );
    let words = "a quota leaves room for 0 of 1 surge members, 1 wait for room; \
                 the rollout goes on with maxUnavailable 1";
    assert!(progressing.message.contains(words), "{progressing:?}");
    assert!(!plan.conditions.stalled.status, "{plan:?}");
}

#[test]
fn a_rollout_that_has_surge_only_and_no_room_for_it_is_a_stall() {
    let plan = without_room("4o 1n!", 0).plan();
    assert!(plan.actions.is_empty(), "{plan:?}");
    let stalled = &plan.conditions.stalled;
    assert_eq!(
        (stalled.status, stalled.reason),
        (true, Reason::QuotaExceeded)
    );
    assert!(stalled.message.contains("raise it, or what the quota"));
}

#[test]
fn a_pool_that_is_not_rolled_and_lacks_room_for_long_is_a_stall() {
    let mut scene = without_room("3n 1n!", 1);
    scene.pool.revisions.current = "new".into();
    // those that went may still have the room
    let plan = scene.plan();
    let conditions = &plan.conditions;
    assert_eq!(conditions.progressing.reason, Reason::QuotaExceeded);
    assert!(!conditions.stalled.status, "{plan:?}");
    scene.now = scene.now + plan.requeue_after.unwrap();
    assert!(scene.now <= NOW + Duration::from_secs(60));
    let stalled = scene.plan().conditions.stalled;
    assert_eq!(
        (stalled.status, stalled.reason),
        (true, Reason::QuotaExceeded)
    );
}

#[test]
fn a_target_that_crashes_is_broken_whoever_else_waits_for_room() {
    let mut scene = without_room("4o 3n!", 1);
    scene.members[4].state = State::Failed(Failure::CrashLoop);
    let crash = Failure::CrashLoop;
    let plan = scene.plan();
    assert!(
        matches!(plan.wait, Wait::BrokenTarget { failure, .. } if failure == crash),
        "{plan:?}"
    );
}

/// There is room for as many pods as the pool has members, and one that goes keeps its room for a turn.
#[test]
fn a_rollout_under_a_full_quota_goes_through_and_takes_out_no_more_than_it_may() {
    let mut scene = Scene::new(4, "4o", rolling(1, 1, InPlace::Never));
    for _ in 0..40 {
        let plan = scene.plan();
        assert!(!plan.conditions.stalled.status, "{plan:?}");
        let is_deletion = |action: &&Action| matches!(action, Action::Delete(_));
        let going = plan.actions.iter().filter(is_deletion).count();
        scene.carry_out(&plan);
        for (index, member) in scene.members.iter_mut().enumerate() {
            member.state = match index < 4 - going {
                true => State::Ready { since: NOW },
                false => State::Failed(Failure::Quota),
            };
        }
        let ready = scene.members.iter();
        let ready = ready.filter(|member| member.state.is_ready()).count();
        assert!(ready >= 3, "{:?}", scene.members);
    }
    let is_new = |revision: &str| revision == "new";
    let mut revisions = scene.members.iter().map(|member| member.revision.as_str());
    assert_eq!(scene.members.len(), 4);
    assert!(revisions.all(is_new), "{:?}", scene.members);
}

#[test]
fn surge_that_the_server_refuses_is_not_asked_for_again_before_its_time() {
    let mut scene = Scene::new(4, "4o", rolling(1, 1, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    assert_eq!(tally(&scene.plan()).created, 1);
    scene.no_surge_until = Some(NOW + Duration::from_secs(7));
    let plan = scene.plan();
    assert_eq!((tally(&plan).created, tally(&plan).replaced), (0, 1));
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(7)));
    let progressing = &plan.conditions.progressing;
    assert_eq!(progressing.reason, Reason::QuotaExceeded);
    let words = "room for 0 of 1 surge members, 0 wait for room";
    assert!(progressing.message.contains(words), "{progressing:?}");
    // what the rollout took out is no surge
    scene.carry_out(&plan);
    assert_eq!(tally(&scene.plan()).created, 1);
    scene.no_surge_until = None;
    assert_eq!(tally(&scene.plan()).created, 2);
}

#[test]
fn surge_that_is_there_stays_when_more_is_refused() {
    let mut scene = Scene::new(8, "8o 1n", rolling(0, 3, InPlace::Never));
    scene.ledger = Ledger(Some(1));
    scene.no_surge_until = Some(NOW + Duration::from_secs(7));
    let plan = scene.plan();
    assert_eq!((tally(&plan).created, tally(&plan).replaced), (0, 1));
    assert!(!plan.conditions.stalled.status, "{plan:?}");
}
