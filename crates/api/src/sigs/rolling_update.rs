//! How a pool of v1beta1 follows its template: the two strategies of the family, and RollingUpdate, which is ours.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{core::Raw, open::Open, schema};

/// How a pool follows a change of its template.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// Recreate replaces every idle member at once, OnReplenish only renews what is used up, RollingUpdate replaces or
    /// updates a few at a time and keeps the pool claimable.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "OnReplenish"))]
    pub type_: Option<Open<UpdateStrategyType>>,
    /// Read only with RollingUpdate.
    pub rolling_update: Option<RollingUpdate>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateStrategyType {
    Recreate,
    OnReplenish,
    RollingUpdate,
}

#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many members the rollout itself may have out of stock; 20% if left out, and a percentage rounds down.
    #[serde(default)]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// How many members the pool may have beyond its replicas while it rolls; 20% if left out, and a percentage rounds up.
    #[serde(default)]
    #[schemars(schema_with = "schema::int_or_any_percent")]
    pub max_surge: Option<IntOrString>,
    /// How many members keep their revision; a percentage may be a fraction.
    #[serde(default)]
    #[schemars(schema_with = "schema::int_or_fraction")]
    pub partition: Option<IntOrString>,
    /// Seconds for which a member must have been ready before it can be claimed.
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// Seconds without progress after which the rollout counts as stalled; it goes on all the same.
    #[schemars(range(min = 0))]
    pub progress_deadline_seconds: Option<i32>,
    /// Nothing is replaced or updated; used up members are renewed.
    pub paused: Option<bool>,
    /// How many members must stay claimable; replicas less maxUnavailable if left out.
    #[serde(default)]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub floor: Option<IntOrString>,
    /// Whether idle members take on new images, resources and metadata without being replaced.
    pub in_place: Option<Open<InPlace>>,
    /// Which members come first.
    pub priority_strategy: Option<PriorityStrategy>,
    /// Which members do not follow each other.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub scatter_strategy: Option<Vec<ScatterTerm>>,
}

/// IfPossible, the default, replaces members that cannot take a change; with Only they stay as they are.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    IfPossible,
    Never,
    Only,
}

/// Which members come first: by weight or by order, not both.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PriorityStrategy {
    /// The larger the sum of weights that a member matches, the sooner.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub weight_priority: Option<Vec<WeightPriority>>,
    /// By the number at the end of a label's value, larger first.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub order_priority: Option<Vec<OrderPriority>>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WeightPriority {
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    pub match_selector: Raw<LabelSelector>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OrderPriority {
    pub ordered_key: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct ScatterTerm {
    pub key: String,
    pub value: String,
}

/// Which revision a claim gets while members differ: the newest that can be had at once (PreferNewest, the default), the
/// newest or a fresh sandbox (RequireNewest), or the oldest first (DrainOld).
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPolicy {
    PreferNewest,
    RequireNewest,
    DrainOld,
}
