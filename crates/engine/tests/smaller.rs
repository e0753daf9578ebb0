//! Pools that are made smaller in the middle of a rollout.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Scene, rolling};
use engine::rollout::{Action, Cause, Create, InPlace, Ledger, Strategy};

/// For each member that goes: why, and whether somebody could have had it.
fn going(scene: &mut Scene) -> Vec<(Cause, bool)> {
    let plan = scene.plan();
    let deletes = plan.actions.iter().filter_map(|action| match action {
        Action::Delete(delete) => Some(delete),
        _ => None,
    });
    let mut going: Vec<_> = deletes
        .map(|delete| (delete.cause, scene.member(&delete.uid).state.is_ready()))
        .collect();
    going.sort_unstable();
    going
}

#[test]
fn what_nobody_can_have_yet_goes_first() {
    let mut scene = Scene::new(5, "5o 5n?", rolling(1, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    let pending = [(Cause::Surplus, false); 5];
    let with_one_of_the_rollout = [&[(Cause::Stale, true)], &pending[..]].concat();
    for for_rollout in [true, false] {
        for member in &mut scene.members {
            member.for_rollout = for_rollout && !member.state.is_ready();
        }
        scene.settings.paused = false;
        assert_eq!(going(&mut scene), with_one_of_the_rollout);
        scene.settings.paused = true;
        assert_eq!(going(&mut scene), pending);
    }
}

#[test]
fn what_can_be_claimed_goes_if_there_is_too_much_of_it() {
    let mut scene = Scene::new(5, "5o 5n", rolling(1, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    assert_eq!(going(&mut scene), [(Cause::Surplus, true); 5]);
    assert!(scene.plan().actions.len() == 5, "and nothing is made");
}

#[test]
fn no_member_goes_for_the_sake_of_those_that_may_never_come() {
    let create = Create {
        revision: "new".into(),
        count: 2,
        for_rollout: false,
    };
    for strategy in [
        Strategy::RollingUpdate(rolling(1, 0, InPlace::Never)),
        Strategy::OnReplenish,
    ] {
        let mut scene = Scene::with_strategy(3, "3n", strategy);
        scene.in_flight = vec![create.clone()];
        scene.ledger = Ledger(Some(0));
        assert_eq!(scene.plan().actions, []);
    }
}
