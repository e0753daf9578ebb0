//! The command line.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::hold::{self, Lease};
use crate::lifecycle::{self, Outcome};
use crate::paths::{self, Instance};
use crate::plan::{Net, Phase, Spec, Status};
use crate::progress::Progress;
use crate::{binaries, node, supervise};

/// A real single-node Kubernetes for tests: etcd, API server, controllers, kubelet and containerd, isolated in
/// namespaces of their own. Needs root and, the first time, Go and a few minutes.
#[derive(Parser)]
#[command(name = "testbed", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start a cluster and leave it running until `down`
    Up(Up),
    /// Stop a cluster and remove everything of it
    Down(Named),
    /// Print the path of the cluster's kubeconfig
    Kubeconfig(Named),
    /// Print shell lines for `eval` that set KUBECONFIG and put the right kubectl on PATH
    Env(Named),
    /// Show all clusters of this cache, or one
    Status {
        #[arg(long)]
        name: Option<String>,
    },
    /// Build and download everything into the cache, and start nothing
    Fetch,
    /// Wait until the clusters of this checkout's tests have ended, and fail if one does not
    Idle,
    /// Import an OCI image layout or `docker save` archive (a tar file) into a running cluster's node
    Import {
        file: PathBuf,
        #[command(flatten)]
        named: Named,
    },
    #[command(name = "__hold", hide = true)]
    Hold(Hold),
    #[command(name = "__init", hide = true)]
    Init { dir: PathBuf },
    #[command(name = "__supervise", hide = true)]
    Supervise { dir: PathBuf },
}

#[derive(Args)]
struct Named {
    /// Which cluster [default: one per checkout, from the checkout's path]
    #[arg(long)]
    name: Option<String>,
}

impl Named {
    fn instance(&self) -> Result<Instance> {
        match &self.name {
            Some(name) => Instance::new(name),
            None => Instance::new(&paths::name_for(&paths::checkout()?)),
        }
    }
}

#[derive(Args)]
struct Up {
    #[command(flatten)]
    named: Named,
    /// No real node: a control plane only
    #[arg(long)]
    no_kubelet: bool,
    /// Add this many nodes whose pods only pretend to run
    #[arg(long, default_value_t = 0, value_name = "N")]
    fake_nodes: u32,
    /// How long a pod on a fake node takes to become ready, such as 3s or 250ms; the pod annotation
    /// testbed.sandbar.dev/start-delay overrides it
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "TIME")]
    pod_start_delay: Duration,
    /// How long a fake node takes to answer a change of a pod's image in place
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "TIME")]
    pod_restart_delay: Duration,
    /// Log every write to the API server in logs/audit.log of the cluster's directory
    #[arg(long)]
    audit: bool,
    /// Let etcd wait for the disk, as it does in production; for measurements
    #[arg(long)]
    fsync: bool,
    /// Leave out the controller-manager: no garbage collection, no service accounts, quicker start
    #[arg(long, hide = true)]
    no_controller_manager: bool,
    #[arg(long, hide = true)]
    quiet: bool,
    #[command(flatten)]
    lease: LeaseArgs,
}

#[derive(Args)]
struct LeaseArgs {
    #[arg(long, hide = true)]
    lease: Option<PathBuf>,
    #[arg(long, hide = true, default_value_t = 0)]
    grace_ms: u64,
    #[arg(long, hide = true)]
    single_use: bool,
}

impl LeaseArgs {
    fn lease(self) -> Option<Lease> {
        let Self {
            lease,
            grace_ms,
            single_use,
        } = self;
        lease.map(|file| Lease {
            file,
            grace: Duration::from_millis(grace_ms),
            single_use,
        })
    }
}

#[derive(Args)]
struct Hold {
    dir: PathBuf,
    #[command(flatten)]
    lease: LeaseArgs,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Up(arguments) => up(arguments)?,
        Verb::Down(named) => down(&named)?,
        Verb::Kubeconfig(named) => {
            let (instance, _) = running(&named)?;
            say(&instance.kubeconfig().display().to_string());
        }
        Verb::Env(named) => {
            let (instance, status) = running(&named)?;
            say(environment(&instance, &status).trim_end());
        }
        Verb::Status { name } => show_status(name.as_deref())?,
        Verb::Fetch => fetch()?,
        Verb::Idle => lifecycle::await_idle(&paths::name_for(&paths::checkout()?))?,
        Verb::Import { file, named } => {
            let (instance, _) = running(&named)?;
            node::import_image(&instance, &file)?;
        }
        Verb::Hold(Hold { dir, lease }) => hold::hold(&dir, lease.lease().as_ref())?,
        Verb::Init { dir } => return Ok(ExitCode::from(hold::init(&dir)?)),
        Verb::Supervise { dir } => supervise::supervise(&dir)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line; a reader who has seen enough is no error.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn up(arguments: Up) -> Result<()> {
    // first: without root even the cache may be somebody else's
    binaries::check_host()?;
    let instance = arguments.named.instance()?;
    let spec = Spec {
        kubelet: !arguments.no_kubelet,
        controller_manager: !arguments.no_controller_manager,
        fake_nodes: arguments.fake_nodes,
        pod_start_delay: arguments.pod_start_delay,
        pod_restart_delay: arguments.pod_restart_delay,
        audit: arguments.audit,
        fsync: arguments.fsync,
    };
    let mut progress = Progress::new(arguments.quiet);
    let lease = arguments.lease.lease();
    let outcome = lifecycle::up(&instance, &spec, lease.as_ref(), &mut progress)?;
    if arguments.quiet {
        return Ok(());
    }
    let status = Status::load(&instance.dir())?;
    match outcome {
        Outcome::Started => say(&format!("{} is up", instance.name)),
        Outcome::WasUp => say(&format!("{} was up already", instance.name)),
    }
    say(&format!(
        "\nkubeconfig: {}",
        instance.kubeconfig().display()
    ));
    say(&format!("kubectl:    {}", status.kubectl.display()));
    say(&format!(
        "\nto use it:\n{}",
        environment(&instance, &status)
    ));
    say(&format!(
        "to stop it:\n{} down{}",
        invocation(),
        name_option(&instance)?
    ));
    Ok(())
}

/// How this program was started, for commands that we suggest.
fn invocation() -> &'static str {
    if std::env::var_os("CARGO").is_some() {
        "cargo run -p testbed --"
    } else {
        "testbed"
    }
}

/// What has to be added to a command line to mean this instance.
fn name_option(instance: &Instance) -> Result<String> {
    let is_default = paths::name_for(&paths::checkout()?) == instance.name;
    Ok(if is_default {
        String::new()
    } else {
        format!(" --name {}", instance.name)
    })
}

fn environment(instance: &Instance, status: &Status) -> String {
    let dir = status.kubectl.parent().unwrap_or(&status.kubectl);
    format!(
        "export KUBECONFIG='{}'\nexport KUBECACHEDIR='{}'\nexport PATH='{}':\"$PATH\"\n",
        instance.kubeconfig().display(),
        instance.kubectl_cache().display(),
        dir.display()
    )
}

fn down(named: &Named) -> Result<()> {
    binaries::check_host()?;
    let instance = named.instance()?;
    if lifecycle::down(&instance)? {
        say(&format!("{} is down", instance.name));
    } else {
        say(&format!("{} was not up", instance.name));
    }
    Ok(())
}

/// The instance, which must be ready.
fn running(named: &Named) -> Result<(Instance, Status)> {
    let instance = named.instance()?;
    let start =
        || -> Result<String> { Ok(format!("{} up{}", invocation(), name_option(&instance)?)) };
    if !lifecycle::is_alive(&instance) {
        bail!("{} is not up: start it with `{}`", instance.name, start()?);
    }
    let status = Status::load(&instance.dir())?;
    if status.phase != Phase::Ready {
        bail!(
            "{} is still {}: wait with `{}`",
            instance.name,
            status.step,
            start()?
        );
    }
    Ok((instance, status))
}

fn show_status(name: Option<&str>) -> Result<()> {
    let instances = match name {
        Some(name) => vec![Instance::new(name)?],
        None => Instance::all()?,
    };
    if instances.is_empty() {
        say(&format!(
            "no cluster (start one with `{} up`)",
            invocation()
        ));
    }
    for instance in instances {
        say(&describe(&instance));
    }
    Ok(())
}

fn describe(instance: &Instance) -> String {
    let Ok(status) = Status::load(&instance.dir()) else {
        return format!("{}: not up", instance.name);
    };
    let state = match status.phase {
        Phase::Failed => format!(
            "failed: {}",
            status.reason.as_deref().unwrap_or("no reason given")
        ),
        _ if !lifecycle::is_alive(instance) => {
            "dead: its holder was killed (clean up with `testbed down`)".to_owned()
        }
        Phase::Starting => format!("starting: {}", status.step),
        Phase::Ready => "ready".to_owned(),
    };
    let mut lines = vec![format!("{}: {state}", instance.name)];
    let mut add = |key: &str, value: String| lines.push(format!("  {key:<11} {value}"));
    if let Some(net) = status.slot.map(Net) {
        add("server", net.server());
        add(
            "host",
            format!("{} (listen here to be reached from pods)", net.host()),
        );
        add("pods", net.pods());
        add("services", net.services());
    }
    add("kubeconfig", instance.kubeconfig().display().to_string());
    add("logs", instance.logs().display().to_string());
    add("programs", status.programs.join(", "));
    if status.spec.fake_nodes > 0 {
        add("fake nodes", status.spec.fake_nodes.to_string());
    }
    lines.join("\n")
}

fn fetch() -> Result<()> {
    let everything = Spec {
        kubelet: true,
        controller_manager: true,
        fake_nodes: 1,
        pod_start_delay: Duration::ZERO,
        pod_restart_delay: Duration::ZERO,
        audit: false,
        fsync: false,
    };
    let mut progress = Progress::new(false);
    binaries::ensure(&everything, &mut progress)?;
    binaries::registry(&mut progress)?;
    binaries::old_kubectl(&mut progress)?;
    progress.finish();
    say(&format!(
        "everything is in {}",
        paths::cache_dir()?.display()
    ));
    Ok(())
}

fn duration(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .with_context(|| format!("{text:?} is no time: write 3s or 250ms"))?;
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        other => bail!("unknown unit {other:?}: write ms, s or m"),
    };
    Duration::try_from_secs_f64(number * unit).with_context(|| format!("{text:?} is no time"))
}

#[cfg(test)]
mod tests {
    use super::{Cli, duration};
    use clap::CommandFactory as _;
    use std::time::Duration;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_written_with_a_unit() {
        assert_eq!(duration("3s").unwrap(), Duration::from_secs(3));
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        for wrong in ["3", "s", "-1s", "3 s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
