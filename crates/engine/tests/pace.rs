//! How fast a rollout goes, and when it begins.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{NOW, Scene, rolling, tally};
use engine::member::Time;
use engine::rollout::{InPlace, Ledger, Pace};

/// How many of the steps that a rollout could take at once a process that has planned before takes at these times, in
/// milliseconds.
fn paced(scene: &Scene, times: &[u64]) -> Vec<(u32, Option<u64>)> {
    let mut pace = Pace::default();
    let (settings, demand) = (&scene.settings, &scene.demand);
    pace.hold_back(&mut scene.plan(), settings, demand, 1, Time(NOW.0 - 10_000));
    let replicas = scene.pool.replicas;
    let one = |at: &u64| {
        let (mut plan, now) = (scene.plan(), Time(NOW.0 + at));
        let again = pace.hold_back(&mut plan, &scene.settings, &scene.demand, replicas, now);
        let taken = tally(&plan).replaced + tally(&plan).marked;
        (taken, again.map(|again| again.0 - NOW.0))
    };
    times.iter().map(one).collect()
}

#[test]
fn who_has_just_begun_takes_nothing_out_until_what_others_sent_has_arrived() {
    let in_place = InPlace::IfPossible;
    for (members, mode) in [
        ("4o", InPlace::Never),
        ("6o", InPlace::Never),
        ("4o", in_place),
    ] {
        let mut scene = Scene::new(4, members, rolling(1, 1, mode));
        scene.ledger = Ledger(Some(0));
        let mut pace = Pace::default();
        let mut at = |after: u64| {
            let (mut plan, now) = (scene.plan(), Time(NOW.0 + after));
            let again = pace.hold_back(&mut plan, &scene.settings, &scene.demand, 4, now);
            let tally = tally(&plan);
            (tally.surplus + tally.replaced + tally.updated, again)
        };
        let begun = Some(Time(NOW.0 + 1_000));
        assert_eq!((at(0), at(999)), ((0, begun), (0, begun)), "{members}");
        let (taken, again) = at(1_000);
        assert!(taken > 0 && again.is_none(), "{members}");
    }
}

#[test]
fn while_claims_come_the_steps_of_a_rollout_are_spread_over_time() {
    let mut scene = Scene::new(100, "100o", rolling(20, 20, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    assert_eq!(paced(&scene, &[0]), [(40, None)]);
    scene.demand.peak = 0.1;
    // what was not done in time is made up for, but not all of it at once
    assert_eq!(
        paced(&scene, &[0, 50, 100, 5_000]),
        [
            (3, Some(100)),
            (0, Some(100)),
            (1, Some(200)),
            (3, Some(5_100))
        ]
    );
}

#[test]
fn a_large_pool_is_through_in_a_minute_however_many_members_it_has() {
    let mut scene = Scene::new(3_000, "3000o", rolling(600, 600, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    scene.demand.peak = 0.1;
    let times: Vec<u64> = (1..=10).map(|pass| pass * 100).collect();
    let taken: u32 = paced(&scene, &times).iter().map(|(taken, _)| taken).sum();
    assert!((100..=125).contains(&taken), "{taken}");
}

#[test]
fn what_makes_up_for_claims_is_never_held_back() {
    let mut scene = Scene::new(10, "3o", rolling(2, 0, InPlace::Never));
    scene.ledger = Ledger(Some(0));
    scene.demand.peak = 5.0;
    let mut plan = scene.plan();
    let before = tally(&plan).created;
    let (settings, demand) = (&scene.settings, &scene.demand);
    Pace::default().hold_back(&mut plan, settings, demand, 10, NOW);
    assert_eq!((before, tally(&plan).created), (7, 7));
}
