//! From the creation of a claim until it is ready, with a stocked pool.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Result;
use bench::client::{Access, Ask};
use bench::times::{Times, millis};
use bench::watch::Change;
use serde_json::{Value, json};

use crate::instance::Program;
use crate::progress::steps;
use crate::watched::{Watched, is_ready, name_of};
use bench::table::{Bound, Limit, Table, middle_and_last};

const CLAIMS: &str = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims";
const SANDBOXES: &str = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
const POOL: usize = 30;
const COUNT: usize = 50;
const WANTED: f64 = 3.0;

pub(crate) async fn measure(table: &Table, program: &Program) -> Result<()> {
    let bar = steps("claims", COUNT);
    let instance = program.up(&["--pool", &POOL.to_string()])?;
    let access = instance.access().await?;
    let connection = access.connect().await?;
    let mut claims = Watched::begin(&access, CLAIMS).await?;
    let mut stock = Stock::begin(&access).await?;
    let mut times = Vec::new();
    for number in 0..COUNT {
        stock.until_full().await?;
        let name = format!("claim-{number}");
        let ask = Ask::post(CLAIMS, claim(&name));
        let begun = Instant::now();
        connection.whole(ask).await?;
        let is_answered = |change: &Change<_>| matches!(change, Change::Is(claim) if name_of(claim) == name && is_ready(claim));
        let at = claims
            .until(&format!("{name} is ready"), is_answered)
            .await?;
        times.push(at - begun);
        stock.until_one_is_taken().await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let times = Times::new(times);
    table.row(
        "claim created to ready, stocked pool, one at a time, 50 times, over TLS from outside; p50 / p99",
        &middle_and_last(&times),
        Some(Bound {
            of: "p50",
            value: millis(times.median()),
            limit: Limit::AtMost(WANTED),
            unit: "ms",
        }),
    );
    Ok(())
}

fn claim(name: &str) -> String {
    json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": name},
        "spec": {"warmPoolRef": {"name": "base"}},
    })
    .to_string()
}

/// The members of the pool that a claim could have.
struct Stock {
    sandboxes: Watched,
    members: BTreeSet<String>,
}

impl Stock {
    async fn begin(access: &Access) -> Result<Self> {
        Ok(Self {
            sandboxes: Watched::begin(access, SANDBOXES).await?,
            members: BTreeSet::new(),
        })
    }

    async fn until_full(&mut self) -> Result<()> {
        self.until("the pool is stocked", |count| count >= POOL)
            .await
    }

    async fn until_one_is_taken(&mut self) -> Result<()> {
        self.until("a member of the pool is taken", |count| count < POOL)
            .await
    }

    async fn until(&mut self, what: &str, holds: impl Fn(usize) -> bool) -> Result<()> {
        let Self { sandboxes, members } = self;
        if holds(members.len()) {
            return Ok(());
        }
        let note = |change: &Change<Value>| {
            match change {
                Change::Is(sandbox) if is_in_stock(sandbox) => {
                    members.insert(name_of(sandbox).to_owned());
                }
                Change::Is(sandbox) | Change::Gone(sandbox) => {
                    members.remove(name_of(sandbox));
                }
            }
            holds(members.len())
        };
        sandboxes.until(what, note).await.map(drop)
    }
}

fn is_in_stock(sandbox: &Value) -> bool {
    let owners = sandbox["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    is_ready(sandbox) && owners.any(|owner| owner["kind"] == "SandboxWarmPool")
}
