//! What a hollow node does, on whatever API server the client leads to. Each scenario needs the
//! cluster for itself: no other scheduler, and no other scenario at the same time.

mod change;
mod failure;
mod life;

use futures::{FutureExt as _, future::LocalBoxFuture};
use kube::Client;

type Scenario = fn(Client) -> LocalBoxFuture<'static, ()>;

macro_rules! scenarios {
    ($($group:ident::$name:ident),* $(,)?) => {
        pub(crate) const ALL: &[(&str, Scenario)] =
            &[$((stringify!($name), |client| $group::$name(client).boxed_local())),*];
    };
}

scenarios![
    life::a_node_is_there_and_comes_back,
    life::a_pod_is_ready_after_its_delay_and_not_before,
    life::init_containers_go_first_and_sidecars_stay,
    life::a_readiness_gate_keeps_a_pod_from_being_ready,
    life::a_deleted_pod_takes_its_time_and_is_gone,
    life::a_finalizer_keeps_an_ended_pod,
    life::a_new_node_goes_on_where_the_old_one_stopped,
    life::nothing_is_written_when_nothing_changes,
    life::two_hundred_pods_are_spread_and_become_ready,
    change::a_new_image_restarts_the_container_in_place,
    change::a_resize_is_followed,
    change::a_resize_can_be_refused,
    failure::an_image_that_cannot_be_pulled_keeps_a_pod_pending,
    failure::a_crashing_container_restarts_ever_more_slowly,
    failure::a_pod_that_fits_nowhere_is_not_bound,
    failure::a_cordoned_node_takes_no_pods,
    failure::a_pod_can_run_and_never_be_ready,
    failure::containers_that_exit_end_their_pod,
    failure::no_single_fault_keeps_a_pod_from_its_life,
];
