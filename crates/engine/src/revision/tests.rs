#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::{
        BoxedStrategy, Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
    },
};
use serde_json::{Map, Value, json};

use super::{
    Form, Revision, Standing, Wanted, canonical_text, foreign_record_holds, means_the_same,
    name_hash, reference,
};

#[test]
fn names_are_hashed_as_the_reference_does() {
    let known = [
        ("", "811c9dc5"),
        ("a", "e40c292c"),
        ("my-sandbox", "374de8f5"),
        ("warmpool", "8c6a35c6"),
        ("test-warmpool", "abdcc27b"),
        ("test-template", "69155462"),
    ];
    for (name, hash) in known {
        assert_eq!(name_hash(name), hash, "{name:?}");
    }
}

/// Each line of the file: what a Go program recorded for the blueprint, its pod template, that template as one of
/// OpenKruise's sandboxes, and as that of a set.
#[test]
fn templates_are_hashed_as_the_references_do() {
    for line in include_str!("vectors.txt").lines() {
        let mut parts = line.splitn(5, ' ');
        let mut next = || parts.next().unwrap();
        let known = [next(), next(), next(), next()];
        let blueprint: Value = serde_json::from_str(next()).unwrap();
        let template = &blueprint["podTemplate"];
        let sets = reference::kruise_set_revisions(&json!({"template": template}));
        let hashes = [
            reference::blueprint_hash(&blueprint).unwrap(),
            reference::pod_template_hash(template).unwrap(),
            reference::kruise_sandbox_revision(template).unwrap(),
            sets[0].clone(),
        ];
        assert_eq!(hashes, known, "{blueprint}");
        let wanted = Wanted::new(Form::Blueprint, &blueprint);
        let other = json!({"podTemplate": {"spec": {"containers": [{"name": "other"}]}}});
        assert_eq!(
            wanted.standing(Some(known[0]), Some(&other)),
            Standing::Equivalent
        );
    }
}

/// If this fails, forms come out differently: count up the algorithm, then record the new ones.
#[test]
fn an_algorithm_never_changes_its_mind() {
    let revisions = include_str!("vectors.txt").lines().map(|line| {
        let template = line.splitn(5, ' ').last().unwrap().parse().unwrap();
        Revision::of(Form::Blueprint, &template).to_string()
    });
    let known = [
        "r18b1bcbf7679b552b",
        "r116e98d183bd73133",
        "r1b74ef1916889892c",
        "r1f04fee6c26bb6575",
        "r144136fa355b3678a",
    ];
    assert_eq!(revisions.collect::<Vec<_>>(), known);
}

#[test]
fn the_immutable_part_forgets_metadata_images_and_resources() {
    let one = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [
        {"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1"}}, "tty": true}]}});
    let mut two = one.clone();
    two["metadata"] = json!({"annotations": {"b": "2"}});
    two["spec"]["containers"][0]["image"] = json!("i:2");
    two["spec"]["containers"][0]["resources"] = Value::Null;
    let part = reference::kruise_immutable_part;
    assert_eq!(part(&one), part(&two));
    two["spec"]["containers"][0]["tty"] = json!(false);
    assert_ne!(part(&one), part(&two));
    let whole = reference::kruise_sandbox_revision;
    assert_ne!(whole(&one), part(&one));
}

#[test]
fn a_template_nobody_could_read_has_no_foreign_hash() {
    let odd = json!({"podTemplate": {"spec": {"containers": "none"}}});
    assert_eq!(reference::blueprint_hash(&odd), None);
    // but it has a revision, and is equal to itself
    assert!(means_the_same(Form::Blueprint, &odd, &odd));
}

fn pod(spec: &Value) -> Value {
    json!({"spec": spec})
}

#[test]
fn spelled_out_defaults_mean_nothing() {
    let short = pod(&json!({
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": 80}},
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
        "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "s"}}],
        "serviceAccountName": "robot",
    }));
    let long = pod(&json!({
        "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always",
            "ports": [{"containerPort": 80, "protocol": "TCP", "hostPort": 0}],
            "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 1, "memory": "1Gi"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "securityContext": {}, "command": [], "stdin": false, "workingDir": "",
            "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "env": [{"name": "N", "value": "", "valueFrom": {"fieldRef":
                {"apiVersion": "v1", "fieldPath": "metadata.name"}}}]}],
        "volumes": [{"name": "v", "emptyDir": {}},
            {"name": "s", "secret": {"secretName": "s", "defaultMode": 420, "optional": false}}],
        "serviceAccountName": "robot", "serviceAccount": "robot", "securityContext": {}, "nodeSelector": {},
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30, "enableServiceLinks": true, "hostNetwork": false,
        "initContainers": null, "tolerations": [],
    }));
    let text = |template| canonical_text(Form::PodTemplate, template);
    assert_eq!(text(&short), text(&long));
    assert_eq!(
        text(&short).parse::<Value>().unwrap()["spec"]["serviceAccountName"],
        "robot"
    );
}

#[test]
fn what_looks_empty_and_means_something_is_kept() {
    let of = |spec: Value| pod(&spec);
    let term = |selector: Value| {
        of(
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": "k", "labelSelector": selector}]}}}),
        )
    };
    let container = |container: Value| of(json!({"containers": [container]}));
    let different = [
        (
            of(json!({})),
            of(json!({"automountServiceAccountToken": false})),
        ),
        (
            of(json!({})),
            of(json!({"terminationGracePeriodSeconds": 0})),
        ),
        (of(json!({})), of(json!({"fieldOfTomorrow": ""}))),
        (term(Value::Null), term(json!({}))),
        (
            container(json!({})),
            container(json!({"securityContext": {"runAsUser": 0}})),
        ),
        (
            container(json!({})),
            container(json!({"resources": {"requests": {"cpu": "0"}}})),
        ),
        (
            container(json!({"image": "i:1"})),
            container(json!({"image": "i:1", "imagePullPolicy": "Always"})),
        ),
        (
            of(json!({"volumes": [{"name": "v"}]})),
            of(json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})),
        ),
        (
            container(json!({"env": [{"name": "A"}, {"name": "B"}]})),
            container(json!({"env": [{"name": "B"}, {"name": "A"}]})),
        ),
    ];
    for (one, two) in different {
        assert!(
            !means_the_same(Form::PodTemplate, &one, &two),
            "{one} {two}"
        );
        assert_ne!(
            Revision::of(Form::PodTemplate, &one),
            Revision::of(Form::PodTemplate, &two)
        );
    }
}

#[test]
fn metadata_makes_no_member_of_a_pool_stale() {
    let blueprint = |label: &str, service: Value| {
        json!({"podTemplate": {"metadata": {"labels": {"l": label}}, "spec": {"containers": [{"name": "c"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "v", "labels": {"l": label}}, "spec": {}}],
            "service": service})
    };
    let same = |one, two| means_the_same(Form::Blueprint, &one, &two);
    assert!(same(
        blueprint("a", json!(true)),
        blueprint("b", json!(true))
    ));
    assert!(!same(
        blueprint("a", json!(false)),
        blueprint("a", Value::Null)
    ));
    let mut renamed = blueprint("a", json!(true));
    renamed["volumeClaimTemplates"][0]["metadata"]["name"] = json!("w");
    assert!(!same(blueprint("a", json!(true)), renamed));
    let template = |label: &str| json!({"metadata": {"labels": {"l": label}}});
    assert!(!means_the_same(
        Form::PodTemplate,
        &template("a"),
        &template("b")
    ));
}

#[test]
fn only_meaning_makes_a_member_stale() {
    let template = |image: &str| json!({"podTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}}});
    let (new, old) = (template("i:2"), template("i:1"));
    let wanted = Wanted::new(Form::Blueprint, &new);
    let ours = wanted.revision().to_string();
    let older = ours.replacen("r1", "r0", 1);
    let stale = Revision::of(Form::Blueprint, &old).to_string();
    let cases = [
        (Some(ours.as_str()), Some(&new), Standing::Current),
        (Some(&ours), Some(&old), Standing::Current),
        (Some(&older), Some(&new), Standing::Equivalent),
        (Some(&older), Some(&old), Standing::Stale),
        (Some("deadbeef"), Some(&new), Standing::Equivalent),
        (Some("deadbeef"), Some(&old), Standing::Stale),
        (None, Some(&new), Standing::Equivalent),
        (None, Some(&old), Standing::Stale),
        (Some(&stale), Some(&new), Standing::Equivalent),
        (Some(&stale), None, Standing::Stale),
        (Some(&older), None, Standing::Equivalent),
        (Some("deadbeef"), None, Standing::Equivalent),
        (None, None, Standing::Equivalent),
    ];
    for (recorded, made_from, standing) in cases {
        let got = wanted.standing(recorded, made_from);
        assert_eq!(got, standing, "{recorded:?} {made_from:?}");
    }
}

#[test]
fn what_completes_a_template_is_no_difference() {
    let written = json!({"podTemplate": {"spec": {"containers": [{"name": "c"}]}}});
    let mut effective = written.clone();
    effective["podTemplate"]["spec"]["automountServiceAccountToken"] = json!(false);
    let wanted = Wanted::completed(Form::Blueprint, &written, &effective);
    assert_eq!(
        wanted.standing(Some("other"), Some(&effective)),
        Standing::Equivalent
    );
    assert_eq!(
        wanted.standing(Some("other"), Some(&written)),
        Standing::Stale
    );
    let foreign = reference::blueprint_hash(&written).unwrap();
    assert_eq!(
        wanted.standing(Some(&foreign), Some(&written)),
        Standing::Equivalent
    );
}

#[test]
fn a_revision_survives_being_a_label() {
    let revision = Revision::of(Form::PodTemplate, &json!({}));
    assert_eq!(revision.to_string().parse(), Ok(revision));
    for foreign in [
        "",
        "r",
        "811c9dc5",
        "r1",
        "r1ABCDEF0123456789",
        "x10123456789abcdef",
        "r-0123456789abcdef",
    ] {
        assert!(foreign.parse::<Revision>().is_err(), "{foreign}");
    }
}

#[test]
fn a_foreign_record_holds_until_the_object_is_edited() {
    assert!(foreign_record_holds("b2f", Some("b2f"), Some(3), 3));
    assert!(!foreign_record_holds("b2f", Some("b2f"), Some(3), 4));
    assert!(!foreign_record_holds("b2f", Some("c5d"), Some(3), 3));
    assert!(!foreign_record_holds("b2f", None, None, 1));
}

/// Ways to write one amount.
const SPELLINGS: [&[&str]; 4] = [
    &["1", "1000m", "1.0", "1e0", "0.001k"],
    &["1Gi", "1024Mi", "1073741824", "1048576Ki"],
    &["500m", "0.5", ".5", "0.50"],
    &["0", "0m", "0Gi"],
];

#[derive(Clone, Debug)]
struct Draft {
    image: String,
    amounts: Vec<usize>,
    labels: std::collections::BTreeMap<String, String>,
    command: Vec<String>,
    grace: Option<u8>,
    token: Option<bool>,
}

fn drafts() -> BoxedStrategy<Draft> {
    let image = prop_oneof![
        Just("i".to_owned()),
        Just("i:1".to_owned()),
        Just("r:5/i:latest".to_owned())
    ];
    let labels = btree_map("[a-c]{1,2}", "[x-z]{0,2}", 0..4);
    (
        image,
        vec(0..SPELLINGS.len(), 0..3),
        labels,
        vec("[a-z]{0,3}", 0..3),
        option::of(any::<u8>()),
        option::of(any::<bool>()),
    )
        .prop_map(|(image, amounts, labels, command, grace, token)| Draft {
            image,
            amounts,
            labels,
            command,
            grace,
            token,
        })
        .boxed()
}

impl Draft {
    /// The template, written out as `choice` has it.
    fn written(&self, choice: usize) -> Value {
        let verbose = choice % 2 == 1;
        let names = ["cpu", "memory"];
        let limits: Map<String, Value> = names
            .iter()
            .zip(&self.amounts)
            .map(|(name, amount)| {
                let spellings = SPELLINGS[*amount];
                (
                    (*name).to_owned(),
                    spellings[choice % spellings.len()].into(),
                )
            })
            .collect();
        let mut container = json!({"name": "c", "image": self.image, "command": self.command,
            "resources": {"limits": limits}});
        let mut spec = json!({"containers": [], "automountServiceAccountToken": self.token,
            "terminationGracePeriodSeconds": self.grace});
        if verbose {
            container["resources"]["requests"] = container["resources"]["limits"].clone();
            container["terminationMessagePolicy"] = json!("File");
            container["args"] = json!([]);
            spec["dnsPolicy"] = json!("ClusterFirst");
            spec["restartPolicy"] = json!("Always");
            spec["volumes"] = Value::Null;
        }
        spec["containers"] = json!([container]);
        let backwards = choice % 3 == 1;
        let mut labels: Vec<_> = self.labels.iter().collect();
        if backwards {
            labels.reverse();
        }
        let labels: Map<String, Value> = labels
            .into_iter()
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect();
        json!({"metadata": {"labels": labels}, "spec": spec})
    }
}

proptest! {
    #[test]
    fn one_meaning_has_one_revision(draft in drafts(), one in 0_usize..12, two in 0_usize..12) {
        let (one, two) = (draft.written(one), draft.written(two));
        prop_assert!(means_the_same(Form::PodTemplate, &one, &two));
        prop_assert_eq!(Revision::of(Form::PodTemplate, &one), Revision::of(Form::PodTemplate, &two));
    }

    #[test]
    fn two_meanings_have_two_revisions(one in drafts(), two in drafts()) {
        let same = means_the_same(Form::PodTemplate, &one.written(0), &two.written(0));
        let revision = |draft: &Draft| Revision::of(Form::PodTemplate, &draft.written(1));
        prop_assert_eq!(same, revision(&one) == revision(&two));
    }

    #[test]
    fn the_canonical_form_is_its_own(draft in drafts(), choice in 0_usize..12) {
        let once = canonical_text(Form::PodTemplate, &draft.written(choice));
        let twice = canonical_text(Form::PodTemplate, &once.parse().unwrap());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn the_canonical_form_of_anything_is_its_own(value in anything()) {
        let template = json!({"podTemplate": {"spec": value}});
        let once = canonical_text(Form::Blueprint, &template);
        let twice = canonical_text(Form::Blueprint, &once.parse().unwrap());
        prop_assert_eq!(once, twice);
    }
}

/// JSON with the names that templates have in all the wrong places.
pub(crate) fn anything() -> BoxedStrategy<Value> {
    let names = [
        "containers",
        "resources",
        "limits",
        "requests",
        "cpu",
        "volumes",
        "emptyDir",
        "name",
        "image",
        "ports",
        "hostPort",
        "hostNetwork",
        "resizePolicy",
        "restartPolicy",
        "serviceAccount",
        "securityContext",
        "affinity",
        "env",
        "valueFrom",
        "resourceFieldRef",
        "divisor",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        "(|1|1Gi|0|0m|NotRequired|Always|i:1|x)".prop_map(Value::from),
    ];
    let key = proptest::sample::select(names.to_vec());
    leaf.prop_recursive(6, 64, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(key.clone(), inner, 0..6).prop_map(|entries| {
                entries
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect()
            }),
        ]
    })
    .boxed()
}
