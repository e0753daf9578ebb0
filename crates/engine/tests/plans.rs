//! Plans on pools without claims: the worked plans of CloneSet's arithmetic that bind ours.

mod common;

use common::{Scene, rolling, tally};
use engine::member::{State, Time};
use engine::rollout::{Action, Cause, InPlace, Ledger, Rolling, Strategy, Wait};

/// The number of the vector; replicas, partition, maxUnavailable, maxSurge, members; then created, of these
/// old, deleted for being too many, taken out at once.
type Row = (u32, u32, u32, u32, u32, &'static str, u32, u32, u32, u32);

const EITHER: &[Row] = &[
    (26, 8, 0, 2, 0, "8o", 0, 0, 0, 2),
    (28, 8, 0, 2, 0, "6o 1n 1n?", 0, 0, 0, 1),
    (27, 8, 0, 2, 0, "6o 2n?", 0, 0, 0, 0),
    (29, 8, 4, 2, 0, "4o 4n", 0, 0, 0, 0),
    (31, 8, 0, 1, 0, "6o 2o!", 0, 0, 0, 1),
    (32, 8, 0, 2, 0, "5o 3o!", 0, 0, 0, 2),
    (35, 8, 0, 0, 2, "8o", 2, 0, 0, 0),
    (36, 8, 0, 0, 2, "8o 2n?", 0, 0, 0, 0),
    (37, 8, 0, 0, 2, "8o 2n", 0, 0, 0, 2),
    (43, 12, 6, 2, 0, "6o 2n", 4, 0, 0, 0),
    (44, 12, 6, 2, 0, "4o 4n", 4, 2, 0, 0),
    (46, 4, 2, 2, 0, "6o 2n", 0, 0, 4, 0),
    (52, 8, 6, 2, 0, "2o 6n", 0, 0, 0, 0),
];

const IN_PLACE: &[Row] = &[
    (30, 8, 0, 3, 0, "6o 2nU", 0, 0, 0, 1),
    (40, 8, 0, 0, 2, "6o 2n 2nU", 0, 0, 0, 0),
    (41, 8, 0, 0, 2, "2o 8n", 0, 0, 2, 0),
];

const REPLACE: &[Row] = &[(39, 8, 0, 0, 2, "6o 2n", 2, 0, 0, 0)];

fn check(rows: &[Row], in_place: InPlace) {
    for (number, replicas, partition, unavailable, surge, members, created, old, surplus, taken) in
        rows.iter().copied()
    {
        let mut scene = Scene::new(replicas, members, rolling(unavailable, surge, in_place));
        scene.rolling_mut().partition = partition;
        let plan = scene.plan();
        let done = tally(&plan);
        let seen = (
            done.created,
            done.created_old,
            done.surplus,
            done.replaced + done.updated,
        );
        assert_eq!(
            seen,
            (created, old, surplus, taken),
            "vector {number}: {plan:#?}"
        );
    }
}

#[test]
fn worked_plans_hold_for_replacement() {
    check(EITHER, InPlace::Never);
    check(REPLACE, InPlace::Never);
}

#[test]
fn worked_plans_hold_for_updates_in_place() {
    check(EITHER, InPlace::IfPossible);
    check(IN_PLACE, InPlace::IfPossible);
}

#[test]
fn broken_old_members_go_first() {
    for members in ["6o 2o!", "5o 3o!"] {
        let mut scene = Scene::new(8, members, rolling(2, 0, InPlace::Never));
        for action in scene.plan().actions {
            let Action::Delete(delete) = action else {
                panic!("{action:?}")
            };
            assert!(matches!(scene.member(&delete.uid).state, State::Failed(_)));
        }
    }
}

/// Vector 42: creation does not wait for the update nor the update for the creation.
#[test]
fn surge_and_unavailability_add_up() {
    let scene = Scene::new(3, "3o", rolling(1, 2, InPlace::Never));
    let done = tally(&scene.plan());
    assert_eq!((done.created, done.replaced), (2, 1));
}

/// Vector 45: lowering replicas deletes old members, and the rollout goes on with what is left of it.
#[test]
fn a_smaller_pool_loses_its_old_members_first() {
    let scene = Scene::new(4, "5o 3n", rolling(2, 0, InPlace::Never));
    let done = tally(&scene.plan());
    assert_eq!((done.created, done.surplus, done.replaced), (0, 4, 1));
}

/// Vector 51.
#[test]
fn a_smaller_pool_without_a_rollout_loses_what_is_not_ready_first() {
    let mut scene = Scene::new(6, "7n 3n!", rolling(1, 0, InPlace::Never));
    let plan = scene.plan();
    assert_eq!(tally(&plan).surplus, 4);
    let failed = plan.actions.iter().filter(|action| match action {
        Action::Delete(delete) => matches!(scene.member(&delete.uid).state, State::Failed(_)),
        _ => false,
    });
    assert_eq!(failed.count(), 3);
}

#[test]
fn a_smaller_pool_without_a_rollout_loses_the_newest_of_those_that_are_ready() {
    let mut scene = Scene::new(2, "4n", rolling(1, 0, InPlace::Never));
    for (member, created) in scene.members.iter_mut().zip([30, 10, 40, 20]) {
        member.created = Time(created);
    }
    let plan = scene.plan();
    let deleted = plan.actions.iter().filter_map(|action| match action {
        Action::Delete(delete) => Some(scene.member(&delete.uid).created),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [Time(40), Time(30)]);
}

/// Of a rollout that goes on later the old ones are the least loss; those that the partition keeps are wanted.
#[test]
fn a_smaller_pool_loses_old_members_while_paused_and_new_ones_at_the_partition() {
    for (paused, partition, expected) in [(true, 0, "old"), (false, 3, "new")] {
        let mut scene = Scene::new(4, "3o 3n", rolling(1, 0, InPlace::Never));
        scene.settings.paused = paused;
        scene.rolling_mut().partition = partition;
        let plan = scene.plan();
        let deleted = plan.actions.iter().filter_map(|action| match action {
            Action::Delete(delete) => Some(scene.member(&delete.uid).revision.clone()),
            _ => None,
        });
        let deleted: Vec<_> = deleted.collect();
        assert_eq!(deleted, [expected.into(), expected.into()]);
    }
}

#[test]
fn a_pool_shrinks_in_batches_under_every_strategy() {
    let rolling = Strategy::RollingUpdate(rolling(1, 1, InPlace::Never));
    for strategy in [rolling, Strategy::OnReplenish, Strategy::Recreate] {
        let mut scene = Scene::with_strategy(1, "9n", strategy);
        scene.settings.delete_limit = 3;
        assert_eq!(tally(&scene.plan()).surplus, 3);
    }
    let mut scene = Scene::new(1, "9o", Rolling::new(1, 0));
    scene.settings.delete_limit = 3;
    let done = tally(&scene.plan());
    assert_eq!((done.surplus, done.replaced), (3, 0));
}

/// Vector 54.
#[test]
fn a_paused_pool_only_replenishes() {
    let mut scene = Scene::new(8, "8o", rolling(2, 3, InPlace::IfPossible));
    scene.settings.paused = true;
    let plan = scene.plan();
    assert!(plan.actions.is_empty(), "{plan:?}");
    assert_eq!(plan.wait, Wait::Paused { old: 8 });
    scene.members.truncate(6);
    assert_eq!(tally(&scene.plan()).created, 2);
}

/// Of a rollout that is over there is nothing to wait for, whatever the ledger says.
#[test]
fn a_paused_pool_without_old_members_keeps_no_surplus() {
    for ledger in [None, Some(0), Some(1)] {
        for (members, surplus) in [("4n", 1), ("3o 1n", 0)] {
            let mut scene = Scene::new(3, members, rolling(1, 1, InPlace::Never));
            scene.settings.paused = true;
            scene.ledger = Ledger(ledger);
            let expected = if ledger == Some(0) { 1 } else { surplus };
            assert_eq!(
                tally(&scene.plan()).surplus,
                expected,
                "{members} {ledger:?}"
            );
        }
    }
}

/// Vectors 35 to 39 are one turn of a cycle that repeats four times.
#[test]
fn a_surge_of_two_replaces_eight_in_four_turns() {
    let mut scene = Scene::new(8, "8o", rolling(0, 2, InPlace::Never));
    let (mut created, mut deleted) = (0, 0);
    for _ in 0..20 {
        let plan = scene.plan();
        let done = tally(&plan);
        created += done.created;
        deleted += done.replaced + done.surplus;
        scene.carry_out(&plan);
        assert!(scene.members.len() <= 10);
    }
    assert_eq!((created, deleted), (8, 8));
    assert!(
        scene
            .members
            .iter()
            .all(|member| member.revision.as_str() == "new")
    );
    assert!(scene.plan().actions.is_empty());
}

/// Vectors 35, 37, 40, 41: surge members are made once, and as many old ones are deleted at the end.
#[test]
fn surge_in_place_costs_as_many_creations_as_deletions() {
    let mut scene = Scene::new(8, "8o", rolling(0, 2, InPlace::IfPossible));
    let mut total = common::Tally::default();
    for _ in 0..20 {
        let plan = scene.plan();
        let done = tally(&plan);
        total.created += done.created;
        total.surplus += done.surplus;
        total.replaced += done.replaced;
        total.updated += done.updated;
        scene.carry_out(&plan);
    }
    assert_eq!(
        (total.created, total.surplus, total.replaced, total.updated),
        (2, 2, 0, 6)
    );
    assert_eq!(scene.members.len(), 8);
    assert!(scene.plan().actions.is_empty(), "{:?}", scene.plan());
}

#[test]
fn deletions_of_a_rollout_say_why() {
    let plan = Scene::new(8, "8o", rolling(2, 0, InPlace::Never)).plan();
    assert!(plan.actions.iter().all(|action| matches!(
        action,
        Action::Delete(delete) if delete.cause == Cause::Stale && delete.booked
    )));
}
