//! The CustomResourceDefinitions of both families, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
    ServiceReference, WebhookClientConfig, WebhookConversion,
};
use kube::{
    CustomResourceExt,
    core::object::{HasSpec, HasStatus},
};
use schemars::JsonSchema;
use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    kruise, schema,
    sigs::{v1alpha1, v1beta1},
};

/// The kinds that come from one upstream project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Sigs,
    Kruise,
}

/// Which versions of the sigs kinds are served. The kruise kinds have one version only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// v1alpha1 alone, stored: a cluster before its migration.
    V1alpha1,
    /// v1beta1 alone, stored.
    V1beta1,
    /// Both served, v1beta1 stored, v1alpha1 deprecated.
    Both,
}

/// How the API server turns one version into the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    None,
    Webhook,
}

/// How much of a pod template the API server knows. The kruise kinds have no schema there in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schemas {
    /// Every field.
    Full,
    /// That there are containers, and their names. All else is kept as it comes and judged when the pod is made, so that
    /// no write of a Sandbox pays for it.
    Lean,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum RenderError {
    #[error(
        "both versions cannot be served with conversion none: what v1alpha1 writes would silently \
         lose fields; use conversion webhook, or only one of the versions"
    )]
    BothWithoutConversion,
}

/// Where the existing installations have their conversion webhook.
const WEBHOOK_SERVICE: &str = "agent-sandbox-webhook-service";
const WEBHOOK_NAMESPACE: &str = "agent-sandbox-system";
const WEBHOOK_PATH: &str = "/convert";

/// The CRDs of the given families, in a fixed order.
pub fn render(
    families: &[Family],
    versions: Versions,
    conversion: Conversion,
) -> Result<Vec<CustomResourceDefinition>, RenderError> {
    let mut crds = Vec::new();
    if families.contains(&Family::Sigs) {
        if versions == Versions::Both && conversion == Conversion::None {
            return Err(RenderError::BothWithoutConversion);
        }
        crds.extend(sigs().map(|kind| kind.served_as(versions, conversion)));
    }
    if families.contains(&Family::Kruise) {
        crds.extend(kruise());
    }
    Ok(crds)
}

impl Schemas {
    /// These CRDs with so much of pod templates.
    #[must_use]
    pub fn of(self, mut crds: Vec<CustomResourceDefinition>) -> Vec<CustomResourceDefinition> {
        if self == Self::Lean {
            crds.iter_mut().flat_map(pod_specs).for_each(make_lean);
        }
        crds
    }
}

/// Where pod templates have their specs, a place a version.
fn pod_specs(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    const PLACE: [&str; 3] = ["spec", "podTemplate", "spec"];
    crd.spec.versions.iter_mut().filter_map(|version| {
        let root = version.schema.as_mut()?.open_api_v3_schema.as_mut()?;
        PLACE.iter().try_fold(root, |schema, name| {
            schema.properties.as_mut()?.get_mut(*name)
        })
    })
}

fn make_lean(pod_spec: &mut JSONSchemaProps) {
    *pod_spec = serde_json::from_value(schema::lean_pod_spec())
        .unwrap_or_else(|error| unreachable!("a lean pod spec: {error}"));
}

/// One kind of the sigs family, a CRD a version.
struct Versioned {
    v1alpha1: CustomResourceDefinition,
    v1beta1: CustomResourceDefinition,
}

fn sigs() -> [Versioned; 4] {
    [
        Versioned {
            v1alpha1: with_status::<v1alpha1::Sandbox>(),
            v1beta1: with_status::<v1beta1::Sandbox>(),
        },
        Versioned {
            v1alpha1: with_status::<v1alpha1::SandboxClaim>(),
            v1beta1: with_status::<v1beta1::SandboxClaim>(),
        },
        Versioned {
            v1alpha1: without_status::<v1alpha1::SandboxTemplate>(),
            v1beta1: without_status::<v1beta1::SandboxTemplate>(),
        },
        Versioned {
            v1alpha1: with_status::<v1alpha1::SandboxWarmPool>(),
            v1beta1: with_status::<v1beta1::SandboxWarmPool>(),
        },
    ]
}

fn kruise() -> [CustomResourceDefinition; 6] {
    [
        with_status::<kruise::Checkpoint>(),
        with_status::<kruise::SandboxClaim>(),
        with_status::<kruise::Sandbox>(),
        with_status::<kruise::SandboxSet>(),
        without_status::<kruise::SandboxTemplate>(),
        with_status::<kruise::SandboxUpdateOps>(),
    ]
}

impl Versioned {
    fn served_as(self, versions: Versions, conversion: Conversion) -> CustomResourceDefinition {
        let mut crd = match versions {
            Versions::V1alpha1 => self.v1alpha1,
            Versions::V1beta1 => self.v1beta1,
            Versions::Both => self.both(),
        };
        crd.spec.conversion = Some(match conversion {
            Conversion::None => CustomResourceConversion {
                strategy: "None".into(),
                ..Default::default()
            },
            Conversion::Webhook => conversion_webhook(),
        });
        crd
    }

    fn both(self) -> CustomResourceDefinition {
        let mut crd = self.v1beta1;
        let group = &crd.spec.group;
        let kind = &crd.spec.names.kind;
        let warning =
            format!("{group}/v1alpha1 {kind} is deprecated; use {group}/v1beta1 {kind} instead");
        for mut version in self.v1alpha1.spec.versions {
            version.storage = false;
            version.deprecated = Some(true);
            version.deprecation_warning = Some(warning.clone());
            crd.spec.versions.push(version);
        }
        crd
    }
}

fn conversion_webhook() -> CustomResourceConversion {
    CustomResourceConversion {
        strategy: "Webhook".into(),
        webhook: Some(WebhookConversion {
            conversion_review_versions: vec!["v1".into(), "v1beta1".into()],
            client_config: Some(WebhookClientConfig {
                service: Some(ServiceReference {
                    name: WEBHOOK_SERVICE.into(),
                    namespace: WEBHOOK_NAMESPACE.into(),
                    path: Some(WEBHOOK_PATH.into()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
        }),
    }
}

fn with_status<K>() -> CustomResourceDefinition
where
    K: CustomResourceExt + HasSpec<Spec: JsonSchema> + HasStatus<Status: JsonSchema>,
{
    definition::<K>(Some(schema::of::<K::Status>()))
}

fn without_status<K>() -> CustomResourceDefinition
where
    K: CustomResourceExt + HasSpec<Spec: JsonSchema>,
{
    definition::<K>(None)
}

fn definition<K>(status: Option<Value>) -> CustomResourceDefinition
where
    K: CustomResourceExt + HasSpec<Spec: JsonSchema>,
{
    let mut crd = K::crd();
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let schema = root(schema::of::<K::Spec>(), status);
    for version in &mut crd.spec.versions {
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: Some(
                serde_json::from_value(schema.clone())
                    .unwrap_or_else(|error| unreachable!("{}: {error}", K::crd_name())),
            ),
        });
    }
    crd
}

fn root(mut spec: Value, status: Option<Value>) -> Value {
    // the comment on a spec type describes the kind
    let description = spec
        .as_object_mut()
        .and_then(|spec| spec.remove("description"));
    let mut root = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
        },
    });
    if let Some(description) = description {
        root["description"] = description;
    }
    if let Some(status) = status {
        root["properties"]["status"] = status;
    }
    root
}
