//! `sandbar crds`: prints the CustomResourceDefinitions.

use std::{
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use api::crds::{Conversion, Family, Schemas, Versions, render};
use clap::ValueEnum;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Print the CustomResourceDefinitions as YAML, ready for `kubectl apply -f -`
///
/// The kinds of agents.kruise.io have a single version and no conversion; --versions and
/// --conversion speak of the kinds of agents.x-k8s.io and extensions.agents.x-k8s.io. So does --schemas:
/// the pod templates of agents.kruise.io have no schema in either case.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose kinds to print
    #[arg(long, value_enum, default_value_t = FamilyArg::All)]
    family: FamilyArg,
    /// Which versions the API server serves; v1beta1 is stored whenever it is served
    #[arg(long, value_enum, default_value_t = VersionsArg::Both)]
    versions: VersionsArg,
    /// How the API server turns one version into the other
    #[arg(long, value_enum, default_value_t = ConversionArg::Webhook)]
    conversion: ConversionArg,
    /// How much of a pod template the API server knows
    #[arg(long, value_enum, default_value_t = SchemasArg::Full)]
    schemas: SchemasArg,
    /// Write one file a CRD into this directory instead of printing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FamilyArg {
    /// kubernetes-sigs/agent-sandbox
    Sigs,
    /// OpenKruise Agents
    Kruise,
    /// Both
    All,
}

#[derive(Clone, Copy, ValueEnum)]
enum VersionsArg {
    /// Only v1alpha1, stored: a cluster before its migration
    V1alpha1,
    /// Only v1beta1
    V1beta1,
    /// v1beta1 stored, v1alpha1 served and deprecated
    Both,
}

#[derive(Clone, Copy, ValueEnum)]
enum ConversionArg {
    /// None: only for a single version
    None,
    /// The webhook of the controller
    Webhook,
}

#[derive(Clone, Copy, ValueEnum)]
enum SchemasArg {
    /// Every field: wrong types are refused at once, unknown fields are dropped, `kubectl explain` knows all
    Full,
    /// Only the containers' names: each write of a Sandbox costs the API server less. What else a pod's spec says is checked
    /// when the pod is made, unknown fields are kept, server-side apply sees every list but the containers as one value, and
    /// `kubectl explain` ends at the pod template
    Lean,
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        let families: &[Family] = match self.family {
            FamilyArg::Sigs => &[Family::Sigs],
            FamilyArg::Kruise => &[Family::Kruise],
            FamilyArg::All => &[Family::Sigs, Family::Kruise],
        };
        let versions = match self.versions {
            VersionsArg::V1alpha1 => Versions::V1alpha1,
            VersionsArg::V1beta1 => Versions::V1beta1,
            VersionsArg::Both => Versions::Both,
        };
        let conversion = match self.conversion {
            ConversionArg::None => Conversion::None,
            ConversionArg::Webhook => Conversion::Webhook,
        };
        let schemas = match self.schemas {
            SchemasArg::Full => Schemas::Full,
            SchemasArg::Lean => Schemas::Lean,
        };
        let crds = schemas.of(render(families, versions, conversion)?);
        match self.out {
            Some(directory) => write_files(&directory, &crds),
            None => print(&crds),
        }
    }
}

fn print(crds: &[CustomResourceDefinition]) -> Result<()> {
    let documents = crds.iter().map(document).collect::<Result<Vec<_>>>()?;
    match io::stdout()
        .lock()
        .write_all(documents.join("---\n").as_bytes())
    {
        // the reader has seen enough (`sandbar crds | head`)
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing to standard output"),
    }
}

fn write_files(directory: &Path, crds: &[CustomResourceDefinition]) -> Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("creating {}", directory.display()))?;
    for crd in crds {
        let path = directory.join(format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural));
        std::fs::write(&path, document(crd)?)
            .with_context(|| format!("writing {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn document(crd: &CustomResourceDefinition) -> Result<String> {
    let name = crd.metadata.name.as_deref().unwrap_or_default();
    let rendering = || format!("rendering CRD {name}");
    let mut json = serde_json::to_value(crd).with_context(rendering)?;
    whole_numbers(&mut json);
    serde_saphyr::to_string(&json).with_context(rendering)
}

/// Bounds are floating point in the CRD's own types; people write and diff `minimum: 0`.
fn whole_numbers(json: &mut Value) {
    match json {
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            if let Ok(whole) = format!("{}", number.as_f64().unwrap_or(f64::NAN)).parse::<i64>() {
                *number = whole.into();
            }
        }
        _ => {}
    }
}
