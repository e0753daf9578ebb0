//! Probes: whether a container has started, lives, and is ready.
//!
//! What follows from answers is decided in `course`; `ask` asks, by way of `http`, `grpc`, a connection or a command.

mod ask;
mod course;
mod grpc;
pub(super) mod http;
mod tls;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::dial::Dialer;
use course::{Answer, Course, Heard, Kind};

/// Whom a probe or hook asks.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) pod: Arc<container::Pod>,
    /// As a kubelet names the pod in messages: `name_namespace(uid)`.
    pub(crate) label: String,
    pub(crate) container: String,
    /// Absent where the pod has only its loopback link, which `dialer` reaches.
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) dialer: Dialer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Started,
    /// Told when it changes; nothing is ready at first.
    Ready(bool),
    /// One failure. The last one that is borne kills.
    Unhealthy {
        /// `Startup`, `Liveness` or `Readiness`.
        probe: &'static str,
        /// As an event of the reason `Unhealthy` says it.
        message: String,
        kill: bool,
        /// The seconds that the probe gives whom it kills, if it says so itself.
        grace: Option<i64>,
    },
}

/// Probes that are being run. They end when this is dropped, and nothing is said any more.
pub(crate) struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs the probes of a container that was started at `started_at`.
pub(crate) fn watch(
    spec: &Container,
    target: Target,
    started_at: Timestamp,
    say: impl Fn(Finding) + Send + 'static,
) -> Watching {
    let spec = Arc::new(spec.clone());
    let course = Course::of(&spec);
    let age = Timestamp::now().duration_since(started_at);
    let age = Duration::try_from(age).unwrap_or_default();
    let began = Instant::now().checked_sub(age);
    let rhythms = {
        let spec = Arc::clone(&spec);
        move |kind: Kind| kind.probe(&spec).map(Rhythm::of).unwrap_or_default()
    };
    let ask = move |kind: Kind| {
        let (spec, target) = (Arc::clone(&spec), target.clone());
        async move {
            match kind.probe(&spec) {
                Some(probe) => ask::ask(probe, &spec, &target).await,
                None => Answer::Unknown("there is no such probe".to_owned()),
            }
        }
    };
    let began = began.unwrap_or_else(Instant::now);
    Watching(tokio::spawn(run(course, began, rhythms, ask, say)))
}

/// When a probe is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rhythm {
    delay: Duration,
    period: Duration,
}

impl Rhythm {
    fn of(probe: &Probe) -> Self {
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
        }
    }
}

/// What is absent, or 0 where 0 makes no sense, is the default.
fn seconds(given: Option<i32>, default: u64) -> Duration {
    let given = given.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(given.filter(|seconds| *seconds > 0).unwrap_or(default))
}

async fn run<A: Future<Output = Answer>>(
    mut course: Course,
    began: Instant,
    rhythm: impl Fn(Kind) -> Rhythm,
    ask: impl Fn(Kind) -> A,
    say: impl Fn(Finding),
) {
    let mut asked = FuturesUnordered::new();
    let question = |kind: Kind, at: Instant| {
        let answer = ask(kind);
        async move {
            sleep_until(at).await;
            let asked_at = Instant::now();
            (kind, asked_at, answer.await)
        }
    };
    let Heard { findings, ask } = course.begin();
    findings.into_iter().for_each(&say);
    for kind in ask {
        asked.push(question(kind, began + rhythm(kind).delay));
    }
    while let Some((kind, asked_at, answer)) = asked.next().await {
        let Heard { findings, ask } = course.hear(kind, answer);
        findings.into_iter().for_each(&say);
        for next in ask {
            let at = match next == kind {
                true => asked_at + rhythm(kind).period,
                false => began + rhythm(next).delay,
            };
            asked.push(question(next, at));
        }
    }
}

/// How a port of the pod is reached.
#[derive(Clone)]
pub(super) enum Way {
    Address(Ipv4Addr),
    Loopback(Arc<container::Pod>, Dialer),
}

impl Target {
    pub(super) fn way(&self) -> Way {
        match self.address {
            Some(address) => Way::Address(address),
            None => Way::Loopback(Arc::clone(&self.pod), Arc::clone(&self.dialer)),
        }
    }
}

impl Way {
    /// The pod's host as it stands in URLs and messages.
    fn host(&self) -> String {
        let address = match self {
            Way::Address(address) => *address,
            Way::Loopback(..) => Ipv4Addr::LOCALHOST,
        };
        address.to_string()
    }

    /// Connects to a host: the pod, unless another one is named, which is seen from here as a kubelet sees it from its node.
    async fn connect(
        &self,
        host: &str,
        port: u16,
        patience: Duration,
    ) -> std::io::Result<TcpStream> {
        match self {
            Way::Loopback(pod, dialer) if host == self.host() => {
                dialer.dial(pod, port, patience).await
            }
            Way::Address(_) | Way::Loopback(..) => TcpStream::connect((host, port)).await,
        }
    }
}

/// `host:port`, as it stands in URLs.
fn authority(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        Ok(IpAddr::V4(_)) | Err(_) => format!("{host}:{port}"),
    }
}

/// The number of a port that may be given by its name among the container's.
fn port_number(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            match named {
                Some(port) => port.container_port,
                None => name
                    .parse()
                    .map_err(|_| format!("strconv.Atoi: parsing {name:?}: invalid syntax"))?,
            }
        }
    };
    match u16::try_from(number) {
        Ok(number @ 1..) => Ok(number),
        Ok(0) | Err(_) => Err(format!("invalid port number: {number}")),
    }
}

#[cfg(test)]
mod tests;
