//! Members that end though no claim has taken them and no plan has given them up.

mod common;

use common::{Scene, rolling, tally};
use engine::rollout::{InPlace, Ledger, Wait};

/// Four members and a failing one that was made for an earlier target; one of the four has just gone.
fn bereft(lost: u32) -> Scene {
    let mut scene = Scene::new(4, "3o 1o!", rolling(1, 1, InPlace::Never));
    scene.members[3].for_rollout = true;
    scene.ledger = Ledger(Some(1));
    scene.lost = lost;
    scene
}

#[test]
fn what_is_lost_during_a_rollout_is_out_by_its_doing_and_what_claims_took_is_not() {
    let plan = bereft(1).plan();
    assert_eq!((tally(&plan).created, tally(&plan).marked), (1, 1));
    assert_eq!(tally(&plan).replaced, 1, "only the failing one");
    assert_eq!(plan.wait, Wait::MaxUnavailable { out: 1, max: 1 });
    let plan = bereft(0).plan();
    assert_eq!((tally(&plan).created, tally(&plan).marked), (1, 0));
    assert_eq!(tally(&plan).replaced, 2);
}

#[test]
fn what_is_lost_counts_once_and_until_it_is_replaced() {
    let mut scene = bereft(1);
    let plan = scene.plan();
    scene.expect(&plan);
    let plan = scene.plan();
    assert_eq!(tally(&plan).replaced, 0);
    assert_eq!(plan.wait, Wait::MaxUnavailable { out: 1, max: 1 });
    scene.carry_out(&plan);
    assert!(tally(&scene.plan()).replaced > 0);
}

#[test]
fn what_is_lost_without_a_rollout_is_replenished_like_what_claims_took() {
    let mut scene = Scene::new(4, "3n", rolling(1, 1, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    scene.lost = 1;
    let plan = scene.plan();
    assert_eq!((tally(&plan).created, tally(&plan).marked), (1, 0));
}

#[test]
fn what_a_former_process_took_out_last_stays_on_the_books_until_the_rollout_has_been_told_to_be_over()
 {
    // the last old member is gone, nobody knows of it, and the status still says that the pool is on its way
    let scene = Scene::new(4, "3n", rolling(1, 1, InPlace::Never));
    assert_ne!(scene.pool.revisions.current, scene.pool.revisions.target);
    let plan = scene.plan();
    assert_eq!((tally(&plan).created, tally(&plan).marked), (1, 1));
    assert_eq!(plan.status.out, 1);
    let mut over = scene;
    over.pool.revisions.current = over.pool.revisions.target.clone();
    let plan = over.plan();
    assert_eq!((tally(&plan).created, tally(&plan).marked), (1, 0));
    assert_eq!(plan.status.out, 0);
}
