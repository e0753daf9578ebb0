//! `sandbar apply`: makes objects what manifests say, by server-side apply.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams, ValidationDirective},
};

use super::{
    code, complain,
    discover::{Kind, Kinds},
    manifests::{self, Manifest},
    patiently,
    place::{Place, Where},
    run, say,
};

const MANAGER: &str = "sandbar";
/// Servers take a second or two for a new CustomResourceDefinition.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Make objects what manifests say
///
/// Objects are created or changed by server-side apply, in the order in which they are written. Fields that a manifest no
/// longer has are removed from what was applied before; those that others have set stay.
///
/// What fails is named, the rest is applied, and the exit code is 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sandbar apply -f examples/sigs/v1beta1/sandboxtemplate.yaml
  sandbar apply -f deploy/crds -f box.yaml   CustomResourceDefinitions before their objects
  sandbar crds | sandbar apply -f -          from standard input")]
pub(crate) struct Args {
    /// A file of YAML or JSON, a directory of them, or - for standard input; can be repeated
    #[arg(short, long, required = true, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Take over fields that another manager has set to something else
    #[arg(long)]
    force_conflicts: bool,
    /// Always so; for those who are used to saying it
    #[arg(long, hide = true)]
    server_side: bool,
    #[command(flatten)]
    place: Where,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        run(self.apply())
    }

    async fn apply(self) -> Result<ExitCode> {
        let manifests = manifests::read(&self.filename);
        let place = self.place.open().await?;
        let mut applying = Applying {
            kinds: Kinds::of(&place).await?,
            asked: self.place.namespace,
            place,
            force: self.force_conflicts,
            defined: BTreeSet::new(),
        };
        let mut failures = 0;
        for manifest in manifests {
            let applied = match &manifest {
                Ok(manifest) => applying.one(manifest).await.context(manifest.to_string()),
                Err(_) => manifest.map(|_| String::new()),
            };
            match applied {
                Ok(line) => say(&line)?,
                Err(error) => {
                    complain(&error);
                    failures += 1;
                }
            }
        }
        Ok(code(failures))
    }
}

struct Applying {
    place: Place,
    kinds: Kinds,
    /// The namespace that somebody insists on.
    asked: Option<String>,
    force: bool,
    /// Group and kind of what this call has defined, which the server may not serve yet.
    defined: BTreeSet<(String, String)>,
}

impl Applying {
    /// What is to be said of it.
    async fn one(&mut self, manifest: &Manifest) -> Result<String> {
        let definition = (manifest.group().to_owned(), manifest.kind.clone());
        let done = match self.attempt(manifest).await? {
            Some(done) => done,
            None if self.defined.contains(&definition) => {
                let (kind, version) = (&manifest.kind, &manifest.api_version);
                let what = || format!("until the server serves {kind} of {version}");
                patiently(what, self.once_served(manifest)).await?
            }
            None => return Err(unknown(manifest)),
        };
        if manifest.kind == "CustomResourceDefinition" {
            let spec = &manifest.object["spec"];
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            self.defined
                .insert((text(&spec["group"]), text(&spec["names"]["kind"])));
        }
        Ok(done)
    }

    async fn once_served(&mut self, manifest: &Manifest) -> Result<String> {
        let start = Instant::now();
        while start.elapsed() < SERVED_WITHIN {
            tokio::time::sleep(LOOK_AGAIN).await;
            self.kinds = Kinds::of(&self.place).await?;
            if let Some(done) = self.attempt(manifest).await? {
                return Ok(done);
            }
        }
        bail!(
            "{} of {} is still not served {} s after its definition: see the conditions of its CustomResourceDefinition",
            manifest.kind,
            manifest.api_version,
            SERVED_WITHIN.as_secs()
        )
    }

    /// Applies it; nothing if its kind is not served.
    async fn attempt(&self, manifest: &Manifest) -> Result<Option<String>> {
        let kind = self.kinds.of_object(&manifest.api_version, &manifest.kind);
        let Some(kind) = kind else {
            return Ok(None);
        };
        let namespace = manifest.namespace_in(self.asked.as_deref(), &self.place.namespace)?;
        let objects = kind.api(&self.place, kind.namespace(namespace));
        let before = self.place.ask(objects.get_opt(&manifest.name)).await?;
        let params = PatchParams {
            force: self.force,
            field_manager: Some(MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let patch = Patch::Apply(&manifest.object);
        let applying = async { Ok(objects.patch(&manifest.name, &params, &patch).await) };
        let after = match self.place.ask(applying).await? {
            Ok(after) => after,
            Err(error) if is_not_served(&error) => return Ok(None),
            Err(error) => return Err(self.refusal(error)),
        };
        let outcome = match before {
            None => "created",
            Some(before) if before.resource_version() != after.resource_version() => "configured",
            Some(_) => "unchanged",
        };
        Ok(Some(line(kind, &manifest.name, outcome)))
    }

    fn refusal(&self, error: kube::Error) -> Error {
        let is_conflict =
            |cause: &kube::core::response::StatusCause| cause.reason == "FieldManagerConflict";
        match &error {
            kube::Error::Api(status)
                if status
                    .details
                    .iter()
                    .any(|it| it.causes.iter().any(is_conflict)) =>
            {
                anyhow!(
                    "{}: another field manager has set these fields to something else; leave them out of the manifest, or take \
                     them over with --force-conflicts",
                    status.message
                )
            }
            _ => self.place.explain(error),
        }
    }
}

fn line(kind: &Kind, name: &str, outcome: &str) -> String {
    format!("{}/{name} {outcome}\n", kind.word())
}

/// An apply finds every object, so that only its kind or its namespace can be missing.
fn is_not_served(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            status.code == 404 && !status.message.starts_with("namespaces ")
        }
        _ => false,
    }
}

fn unknown(manifest: &Manifest) -> Error {
    anyhow!(
        "no matches for kind {:?} in version {:?}: apply the CustomResourceDefinition first",
        manifest.kind,
        manifest.api_version
    )
}
