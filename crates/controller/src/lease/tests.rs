use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};

use super::{Act, Seen, Standing, Terms, decide, evaluate, held, released};
use crate::clock::after;

const NOON: Timestamp = Timestamp::UNIX_EPOCH;

fn at(seconds: u64) -> Timestamp {
    after(NOON, Duration::from_secs(seconds))
}

fn lease(holder: &str, seconds: i32) -> Lease {
    Lease {
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            // a clock that is years off
            renew_time: Some(MicroTime("2031-01-01T00:00:00Z".parse().unwrap())),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }),
        ..Lease::default()
    }
}

fn stands(holder: &str, seconds: i32, now: u64) -> Standing {
    let seen = Seen {
        lease: lease(holder, seconds),
        since: NOON,
    };
    evaluate(Some(&seen), "me", at(now))
}

#[test]
fn a_lease_is_free_when_nobody_has_it_or_its_time_is_over_by_our_own_watch() {
    assert_eq!(evaluate(None, "me", NOON), Standing::Free);
    assert_eq!(stands("", 15, 0), Standing::Free);
    assert_eq!(stands("me", 15, 0), Standing::Mine);
    assert_eq!(stands("me", 15, 99), Standing::Mine);
    let taken = Standing::Taken {
        holder: "other".to_owned(),
        until: at(15),
    };
    assert_eq!(stands("other", 15, 14), taken);
    assert_eq!(stands("other", 15, 15), Standing::Free);
    assert_eq!(stands("other", 0, 0), Standing::Free);
    assert_eq!(stands("other", -1, 0), Standing::Free);
}

#[test]
fn all_leases_are_taken_or_none() {
    let taken = || Standing::Taken {
        holder: "other".to_owned(),
        until: at(9),
    };
    let wait = || Act::Wait {
        holder: "other".to_owned(),
        until: at(9),
    };
    assert_eq!(decide(&[Standing::Free, Standing::Mine]), Act::Take);
    assert_eq!(decide(&[Standing::Free, taken()]), wait());
    assert_eq!(decide(&[taken(), Standing::Free]), wait());
    assert_eq!(decide(&[Standing::Mine, taken()]), Act::StepBack);
}

#[test]
fn a_lease_counts_how_often_it_changes_hands() {
    let terms = Terms::default();
    let first = held(None, "me", &terms, at(1));
    assert_eq!(first.lease_transitions, Some(0));
    assert_eq!(first.lease_duration_seconds, Some(15));
    assert_eq!(first.acquire_time, Some(MicroTime(at(1))));
    let stored = Lease {
        spec: Some(first),
        ..Lease::default()
    };
    let renewed = held(Some(&stored), "me", &terms, at(3));
    assert_eq!(renewed.lease_transitions, Some(0));
    assert_eq!(renewed.acquire_time, Some(MicroTime(at(1))));
    assert_eq!(renewed.renew_time, Some(MicroTime(at(3))));
    let taken = held(Some(&lease("other", 15)), "me", &terms, at(5));
    assert_eq!(taken.lease_transitions, Some(5));
    assert_eq!(taken.holder_identity.as_deref(), Some("me"));
}

#[test]
fn a_released_lease_names_nobody() {
    let spec = released(&lease("me", 15), at(7));
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_duration_seconds, Some(1));
    assert_eq!(spec.lease_transitions, Some(4));
}
