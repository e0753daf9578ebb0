//! What becomes of a sandbox. Each scenario ends in a state that no fault on the way may change.

mod belongings;
mod life;

use futures::FutureExt as _;

use crate::stage::Scenario;

macro_rules! scenarios {
    ($($group:ident::$name:ident),* $(,)?) => {
        pub(crate) const ALL: &[(&str, Scenario)] =
            &[$((stringify!($name), |stage| $group::$name(stage).boxed_local())),*];

        mod undisturbed {
            use futures::FutureExt as _;
            use local::fault::Faults;

            use crate::stage::{Stage, Theatre};

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let theatre = Theatre::open().await;
                let stage = Stage::new(&theatre, stringify!($name), Faults::none()).await;
                stage.play(|stage| super::$group::$name(stage).boxed_local()).await;
            })*
        }
    };
}

scenarios![
    life::a_sandbox_gets_a_pod_and_becomes_ready,
    life::a_suspended_sandbox_has_no_pod_and_gets_a_new_one,
    life::an_expired_sandbox_is_retained_and_can_come_back,
    life::an_expired_sandbox_is_deleted_if_it_says_so,
    life::a_pod_that_somebody_deletes_is_replaced,
    life::a_failed_pod_is_not_replaced,
    life::a_deleted_sandbox_takes_its_pod_along,
    life::several_pods_are_refused_until_one_is_left,
    belongings::an_adoptable_pod_is_adopted,
    belongings::a_foreign_pod_is_an_error_until_it_is_gone,
    belongings::a_service_is_made_kept_and_removed_as_asked,
    belongings::volume_claims_are_made_adopted_and_mounted,
    belongings::pod_metadata_follows_the_template,
];
