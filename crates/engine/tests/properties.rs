//! What holds for every pool, however it came to be as it is.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{NOW, Scene, revisions, rolling};
use engine::member::{Difference, Failure, Intent, Member, Policy, State, Time, Uid};
use engine::rollout::{Action, Cause, InPlace, Ledger, Plan, Wait};
use proptest::prelude::{
    Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use std::collections::BTreeSet;
use std::time::Duration;

fn member() -> impl Strategy<Value = Member> {
    let state = prop_oneof![
        6 => Just(State::Ready { since: Time(NOW.0 - 5_000) }),
        1 => Just(State::Ready { since: NOW }),
        3 => Just(State::Pending),
        1 => Just(State::Failed(Failure::CrashLoop)),
        1 => Just(State::Failed(Failure::Unschedulable)),
        1 => Just(State::Dead),
        1 => Just(State::Terminating),
    ];
    let intent = prop_oneof![8 => Just(None), 1 => Just(Some("new")), 1 => Just(Some("former"))];
    let parts = (
        state,
        intent,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0u64..20_000,
        0u8..8,
    );
    parts.prop_map(|(state, intent, new, marked, begun, age, chance)| {
        let revision = if new { "new" } else { "old" };
        let mut member = common::member("", &revision.into(), state);
        member.created = Time(NOW.0 - age);
        member.for_rollout = marked;
        member.reserved = chance == 0;
        member.node = Some(["a", "b", "c"][usize::from(chance % 3)].into());
        let deadline = Time(NOW.0 - 5_000 + age);
        member.intent = intent.filter(|_| chance > 0).map(|target| {
            Box::new(Intent {
                target: target.into(),
                deadline,
                begun,
            })
        });
        member
    })
}

fn scene() -> impl Strategy<Value = Scene> {
    let numbers = (0u32..20, 0u32..6, 0u32..6, 0u32..6, 0u32..4);
    let choices = (0u8..3, 0u8..5, any::<bool>(), any::<bool>(), 0u8..12);
    let ledger = prop_oneof![Just(None), (-6i64..7).prop_map(Some)];
    let members = prop::collection::vec(member(), 0..30);
    (numbers, choices, ledger, members).prop_map(|(numbers, choices, ledger, mut members)| {
        let (replicas, unavailable, surge, partition, load) = numbers;
        let (in_place, difference, paused, floor, strict) = choices;
        let in_place = [InPlace::Never, InPlace::IfPossible, InPlace::Only][usize::from(in_place)];
        let mut scene = Scene::new(replicas, "", rolling(unavailable, surge, in_place));
        for (number, member) in members.iter_mut().enumerate() {
            member.uid = format!("m{number}").as_str().into();
        }
        scene.members = members;
        scene.ledger = Ledger(ledger);
        scene.rolling_mut().partition = partition.min(replicas);
        scene.rolling_mut().floor = floor.then_some(replicas / 2);
        scene.settings.paused = paused && strict % 2 == 0;
        scene.settings.min_ready = Duration::from_secs(1);
        scene.settings.ready_grace = Some(Duration::from_secs(15));
        scene.demand.rate = f64::from(load);
        scene.demand.peak = f64::from(load);
        let differences = [
            Difference::Image,
            Difference::Replace,
            Difference::Metadata,
            Difference::Reference,
            Difference::Same,
        ];
        scene.pool.revisions = revisions(differences[usize::from(difference)]);
        if strict == 1 {
            scene.pool.policy = Policy::RequireNewest;
        }
        scene
    })
}

fn touched(plan: &Plan) -> Vec<&Uid> {
    plan.actions
        .iter()
        .filter_map(|action| match action {
            Action::Create(_) => None,
            Action::Delete(delete) => Some(&delete.uid),
            Action::UpdateInPlace(update) => Some(&update.uid),
            Action::Release(uid) => Some(uid),
        })
        .collect()
}

fn live(scene: &Scene) -> usize {
    let created: u32 = scene.in_flight.iter().map(|create| create.count).sum();
    let present = scene
        .members
        .iter()
        .filter(|member| member.state != State::Terminating);
    present.count() + created as usize
}

fn old(scene: &Scene) -> usize {
    let target = &scene.pool.revisions.target;
    let differs = |member: &&Member| {
        let bound = member
            .intent
            .as_ref()
            .is_some_and(|intent| intent.target == *target);
        scene.pool.revisions.difference(&member.revision) != Difference::Same
            && member.state != State::Terminating
            && !bound
    };
    scene.members.iter().filter(differs).count()
}

fn limit(scene: &Scene) -> usize {
    let surge = scene.clone().rolling_mut().max_surge;
    (scene.pool.replicas + surge) as usize
}

fn is_claimable(scene: &Scene, member: &Member) -> bool {
    let is_mature = match member.state {
        State::Ready { since } => since + scene.settings.min_ready <= scene.now,
        _ => false,
    };
    let is_free = member.intent.is_none() && !member.reserved;
    is_mature && is_free && scene.pool.accepts(&member.revision)
}

/// Out of stock by the rollout's doing, as the module describes it.
fn out(scene: &Scene) -> i64 {
    let ready = |member: &&Member| match member.state {
        State::Ready { since } => since + scene.settings.min_ready <= scene.now,
        _ => false,
    };
    let counted = scene.members.iter().filter(|member| {
        let lives = member.state != State::Terminating;
        let promised = member.reserved && !matches!(member.state, State::Dead);
        let fenced = member.intent.is_some();
        lives && (fenced || (member.for_rollout && !promised && !ready(member)))
    });
    let flying = scene.in_flight.iter().filter(|create| create.for_rollout);
    let flying: u32 = flying.map(|create| create.count).sum();
    i64::try_from(counted.count()).unwrap() + i64::from(flying) - scene.ledger.0.unwrap()
}

proptest! {
    #![proptest_config(proptest::test_runner::Config {
        cases: 500,
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    })]

    #[test]
    fn nobody_is_touched_who_is_promised_or_gone(scene in scene()) {
        let plan = scene.plan();
        let touched = touched(&plan);
        prop_assert_eq!(touched.iter().collect::<BTreeSet<_>>().len(), touched.len());
        for uid in touched {
            let member = scene.members.iter().find(|member| member.uid == *uid).unwrap();
            prop_assert!(member.state != State::Terminating);
            prop_assert!(!member.reserved || member.state == State::Dead);
        }
    }

    #[test]
    fn a_fence_is_ended_only_when_it_is_late_or_for_another_target(scene in scene()) {
        for action in scene.plan().actions {
            let Action::Delete(delete) = action else { continue };
            let member = scene.members.iter().find(|member| member.uid == delete.uid).unwrap();
            let Some(intent) = &member.intent else { continue };
            let late = scene.now >= intent.deadline;
            let astray = intent.target != scene.pool.revisions.target;
            prop_assert!(late || astray || member.state == State::Dead, "{:?}", delete);
        }
    }

    #[test]
    fn the_rollout_takes_out_no_more_than_it_may(scene in scene()) {
        let plan = scene.plan();
        let max = i64::from(scene.clone().rolling_mut().max_unavailable);
        let rolling = old(&scene) > scene.clone().rolling_mut().partition as usize;
        let mut after = scene.clone();
        after.ledger = plan.ledger;
        let before = out(&after);
        after.expect(&plan);
        if rolling && !scene.settings.paused {
            prop_assert!(out(&after) <= max.max(before), "{} {} {:?}", before, out(&after), plan);
        }
    }

    #[test]
    fn the_rollout_leaves_the_floor_to_claims(scene in scene()) {
        let plan = scene.plan();
        let partition = scene.clone().rolling_mut().partition as usize;
        let touched = touched(&plan);
        let stock = scene.members.iter().filter(|member| is_claimable(&scene, member));
        let (taken, left): (Vec<_>, Vec<_>) = stock.partition(|member| touched.contains(&&member.uid));
        if old(&scene) > partition && !scene.settings.paused && !taken.is_empty() {
            prop_assert!(left.len() >= plan.status.floor as usize, "{} {:?}", left.len(), plan);
        }
    }

    #[test]
    fn a_default_floor_keeps_no_more_than_there_usually_is(mut scene in scene()) {
        scene.rolling_mut().floor = None;
        let load = scene.demand.rate * scene.demand.start.as_secs_f64();
        let most = limit(&scene).max(live(&scene)) as f64 - load.ceil();
        if let Wait::Floor { floor, reserve, .. } = scene.plan().wait {
            prop_assert!(reserve == 0 || f64::from(floor + reserve) < most);
        }
    }

    #[test]
    fn a_member_that_is_lost_is_out_by_the_rollouts_doing(mut scene in scene()) {
        scene.ledger = scene.plan().ledger;
        let mut after = scene.clone();
        let is_claimable = |member: &Member| {
            member.intent.is_none() && !member.reserved && member.state == (State::Ready { since: Time(NOW.0 - 5_000) })
        };
        if let Some(index) = after.members.iter().position(is_claimable) {
            after.members.remove(index);
            after.lost = 1;
            if old(&after) > scene.rolling_mut().partition as usize {
                after.ledger = after.plan().ledger;
                prop_assert!(out(&after) > out(&scene), "{:?}", after);
            }
        }
    }

    #[test]
    fn what_can_be_claimed_never_falls_further_than_max_unavailable(mut scene in scene()) {
        // nothing is out yet, and all that is there may be claimed
        scene.ledger = Ledger(Some(0));
        scene.pool.policy = Policy::PreferNewest;
        let rolling = scene.rolling_mut();
        rolling.partition = 0;
        let most = rolling.max_unavailable as usize;
        for member in &mut scene.members {
            member.for_rollout = false;
            member.intent = None;
        }
        let plan = scene.plan();
        let touched = touched(&plan);
        let claimable = |member: &&Member| {
            let is_mature = matches!(member.state, State::Ready { since } if since < NOW);
            is_mature && !member.reserved
        };
        let before = scene.members.iter().filter(claimable).count();
        let after = scene.members.iter().filter(claimable);
        let after = after.filter(|member| !touched.contains(&&member.uid)).count();
        let least = before.min(scene.pool.replicas as usize).saturating_sub(most);
        prop_assert!(after >= least, "{before} before, {after} after: {plan:?}");
    }

    #[test]
    fn a_pool_never_grows_beyond_its_size_and_surge(scene in scene()) {
        let mut after = scene.clone();
        for _ in 0..3 {
            let plan = after.plan();
            after.expect(&plan);
            prop_assert!(live(&after) <= limit(&scene).max(live(&scene)));
        }
    }

    #[test]
    fn the_partition_is_kept(scene in scene()) {
        let keep = (scene.clone().rolling_mut().partition as usize).min(old(&scene));
        let plan = scene.plan();
        let mut after = scene.clone();
        after.expect(&plan);
        let buried = plan.actions.iter().filter(|action| matches!(
            action,
            Action::Delete(delete) if delete.cause != Cause::Stale
        ));
        prop_assert!(old(&after) + buried.count() >= keep, "{} {:?}", keep, plan.actions);
    }

    #[test]
    fn a_paused_pool_starts_nothing(mut scene in scene()) {
        scene.settings.paused = true;
        for action in scene.plan().actions {
            match action {
                Action::Create(create) => prop_assert!(live(&scene) + create.count as usize <= scene.pool.replicas as usize),
                Action::Delete(delete) => prop_assert!(!matches!(delete.cause, Cause::Stale | Cause::Fallback)),
                Action::UpdateInPlace(_) => prop_assert!(false),
                Action::Release(_) => {}
            }
        }
    }

    #[test]
    fn nothing_is_done_twice(scene in scene()) {
        let first = scene.plan();
        let mut after = scene.clone();
        after.expect(&first);
        let second = after.plan();
        let before: BTreeSet<_> = touched(&first).into_iter().collect();
        let again = touched(&second).into_iter().find(|uid| before.contains(uid));
        // a fence that was taken off returns an ordinary member
        let released = first.actions.iter().any(|action| matches!(action, Action::Release(uid) if Some(uid) == again));
        prop_assert!(again.is_none() || released, "{:?} {:?}", first, second);
    }

    #[test]
    fn no_pass_stalls_in_silence(scene in scene()) {
        let plan = scene.plan();
        let kept = scene.clone().rolling_mut().partition as usize;
        if plan.actions.is_empty() && old(&scene) > kept {
            prop_assert!(!matches!(plan.wait, Wait::Settled | Wait::Replacing { .. }), "{:?}", plan);
        }
        let message = &plan.conditions.progressing.message;
        prop_assert!(message.contains(|letter: char| letter.is_ascii_digit()));
    }

    #[test]
    fn without_faults_and_claims_every_pool_settles(mut scene in scene()) {
        let rolling = scene.rolling_mut();
        rolling.max_unavailable += 1;
        rolling.floor = None;
        rolling.partition = 0;
        if rolling.in_place == InPlace::Only {
            rolling.in_place = InPlace::IfPossible;
        }
        scene.settings.paused = false;
        scene.settings.min_ready = Duration::ZERO;
        scene.demand.rate = 0.0;
        scene.demand.peak = 0.0;
        for member in &mut scene.members {
            member.reserved = false;
            if member.state != State::Terminating {
                member.state = State::Ready { since: NOW };
            }
        }
        for _ in 0..200 {
            let plan = scene.plan();
            scene.carry_out(&plan);
        }
        let last = scene.plan();
        prop_assert!(last.actions.is_empty(), "{:?}", last);
        prop_assert_eq!(last.wait, Wait::Settled);
        prop_assert_eq!(scene.members.len(), scene.pool.replicas as usize);
    }
}
