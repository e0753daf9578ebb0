//! Two controllers that both believe to lead, and act at the same time.

use serde_json::json;

use super::{
    rollouts::set_image,
    together::{claim, fill, until_served, until_stocked},
};
use crate::stage::Stage;

/// Three are in stock and all claims are served, and one controller alone leaves it at that.
async fn one_finds_it_done(stage: &Stage, claims: usize, image: &str) {
    let given = until_served(stage, claims).await;
    until_stocked(stage, 3, image).await;
    stage.undouble();
    stage.is_quiet().await;
    until_stocked(stage, 3, image).await;
    assert_eq!(until_served(stage, claims).await, given);
}

pub(crate) async fn two_controllers_at_a_time_fill_a_pool_and_serve_claims(stage: &Stage) {
    stage.double();
    fill(stage, 3, json!({})).await;
    for name in ["one", "two", "three", "four", "five"] {
        claim(stage, name).await;
    }
    one_finds_it_done(stage, 5, "app:1").await;
}

pub(crate) async fn two_controllers_at_a_time_roll_a_pool_while_claims_come(stage: &Stage) {
    stage.double();
    let rolling = json!({"maxUnavailable": 1, "maxSurge": 1, "inPlace": "Never"});
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    fill(stage, 3, rolling).await;
    claim(stage, "before").await;
    set_image(stage, "app:2").await;
    claim(stage, "during").await;
    claim(stage, "later").await;
    one_finds_it_done(stage, 3, "app:2").await;
}

pub(crate) async fn two_controllers_at_a_time_change_members_in_place(stage: &Stage) {
    stage.double();
    let rolling = json!({"maxUnavailable": 1, "maxSurge": 0});
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    fill(stage, 3, rolling).await;
    set_image(stage, "app:2").await;
    claim(stage, "during").await;
    one_finds_it_done(stage, 1, "app:2").await;
}
