//! What becomes of sandboxes, pools and claims. Each scenario ends in a state that no fault on the way may change.

mod belongings;
pub(crate) mod broken;
mod claims;
mod in_place;
mod inherited;
mod life;
mod overlap;
mod policies;
pub(crate) mod pools;
mod quota;
pub(crate) mod rollouts;
mod switches;
mod takeover;
mod templates;
mod together;

use futures::FutureExt as _;
use local::fault::Faults;

use crate::stage::{Scenario, Stage, Theatre};

/// The stage of a scenario, with what stands between its controllers and the server.
pub(crate) async fn stage(theatre: &Theatre, name: &str, faults: Faults) -> Stage {
    let stage = Stage::new(theatre, name, faults).await;
    match name.starts_with("quota::") {
        true => stage.with_wire(quota::limited),
        false => stage,
    }
}

macro_rules! title {
    ($group:ident $name:ident) => {
        concat!(stringify!($group), "::", stringify!($name))
    };
}

macro_rules! scenarios {
    ($($group:ident::$name:ident),* $(,)?) => {
        pub(crate) const ALL: &[(&str, Scenario)] =
            &[$((title!($group $name), |stage| $group::$name(stage).boxed_local())),*];

        mod undisturbed {
            use futures::FutureExt as _;
            use local::fault::Faults;

            use crate::stage::Theatre;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let theatre = Theatre::open().await;
                let stage = super::stage(&theatre, title!($group $name), Faults::none()).await;
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
    pools::a_pool_is_filled_and_follows_its_size,
    pools::a_pool_without_a_template_waits_for_it,
    pools::a_deleted_pool_takes_its_members_along,
    pools::a_member_that_is_over_is_replaced,
    pools::a_member_without_the_label_of_its_pool_is_made_up_for_and_left_alone,
    pools::members_without_an_owner_are_taken_in_or_removed,
    pools::a_spec_that_cannot_be_followed_is_told_and_claims_are_still_served,
    rollouts::recreate_replaces_every_member,
    rollouts::on_replenish_leaves_members_to_the_claims,
    rollouts::another_template_of_equal_content_replaces_members_under_recreate_only,
    rollouts::a_rolling_update_never_takes_out_more_than_it_may,
    rollouts::a_template_that_is_edited_twice_ends_at_the_second_edit,
    rollouts::a_pool_that_shrinks_while_it_rolls_ends_new_and_small,
    rollouts::a_paused_rollout_goes_on_when_it_is_resumed,
    rollouts::a_broken_template_stops_the_rollout_until_it_is_mended,
    rollouts::a_partition_keeps_members_back,
    rollouts::going_back_raises_the_old_revision,
    rollouts::a_retired_revision_that_is_wanted_again_is_one_like_any_other,
    rollouts::the_history_keeps_what_is_used_and_ten_others,
    broken::a_rollout_to_pods_that_end_stops_and_tries_seldom,
    broken::a_pool_of_pods_that_end_says_so_and_fills_up_when_it_is_mended,
    broken::pods_that_the_server_refuses_stop_the_rollout_in_its_words,
    broken::containers_that_crash_stop_the_rollout,
    broken::pods_without_room_are_told_and_the_rollout_takes_out_what_it_may,
    quota::a_rollout_goes_on_without_surge_whose_pods_are_refused,
    quota::a_rollout_goes_on_without_surge_that_is_refused,
    quota::surge_is_used_when_the_quota_leaves_room,
    together::a_pool_fills_up_again_after_claims,
    together::a_burst_that_is_larger_than_the_pool_is_served,
    together::a_rolling_update_goes_through_while_claims_come,
    together::idle_members_change_in_place_and_claimed_ones_do_not,
    together::a_new_controller_finds_everything_as_the_old_one_left_it,
    takeover::members_of_the_reference_are_kept_under_every_strategy,
    policies::who_requires_the_newest_never_gets_an_old_member,
    policies::who_drains_the_old_gets_them_first,
    policies::who_prefers_the_newest_gets_it_first,
    policies::nobody_gets_an_old_member_under_recreate,
    switches::an_equal_template_comes_to_members_in_place,
    switches::another_template_is_rolled_out,
    overlap::two_controllers_at_a_time_fill_a_pool_and_serve_claims,
    overlap::two_controllers_at_a_time_roll_a_pool_while_claims_come,
    overlap::two_controllers_at_a_time_change_members_in_place,
    inherited::what_the_reference_left_is_left_alone,
    inherited::adoptions_that_the_reference_began_are_completed,
    in_place::a_new_image_comes_into_the_running_pod,
    in_place::new_sizes_come_into_the_running_pod,
    in_place::an_image_and_sizes_change_together,
    in_place::new_metadata_is_an_update_too,
    in_place::a_pod_behind_a_gate_is_not_ready_while_it_changes,
    in_place::the_last_of_two_edits_counts,
    in_place::a_pod_is_left_alone_without_a_fence,
    in_place::what_a_running_pod_cannot_take_is_told,
    in_place::what_the_server_refuses_is_told,
    in_place::a_size_that_the_node_refuses_is_told,
    in_place::a_size_that_comes_too_late_is_taken_back,
    templates::a_template_gets_its_label_and_the_built_in_policy,
    templates::a_policy_follows_the_rules_of_its_template,
    templates::an_unmanaged_template_has_no_policy,
    templates::a_policy_that_somebody_changes_is_mended,
    templates::a_foreign_policy_is_left_alone_until_it_is_gone,
    templates::rules_that_the_server_refuses_are_told_and_mended,
    templates::metadata_that_is_reserved_is_told,
    templates::a_deleted_template_takes_its_policy_along,
    claims::a_claim_takes_a_member,
    claims::a_claim_on_an_empty_pool_starts_a_sandbox,
    claims::a_claim_with_variables_starts_a_sandbox,
    claims::a_claim_with_volumes_starts_a_sandbox,
    claims::claims_get_different_members,
    claims::a_claim_waits_for_its_pool_and_its_template,
    claims::bad_metadata_is_refused_until_it_is_mended,
    claims::metadata_that_cannot_be_kept_in_step_is_told_until_it_can,
    claims::a_claim_that_the_reference_started_cold_costs_nothing,
    claims::an_expired_claim_is_retained_and_can_come_back,
    claims::an_expired_claim_is_deleted,
    claims::an_expired_claim_is_deleted_last,
    claims::a_claim_ends_some_time_after_its_sandbox_has_finished,
    claims::a_claim_whose_sandbox_is_deleted_gets_another,
    claims::an_adoption_that_another_controller_began_is_completed,
    claims::what_older_controllers_left_on_a_claim_is_put_right,
    claims::a_waiting_claim_is_served_when_a_member_becomes_ready,
];
