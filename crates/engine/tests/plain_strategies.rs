//! Recreate and OnReplenish do as the reference does.

mod common;

use common::{NOW, Scene, revisions, tally};
use engine::member::{Difference, Intent, State, Time};
use engine::rollout::{Action, Cause, Reason, Strategy, Wait};
use std::time::Duration;

fn pool(replicas: u32, members: &str, strategy: Strategy) -> Scene {
    Scene::with_strategy(replicas, members, strategy)
}

#[test]
fn recreate_deletes_every_old_member_and_waits_until_they_are_gone() {
    let mut scene = pool(4, "3o 1o?", Strategy::Recreate);
    let plan = scene.plan();
    assert_eq!((tally(&plan).replaced, tally(&plan).created), (4, 0));
    scene.expect(&plan);
    assert!(
        scene.plan().actions.is_empty(),
        "they still occupy their places"
    );
    scene.members.truncate(3);
    assert_eq!(tally(&scene.plan()).created, 1);
}

/// The reference creates a replacement for a member that it failed to delete.
#[test]
fn a_refused_deletion_does_not_double_the_pool() {
    let scene = pool(4, "4o", Strategy::Recreate);
    for _ in 0..3 {
        assert_eq!(tally(&scene.plan()).created, 0);
    }
}

#[test]
fn what_counts_as_an_update_depends_on_the_strategy() {
    for (difference, recreated) in [
        (Difference::Same, 0),
        (Difference::Metadata, 0),
        (Difference::Reference, 3),
        (Difference::Resources, 3),
        (Difference::Image, 3),
        (Difference::Replace, 3),
    ] {
        for (strategy, expected) in [(Strategy::Recreate, recreated), (Strategy::OnReplenish, 0)] {
            let mut scene = pool(3, "3o", strategy);
            scene.pool.revisions = revisions(difference);
            let plan = scene.plan();
            assert_eq!(tally(&plan).replaced, expected, "{difference:?}");
            assert_eq!(tally(&plan).created, 0);
        }
    }
}

#[test]
fn on_replenish_keeps_old_members_and_creates_new_ones() {
    let scene = pool(5, "3o", Strategy::OnReplenish);
    let plan = scene.plan();
    assert_eq!((tally(&plan).created, tally(&plan).created_old), (2, 0));
    assert_eq!(plan.wait, Wait::UntilClaimed { old: 3 });
    assert_eq!(plan.conditions.progressing.reason, Reason::UntilClaimed);
    assert_eq!(
        (plan.status.replicas, plan.status.ready, plan.status.updated),
        (3, 3, 0)
    );
}

#[test]
fn a_smaller_pool_loses_what_is_not_ready_and_then_the_newest() {
    let mut scene = pool(2, "2o 1n? 1n", Strategy::OnReplenish);
    scene.members[0].created = NOW;
    let plan = scene.plan();
    let gone: Vec<_> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::Delete(delete) => (delete.uid.as_str(), delete.cause),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(gone, [("m2", Cause::Surplus), ("m0", Cause::Surplus)]);
}

#[test]
fn terminating_members_hold_their_places() {
    let mut scene = pool(4, "4n", Strategy::OnReplenish);
    scene.members[0].state = State::Terminating;
    assert!(scene.plan().actions.is_empty());
    scene.members.remove(0);
    assert_eq!(tally(&scene.plan()).created, 1);
}

#[test]
fn stuck_members_are_replaced_and_creations_come_in_batches() {
    let mut scene = pool(1_000, "1n?", Strategy::OnReplenish);
    scene.settings.ready_grace = Some(Duration::from_secs(300));
    scene.members[0].created = Time(NOW.0 - 300_000);
    let plan = scene.plan();
    assert_eq!(tally(&plan).created, 300);
    assert!(
        matches!(plan.actions.last(), Some(Action::Delete(delete)) if delete.cause == Cause::Stuck)
    );
}

#[test]
fn a_settled_pool_needs_nothing() {
    for strategy in [Strategy::Recreate, Strategy::OnReplenish] {
        let plan = pool(3, "3n", strategy).plan();
        assert!(plan.actions.is_empty() && plan.requeue_after.is_none());
        assert_eq!(
            (plan.wait, plan.conditions.progressing.reason),
            (Wait::Settled, Reason::Complete)
        );
    }
}

#[test]
fn promised_members_neither_make_way_nor_are_too_many() {
    for strategy in [Strategy::Recreate, Strategy::OnReplenish] {
        for (replicas, members) in [(3, "3o"), (1, "3n")] {
            let mut scene = pool(replicas, members, strategy.clone());
            for member in &mut scene.members {
                member.reserved = true;
            }
            let plan = scene.plan();
            assert!(plan.actions.is_empty(), "{members}: {plan:?}");
        }
    }
}

#[test]
fn a_paused_pool_recreates_nothing() {
    let mut scene = pool(3, "2o", Strategy::Recreate);
    scene.settings.paused = true;
    assert_eq!(
        (tally(&scene.plan()).replaced, tally(&scene.plan()).created),
        (0, 1)
    );
}

#[test]
fn a_pool_that_never_works_says_so() {
    let plan = pool(3, "3n!", Strategy::OnReplenish).plan();
    assert_eq!(plan.conditions.stalled.reason, Reason::CrashLoop);
    assert!(plan.conditions.stalled.status);
}

/// How many members are made in ten minutes of a revision whose pods end at once.
#[test]
fn a_pool_whose_members_end_says_so_and_makes_few_of_them_until_it_is_mended() {
    for strategy in [Strategy::OnReplenish, Strategy::Recreate] {
        let mut scene = pool(20, "20nx", strategy);
        let mut made = 0;
        for second in 0..600 {
            let plan = scene.plan();
            made += tally(&plan).created;
            if second > 60 {
                let stalled = &plan.conditions.stalled;
                assert_eq!((stalled.status, stalled.reason), (true, Reason::PodEnded));
                assert!(stalled.message.contains("pod ends"), "{stalled:?}");
            }
            scene.carry_out(&plan);
            for member in &mut scene.members {
                member.state = State::Dead;
            }
        }
        assert!(made <= 20 + 6, "{made}");
        scene.pool.revisions = revisions(Difference::Replace);
        scene.pool.revisions.target = "mended".into();
        for _ in 0..3 {
            let plan = scene.plan();
            scene.carry_out(&plan);
        }
        assert_eq!(scene.plan().status.updated_available, 20);
    }
}

#[test]
fn one_that_ends_among_others_that_work_is_replaced_at_once_and_nothing_is_told() {
    let mut scene = pool(4, "3n 1nx", Strategy::OnReplenish);
    let plan = scene.plan();
    assert_eq!(tally(&plan).replaced, 1);
    assert!(!plan.conditions.stalled.status, "{plan:?}");
    scene.carry_out(&plan);
    assert_eq!(tally(&scene.plan()).created, 1);
}

#[test]
fn a_smaller_pool_loses_those_that_have_ended_first() {
    let mut scene = pool(4, "2o 2nx", Strategy::OnReplenish);
    let plan = scene.plan();
    scene.expect(&plan);
    for member in &mut scene.members[2..] {
        member.state = State::Dead;
    }
    assert!(scene.plan().actions.is_empty(), "they are kept");
    scene.pool.replicas = 2;
    assert_eq!(tally(&scene.plan()).surplus, 2);
}

#[test]
fn fences_left_by_another_strategy_are_taken_off() {
    let mut scene = pool(2, "2n", Strategy::OnReplenish);
    let intent = Intent {
        target: "new".into(),
        deadline: NOW,
        begun: true,
    };
    scene.members[0].intent = Some(Box::new(intent.clone()));
    scene.members[1].intent = Some(Box::new(intent));
    scene.members[1].state = State::Pending;
    let plan = scene.plan();
    assert!(
        matches!(
            &plan.actions[..],
            [Action::Release(_), Action::Delete(delete)] if delete.cause == Cause::Fallback
        ),
        "{plan:?}"
    );
}

#[test]
fn what_was_rolled_back_as_bad_is_replaced_though_nothing_else_is() {
    let mut scene = pool(4, "2o 2n", Strategy::OnReplenish);
    scene.pool.revisions.older[0].retired = true;
    let plan = scene.plan();
    let causes: Vec<_> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::Delete(delete) => delete.cause,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(causes, [Cause::Retired; 2]);
    assert_eq!(plan.status.available, 2, "nobody can have the bad ones");
}
