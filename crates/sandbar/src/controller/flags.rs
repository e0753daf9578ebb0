//! The command line of the controllers: those of the controllers that they replace, and a few flags of ours.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::ValueEnum;
use controller::{lease, sigs};

use super::go::{self, Bind};

/// Whose kinds are controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Family {
    /// kubernetes-sigs/agent-sandbox
    Sigs,
    /// OpenKruise Agents; its controllers are not part of this release
    Kruise,
    /// Both
    All,
}

/// What holds where no flag says otherwise, and the two controllers that are replaced differ.
#[derive(Debug, PartialEq, Eq)]
struct Defaults {
    leader_elect: bool,
    metrics: Bind,
}

impl Family {
    /// Who serves both begins like the one that is on its guard: two that act at a time are worse than one that waits.
    fn defaults(self) -> Defaults {
        match self {
            Self::Sigs | Self::All => Defaults {
                leader_elect: true,
                metrics: Bind::At(String::new(), 8080),
            },
            Self::Kruise => Defaults {
                leader_elect: false,
                metrics: Bind::Nowhere,
            },
        }
    }

    pub(super) fn has_sigs(self) -> bool {
        self != Self::Kruise
    }

    pub(super) fn has_kruise(self) -> bool {
        self != Self::Sigs
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Encoder {
    Console,
    Json,
}

/// Run the controllers on a Kubernetes cluster
///
/// Takes the command line of the controller of agents.x-k8s.io, or with `--family kruise` that of OpenKruise Agents, so that an
/// existing Deployment needs another image only: flags may have one dash or two and be repeated, switches a value
/// (`--leader-elect=false`), times are written `1m30s`. Where the two have different defaults, the family picks them, and a flag
/// that is given always counts.
///
/// Any number of replicas can run; the one that holds the Lease acts. It is the Lease of the controllers that serve these
/// kinds elsewhere, so that never two different controllers act at a time. SIGTERM gives the Lease back and ends the
/// process.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// Whose kinds to control, and whose defaults other flags have
    #[arg(long, value_enum, default_value_t = Family::Sigs)]
    pub(super) family: Family,
    /// How to reach the cluster [default: $KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Control SandboxTemplate, SandboxWarmPool and SandboxClaim too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", default_value = "false", hide_possible_values = true, value_parser = go::boolean)]
    pub(super) extensions: bool,
    /// The domain of the cluster's services
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub(super) cluster_domain: String,
    #[command(flatten, next_help_heading = "Leader election")]
    election: Election,
    #[command(flatten, next_help_heading = "Endpoints")]
    endpoints: Endpoints,
    #[command(flatten, next_help_heading = "Controllers")]
    controllers: Controllers,
    #[command(flatten, next_help_heading = "Logs and traces")]
    pub(super) logs: Logs,
    #[command(flatten, next_help_heading = "Accepted and without effect")]
    unused: Unused,
}

#[derive(clap::Args)]
struct Election {
    /// Act only while holding the Lease; without it there must be one replica [default: true, with --family kruise false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    leader_elect: Option<bool>,
    /// Where the Lease of agents.x-k8s.io is [default: the namespace of the pod, or agent-sandbox-system]
    #[arg(
        long,
        value_name = "NAMESPACE",
        hide_default_value = true,
        default_value = ""
    )]
    leader_election_namespace: String,
    /// Where the Lease of agents.kruise.io is
    #[arg(long, value_name = "NAMESPACE", default_value = lease::KRUISE.namespace)]
    leader_elect_namespace: String,
}

#[derive(clap::Args)]
struct Endpoints {
    /// Where /metrics is served; 0 for not at all [default: :8080, with --family kruise 0]
    #[arg(long, value_name = "ADDRESS", value_parser = go::bind)]
    metrics_bind_address: Option<Bind>,
    /// Where /healthz and /readyz are served; 0 for not at all
    #[arg(long, value_name = "ADDRESS", default_value = ":8081", value_parser = go::bind)]
    health_probe_bind_address: Bind,
}

#[derive(clap::Args)]
struct Controllers {
    /// Sandboxes worked on at a time
    #[arg(long, value_name = "COUNT", default_value = "100", value_parser = go::at_least_one)]
    sandbox_concurrent_workers: u32,
    /// Claims worked on at a time
    #[arg(long, value_name = "COUNT", default_value = "50", value_parser = go::at_least_one)]
    sandbox_claim_concurrent_workers: u32,
    /// Pools worked on at a time
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = go::at_least_one)]
    sandbox_warm_pool_concurrent_workers: u32,
    /// Templates worked on at a time
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = go::at_least_one)]
    sandbox_template_concurrent_workers: u32,
    /// Members that a pool makes or removes at a time
    #[arg(long, value_name = "COUNT", default_value = "300", value_parser = go::at_least_one)]
    sandbox_warm_pool_max_batch_size: u32,
    /// How long a pool that was drawn from waits before it makes up for it
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = go::duration)]
    sandbox_warm_pool_replenish_delay: Duration,
    /// Members that a pool makes a second; 0 is no limit
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = go::rate)]
    sandbox_warm_pool_max_refill_rate: f64,
    /// A member that is not ready after this time is replaced
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = go::duration)]
    sandbox_warm_pool_readiness_grace_period: Duration,
    /// How often members that no node has room for are looked at again
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = go::duration)]
    sandbox_warm_pool_unschedulable_recheck_interval: Duration,
    /// Let cluster autoscalers evict idle members
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", default_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    enable_warm_pool_eviction: bool,
    /// Write no events about claims
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", default_value = "false", hide_possible_values = true, value_parser = go::boolean)]
    disable_claim_events: bool,
    /// Write no annotations that say when a claim was seen and answered
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", default_value = "false", hide_possible_values = true, value_parser = go::boolean)]
    disable_claim_observability_annotations: bool,
}

#[derive(clap::Args)]
pub(super) struct Logs {
    /// How much is logged: debug, info, error, panic, or a number above 0
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = go::level)]
    pub(super) zap_log_level: tracing::Level,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = Encoder::Console)]
    pub(super) zap_encoder: Encoder,
    /// Export a span of each look at an object by OTLP, as OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and so on say
    ///
    /// Spans go to http://localhost:4317 over gRPC unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
    /// names another place. They continue the trace that the annotation opentelemetry.io/trace-context of an object names, and
    /// hand it on from a claim to its sandbox. A sandbox without the annotation gets one, which is a write more for each.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", default_value = "false", hide_possible_values = true, value_parser = go::boolean)]
    pub(super) enable_tracing: bool,
}

/// Declares flags that are checked, named in a warning, and otherwise left alone.
macro_rules! unused {
    ($($(#[$attribute:meta])* $flag:ident: $type:ty),* $(,)?) => {
        #[derive(clap::Args)]
        struct Unused {
            $($(#[$attribute])* $flag: Option<$type>,)*
        }

        impl Unused {
            fn given(&self) -> Vec<String> {
                let mut given = Vec::new();
                $(if self.$flag.is_some() {
                    given.push(format!("--{}", stringify!($flag).replace('_', "-")));
                })*
                given
            }
        }
    };
}

unused! {
    /// Requests are not limited here; the API server limits them
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = go::queries)]
    kube_api_qps: f64,
    /// As --kube-api-qps
    #[arg(long, value_name = "COUNT", value_parser = go::at_least_one)]
    kube_api_burst: u32,
    /// As --kube-api-qps
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = go::queries)]
    client_qps: f64,
    /// As --kube-api-qps
    #[arg(long, value_name = "COUNT", value_parser = go::at_least_one)]
    client_burst: u32,
    /// Connections are opened as they are needed
    #[arg(long, value_name = "COUNT", value_parser = go::at_least_one)]
    api_connections: u32,
    /// As --api-connections
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    separate_watch_connection: bool,
    /// Caches hold what is needed only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    cache_label_selectors: bool,
    /// Statuses are written when they change, and at once
    #[arg(long, value_name = "TIME", value_parser = go::duration)]
    sandbox_write_behind_window: Duration,
    /// There are no profiles of Go programs to be had
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    enable_pprof: bool,
    /// As --enable-pprof
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    enable_pprof_debug: bool,
    /// As --enable-pprof
    #[arg(long, value_name = "ADDRESS", value_parser = go::bind)]
    pprof_addr: Bind,
    /// As --enable-pprof
    #[arg(long, value_name = "RATE")]
    pprof_block_profile_rate: u32,
    /// As --enable-pprof
    #[arg(long, value_name = "FRACTION")]
    pprof_mutex_profile_fraction: u32,
    /// Metrics are served over plain HTTP and to everybody who reaches the address
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    metrics_secure: bool,
    /// As --metrics-secure
    #[arg(long, value_name = "DIR")]
    metrics_cert_path: String,
    /// As --metrics-secure
    #[arg(long, value_name = "NAME")]
    metrics_cert_name: String,
    /// As --metrics-secure
    #[arg(long, value_name = "NAME")]
    metrics_cert_key: String,
    /// As --metrics-secure
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    enable_http2: bool,
    /// Webhooks are not part of this command
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    enable_webhook: bool,
    /// As --enable-webhook
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    manage_webhook_certs: bool,
    /// As --enable-webhook
    #[arg(long, value_name = "PORT")]
    webhook_port: u16,
    /// As --enable-webhook
    #[arg(long, value_name = "DIR")]
    webhook_cert_dir: String,
    /// As --enable-webhook
    #[arg(long, value_name = "DIR")]
    webhook_cert_path: String,
    /// As --enable-webhook
    #[arg(long, value_name = "NAME")]
    webhook_cert_key: String,
    /// As --enable-webhook
    #[arg(long, value_name = "NAME")]
    webhook_cert_name: String,
    /// As --enable-webhook
    #[arg(long, value_name = "NAME")]
    webhook_key_name: String,
    /// As --enable-webhook
    #[arg(long, value_name = "NAME")]
    webhook_service_name: String,
    /// As --enable-webhook
    #[arg(long, value_name = "NAMESPACE")]
    webhook_namespace: String,
    /// Log lines have one shape for each encoder
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
        default_missing_value = "true", hide_possible_values = true, value_parser = go::boolean)]
    zap_devel: bool,
    /// As --zap-devel
    #[arg(long, value_name = "LEVEL")]
    zap_stacktrace_level: String,
    /// As --zap-devel
    #[arg(long, value_name = "ENCODING")]
    zap_time_encoding: String,
}

impl Args {
    /// The flags that were given for nothing.
    pub(super) fn unused(&self) -> Vec<String> {
        self.unused.given()
    }

    pub(super) fn options(&self, label_domains: Option<Vec<String>>) -> sigs::Options {
        let flags = &self.controllers;
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let mut options = sigs::Options {
            extensions: self.extensions,
            ..sigs::Options::default()
        };
        options
            .sandbox
            .cluster_domain
            .clone_from(&self.cluster_domain);
        options.sandbox.at_a_time = count(flags.sandbox_concurrent_workers);
        options.template.at_a_time = count(flags.sandbox_template_concurrent_workers);
        let pool = &mut options.pool;
        pool.at_a_time = count(flags.sandbox_warm_pool_concurrent_workers);
        pool.batch = flags.sandbox_warm_pool_max_batch_size;
        pool.ready_grace = flags.sandbox_warm_pool_readiness_grace_period;
        pool.recheck = flags.sandbox_warm_pool_unschedulable_recheck_interval;
        pool.replenish_delay = flags.sandbox_warm_pool_replenish_delay;
        pool.refill_rate = flags.sandbox_warm_pool_max_refill_rate;
        pool.evictable = flags.enable_warm_pool_eviction;
        let claim = &mut options.claim;
        claim.at_a_time = count(flags.sandbox_claim_concurrent_workers);
        claim.without_events = flags.disable_claim_events;
        claim.without_stamps = flags.disable_claim_observability_annotations;
        if let Some(domains) = label_domains {
            claim.label_domains = domains;
        }
        options
    }

    /// Whether only who holds the Leases acts.
    pub(super) fn elects(&self) -> bool {
        let default = self.family.defaults().leader_elect;
        self.election.leader_elect.unwrap_or(default)
    }

    pub(super) fn metrics_at(&self) -> Bind {
        let given = self.endpoints.metrics_bind_address.clone();
        given.unwrap_or_else(|| self.family.defaults().metrics)
    }

    pub(super) fn probes_at(&self) -> &Bind {
        &self.endpoints.health_probe_bind_address
    }

    /// The namespaces and names of the Leases to hold.
    pub(super) fn leases(&self, own_namespace: Option<String>) -> Vec<(String, String)> {
        let mut leases = Vec::new();
        if self.family.has_sigs() {
            let given = Some(self.election.leader_election_namespace.clone());
            let namespace = given.filter(|given| !given.is_empty()).or(own_namespace);
            let namespace = namespace.unwrap_or_else(|| lease::SIGS.namespace.to_owned());
            leases.push((namespace, lease::SIGS.name.to_owned()));
        }
        if self.family.has_kruise() {
            let namespace = self.election.leader_elect_namespace.clone();
            leases.push((namespace, lease::KRUISE.name.to_owned()));
        }
        leases
    }
}

/// Flags with two dashes where they have one, as programs written in Go take them.
pub(crate) fn with_two_dashes(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let has_one = |arg: &OsString| {
        let bytes = arg.as_encoded_bytes();
        // `-h` is short here too
        bytes.len() > 2 && bytes[0] == b'-' && bytes[1].is_ascii_alphabetic()
    };
    let long = |arg: OsString| match has_one(&arg) {
        true => [OsString::from("-"), arg].into_iter().collect(),
        false => arg,
    };
    args.into_iter().map(long).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::{Args, Bind, with_two_dashes};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(line: &str) -> Args {
        let words = ["sandbar"].into_iter().chain(line.split_whitespace());
        let words = with_two_dashes(words.map(OsString::from));
        Line::try_parse_from(words)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
            .args
    }

    #[test]
    fn the_family_picks_the_defaults_and_a_flag_that_is_given_counts() {
        let at = |port| Bind::At(String::new(), port);
        let (sigs, kruise) = ("a3317529.agent-sandbox.x-k8s.io", "f57b9a68.kruise.io");
        let of_sigs = ("agent-sandbox-system", sigs);
        let of_kruise = ("sandbox-system", kruise);
        for (line, elects, metrics, leases) in [
            ("", true, at(8080), vec![of_sigs]),
            ("--family sigs", true, at(8080), vec![of_sigs]),
            ("--family all", true, at(8080), vec![of_sigs, of_kruise]),
            ("--family kruise", false, Bind::Nowhere, vec![of_kruise]),
            (
                "--family kruise -leader-elect",
                true,
                Bind::Nowhere,
                vec![of_kruise],
            ),
            (
                "--metrics-bind-address=:8443 --family kruise --leader-elect-namespace=here",
                false,
                at(8443),
                vec![("here", kruise)],
            ),
            (
                "--leader-elect=false --metrics-bind-address=0 --leader-election-namespace=there",
                false,
                Bind::Nowhere,
                vec![("there", sigs)],
            ),
        ] {
            let args = parsed(line);
            assert_eq!(args.elects(), elects, "{line}");
            assert_eq!(args.metrics_at(), metrics, "{line}");
            assert_eq!(*args.probes_at(), at(8081), "{line}");
            let held = args.leases(None);
            let held = held.iter().map(|(namespace, name)| (&**namespace, &**name));
            assert_eq!(held.collect::<Vec<_>>(), leases, "{line}");
        }
    }

    #[test]
    fn the_command_lines_of_both_deployments_are_taken() {
        let kruise = "--family kruise --metrics-bind-address=:8443 --leader-elect \
                      --health-probe-bind-address=:8081 --webhook-cert-path=/certs";
        let args = parsed(kruise);
        assert!(args.elects());
        assert_eq!(args.unused(), ["--webhook-cert-path"]);
        let sigs = "--extensions --webhook-service-name=a --webhook-namespace=b";
        let args = parsed(sigs);
        assert!(args.elects() && args.extensions);
        assert_eq!(
            args.unused(),
            ["--webhook-service-name", "--webhook-namespace"]
        );
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let args = ["sandbar", "-extensions", "--family", "-h", "-1", "-x=y"];
        assert_eq!(
            with_two_dashes(args.map(OsString::from)),
            ["sandbar", "--extensions", "--family", "-h", "-1", "--x=y"]
        );
    }
}
