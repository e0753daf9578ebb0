#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use super::{
    Amount, Budget, Defaults, Field, Pace, Percent, operation_limit, operation_starts, partition,
    scale_limit,
};

fn read(field: Field, value: &Value) -> Option<Amount> {
    field.read(Some(value)).unwrap()
}

#[test]
fn a_partition_keeps_this_many_old() {
    let cases = [
        (1, 10, Value::Null, 0),
        (2, 10, json!(3), 3),
        (3, 10, json!(15), 10),
        (4, 10, json!("0%"), 0),
        (5, 10, json!("1%"), 1),
        (6, 10, json!("25%"), 3),
        (7, 10, json!("95%"), 9),
        (8, 10, json!("100%"), 10),
        (11, 1, json!("50%"), 1),
        (12, 2, json!("51%"), 1),
        (13, 3, json!("33.3%"), 1),
        (14, 1000, json!("0.1%"), 1),
        (15, 0, json!("50%"), 0),
    ];
    for (case, replicas, value, kept) in cases {
        let amount = read(Field::Partition, &value);
        assert_eq!(partition(amount, replicas), kept, "case {case}");
    }
}

#[test]
fn unavailable_and_surge_round_against_each_other() {
    let unset = Value::Null;
    let cases = [
        (16, 10, unset.clone(), unset, false, 2, 0),
        (17, 7, json!("20%"), json!(0), false, 2, 0),
        (18, 7, json!("20%"), json!(1), false, 1, 1),
        (19, 7, json!("20%"), json!("10%"), false, 1, 1),
        (20, 4, json!("20%"), json!(1), false, 0, 1),
        (21, 4, json!("20%"), json!(1), true, 1, 0),
        (22, 3, json!("50%"), json!("50%"), false, 1, 2),
        (23, 1, json!("20%"), json!("20%"), false, 0, 1),
    ];
    for (case, replicas, most, surge, paused, unavailable, extra) in cases {
        let pace = Pace {
            max_unavailable: read(Field::MaxUnavailable, &most),
            max_surge: read(Field::MaxSurge, &surge),
            paused,
        };
        let budget = Budget {
            unavailable,
            surge: extra,
        };
        let got = pace.budget(replicas, &Defaults::SANDBOX_SET);
        assert_eq!(got, budget, "case {case}");
        assert_eq!(pace.check(replicas, &Defaults::SANDBOX_SET), Ok(()));
    }
}

#[test]
fn a_warm_pool_that_says_nothing_surges() {
    for (replicas, unavailable, surge) in [(10, 2, 2), (4, 0, 1), (7, 1, 2), (1, 0, 1), (0, 0, 0)] {
        let got = Pace::default().budget(replicas, &Defaults::SANDBOX_WARM_POOL);
        assert_eq!(got, Budget { unavailable, surge }, "{replicas} replicas");
    }
}

#[test]
fn what_the_reference_misreads_is_refused() {
    let cases = [
        (
            Field::Partition,
            json!("100.0%"),
            "100% written in another way",
        ),
        (
            Field::Partition,
            json!("0100%"),
            "100% written in another way",
        ),
        (Field::Partition, json!("120%"), "more than 100%"),
        (Field::MaxUnavailable, json!("120%"), "more than 100%"),
        (
            Field::MaxUnavailable,
            json!("12.5%"),
            "a fraction of a percent",
        ),
        (Field::MaxSurge, json!("12.5%"), "a fraction of a percent"),
        (Field::MaxUnavailable, json!("5"), "a text without %"),
        (Field::MaxUnavailable, json!(-1), "negative"),
        (Field::MaxUnavailable, json!(1.5), "not a whole number"),
        (Field::MaxSurge, json!(3_000_000_000_u64), "out of range"),
        (Field::MaxSurge, json!("-5%"), "not a percentage"),
        (Field::Partition, json!("%"), "not a percentage"),
        (Field::Partition, json!(".5%"), "not a percentage"),
        (
            Field::Partition,
            json!(true),
            "neither a number nor a percentage",
        ),
    ];
    for (field, value, problem) in cases {
        let error = field.read(Some(&value)).unwrap_err();
        assert_eq!(error.problem, problem, "{field} {value}");
        let text = error.to_string();
        assert!(text.starts_with(field.name()) && text.contains("accepted are a whole number"));
    }
    assert_eq!(
        read(Field::MaxSurge, &json!("150%")),
        Some(Amount::percent(150))
    );
}

#[test]
fn a_strategy_that_cannot_step_is_refused() {
    let none = Pace {
        max_unavailable: Some(Amount::Count(0)),
        max_surge: Some(Amount::percent(0)),
        paused: false,
    };
    assert!(none.check(1, &Defaults::SANDBOX_SET).is_err());
    assert!(none.check(0, &Defaults::SANDBOX_SET).is_ok());
    let surge = Pace {
        max_surge: Some(Amount::Count(1)),
        ..none
    };
    assert!(surge.check(1, &Defaults::SANDBOX_SET).is_ok());
}

#[test]
fn an_operation_starts_this_many() {
    let cases = [
        (67, 10, Value::Null, 0, 0, 1),
        (68, 10, json!("25%"), 0, 0, 3),
        (69, 10, json!(0), 0, 0, 1),
        (70, 10, json!(3), 0, 1, 2),
        (71, 10, json!(2), 1, 1, 0),
        (72, 10, json!(2), 0, 2, 0),
    ];
    for (case, total, value, updating, failed, starts) in cases {
        let limit = operation_limit(read(Field::MaxUnavailable, &value), total);
        let got = operation_starts(limit, updating, failed, false);
        assert_eq!(got, starts, "case {case}");
    }
    assert_eq!(operation_starts(2, 0, 2, true), 2);
}

#[test]
fn scaling_is_unlimited_unless_it_says() {
    assert_eq!(scale_limit(None, 12), None);
    assert_eq!(scale_limit(Some(Amount::percent(25)), 12), Some(3));
    assert_eq!(scale_limit(Some(Amount::percent(25)), 13), Some(4));
}

fn amounts() -> impl Strategy<Value = Amount> {
    (any::<bool>(), 0_u32..=100_000).prop_map(|(is_count, number)| match is_count {
        true => Amount::Count(number),
        false => Amount::Percent(
            Percent::read(&format!("{}.{:03}", number / 1000, number % 1000)).unwrap(),
        ),
    })
}

proptest! {
    #[test]
    fn rounding_up_is_at_most_one_more_than_rounding_down(amount in amounts(), total in any::<u32>()) {
        let (down, up) = (amount.rounded_down(total), amount.rounded_up(total));
        prop_assert!(down <= up && up - down <= 1);
    }

    #[test]
    fn a_share_of_a_pool_is_within_it(percent in 0_u32..=100, total in any::<u32>()) {
        let amount = Amount::percent(percent);
        prop_assert!(amount.rounded_up(total) <= total);
        prop_assert_eq!(amount.rounded_up(total) == 0, percent == 0 || total == 0);
    }

    #[test]
    fn only_all_keeps_all_of_many(amount in amounts(), replicas in 2_u32..10_000) {
        let kept = partition(Some(amount), replicas);
        prop_assert!(kept <= replicas);
        if let Amount::Percent(percent) = amount {
            prop_assert_eq!(kept == replicas, percent == Percent::ALL);
        }
    }

    #[test]
    fn a_checked_pace_always_has_a_budget(most in amounts(), surge in amounts(), replicas in 1_u32..10_000) {
        let pace = Pace { max_unavailable: Some(most), max_surge: Some(surge), paused: false };
        if pace.check(replicas, &Defaults::SANDBOX_SET).is_ok() {
            let budget = pace.budget(replicas, &Defaults::SANDBOX_SET);
            prop_assert!(budget.unavailable + budget.surge > 0);
        }
    }
}
