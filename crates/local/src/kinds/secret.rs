//! Secrets and ConfigMaps: data by key.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::Rules;
use super::access::{as_map, entries, fill_text, flag, made, text};
use super::check::{Errors, Path, data_key_problems};

/// All values together.
const MOST_BYTES: usize = 1 << 20;

pub(super) const SECRET: Rules = Rules {
    default: default_secret,
    validate: |secret| Errors::of(|errors| check_secret(secret, errors)),
    validate_update: |new, old, _| {
        Errors::of(|errors| {
            errors.fixed_text(&Path::new("type"), text(new, "type"), text(old, "type"));
            check_frozen(new, old, &["data"], errors);
            check_secret(new, errors);
        })
    },
    fields: &[("type", |secret| text(secret, "type").to_owned())],
    ..Rules::PLAIN
};

pub(super) const CONFIG_MAP: Rules = Rules {
    validate: |map| Errors::of(|errors| check_config_map(map, errors)),
    validate_update: |new, old, _| {
        Errors::of(|errors| {
            check_frozen(new, old, &["data", "binaryData"], errors);
            check_config_map(new, errors);
        })
    },
    ..Rules::PLAIN
};

/// What was given as text becomes data like the rest, and wins over it.
fn default_secret(secret: &mut Value) {
    if let Some(Value::Object(texts)) = as_map(secret).remove("stringData") {
        let data = made(secret, "data");
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or_default().as_bytes().to_vec();
            data.insert(key, json!(ByteString(bytes)));
        }
    }
    fill_text(as_map(secret), "type", "Opaque");
}

fn bytes(value: &Value) -> Vec<u8> {
    let bytes: Result<ByteString, _> = serde_json::from_value(value.clone());
    bytes.map(|bytes| bytes.0).unwrap_or_default()
}

/// How many bytes a base64 text stands for.
fn decoded_size(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count()
}

fn check_frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if !flag(old, "immutable") {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !flag(new, "immutable") {
        errors.forbidden(&Path::new("immutable"), detail);
    }
    for field in fields {
        if new.get(*field) != old.get(*field) {
            errors.forbidden(&Path::new(field), detail);
        }
    }
}

fn check_secret(secret: &Value, errors: &mut Errors) {
    let path = Path::new("data");
    let mut size = 0;
    for (key, value) in entries(secret, "data") {
        errors.problems(&path.key(key), key, data_key_problems(key));
        size += decoded_size(value);
    }
    if size > MOST_BYTES {
        errors.too_long(&path, MOST_BYTES);
    }
    let data = |key: &str| secret.get("data").and_then(|data| data.get(key));
    let mut need = |keys: &[&str]| {
        for key in keys {
            if data(key).is_none() {
                errors.required(&path.key(key), "");
            }
        }
    };
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            let annotations = secret.pointer("/metadata/annotations");
            if annotations.is_none_or(|annotations| text(annotations, name).is_empty()) {
                let path = Path::new("metadata");
                errors.required(&path.field("annotations").key(name), "");
            }
        }
        "kubernetes.io/dockercfg" => check_json(".dockercfg", data(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => {
            check_json(".dockerconfigjson", data(".dockerconfigjson"), errors);
        }
        "kubernetes.io/basic-auth" if data("username").or(data("password")).is_none() => {
            need(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" => {
            let key = data("ssh-privatekey").filter(|key| key.as_str() != Some(""));
            if key.is_none() {
                errors.required(&path.key("ssh-privatekey"), "");
            }
        }
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

fn check_json(key: &str, value: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("data");
    let Some(value) = value else {
        return errors.required(&path.key(key), "");
    };
    let parsed: Result<serde_json::Map<String, Value>, _> = serde_json::from_slice(&bytes(value));
    if let Err(error) = parsed {
        let detail = match error.is_eof() {
            true => "unexpected end of JSON input".to_owned(),
            false => error.to_string(),
        };
        errors.invalid(&path.key(key), "<secret contents redacted>", &detail);
    }
}

fn check_config_map(map: &Value, errors: &mut Errors) {
    let mut size = 0;
    let path = Path::new("data");
    let binary = map.get("binaryData");
    for (key, value) in entries(map, "data") {
        errors.problems(&path.key(key), key, data_key_problems(key));
        if binary.is_some_and(|binary| binary.get(key).is_some()) {
            errors.invalid(
                &path.key(key),
                key,
                "duplicate of key present in binaryData",
            );
        }
        size += value.as_str().unwrap_or_default().len();
    }
    let path = Path::new("binaryData");
    for (key, value) in entries(map, "binaryData") {
        errors.problems(&path.key(key), key, data_key_problems(key));
        size += decoded_size(value);
    }
    if size > MOST_BYTES {
        // the real server names no field, and prints that as an index of nothing
        errors.too_long(&Path::new("[]"), MOST_BYTES);
    }
}
