//! Every state that was ever stored in a namespace, and what must hold in each of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use api::sigs::v1beta1::{Sandbox, SandboxClaim, SandboxWarmPool};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(30);
const FENCE: &str = "sandbar.dev/update";
const REVISION: &str = "agents.x-k8s.io/sandbox-template-hash";

/// What became of an object.
#[derive(Clone)]
struct Entry {
    version: u64,
    kind: String,
    is_gone: bool,
    object: Value,
}

type Entries = Arc<Mutex<Vec<Entry>>>;

pub(crate) struct Chronicle {
    entries: Entries,
    books: Vec<(Api<DynamicObject>, String)>,
    writers: Vec<JoinHandle<()>>,
}

impl Drop for Chronicle {
    fn drop(&mut self) {
        self.writers.iter().for_each(JoinHandle::abort);
    }
}

impl Chronicle {
    /// Begins while the namespace is empty.
    pub(crate) async fn begin(client: &Client, namespace: &str) -> Self {
        let kinds = [
            ApiResource::erase::<Sandbox>(&()),
            ApiResource::erase::<SandboxClaim>(&()),
            ApiResource::erase::<SandboxWarmPool>(&()),
            ApiResource::erase::<Pod>(&()),
        ];
        let entries = Entries::default();
        let (mut books, mut writers) = (Vec::new(), Vec::new());
        for kind in kinds {
            let api = Api::namespaced_with(client.clone(), namespace, &kind);
            let (version, _) = stored(&api).await;
            let writing = write(
                api.clone(),
                kind.kind.clone(),
                version,
                Arc::clone(&entries),
            );
            writers.push(tokio::spawn(writing));
            books.push((api, kind.kind));
        }
        Self {
            entries,
            books,
            writers,
        }
    }

    /// All that happened, in order. Waits until what is stored now is among it.
    async fn whole(&self) -> Vec<Entry> {
        let start = Instant::now();
        loop {
            let mut now = BTreeMap::new();
            for (api, kind) in &self.books {
                now.insert(kind.clone(), stored(api).await.1);
            }
            let mut entries = self.entries.lock().unwrap().clone();
            entries.sort_by_key(|entry| entry.version);
            if self.told(&entries) == now {
                return entries;
            }
            let mut writers = self.writers.iter();
            assert!(!writers.any(JoinHandle::is_finished), "nobody writes on");
            assert!(start.elapsed() < PATIENCE, "the chronicle is never whole");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The version of each object that is there in the end.
    fn told(&self, entries: &[Entry]) -> BTreeMap<String, BTreeMap<String, String>> {
        let kinds = self.books.iter().map(|(_, kind)| kind.clone());
        let mut told: BTreeMap<_, BTreeMap<_, _>> =
            kinds.map(|kind| (kind, BTreeMap::new())).collect();
        for entry in entries {
            let objects = told.entry(entry.kind.clone()).or_default();
            let name = text(&entry.object, "/metadata/name").to_owned();
            match entry.is_gone {
                true => objects.remove(&name),
                false => objects.insert(name, entry.version.to_string()),
            };
        }
        told
    }

    /// What was wrong at any time, in words.
    pub(crate) async fn violations(&self, allowance: &Allowance) -> Vec<String> {
        let mut world = World::default();
        let mut wrong = Vec::new();
        for entry in self.whole().await {
            let what = world.take_in(&entry, allowance);
            wrong.extend(what.map(|what| format!("at {}: {what}", entry.version)));
        }
        wrong
    }
}

/// The version of the collection, and of each object in it.
async fn stored(api: &Api<DynamicObject>) -> (String, BTreeMap<String, String>) {
    let list = api.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap_or_default();
    let objects = list.items.into_iter().map(|object| {
        let metadata = object.metadata;
        let version = metadata.resource_version.unwrap_or_default();
        (metadata.name.unwrap_or_default(), version)
    });
    (version, objects.collect())
}

async fn write(api: Api<DynamicObject>, kind: String, mut version: String, entries: Entries) {
    loop {
        let watch = api.watch(&WatchParams::default(), &version).await.unwrap();
        let mut watch = watch.boxed();
        while let Some(Ok(event)) = watch.next().await {
            let (object, is_gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => {
                    panic!("the chronicle of {kind} has a gap: {status:?}")
                }
            };
            version = object.metadata.resource_version.clone().unwrap();
            let entry = Entry {
                version: version.parse().unwrap(),
                kind: kind.clone(),
                is_gone,
                object: json!(object),
            };
            entries.lock().unwrap().push(entry);
        }
    }
}

/// What a scenario does itself, or has happen.
#[derive(Default)]
pub(crate) struct Allowance {
    /// The sandboxes that it deletes.
    pub(crate) deleted: BTreeSet<String>,
    /// Several controllers know nothing of each other, and what each may take out of a pool adds up.
    pub(crate) leaders: usize,
}

/// What is stored at a time, by uid.
#[derive(Default)]
struct World {
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// The sandbox that the status of each claim named last.
    named: BTreeMap<String, String>,
    /// The sandboxes that have ever been a claim's.
    bound: BTreeSet<String>,
    pools: BTreeMap<String, Stock>,
}

/// What has happened to a pool that is rolled.
#[derive(Default)]
struct Stock {
    /// Its stock has been full once at this size.
    filled: Option<u64>,
    /// Members that are out of stock by no doing of the pool since it was at rest.
    taken: usize,
}

impl World {
    fn take_in(&mut self, entry: &Entry, allowance: &Allowance) -> Option<String> {
        let uid = text(&entry.object, "/metadata/uid").to_owned();
        let objects = self.objects.entry(entry.kind.clone()).or_default();
        let before = objects.get(&uid).cloned();
        match entry.is_gone {
            true => objects.remove(&uid),
            false => objects.insert(uid.clone(), entry.object.clone()),
        };
        match entry.kind.as_str() {
            "Sandbox" => {
                let wrong = self.sandbox(entry, before.as_ref(), allowance);
                wrong.or_else(|| self.stock(allowance))
            }
            "SandboxWarmPool" => self.stock(allowance),
            "SandboxClaim" => self.claim(&uid, entry),
            _ => self.pod(&entry.object),
        }
    }

    fn all(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let objects = self.objects.get(kind);
        objects.into_iter().flat_map(BTreeMap::values)
    }

    fn sandbox(
        &mut self,
        entry: &Entry,
        before: Option<&Value>,
        allowance: &Allowance,
    ) -> Option<String> {
        let object = &entry.object;
        let (uid, name) = (
            text(object, "/metadata/uid"),
            text(object, "/metadata/name"),
        );
        let (kind, owner) = owner(object);
        let was_of_pool = before.map(self::owner).filter(|(kind, _)| *kind == POOL);
        let is_deleted = allowance.deleted.contains(name);
        if let Some((_, pool)) = was_of_pool
            && (kind != POOL || (is_deleted && is_going(entry)))
        {
            self.pools.entry(pool.to_owned()).or_default().taken += 1;
        }
        if kind == CLAIM {
            self.bound.insert(uid.to_owned());
        }
        if kind == POOL && self.bound.contains(uid) {
            return Some(format!("{name} was a claim's and is a pool's again"));
        }
        let goes_now = is_going(entry) && before.is_none_or(|before| !is_deleting(before));
        let is_own_end = !object["spec"]["shutdownTime"].is_null();
        if kind != CLAIM || !goes_now || is_deleted || is_own_end {
            return None;
        }
        let claim = self.objects.get(CLAIM)?.get(owner)?;
        let other = text(claim, "/status/sandbox/name");
        let is_surplus = !other.is_empty() && other != name;
        let is_over = is_deleting(claim) || reason(claim) == "ClaimExpired";
        (!is_surplus && !is_over).then(|| format!("{name} is deleted, and its claim is not over"))
    }

    fn claim(&mut self, uid: &str, entry: &Entry) -> Option<String> {
        let now = text(&entry.object, "/status/sandbox/name");
        if now.is_empty() {
            return None;
        }
        let before = self.named.insert(uid.to_owned(), now.to_owned());
        let before = before.filter(|before| before != now)?;
        let mut sandboxes = self.all("Sandbox");
        let is_there = sandboxes
            .any(|sandbox| text(sandbox, "/metadata/name") == before && !is_deleting(sandbox));
        is_there.then(|| format!("a claim names {now}, and has named {before} that is there"))
    }

    /// A scenario may make pods of its own.
    fn pod(&self, object: &Value) -> Option<String> {
        let (kind, sandbox) = owner(object);
        let is_its = |pod: &&Value| {
            let maker = text(pod, "/metadata/managedFields/0/manager");
            owner(pod) == (kind, sandbox) && maker == "sandbox-controller"
        };
        let count = self.all("Pod").filter(is_its).count();
        (kind == "Sandbox" && count > 1).then(|| format!("a sandbox has {count} pods"))
    }

    /// The sandboxes whose pods are Ready.
    fn ready_pods(&self) -> BTreeSet<&str> {
        let ready = self
            .all("Pod")
            .filter(|pod| is_ready(pod) && !is_deleting(pod));
        ready.map(|pod| owner(pod).1).collect()
    }

    /// What a rollout itself has out of stock is never more than it may have.
    fn stock(&mut self, allowance: &Allowance) -> Option<String> {
        let pools: Vec<Value> = self.all(POOL).cloned().collect();
        pools.iter().find_map(|pool| self.stock_of(pool, allowance))
    }

    fn stock_of(&mut self, pool: &Value, allowance: &Allowance) -> Option<String> {
        let uid = text(pool, "/metadata/uid");
        let rolling = &pool["spec"]["updateStrategy"]["rollingUpdate"];
        let most = rolling["maxUnavailable"].as_u64()?;
        let replicas = pool["spec"]["replicas"].as_u64()?;
        let members = self.all("Sandbox");
        let members = members.filter(|one| owner(one) == (POOL, uid) && !is_deleting(one));
        let ready_pods = self.ready_pods();
        let (claimable, others): (Vec<&Value>, Vec<&Value>) = members.partition(|one| {
            let is_fenced = one["metadata"]["annotations"].get(FENCE).is_some();
            // one of several controllers that has not heard of the pod yet takes back what another has said of it
            let is_denied =
                allowance.leaders > 1 && ready_pods.contains(text(one, "/metadata/uid"));
            (is_ready(one) || is_denied) && !is_fenced
        });
        let revisions = claimable
            .iter()
            .map(|one| &one["metadata"]["labels"][REVISION]);
        let revisions: BTreeSet<String> = revisions.map(ToString::to_string).collect();
        let is_whole = claimable.len() as u64 == replicas && others.is_empty();
        // old members alone are no rest while they are to be replaced: a claim may have taken the surge
        let target = text(pool, "/status/updateRevision");
        let is_target = |one: &&Value| {
            let revision = one["metadata"]["labels"][REVISION].as_str();
            revision.is_some_and(|revision| target.ends_with(revision))
        };
        let is_done = rolling["paused"] == true || claimable.iter().all(is_target);
        let is_at_rest = is_whole && revisions.len() == 1 && is_done;
        let claimable = claimable.len();
        let stock = self.pools.entry(uid.to_owned()).or_default();
        if claimable as u64 >= replicas {
            stock.filled = Some(replicas);
        }
        if is_at_rest {
            stock.taken = 0;
        }
        let floor = stock
            .filled?
            .min(replicas)
            .saturating_sub(most * allowance.leaders as u64);
        let is_short = ((claimable + stock.taken) as u64) < floor;
        is_short.then(|| {
            let taken = stock.taken;
            format!("{claimable} of {replicas} are claimable, {most} may be out, {taken} are taken")
        })
    }
}

const POOL: &str = "SandboxWarmPool";
const CLAIM: &str = "SandboxClaim";

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// The kind and the uid of who controls it.
fn owner(object: &Value) -> (&str, &str) {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let controller = owners.into_iter().flatten();
    let mut controller = controller.filter(|owner| owner["controller"] == true);
    controller.next().map_or(("", ""), |owner| {
        (text(owner, "/kind"), text(owner, "/uid"))
    })
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn is_going(entry: &Entry) -> bool {
    entry.is_gone || is_deleting(&entry.object)
}

fn ready(object: &Value) -> Option<&Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "Ready")
}

fn is_ready(object: &Value) -> bool {
    ready(object).is_some_and(|ready| ready["status"] == "True")
}

fn reason(object: &Value) -> &str {
    ready(object).map_or("", |ready| text(ready, "/reason"))
}

#[cfg(test)]
mod tests {
    use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
    use local::fault::Faults;

    use super::*;
    use crate::stage::{self, Stage, Theatre};

    fn owned(kind: &str, name: &str, uid: &Value) -> Value {
        let version = "extensions.agents.x-k8s.io/v1beta1";
        json!([{
            "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true,
        }])
    }

    async fn member(stage: &Stage, name: &str, owner: &Value) {
        let mut object = stage::sandbox(json!({}));
        object["metadata"] = json!({"name": name, "ownerReferences": owner});
        stage.create::<Sandbox>(object).await;
        say(stage, name, "True").await;
    }

    async fn say(stage: &Stage, name: &str, status: &str) {
        let ready = json!({
            "type": "Ready", "status": status, "reason": "Said", "message": "",
            "lastTransitionTime": "2026-11-16T12:00:00Z",
        });
        let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
        let (sandboxes, params) = (stage.api::<Sandbox>(), PatchParams::default());
        drop(sandboxes.patch_status(name, &params, &patch).await.unwrap());
    }

    async fn name_in_status(stage: &Stage, sandbox: &str) {
        let patch = Patch::Merge(json!({"status": {"sandbox": {"name": sandbox}}}));
        let (claims, params) = (stage.api::<SandboxClaim>(), PatchParams::default());
        drop(claims.patch_status("mine", &params, &patch).await.unwrap());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whatever_is_wrong_on_the_way_is_seen() {
        let theatre = Theatre::open().await;
        let stage = Stage::new(&theatre, "chronicle", Faults::none()).await;
        let rolling = json!({"maxUnavailable": 1});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let spec = json!({"updateStrategy": strategy});
        let pool: SandboxWarmPool = stage.create(stage::pool(2, spec)).await;
        let of_pool = owned(POOL, "pool", &json!(pool.metadata.uid));
        for name in ["one", "two"] {
            member(&stage, name, &of_pool).await;
        }
        for (name, status) in [
            ("one", "False"),
            ("two", "False"),
            ("two", "True"),
            ("one", "True"),
        ] {
            say(&stage, name, status).await;
        }
        let claim = json!({
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": CLAIM,
            "metadata": {"name": "mine"}, "spec": {"warmPoolRef": {"name": "pool"}},
        });
        let claim: SandboxClaim = stage.create(claim).await;
        let of_claim = owned(CLAIM, "mine", &json!(claim.metadata.uid));
        let give = |owner: &Value| json!({"metadata": {"ownerReferences": owner}});
        stage.patch::<Sandbox>("one", give(&of_claim)).await;
        name_in_status(&stage, "one").await;
        name_in_status(&stage, "two").await;
        name_in_status(&stage, "one").await;
        let params = DeleteParams::default();
        drop(stage.api::<Sandbox>().delete("one", &params).await.unwrap());
        stage.patch::<Sandbox>("two", give(&of_claim)).await;
        let back: Sandbox = stage.patch("two", give(&of_pool)).await;
        let mut its = owned("Sandbox", "two", &json!(back.metadata.uid));
        its[0]["apiVersion"] = json!("agents.x-k8s.io/v1beta1");
        for name in ["first", "second"] {
            let pod = json!({
                "metadata": {"name": name, "ownerReferences": its},
                "spec": {"containers": [{"name": "main", "image": "app:1"}]},
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let params = PostParams {
                field_manager: Some("sandbox-controller".to_owned()),
                ..PostParams::default()
            };
            drop(stage.api::<Pod>().create(&params, &pod).await.unwrap());
        }
        let allowance = Allowance {
            leaders: 1,
            ..Allowance::default()
        };
        let seen = stage.violations(&allowance).await;
        for expected in [
            "0 of 2 are claimable, 1 may be out, 0 are taken",
            "a claim names two, and has named one that is there",
            "one is deleted, and its claim is not over",
            "two was a claim's and is a pool's again",
            "a sandbox has 2 pods",
        ] {
            let is_seen = seen.iter().any(|one| one.ends_with(expected));
            assert!(is_seen, "{expected}: {seen:#?}");
        }
    }
}
