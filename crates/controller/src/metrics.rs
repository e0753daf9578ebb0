//! What the controllers tell of themselves, under the names that users of other controllers of these APIs know, and under
//! `sandbar_` what those do not tell.

mod claims;
mod client;
mod process;
pub(crate) mod text;
mod work;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::jiff::Timestamp;

use claims::Claims;
pub use claims::FirstReady;
use client::Requests;
pub use text::CONTENT_TYPE;
use text::{Gauge, Text};
use work::Controllers;
pub(crate) use work::Work;

/// Clones are one set of metrics.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    started: Timestamp,
    claims: Claims,
    controllers: Controllers,
    requests: Requests,
    leading: Gauge,
    collectors: Mutex<BTreeMap<&'static str, Collector>>,
}

type Collector = Arc<dyn Fn(&mut Text) + Send + Sync>;

impl Default for Metrics {
    fn default() -> Self {
        Self(Arc::new(Inner {
            started: Timestamp::now(),
            claims: Claims::default(),
            controllers: Controllers::default(),
            requests: Requests::default(),
            leading: Gauge::default(),
            collectors: Mutex::default(),
        }))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Metrics({})", self.0.started)
    }
}

impl Metrics {
    /// All of it, as it is now.
    pub fn text(&self) -> String {
        let mut text = Text::default();
        let Inner {
            started,
            claims,
            controllers,
            requests,
            leading,
            collectors: _,
        } = &*self.0;
        claims.write(&mut text);
        let collectors: Vec<_> = self.collectors().values().cloned().collect();
        for collector in collectors {
            collector(&mut text);
        }
        controllers.write(&mut text);
        requests.write(&mut text);
        build_info(&mut text);
        let help = "Whether this process leads.";
        text.single("sandbar_leading", help, "gauge", leading.get());
        process::write(&mut text, *started);
        text.into_string()
    }

    pub fn set_leading(&self, is_leading: bool) {
        self.0.leading.set(usize::from(is_leading));
    }

    /// Tells, whenever it is asked, what `collector` finds then, until the answer is dropped.
    pub(crate) fn collect(
        &self,
        name: &'static str,
        collector: impl Fn(&mut Text) + Send + Sync + 'static,
    ) -> Collecting {
        let collector: Collector = Arc::new(collector);
        self.collectors().insert(name, Arc::clone(&collector));
        Collecting {
            metrics: self.clone(),
            name,
            collector,
        }
    }

    fn collectors(&self) -> MutexGuard<'_, BTreeMap<&'static str, Collector>> {
        let collectors = self.0.collectors.lock();
        collectors.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something is told while it is kept.
pub(crate) struct Collecting {
    metrics: Metrics,
    name: &'static str,
    collector: Collector,
}

impl Drop for Collecting {
    fn drop(&mut self) {
        let mut collectors = self.metrics.collectors();
        // a later one has its place
        let is_this = |found: &Collector| Arc::ptr_eq(found, &self.collector);
        if collectors.get(self.name).is_some_and(is_this) {
            collectors.remove(self.name);
        }
    }
}

fn build_info(to: &mut Text) {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let platform = match std::env::consts::ARCH {
        "x86_64" => "linux/amd64",
        "aarch64" => "linux/arm64",
        other => other,
    };
    let labels = [
        ("git_version", version),
        (
            "git_commit",
            option_env!("SANDBAR_GIT_COMMIT").unwrap_or("unknown"),
        ),
        (
            "build_date",
            option_env!("SANDBAR_BUILD_DATE").unwrap_or("unknown"),
        ),
        ("go_version", "none"),
        ("compiler", "rustc"),
        ("platform", platform),
    ];
    let name = "agent_sandbox_build_info";
    to.head(name, "What this is, as labels.", "gauge");
    to.sample(name, &labels, None, 1);
}

#[cfg(test)]
mod tests;
