//! How much of the stock a rollout leaves to claims.

mod common;

use common::{NOW, Scene, rolling, tally};
use engine::member::{State, Time};
use engine::rollout::{InPlace, Ledger, Wait};
use std::time::Duration;

/// A pool of 20 with a surge of 4, out of which claims have 4 at a time: it usually has 20. F_eff is 12. Within an update
/// in place 21 claims may come and 4 members arrive, so that floor and reserve together are more than the pool ever has.
fn small(claimable: usize) -> Scene {
    let mut scene = Scene::new(20, "20o 4n", rolling(4, 4, InPlace::IfPossible));
    scene.ledger = Ledger(Some(4));
    scene.demand.rate = 4.0 / 3.0;
    scene.demand.peak = 4.0 / 3.0;
    scene.demand.in_place = Duration::from_secs(10);
    for member in &mut scene.members[claimable..] {
        member.state = State::Pending;
        member.for_rollout = false;
    }
    scene
}

#[test]
fn with_a_default_floor_no_more_is_kept_for_claims_than_there_usually_is() {
    for (claimable, taken) in [(19, 0), (20, 1), (22, 3)] {
        let plan = small(claimable).plan();
        assert_eq!(tally(&plan).updated, taken, "{claimable}: {plan:?}");
        let waits = Wait::Floor {
            claimable: 19,
            floor: 12,
            reserve: 7,
        };
        assert_eq!(plan.wait, waits);
    }
}

#[test]
fn a_floor_that_was_asked_for_keeps_its_whole_reserve() {
    let mut scene = small(22);
    scene.rolling_mut().floor = Some(12);
    let plan = scene.plan();
    assert_eq!(tally(&plan).updated, 0);
    let waits = Wait::Floor {
        claimable: 22,
        floor: 12,
        reserve: 19,
    };
    assert_eq!(plan.wait, waits);
}

/// A load of which next to nothing is to be feared, and one of ten members is promised.
#[test]
fn what_there_usually_is_does_not_lower_the_floor() {
    let mut scene = Scene::new(10, "10o", rolling(1, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    scene.demand.rate = 0.01;
    scene.demand.peak = 0.01;
    assert_eq!(tally(&scene.plan()).replaced, 1);
    scene.members[0].reserved = true;
    let plan = scene.plan();
    assert_eq!(tally(&plan).replaced, 0);
    let waits = Wait::Floor {
        claimable: 9,
        floor: 9,
        reserve: 0,
    };
    assert_eq!(plan.wait, waits);
}

#[test]
fn surge_that_does_not_come_is_not_waited_for() {
    let taken = |age| {
        let mut scene = Scene::new(100, "90o 10o? 5n?", rolling(10, 5, InPlace::Never));
        scene.ledger = Ledger(Some(5));
        scene.demand.rate = 10.0 / 3.0;
        scene.demand.peak = 10.0 / 3.0;
        for member in &mut scene.members {
            member.created = Time(NOW.0 - age);
        }
        tally(&scene.plan()).replaced
    };
    assert_eq!(taken(1_000), 0);
    assert!(taken(10_000) > 0);
}
