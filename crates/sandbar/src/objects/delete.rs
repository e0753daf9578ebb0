//! `sandbar delete`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ArgAction;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};

use super::{
    code, complain,
    discover::{Kind, Kinds},
    manifests, patiently,
    place::{Place, Where},
    run, say,
    targets::{self, Ask, Target},
};

/// Delete objects
///
/// Waits until they are gone unless --wait=false or --force is given.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sandbar delete sandbox box
  sandbar delete pod/a service/b
  sandbar delete pods -l app=web --now
  sandbar delete pod web --force                 at once, whether or not its containers have ended
  sandbar delete -f box.yaml --ignore-not-found")]
pub(crate) struct Args {
    /// KIND[,KIND…] NAME… or KIND/NAME…; with -l or --all only kinds
    #[arg(value_name = "KIND", required_unless_present = "filename")]
    what: Vec<String>,
    /// Delete what a file, a directory of them or - (standard input) names; can be repeated
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["what", "selector", "all"])]
    filename: Vec<PathBuf>,
    /// Delete all objects with these labels
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "all")]
    selector: Option<String>,
    /// Delete all objects of the kinds, in the namespace
    #[arg(long)]
    all: bool,
    /// Whether to wait until they are gone [default: true, with --force false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set)]
    wait: Option<bool>,
    /// How many seconds an object may take for its end; 0 counts as 1 without --force
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
    /// The same as --grace-period=1
    #[arg(long, conflicts_with_all = ["grace_period", "force"])]
    now: bool,
    /// Remove the objects at once, with a grace period of 0, and do not wait for what runs to end
    #[arg(long)]
    force: bool,
    /// It is no error if an object is not there
    #[arg(long)]
    ignore_not_found: bool,
    #[command(flatten)]
    place: Where,
}

/// An object that is to go.
struct Doomed<'a> {
    kind: &'a Kind,
    name: String,
    namespace: Option<String>,
}

/// As `pod "x"`, and where it was.
impl Doomed<'_> {
    fn title(&self) -> String {
        format!("{} {:?}", self.kind.word(), self.name)
    }

    fn farewell(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} deleted from {namespace} namespace\n", self.title()),
            None => format!("{} deleted\n", self.title()),
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        run(self.delete())
    }

    async fn delete(self) -> Result<ExitCode> {
        let targets = match self.filename.is_empty() {
            true => self.targets()?,
            false => Vec::new(),
        };
        let grace = self.grace()?;
        if self.force {
            eprintln!(
                "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. \
                 The resource may continue to run on the cluster indefinitely."
            );
        }
        let place = self.place.open().await?;
        let kinds = Kinds::of(&place).await?;
        let (mut failures, mut doomed) = (0, Vec::new());
        let mut found: Vec<Result<Doomed<'_>>> = self.written(&place, &kinds);
        for ask in targets::resolve(targets, &kinds)? {
            found.extend(self.named(&place, ask).await?.into_iter().map(Ok));
        }
        let is_nothing = found.is_empty();
        for one in found {
            let ended = match one {
                Ok(one) => self.end(&place, &one, grace).await.map(|held| (one, held)),
                Err(error) => Err(error),
            };
            match ended {
                Ok((one, Some(held))) => doomed.push((one, held)),
                Ok((_, None)) => {}
                Err(error) => {
                    complain(&error);
                    failures += 1;
                }
            }
        }
        if is_nothing {
            say("No resources found\n")?;
        }
        for (one, held) in &doomed {
            gone(&place, one, held).await?;
        }
        Ok(code(failures))
    }

    /// How many seconds an object has. None at all takes a word of its own, because nobody then knows when its processes end.
    fn grace(&self) -> Result<Option<u32>> {
        match (self.force, self.now, self.grace_period) {
            (true, _, None | Some(0)) => Ok(Some(0)),
            (true, _, Some(_)) => {
                bail!("--force and --grace-period greater than 0 cannot be specified together")
            }
            (false, true, _) => Ok(Some(1)),
            (false, false, asked) => Ok(asked.map(|seconds| seconds.max(1))),
        }
    }

    fn targets(&self) -> Result<Vec<Target>> {
        let targets = targets::parse(&self.what)?;
        let is_named = targets.iter().any(Target::is_named);
        match self.all || self.selector.is_some() {
            true => ensure!(!is_named, "objects are named or selected, not both"),
            false => ensure!(
                is_named,
                "name the objects to delete, select them with -l, or say --all"
            ),
        }
        Ok(targets)
    }

    /// What the files name.
    fn written<'a>(&self, place: &Place, kinds: &'a Kinds) -> Vec<Result<Doomed<'a>>> {
        let doomed = |manifest: Result<manifests::Manifest>| {
            let manifest = manifest?;
            let kind = kinds.of_object(&manifest.api_version, &manifest.kind);
            let kind = kind.with_context(|| {
                format!(
                    "{manifest}: the server has no such kind in {}",
                    manifest.api_version
                )
            })?;
            let asked = self.place.namespace.as_deref();
            let namespace = manifest.namespace_in(asked, &place.namespace);
            let namespace = namespace.with_context(|| manifest.to_string())?;
            Ok(Doomed {
                kind,
                namespace: kind.namespace(namespace).map(str::to_owned),
                name: manifest.name.clone(),
            })
        };
        manifests::read(&self.filename)
            .into_iter()
            .map(doomed)
            .collect()
    }

    /// The object of a name, or those that are selected.
    async fn named<'a>(&self, place: &Place, ask: Ask<'a>) -> Result<Vec<Doomed<'a>>> {
        let namespace = ask.kind.namespace(&place.namespace);
        let doomed = |name: String| Doomed {
            kind: ask.kind,
            name,
            namespace: namespace.map(str::to_owned),
        };
        if let Some(name) = ask.name {
            return Ok(vec![doomed(name)]);
        }
        let params = ListParams {
            label_selector: self.selector.clone(),
            ..ListParams::default()
        };
        let objects = ask.kind.api(place, namespace);
        let found = place.ask(objects.list(&params)).await?;
        Ok(found
            .items
            .iter()
            .map(|object| doomed(object.name_any()))
            .collect())
    }

    /// Deletes it; the object if it is still there and is to be waited for.
    async fn end(
        &self,
        place: &Place,
        one: &Doomed<'_>,
        grace: Option<u32>,
    ) -> Result<Option<DynamicObject>> {
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::background()
        };
        let objects = one.kind.api(place, one.namespace.as_deref());
        let deleting = async { Ok(objects.delete(&one.name, &params).await) };
        let left = match place.ask(deleting).await? {
            Ok(left) => left,
            Err(kube::Error::Api(status)) if status.code == 404 && self.ignore_not_found => {
                return Ok(None);
            }
            Err(error) => return Err(place.explain(error)),
        };
        say(&one.farewell())?;
        let waits = self.wait.unwrap_or(!self.force);
        Ok(left.left().filter(|_| waits))
    }
}

/// Waits until it is gone; another of its name may be there by then.
async fn gone(place: &Place, one: &Doomed<'_>, held: &DynamicObject) -> Result<()> {
    let what = || match held.finalizers() {
        [] => format!("until {} is gone", one.title()),
        names => format!(
            "until {} is gone, which waits for {}",
            one.title(),
            names.join(", ")
        ),
    };
    let uid = held.uid().unwrap_or_default();
    let objects = one.kind.api(place, one.namespace.as_deref());
    let waiting = await_condition(objects, &one.name, is_deleted(&uid));
    let waited = patiently(what, waiting).await;
    waited.with_context(|| format!("cannot see whether {} is gone", one.title()))?;
    Ok(())
}
