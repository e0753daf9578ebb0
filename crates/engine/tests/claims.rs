//! Which member a claim gets, and what the queue remembers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{NOW, member, revisions};
use engine::claim::{Choice, Refusal, Rules, choose, narrow};
use engine::member::{
    Claim, Difference, Failure, Intent, Member, Older, Policy, Pool, State, Time, Uid,
};
use engine::queue::Index;
use engine::rollout::Strategy;
use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::{Strategy as Generate, any, prop, prop_assert, prop_assert_eq, proptest};

const RULES: Rules<'_> = Rules {
    strategy: &Strategy::OnReplenish,
    min_ready: Duration::ZERO,
    overrides: true,
};

fn pool(policy: Policy) -> Pool {
    let mut revisions = revisions(Difference::Replace);
    let oldest = Older {
        revision: "oldest".into(),
        difference: Difference::Image,
        retired: false,
    };
    revisions.older.push(oldest);
    Pool {
        replicas: 3,
        revisions,
        policy,
    }
}

fn ready(name: &str, revision: &str, since: u64) -> Member {
    member(name, &revision.into(), State::Ready { since: Time(since) })
}

fn index(members: &[Member]) -> Index {
    let mut index = Index::default();
    for member in members {
        index.observe(&"pool".into(), member);
    }
    index
}

fn three() -> Index {
    index(&[
        ready("a", "new", 3),
        ready("b", "old", 2),
        ready("c", "oldest", 1),
    ])
}

fn claim(policy: Option<Policy>) -> Claim {
    Claim {
        uid: "claim".into(),
        policy,
    }
}

fn ask(index: &mut Index, pool: &Pool, policy: Option<Policy>, rules: &Rules<'_>) -> Option<Uid> {
    match choose(index, &"pool".into(), pool, &claim(policy), rules, NOW) {
        Ok(Choice::Member(chosen)) => Some(chosen.uid),
        Ok(Choice::Nothing { .. }) => None,
        Err(refusal) => panic!("{refusal:?}"),
    }
}

fn drain(policy: Policy, rules: &Rules<'_>) -> String {
    let mut index = three();
    let pool = pool(policy);
    let mut order = String::new();
    while let Some(uid) = ask(&mut index, &pool, None, rules) {
        order.push_str(uid.as_str());
    }
    order
}

#[test]
fn policies_decide_which_revisions_and_in_which_order() {
    for (policy, order) in [
        (Policy::PreferNewest, "abc"),
        (Policy::RequireNewest, "a"),
        (Policy::DrainOld, "cba"),
        (Policy::Pinned("old".into()), "b"),
    ] {
        assert_eq!(drain(policy.clone(), &RULES), order, "{policy:?}");
    }
}

#[test]
fn recreate_never_hands_out_what_it_is_about_to_delete() {
    let rules = Rules {
        strategy: &Strategy::Recreate,
        ..RULES
    };
    for policy in [
        Policy::PreferNewest,
        Policy::DrainOld,
        Policy::RequireNewest,
    ] {
        assert_eq!(drain(policy, &rules), "a");
    }
    let mut pool = pool(Policy::PreferNewest);
    for (difference, chosen) in [
        (Difference::Metadata, true),
        (Difference::Same, true),
        (Difference::Reference, false),
    ] {
        pool.revisions.older[0].difference = difference;
        let mut index = index(&[ready("b", "old", 1)]);
        assert_eq!(
            ask(&mut index, &pool, None, &rules).is_some(),
            chosen,
            "{difference:?}"
        );
    }
}

#[test]
fn a_retired_revision_is_never_handed_out() {
    let mut pool = pool(Policy::DrainOld);
    pool.revisions.older[1].retired = true;
    let mut index = three();
    assert_eq!(ask(&mut index, &pool, None, &RULES), Some("b".into()));
    assert_eq!(
        narrow(&pool, Some(&Policy::Pinned("oldest".into())), true),
        Err(Refusal::Retired)
    );
}

#[test]
fn a_claim_narrows_the_policy_and_never_widens_it() {
    let pinned = |revision: &str| Policy::Pinned(revision.into());
    for (own, wish, result) in [
        (Policy::PreferNewest, None, Ok(Policy::PreferNewest)),
        (
            Policy::PreferNewest,
            Some(Policy::RequireNewest),
            Ok(Policy::RequireNewest),
        ),
        (Policy::PreferNewest, Some(pinned("old")), Ok(pinned("old"))),
        (
            Policy::DrainOld,
            Some(Policy::PreferNewest),
            Ok(Policy::PreferNewest),
        ),
        (
            Policy::RequireNewest,
            Some(Policy::PreferNewest),
            Ok(Policy::RequireNewest),
        ),
        (
            Policy::RequireNewest,
            Some(Policy::DrainOld),
            Ok(Policy::RequireNewest),
        ),
        (
            Policy::RequireNewest,
            Some(pinned("new")),
            Ok(pinned("new")),
        ),
        (
            Policy::RequireNewest,
            Some(pinned("old")),
            Err(Refusal::Excluded),
        ),
        (pinned("old"), Some(Policy::DrainOld), Ok(pinned("old"))),
        (
            pinned("old"),
            Some(Policy::RequireNewest),
            Err(Refusal::Excluded),
        ),
        (
            pinned("new"),
            Some(Policy::RequireNewest),
            Ok(pinned("new")),
        ),
        (
            pinned("old"),
            Some(pinned("oldest")),
            Err(Refusal::Excluded),
        ),
    ] {
        assert_eq!(
            narrow(&pool(own.clone()), wish.as_ref(), true),
            result,
            "{own:?} {wish:?}"
        );
    }
    let strict = pool(Policy::PreferNewest);
    assert_eq!(
        narrow(&strict, Some(&Policy::PreferNewest), false),
        Ok(Policy::PreferNewest)
    );
    assert_eq!(
        narrow(&strict, Some(&Policy::RequireNewest), false),
        Err(Refusal::OverrideForbidden)
    );
}

#[test]
fn the_answer_says_whether_the_member_is_stale() {
    let mut index = three();
    let pool = pool(Policy::PreferNewest);
    for stale in [false, true, true] {
        let choice = choose(&mut index, &"pool".into(), &pool, &claim(None), &RULES, NOW);
        assert!(matches!(choice, Ok(Choice::Member(chosen)) if chosen.stale == stale));
    }
}

#[test]
fn members_are_taken_from_the_fullest_node_longest_ready_first() {
    let on = |name: &str, node: &str, since| Member {
        node: Some(node.into()),
        ..ready(name, "new", since)
    };
    let mut index = index(&[
        on("a", "x", 9),
        on("b", "x", 5),
        on("c", "x", 7),
        on("d", "y", 1),
        on("e", "y", 2),
    ]);
    let pool = pool(Policy::PreferNewest);
    let order: Vec<_> = std::iter::from_fn(|| ask(&mut index, &pool, None, &RULES))
        .map(|uid| uid.to_string())
        .collect();
    assert_eq!(order, ["b", "d", "c", "e", "a"]);
}

#[test]
fn only_members_that_are_ready_for_long_enough_are_handed_out() {
    let rules = Rules {
        min_ready: Duration::from_secs(10),
        ..RULES
    };
    let since = NOW.0 - 9_000;
    let mut index = index(&[
        ready("young", "new", since),
        member("pending", &"new".into(), State::Pending),
        member("failed", &"new".into(), State::Failed(Failure::CrashLoop)),
        member("gone", &"new".into(), State::Terminating),
    ]);
    let pool = pool(Policy::PreferNewest);
    let choice = choose(&mut index, &"pool".into(), &pool, &claim(None), &rules, NOW);
    let matures = Some(Time(since + 10_000));
    assert_eq!(choice, Ok(Choice::Nothing { coming: 2, matures }));
    let later = Time(since + 10_000);
    let choice = choose(
        &mut index,
        &"pool".into(),
        &pool,
        &claim(None),
        &rules,
        later,
    );
    assert!(matches!(choice, Ok(Choice::Member(chosen)) if chosen.uid.as_str() == "young"));
}

#[test]
fn a_young_new_member_does_not_hide_an_old_one() {
    let rules = Rules {
        min_ready: Duration::from_secs(10),
        ..RULES
    };
    let mut index = index(&[ready("young", "new", NOW.0), ready("b", "old", 1)]);
    assert_eq!(
        ask(&mut index, &pool(Policy::PreferNewest), None, &rules),
        Some("b".into())
    );
}

#[test]
fn a_fenced_member_is_not_handed_out_until_its_fence_is_gone() {
    let mut fenced = ready("a", "new", 1);
    let mut index = index(&[fenced.clone()]);
    fenced.intent = Some(Box::new(Intent {
        target: "new".into(),
        deadline: NOW,
        begun: true,
    }));
    index.observe(&"pool".into(), &fenced);
    let pool = pool(Policy::PreferNewest);
    assert_eq!(ask(&mut index, &pool, None, &RULES), None);
    fenced.intent = None;
    index.observe(&"pool".into(), &fenced);
    assert_eq!(ask(&mut index, &pool, None, &RULES), Some("a".into()));
}

#[test]
fn a_promised_member_is_not_offered_twice_whatever_late_events_say() {
    let a = ready("a", "new", 1);
    let mut index = index(std::slice::from_ref(&a));
    let pool = pool(Policy::PreferNewest);
    assert_eq!(ask(&mut index, &pool, None, &RULES), Some("a".into()));
    index.observe(&"pool".into(), &a);
    assert_eq!(ask(&mut index, &pool, None, &RULES), None);
    assert!(index.is_reserved(&a.uid));
    assert!(!index.reserve(&a.uid, &"another".into()));
    index.release(&a.uid, &"another".into());
    assert!(
        index.is_reserved(&a.uid),
        "only its own claim gives it back"
    );
    index.release(&a.uid, &"claim".into());
    assert_eq!(ask(&mut index, &pool, None, &RULES), Some("a".into()));
    index.forget(&a.uid);
    index.release(&a.uid, &"claim".into());
    assert_eq!(
        ask(&mut index, &pool, None, &RULES),
        None,
        "it has left the pool"
    );
}

#[test]
fn a_member_deleted_while_promised_does_not_come_back() {
    let mut a = ready("a", "new", 1);
    let mut index = index(std::slice::from_ref(&a));
    let pool = pool(Policy::PreferNewest);
    ask(&mut index, &pool, None, &RULES).unwrap();
    a.state = State::Terminating;
    index.observe(&"pool".into(), &a);
    index.release(&a.uid, &"claim".into());
    assert_eq!(ask(&mut index, &pool, None, &RULES), None);
}

#[test]
fn pools_do_not_share_members() {
    let mut index = three();
    index.observe(&"other".into(), &ready("z", "new", 0));
    assert_eq!(index.ready(&"pool".into(), &"new".into()), 1);
    index.forget_pool(&"pool".into());
    assert_eq!(
        ask(&mut index, &pool(Policy::PreferNewest), None, &RULES),
        None
    );
    assert_eq!(index.ready(&"other".into(), &"new".into()), 1);
}

/// What happens to a queue.
#[derive(Clone, Debug)]
enum Step {
    Observe(u8, u8, u8, u8),
    Forget(u8),
    Claim,
    Release(u8),
}

fn steps() -> impl Generate<Value = Vec<Step>> {
    let step = (0u8..4, 0u8..12, 0u8..3, 0u8..4, any::<u8>()).prop_map(
        |(kind, member, revision, state, since)| match kind {
            0 | 1 if kind == 0 || state > 0 => Step::Observe(member, revision, state, since),
            1 => Step::Forget(member),
            2 => Step::Claim,
            _ => Step::Release(member),
        },
    );
    prop::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(proptest::test_runner::Config {
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    })]

    /// The index answers as a search through all members would.
    #[test]
    fn the_queue_agrees_with_a_full_search(steps in steps()) {
        let pool = pool(Policy::PreferNewest);
        let mut index = Index::default();
        let mut members: Vec<Member> = Vec::new();
        let mut promised = BTreeSet::new();
        for step in steps {
            match step {
                Step::Observe(name, revision, state, since) => {
                    let revision = ["new", "old", "oldest"][usize::from(revision)];
                    let mut one = ready(&format!("m{name:02}"), revision, since.into());
                    if state == 0 {
                        one.state = State::Pending;
                    }
                    one.node = Some(["x", "y"][usize::from(state % 2)].into());
                    index.observe(&"pool".into(), &one);
                    members.retain(|member| member.uid != one.uid);
                    members.push(one);
                }
                Step::Forget(name) => {
                    let uid = Uid::from(format!("m{name:02}").as_str());
                    index.forget(&uid);
                    members.retain(|member| member.uid != uid);
                    promised.remove(&uid);
                }
                Step::Claim => {
                    let free: Vec<_> = members.iter().filter(|member| {
                        !promised.contains(&member.uid) && member.state != State::Pending
                    }).collect();
                    let newest = free.iter().map(|member| member.revision.as_str()).min();
                    let given = ask(&mut index, &pool, None, &RULES);
                    prop_assert_eq!(given.is_some(), !free.is_empty());
                    if let Some(uid) = given {
                        let member = free.iter().find(|member| member.uid == uid);
                        prop_assert_eq!(member.map(|member| member.revision.as_str()), newest);
                        prop_assert!(promised.insert(uid));
                    }
                }
                Step::Release(name) => {
                    let uid = Uid::from(format!("m{name:02}").as_str());
                    index.release(&uid, &"claim".into());
                    promised.remove(&uid);
                }
            }
        }
    }
}
