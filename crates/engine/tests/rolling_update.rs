//! What a rolling update does with single pools.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{NOW, Scene, revisions, rolling, tally};
use engine::member::{Difference, Failure, Older, Policy, State, Time};
use engine::rollout::{Action, Cause, InPlace, Ledger, Reason, Replenish, Rolling, Wait};
use std::time::Duration;

fn fail(scene: &mut Scene, failure: Failure) {
    for member in &mut scene.members {
        if matches!(member.state, State::Failed(_)) {
            member.state = State::Failed(failure);
        }
    }
}

#[test]
fn what_claims_took_is_replenished_outside_the_budget() {
    let mut scene = Scene::new(10, "7o", rolling(2, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    let plan = scene.plan();
    assert_eq!(
        (
            tally(&plan).created,
            tally(&plan).marked,
            tally(&plan).replaced
        ),
        (3, 0, 2)
    );
}

/// Vector 65 starves the reference for ever.
#[test]
fn members_on_the_way_for_claims_do_not_starve_the_rollout() {
    let mut scene = Scene::new(100, "70o 30n?", rolling(20, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    for member in &mut scene.members {
        member.for_rollout = false;
    }
    scene.demand.rate = 10.0;
    scene.demand.peak = 10.0;
    let taken = tally(&scene.plan()).replaced;
    assert!((1..=20).contains(&taken), "{taken}");
}

#[test]
fn after_a_restart_every_missing_member_counts_against_the_rollout() {
    let scene = Scene::new(10, "7o", rolling(2, 0, InPlace::Never));
    let plan = scene.plan();
    assert_eq!(
        (
            tally(&plan).created,
            tally(&plan).marked,
            tally(&plan).replaced
        ),
        (3, 3, 0)
    );
    assert_eq!(plan.wait, Wait::MaxUnavailable { out: 3, max: 2 });
}

#[test]
fn a_first_fill_is_not_the_rollouts_doing() {
    let mut scene = Scene::new(10, "", rolling(2, 2, InPlace::Never));
    scene.pool.revisions.current = scene.pool.revisions.target.clone();
    let plan = scene.plan();
    assert_eq!((tally(&plan).created, tally(&plan).marked), (10, 0));
}

#[test]
fn old_members_on_the_way_are_kept_as_stock() {
    let mut scene = Scene::new(10, "6o 4o?", rolling(2, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    let plan = scene.plan();
    assert!(plan.actions.iter().all(|action| match action {
        Action::Delete(delete) => scene.member(&delete.uid).state != State::Pending,
        _ => true,
    }));
    scene.pool.policy = Policy::RequireNewest;
    assert_eq!(tally(&scene.plan()).replaced, 4 + 2);
    scene.pool = Scene::new(5, "", rolling(2, 0, InPlace::Never)).pool;
    assert_eq!(
        tally(&scene.plan()).surplus,
        5,
        "a pool too large loses them first"
    );
}

#[test]
fn surge_is_left_to_claims_that_come_soon() {
    let mut scene = Scene::new(10, "12n", rolling(2, 2, InPlace::IfPossible));
    scene.ledger = Ledger(Some(2));
    scene.demand.rate = 1.0;
    let plan = scene.plan();
    assert!(
        plan.actions.is_empty() && plan.requeue_after.is_some(),
        "{plan:?}"
    );
    scene.demand.rate = 0.0;
    assert_eq!(tally(&scene.plan()).surplus, 2);
    scene.demand.rate = 1.0;
    scene.pool.replicas = 8;
    assert_eq!(
        tally(&scene.plan()).surplus,
        2,
        "what the owner gave up does not wait for claims"
    );
}

#[test]
fn old_members_are_updated_rather_than_deleted_while_claims_absorb_the_surge() {
    let mut scene = Scene::new(8, "2o 8n", rolling(0, 2, InPlace::IfPossible));
    scene.ledger = Ledger(Some(2));
    scene.demand.rate = 1.0;
    let done = tally(&scene.plan());
    assert_eq!((done.updated, done.surplus), (2, 0));
}

#[test]
fn a_broken_target_stops_the_rollout_and_mending_it_goes_on() {
    for (failure, reason) in [
        (Failure::ImagePull, Reason::ImagePull),
        (Failure::CrashLoop, Reason::CrashLoop),
        (Failure::Refused, Reason::PodRefused),
    ] {
        let mut scene = Scene::new(8, "8o 2n!", rolling(2, 2, InPlace::Never));
        fail(&mut scene, failure);
        let plan = scene.plan();
        assert!(plan.actions.is_empty(), "{plan:?}");
        assert_eq!(
            plan.wait,
            Wait::BrokenTarget {
                failure,
                failing: 2,
                ready: 0
            }
        );
        let stalled = &plan.conditions.stalled;
        assert!(
            stalled.status && stalled.reason == reason && stalled.message.contains("2 members")
        );
        for member in &mut scene.members {
            member.state = State::Ready {
                since: Time(NOW.0 - 1),
            };
        }
        assert!(tally(&scene.plan()).replaced > 0);
    }
}

#[test]
fn a_target_whose_pods_end_stops_the_rollout_also_while_the_next_is_tried() {
    let mut scene = Scene::new(8, "8o 2nx", rolling(2, 2, InPlace::Never));
    scene.rolling_mut().replenish = Replenish::LastGood;
    let mut made = 0;
    for second in 0..300 {
        let plan = scene.plan();
        let done = tally(&plan);
        made += done.created;
        if second > 30 {
            let stalled = &plan.conditions.stalled;
            assert_eq!((stalled.status, stalled.reason), (true, Reason::PodEnded));
        }
        scene.carry_out(&plan);
        let old = scene
            .members
            .iter()
            .filter(|it| it.revision == "old".into());
        assert!(old.count() >= 6, "{second}: {plan:?}");
        // what comes up has ended at the look after the next
        for member in &mut scene.members {
            if member.revision == "new".into() {
                member.state = match member.state {
                    State::Ready { .. } => State::Pending,
                    _ => State::Dead,
                };
            }
        }
    }
    assert!(made <= 16, "{made}");
    for member in &mut scene.members {
        member.state = State::Ready { since: NOW };
    }
    let plan = scene.plan();
    assert!(!plan.conditions.stalled.status, "{plan:?}");
    assert!(tally(&plan).replaced + tally(&plan).surplus > 0, "{plan:?}");
}

#[test]
fn old_members_that_end_and_that_the_partition_keeps_are_not_made_again_and_again() {
    let mut scene = Scene::new(4, "4ox", rolling(2, 0, InPlace::Never));
    scene.rolling_mut().partition = 4;
    let mut made = 0;
    for _ in 0..300 {
        let plan = scene.plan();
        made += tally(&plan).created_old;
        scene.carry_out(&plan);
        for member in &mut scene.members {
            member.state = State::Dead;
        }
    }
    assert!((4..=10).contains(&made), "{made}");
}

#[test]
fn one_flaky_member_does_not_stop_a_target_that_works() {
    let scene = Scene::new(8, "4o 4n 1n!", rolling(2, 2, InPlace::Never));
    assert!(tally(&scene.plan()).replaced + tally(&scene.plan()).surplus > 0);
}

#[test]
fn a_target_that_has_worked_is_not_broken_because_claims_took_all_that_worked() {
    let mut scene = Scene::new(8, "8o 1n!", rolling(2, 2, InPlace::Never));
    assert!(matches!(scene.plan().wait, Wait::BrokenTarget { .. }));
    let before = Scene::new(8, "8o 2n", rolling(2, 2, InPlace::Never)).plan();
    scene.progress = Some(before.progress);
    assert!(tally(&scene.plan()).replaced > 0);
}

#[test]
fn a_target_without_room_may_use_the_room_of_old_members_but_no_more_than_allowed() {
    let mut scene = Scene::new(8, "8o 2n!", rolling(1, 2, InPlace::Never));
    fail(&mut scene, Failure::Unschedulable);
    assert_eq!(tally(&scene.plan()).replaced, 1);
    let mut scene = Scene::new(8, "7o 3n!", rolling(1, 2, InPlace::Never));
    fail(&mut scene, Failure::Unschedulable);
    let plan = scene.plan();
    assert!(plan.actions.is_empty(), "{plan:?}");
    assert_eq!(plan.conditions.stalled.reason, Reason::Unschedulable);
}

#[test]
fn a_mended_template_replaces_the_broken_members_free_of_budget() {
    let mut scene = Scene::new(8, "6o 2n!", rolling(2, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    scene.pool.revisions = revisions(Difference::Replace);
    scene.pool.revisions.target = "mended".into();
    let plan = scene.plan();
    assert_eq!(plan.actions.len(), 2, "{plan:?}");
    assert!(plan.actions.iter().all(|action| match action {
        Action::Delete(delete) => matches!(scene.member(&delete.uid).state, State::Failed(_)),
        _ => false,
    }));
}

#[test]
fn claims_are_served_from_the_last_good_revision_if_asked_for() {
    let mut scene = Scene::new(8, "5o 2n!", rolling(1, 1, InPlace::Never));
    scene.ledger = Ledger(Some(1));
    assert_eq!(tally(&scene.plan()).created_old, 0);
    scene.rolling_mut().replenish = Replenish::LastGood;
    let done = tally(&scene.plan());
    assert_eq!((done.created, done.created_old), (2, 2));
    scene.pool.revisions.older[0].retired = true;
    let done = tally(&scene.plan());
    assert_eq!((done.created, done.created_old), (2, 0));
}

#[test]
fn a_floor_that_was_asked_for_holds() {
    let mut scene = Scene::new(10, "10o", rolling(5, 0, InPlace::Never));
    scene.rolling_mut().floor = Some(9);
    assert_eq!(tally(&scene.plan()).replaced, 1);
    scene.rolling_mut().floor = Some(10);
    let plan = scene.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(
        plan.wait,
        Wait::FloorUnsatisfiable {
            floor: 10,
            best: 10,
            surge: 0
        }
    );
    let stalled = plan.conditions.stalled;
    assert!(stalled.status && stalled.reason == Reason::FloorUnsatisfiable);
    assert!(
        stalled
            .message
            .contains("raise maxSurge or replicas, or lower the floor")
    );
}

#[test]
fn a_floor_asks_only_for_what_the_load_leaves() {
    let mut scene = Scene::new(100, "", rolling(20, 20, InPlace::Never));
    for (rate, floor) in [(0.0, 80), (2.0, 80), (10.0, 59), (20.0, 24), (60.0, 0)] {
        scene.demand.rate = rate;
        scene.demand.peak = rate;
        scene.ledger = Ledger(Some(0));
        scene.members = Scene::new(100, "100o", Rolling::new(0, 0)).members;
        assert_eq!(scene.plan().status.floor, floor, "{rate} claims a second");
    }
}

#[test]
fn zero_budgets_are_reported_as_such() {
    let plan = Scene::new(10, "10o", rolling(0, 0, InPlace::Never)).plan();
    assert!(plan.actions.is_empty() && plan.wait == Wait::NoBudget);
    assert_eq!(plan.conditions.stalled.reason, Reason::NoBudget);
}

#[test]
fn members_too_young_are_not_stock_yet() {
    let mut scene = Scene::new(4, "3o 1n", rolling(1, 0, InPlace::Never));
    scene.settings.min_ready = Duration::from_secs(10);
    for member in &mut scene.members[..3] {
        member.state = State::Ready {
            since: Time(NOW.0 - 60_000),
        };
    }
    let plan = scene.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.wait, Wait::MaxUnavailable { out: 1, max: 1 });
    assert_eq!(plan.requeue_after, Some(Duration::from_millis(9_500)));
    assert_eq!((plan.status.ready, plan.status.available), (4, 3));
    scene.now = NOW + Duration::from_millis(9_500);
    assert_eq!(tally(&scene.plan()).replaced, 1);
}

#[test]
fn promised_members_are_left_alone() {
    let mut scene = Scene::new(4, "4o", rolling(4, 0, InPlace::Never));
    for member in &mut scene.members {
        member.reserved = true;
    }
    let plan = scene.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.wait, Wait::OldPending { old: 4, pending: 0 });
}

#[test]
fn dead_and_stuck_members_are_replaced_like_claimed_ones() {
    let mut scene = Scene::new(4, "2n 2n?", rolling(1, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    for member in &mut scene.members {
        member.for_rollout = false;
    }
    scene.members[0].state = State::Dead;
    scene.settings.ready_grace = Some(Duration::from_millis(1_500));
    let plan = scene.plan();
    assert_eq!(plan.requeue_after, Some(Duration::from_millis(500)));
    let [Action::Delete(delete)] = &plan.actions[..] else {
        panic!("{plan:?}")
    };
    assert_eq!((delete.cause, delete.booked), (Cause::Dead, false));
    scene.now = NOW + Duration::from_millis(500);
    scene.members[3].state = State::Failed(Failure::Unschedulable);
    let stuck = scene.plan().actions.len();
    assert_eq!(
        stuck, 2,
        "the dead and the stuck one, not the one without room"
    );
}

#[test]
fn a_retired_revision_is_no_stock() {
    let mut scene = Scene::new(4, "2o 2n", rolling(2, 0, InPlace::Never));
    let retired = Older {
        revision: "old".into(),
        difference: Difference::Replace,
        retired: true,
    };
    scene.pool.revisions.older = vec![retired];
    assert_eq!(tally(&scene.plan()).replaced, 2);
}

#[test]
fn a_retired_revision_goes_for_the_members_that_the_partition_lets_go() {
    let mut scene = Scene::new(10, "10o", rolling(2, 0, InPlace::Never));
    scene.rolling_mut().partition = 6;
    for member in &mut scene.members[..4] {
        member.revision = "bad".into();
    }
    let older = |revision: &str, retired| Older {
        revision: revision.into(),
        difference: Difference::Replace,
        retired,
    };
    scene.pool.revisions.older = vec![older("old", false), older("bad", true)];
    let plan = scene.plan();
    let deleted = plan.actions.iter().filter_map(|action| match action {
        Action::Delete(delete) => Some(delete.cause),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [Cause::Retired; 4]);
}

#[test]
fn nobody_is_made_of_a_retired_revision_to_please_the_partition() {
    let mut scene = Scene::new(4, "2n", rolling(2, 0, InPlace::Never));
    scene.rolling_mut().partition = 2;
    let retired = Older {
        revision: "old".into(),
        difference: Difference::Replace,
        retired: true,
    };
    scene.pool.revisions.older = vec![retired];
    let done = tally(&scene.plan());
    assert_eq!((done.created, done.created_old), (2, 0));
}

#[test]
fn progress_that_stops_becomes_a_stall_and_a_pause_stops_the_clock() {
    let mut scene = Scene::new(4, "3o 1n?", rolling(1, 0, InPlace::Never));
    scene.rolling_mut().progress_deadline = Some(Duration::from_secs(60));
    let plan = scene.plan();
    assert!(!plan.conditions.stalled.status && plan.conditions.progressing.status);
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(60)));
    scene.progress = Some(plan.progress);
    scene.now = NOW + Duration::from_secs(61);
    let late = scene.plan();
    assert_eq!(late.conditions.stalled.reason, Reason::DeadlineExceeded);
    assert!(!late.conditions.progressing.status);
    scene.settings.paused = true;
    let paused = scene.plan();
    assert!(!paused.conditions.stalled.status);
    assert_eq!(paused.progress.at, scene.now);
    scene.settings.paused = false;
    scene.members[3].state = State::Ready { since: scene.now };
    let moved = scene.plan();
    assert_eq!(
        (moved.progress.at, moved.conditions.stalled.status),
        (scene.now, false)
    );
}

#[test]
fn a_rollout_that_has_no_old_members_left_and_never_comes_up_is_a_stall() {
    let mut scene = Scene::new(4, "4n?", rolling(2, 0, InPlace::Never));
    scene.rolling_mut().progress_deadline = Some(Duration::from_secs(60));
    scene.progress = Some(scene.plan().progress);
    scene.now = NOW + Duration::from_secs(60);
    let stalled = scene.plan().conditions.stalled;
    assert_eq!(
        (stalled.status, stalled.reason),
        (true, Reason::DeadlineExceeded)
    );
    // the same members without a rollout
    scene.pool.revisions.current = "new".into();
    let plan = scene.plan();
    assert!(!plan.conditions.stalled.status && plan.requeue_after.is_none());
}

#[test]
fn a_target_that_is_broken_past_the_deadline_says_both() {
    let mut scene = Scene::new(8, "8o 2n!", rolling(2, 2, InPlace::Never));
    scene.rolling_mut().progress_deadline = Some(Duration::from_secs(60));
    scene.progress = Some(scene.plan().progress);
    scene.now = NOW + Duration::from_secs(60);
    let conditions = scene.plan().conditions;
    assert_eq!(conditions.stalled.reason, Reason::CrashLoop);
    assert_eq!(conditions.progressing.reason, Reason::DeadlineExceeded);
}

#[test]
fn members_that_claims_take_are_progress_only_if_the_target_works() {
    for (fresh, is_progress) in [("2n", true), ("2n!", false)] {
        let mut scene = Scene::new(8, &format!("8o {fresh}"), rolling(2, 2, InPlace::Never));
        let before = scene.plan().progress;
        scene.progress = Some(before.clone());
        scene.members.remove(0);
        scene.now = NOW + Duration::from_secs(1);
        assert_eq!(scene.plan().progress.at > before.at, is_progress, "{fresh}");
    }
}

#[test]
fn a_rollout_that_has_not_come_back_to_its_floor_is_not_over() {
    let mut scene = Scene::new(4, "2n 2n?", rolling(1, 0, InPlace::Never));
    let plan = scene.plan();
    assert_eq!(plan.status.current_revision.as_str(), "old");
    assert_ne!(plan.conditions.progressing.reason, Reason::Complete);
    scene.members[2].state = scene.members[0].state;
    let plan = scene.plan();
    assert_eq!(plan.status.current_revision.as_str(), "new");
    assert_eq!(plan.conditions.progressing.reason, Reason::Complete);
}

#[test]
fn the_current_revision_follows_when_the_floor_held_for_the_window() {
    let mut scene = Scene::new(4, "4n", rolling(1, 0, InPlace::Never));
    scene.rolling_mut().stabilise = Duration::from_secs(10);
    let plan = scene.plan();
    assert_eq!(plan.status.current_revision.as_str(), "old");
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(10)));
    scene.progress = Some(plan.progress);
    scene.now = NOW + Duration::from_secs(10);
    let plan = scene.plan();
    assert_eq!(plan.status.current_revision.as_str(), "new");
    assert_eq!(plan.conditions.progressing.reason, Reason::Complete);
    assert_eq!((plan.status.updated, plan.status.updated_available), (4, 4));
}

#[test]
fn a_reached_partition_rests() {
    let mut scene = Scene::new(8, "4o 4n", rolling(2, 2, InPlace::Never));
    scene.rolling_mut().partition = 4;
    scene.rolling_mut().progress_deadline = Some(Duration::from_secs(60));
    scene.progress = Some(scene.plan().progress);
    scene.now = NOW + Duration::from_secs(61);
    let plan = scene.plan();
    assert_eq!(plan.conditions.progressing.reason, Reason::PartitionReached);
    assert_eq!(plan.status.current_revision.as_str(), "old");
    assert!(!plan.conditions.stalled.status);
    scene.progress = Some(plan.progress);
    scene.rolling_mut().partition = 0;
    assert!(!scene.plan().conditions.stalled.status);
}

#[test]
fn a_pool_grows_within_its_scale_limit() {
    let mut scene = Scene::new(12, "5n 1n?", rolling(2, 0, InPlace::Never));
    scene.settings.scale_limit = Some(3);
    let plan = scene.plan();
    assert_eq!(tally(&plan).created, 2);
    assert_eq!(
        plan.wait,
        Wait::CreateLimit {
            missing: 6,
            limit: 2
        }
    );
}

/// R − λ·τc is 90, F_eff is 83.
fn loaded(surge: u32, in_place: InPlace) -> Scene {
    let mut scene = Scene::new(100, "90o 10o?", rolling(10, surge, in_place));
    scene.demand.rate = 10.0 / 3.0;
    scene.demand.peak = 10.0 / 3.0;
    scene.ledger = Ledger(Some(0));
    scene
}

#[test]
fn while_surge_is_on_its_way_the_rollout_leaves_what_the_load_leaves() {
    let plan = loaded(5, InPlace::Never).plan();
    assert_eq!((tally(&plan).created, tally(&plan).replaced), (5, 0));
    assert!(
        matches!(
            plan.wait,
            Wait::Floor {
                claimable: 90,
                floor: 83,
                ..
            }
        ),
        "{:?}",
        plan.wait
    );
    assert!(
        plan.requeue_after.is_some(),
        "demand may fade without an event"
    );
    let plan = loaded(0, InPlace::Never).plan();
    assert_eq!(
        tally(&plan).replaced,
        7,
        "without surge only the floor holds it back"
    );
}

#[test]
fn surge_that_is_claimable_stands_in_for_old_members() {
    let mut scene = loaded(5, InPlace::Never);
    scene.members.extend(
        Scene::new(0, "5n", Rolling::new(0, 0))
            .members
            .into_iter()
            .map(|mut one| {
                one.uid = format!("new-{}", one.uid).as_str().into();
                one
            }),
    );
    scene.ledger = Ledger(Some(5));
    assert_eq!(tally(&scene.plan()).replaced, 5);
}

#[test]
fn members_on_the_way_count_as_stock_for_an_explicit_floor() {
    let mut scene = loaded(0, InPlace::Never);
    scene.rolling_mut().floor = Some(85);
    // within a start 10 claims come, and chance may add 7; 10 members arrive
    let plan = scene.plan();
    assert_eq!(plan.status.floor, 83);
    assert_eq!(tally(&plan).replaced, 90 - 83 - 7);
    scene.demand.rate = 0.0;
    scene.demand.peak = 0.0;
    assert_eq!(tally(&scene.plan()).replaced, 5);
}

#[test]
fn old_members_on_the_way_stay_within_the_partition() {
    let mut scene = Scene::new(4, "2o 2o?", rolling(1, 0, InPlace::Never));
    scene.pool.policy = Policy::RequireNewest;
    scene.rolling_mut().partition = 3;
    assert_eq!(tally(&scene.plan()).replaced, 1);
}

#[test]
fn a_resting_pool_is_left_in_peace() {
    for (members, paused) in [("4n", false), ("4o", true)] {
        let mut scene = Scene::new(4, members, rolling(1, 1, InPlace::Never));
        scene.rolling_mut().progress_deadline = Some(Duration::from_secs(60));
        scene.settings.paused = paused;
        let plan = scene.plan();
        assert_eq!(
            (plan.actions.len(), plan.requeue_after),
            (0, None),
            "{members}"
        );
    }
}

#[test]
fn neither_partition_nor_pause_keeps_what_was_rolled_back_as_bad() {
    for (partition, paused) in [(4, false), (0, true)] {
        let mut scene = Scene::new(
            4,
            "4o",
            Rolling {
                partition,
                ..rolling(1, 0, InPlace::Never)
            },
        );
        scene.settings.paused = paused;
        scene.ledger = Ledger(Some(0));
        assert!(scene.plan().actions.is_empty());
        scene.pool.revisions.older[0].retired = true;
        let plan = scene.plan();
        let is_gone = |action: &Action| matches!(action, Action::Delete(delete) if delete.cause == Cause::Retired && !delete.booked);
        assert!(plan.actions.iter().all(is_gone), "{plan:?}");
        assert_eq!(plan.actions.len(), 4);
    }
}
