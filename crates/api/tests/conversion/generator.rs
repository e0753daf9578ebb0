//! Random objects drawn from the CRDs' own schemas, so that every field of every kind takes part.

use api::crds::{Conversion, Family, Versions, render};
use serde_json::{Map, Value, json};

/// SplitMix64: small, and the same objects for the same seed on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        let index = usize::try_from(self.below(choices.len() as u64)).unwrap();
        choices[index]
    }
}

/// Names that collide with each other and with the words conversion gives a meaning to.
const NAMES: &[&str] = &[
    "python",
    "python-pool",
    "python-pool-x7k2p",
    "default",
    "default-ab3de",
    "none",
    "shadow-pool-python",
    "shadow-pool-",
    "shadow-pool-default",
    "my-claim",
    "foreign",
    "a-pool-name-that-is-so-long-that-the-server-cuts-it-short-xab3de",
    "",
];

/// Draws objects of one kind and version.
pub(crate) struct Objects {
    api_version: String,
    kind: String,
    schema: Value,
}

impl Objects {
    pub(crate) fn all() -> Vec<Self> {
        [Versions::V1alpha1, Versions::V1beta1]
            .into_iter()
            .flat_map(|versions| {
                render(&[Family::Sigs], versions, Conversion::None)
                    .unwrap()
                    .into_iter()
            })
            .chain(render(&[Family::Kruise], Versions::Both, Conversion::None).unwrap())
            .map(|crd| {
                let version = &crd.spec.versions[0];
                Self {
                    api_version: format!("{}/{}", crd.spec.group, version.name),
                    kind: crd.spec.names.kind.clone(),
                    schema: serde_json::to_value(&version.schema).unwrap()["openAPIV3Schema"]
                        .take(),
                }
            })
            .collect()
    }

    pub(crate) fn of(version: &str, kind: &str) -> Self {
        let mut all = Self::all().into_iter();
        all.find(|objects| {
            objects.kind == kind
                && objects
                    .api_version
                    .ends_with(&format!("x-k8s.io/{version}"))
        })
        .unwrap()
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.api_version, self.kind)
    }

    pub(crate) fn draw(&self, random: &mut Random) -> Value {
        let mut fuel = random.below(120);
        let mut object = value(&self.schema, "", random, &mut fuel);
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.kind);
        object["metadata"] = metadata(random);
        object
    }

    /// Fields of the object that the schema does not have, or lacks and requires.
    pub(crate) fn misfits(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for part in ["spec", "status"]
            .into_iter()
            .filter(|part| object.get(part).is_some())
        {
            misfits(
                &self.schema["properties"][part],
                &object[part],
                part,
                &mut found,
            );
        }
        found
    }
}

fn metadata(random: &mut Random) -> Value {
    let mut metadata = json!({
        "name": random.pick(NAMES),
        "namespace": "default",
        "uid": "0b5a2c1e-0000-4000-8000-000000000001",
        "resourceVersion": random.below(1000).to_string(),
        "generation": random.below(9),
    });
    if random.one_in(2) {
        metadata["annotations"] =
            json!({"note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    }
    if random.one_in(3) {
        metadata["labels"] = json!({"agents.x-k8s.io/launch-type": "warm"});
    }
    if random.one_in(4) {
        metadata["ownerReferences"] = json!([{
            "apiVersion": "extensions.agents.x-k8s.io/v1alpha1", "kind": "SandboxClaim",
            "name": "my-claim", "uid": "1", "controller": true,
        }]);
        metadata["managedFields"] = json!([{"manager": "kubectl", "operation": "Update"}]);
    }
    metadata
}

fn value(schema: &Value, path: &str, random: &mut Random, fuel: &mut u64) -> Value {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<_> = choices.iter().collect();
        return random.pick(&choices).clone();
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, path, random, fuel),
        Some("array") => {
            let length = if *fuel > 0 { random.below(3) } else { 0 };
            (0..length)
                .map(|_| value(&schema["items"], path, random, fuel))
                .collect()
        }
        Some("boolean") => json!(random.one_in(2)),
        Some("integer") => {
            // bounds are small whole numbers, written as floating point
            let bound = |name: &str| schema[name].as_f64()?.to_string().parse::<i64>().ok();
            let low = bound("minimum").unwrap_or(-2);
            let high = bound("maximum").unwrap_or(low + 5);
            json!(low + i64::try_from(random.below((high - low + 1) as u64)).unwrap())
        }
        Some("string") => string(schema, path, random),
        _ if schema.get("pattern").is_some() => json!(random.pick(&["100m", "1.5Gi", "2"])),
        _ if schema["x-kubernetes-int-or-string"] == true => match random.below(2) {
            0 => json!(random.below(100)),
            _ => json!(format!("{}%", random.below(100))),
        },
        _ => json!({"anything": [random.below(10), {"nested": "kept"}]}),
    }
}

fn object(schema: &Value, path: &str, random: &mut Random, fuel: &mut u64) -> Value {
    let mut out = Map::new();
    if let Some(values) = schema.get("additionalProperties") {
        for key in ["app", "sandbox.users.io/team"] {
            if random.one_in(2) {
                out.insert(key.into(), value(values, path, random, fuel));
            }
        }
        return Value::Object(out);
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let top = path.matches('.').count() < 2;
        let wanted = required.contains(&json!(name))
            || (*fuel > 0 && random.one_in(if top { 2 } else { 6 }));
        if wanted {
            *fuel = fuel.saturating_sub(1);
            out.insert(
                name.clone(),
                value(property, &format!("{path}.{name}"), random, fuel),
            );
        }
    }
    Value::Object(out)
}

fn string(schema: &Value, path: &str, random: &mut Random) -> Value {
    if schema["format"] == "date-time" {
        return json!(format!("2026-11-{:02}T12:00:00Z", 1 + random.below(28)));
    }
    if path.ends_with(".name") || path.ends_with("warmpool") {
        return json!(random.pick(NAMES));
    }
    json!(random.pick(&["True", "10.0.0.7", "text", "x-1"]))
}

fn misfits(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    if let (Value::Array(items), Some(schema)) = (value, schema.get("items")) {
        items
            .iter()
            .for_each(|item| misfits(schema, item, path, found));
    }
    let Value::Object(fields) = value else { return };
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !fields.contains_key(name) {
            found.push(format!("{path}.{name} is missing"));
        }
    }
    for (name, field) in fields {
        let path = format!("{path}.{name}");
        match schema["properties"]
            .get(name)
            .or(schema.get("additionalProperties"))
        {
            Some(schema) => misfits(schema, field, &path, found),
            None => found.push(format!("{path} is unknown")),
        }
    }
}
