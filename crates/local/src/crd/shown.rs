//! Versions of a CRD as errors show them: in the API server's own form, without what all versions share.

use serde_json::{Value, json};

use super::items;
use super::validate::Shared;

/// A field of the server's form: its name there, its name in the API, and what it is when nobody has set it.
type Shape = (&'static str, &'static str, &'static str);

const COLUMN: &[Shape] = &[
    ("Name", "name", "\"\""),
    ("Type", "type", "\"\""),
    ("Format", "format", "\"\""),
    ("Description", "description", "\"\""),
    ("Priority", "priority", "0"),
    ("JSONPath", "jsonPath", "\"\""),
];

const SCALE: &[Shape] = &[
    ("SpecReplicasPath", "specReplicasPath", "\"\""),
    ("StatusReplicasPath", "statusReplicasPath", "\"\""),
    ("LabelSelectorPath", "labelSelectorPath", "null"),
];

const SELECTABLE: &[Shape] = &[("JSONPath", "jsonPath", "\"\"")];

/// What stands in a field of a schema.
enum Holds {
    /// A value that is shown as it is, and what it is when nobody has set it.
    Plain(&'static str),
    Schema,
    Schemas,
    Named,
    Items,
    SchemaOrBool,
    Rules,
}

const RULE: &[Shape] = &[
    ("Rule", "rule", "\"\""),
    ("Message", "message", "\"\""),
    ("MessageExpression", "messageExpression", "\"\""),
    ("Reason", "reason", "null"),
    ("FieldPath", "fieldPath", "\"\""),
    ("OptionalOldSelf", "optionalOldSelf", "null"),
];

const TEXT: Holds = Holds::Plain("\"\"");
const FALSE: Holds = Holds::Plain("false");
const NULL: Holds = Holds::Plain("null");

const SCHEMA: &[(&str, &str, Holds)] = &[
    ("ID", "id", TEXT),
    ("Schema", "$schema", TEXT),
    ("Ref", "$ref", NULL),
    ("Description", "description", TEXT),
    ("Type", "type", TEXT),
    ("Nullable", "nullable", FALSE),
    ("Format", "format", TEXT),
    ("Title", "title", TEXT),
    ("Default", "default", NULL),
    ("Maximum", "maximum", NULL),
    ("ExclusiveMaximum", "exclusiveMaximum", FALSE),
    ("Minimum", "minimum", NULL),
    ("ExclusiveMinimum", "exclusiveMinimum", FALSE),
    ("MaxLength", "maxLength", NULL),
    ("MinLength", "minLength", NULL),
    ("Pattern", "pattern", TEXT),
    ("MaxItems", "maxItems", NULL),
    ("MinItems", "minItems", NULL),
    ("UniqueItems", "uniqueItems", FALSE),
    ("MultipleOf", "multipleOf", NULL),
    ("Enum", "enum", NULL),
    ("MaxProperties", "maxProperties", NULL),
    ("MinProperties", "minProperties", NULL),
    ("Required", "required", NULL),
    ("Items", "items", Holds::Items),
    ("AllOf", "allOf", Holds::Schemas),
    ("OneOf", "oneOf", Holds::Schemas),
    ("AnyOf", "anyOf", Holds::Schemas),
    ("Not", "not", Holds::Schema),
    ("Properties", "properties", Holds::Named),
    (
        "AdditionalProperties",
        "additionalProperties",
        Holds::SchemaOrBool,
    ),
    ("PatternProperties", "patternProperties", Holds::Named),
    ("Dependencies", "dependencies", NULL),
    ("AdditionalItems", "additionalItems", Holds::SchemaOrBool),
    ("Definitions", "definitions", Holds::Named),
    ("ExternalDocs", "externalDocs", NULL),
    ("Example", "example", NULL),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        NULL,
    ),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", FALSE),
    ("XIntOrString", "x-kubernetes-int-or-string", FALSE),
    ("XListMapKeys", "x-kubernetes-list-map-keys", NULL),
    ("XListType", "x-kubernetes-list-type", NULL),
    ("XMapType", "x-kubernetes-map-type", NULL),
    ("XValidations", "x-kubernetes-validations", Holds::Rules),
];

fn schema(value: &Value) -> String {
    braced(SCHEMA.iter().map(|(name, key, holds)| {
        let shown = match (value.get(*key), holds) {
            (None, Holds::Plain(unset)) => (*unset).to_owned(),
            (None, _) => "null".to_owned(),
            (Some(value), holds) => held(value, holds),
        };
        (*name, shown)
    }))
}

fn held(value: &Value, holds: &Holds) -> String {
    let list = || items(Some(value));
    match holds {
        Holds::Plain(_) => value.to_string(),
        Holds::Schema => schema(value),
        Holds::Schemas => listed(list(), schema),
        Holds::Rules => listed(list(), |rule| shaped(rule, RULE)),
        Holds::Named => {
            let named = value.as_object().into_iter().flatten();
            let named: Vec<_> = named
                .map(|(name, inner)| format!("{}:{}", json!(name), schema(inner)))
                .collect();
            format!("{{{}}}", named.join(","))
        }
        Holds::Items => match value {
            Value::Array(all) => braced([
                ("Schema", "null".to_owned()),
                ("JSONSchemas", listed(all, schema)),
            ]),
            one => braced([("Schema", schema(one)), ("JSONSchemas", "null".to_owned())]),
        },
        Holds::SchemaOrBool => {
            let (allows, inner) = match value {
                Value::Bool(allows) => (*allows, "null".to_owned()),
                inner => (true, schema(inner)),
            };
            braced([("Allows", allows.to_string()), ("Schema", inner)])
        }
    }
}

pub(super) fn versions(versions: &[Value], shared: &Shared) -> String {
    if versions.is_empty() {
        return "null".to_owned();
    }
    listed(versions, |version| one(version, shared))
}

fn one(version: &Value, shared: &Shared) -> String {
    let plain = |name: &str, unset: Value| version.get(name).unwrap_or(&unset).to_string();
    let apart = |name: &str, shared: bool| version.get(name).filter(|_| !shared);
    let null = || "null".to_owned();
    let list = |name: &str, shared: bool, shapes: &[Shape]| match apart(name, shared) {
        Some(value) => listed(items(Some(value)), |item| shaped(item, shapes)),
        None => null(),
    };
    let schema = apart("schema", shared.schemas).map_or_else(null, |holder| {
        let schema = holder.get("openAPIV3Schema").map_or_else(null, schema);
        braced([("OpenAPIV3Schema", schema)])
    });
    let subresources = apart("subresources", shared.subresources);
    let parts = [
        ("Name", plain("name", json!(""))),
        ("Served", plain("served", json!(false))),
        ("Storage", plain("storage", json!(false))),
        ("Deprecated", plain("deprecated", json!(false))),
        (
            "DeprecationWarning",
            plain("deprecationWarning", Value::Null),
        ),
        ("Schema", schema),
        ("Subresources", subresources.map_or_else(null, below)),
        (
            "AdditionalPrinterColumns",
            list("additionalPrinterColumns", shared.columns, COLUMN),
        ),
        (
            "SelectableFields",
            list("selectableFields", shared.selectable, SELECTABLE),
        ),
    ];
    braced(parts)
}

fn below(subresources: &Value) -> String {
    let scale = subresources.get("scale");
    let parts = [
        (
            "Status",
            subresources
                .get("status")
                .unwrap_or(&Value::Null)
                .to_string(),
        ),
        (
            "Scale",
            scale.map_or_else(|| "null".to_owned(), |scale| shaped(scale, SCALE)),
        ),
    ];
    braced(parts)
}

fn shaped(value: &Value, shapes: &[Shape]) -> String {
    braced(shapes.iter().map(|(shown, name, unset)| {
        let value = value.get(*name).map(Value::to_string);
        (*shown, value.unwrap_or_else(|| (*unset).to_owned()))
    }))
}

fn braced(parts: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let parts = parts.into_iter();
    let parts: Vec<_> = parts
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", parts.join(","))
}

fn listed(values: &[Value], shown: impl Fn(&Value) -> String) -> String {
    let values: Vec<_> = values.iter().map(shown).collect();
    format!("[{}]", values.join(","))
}
