//! The variables that a container's spec asks for, in its order; `$(NAME)` means one that came before.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVarSource};

use super::Ask;
use super::expand::expand;
use crate::node::documents::Entries;
use crate::node::trouble::Trouble;

/// Variables by name, in the order in which the names first appeared.
#[derive(Clone, Debug, Default)]
pub(super) struct Env(Vec<(String, String)>);

impl Env {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(super) fn expand(&self, text: &str) -> String {
        expand(text, |name| self.get(name).map(str::to_owned))
    }

    /// `NAME=value`, those of `others` first and overridden.
    pub(super) fn over(&self, others: Self) -> Vec<String> {
        let mut all = others;
        for (name, value) in &self.0 {
            all.set(name, value.clone());
        }
        let all = all.0.into_iter();
        all.map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// Lines of the form `NAME=value`, as images have them.
    pub(super) fn of_lines(lines: &[String]) -> Self {
        let mut env = Self::default();
        for line in lines {
            if let Some((name, value)) = line.split_once('=') {
                env.set(name, value.to_owned());
            }
        }
        env
    }
}

/// What the spec says, without what the image and the machine add.
pub(super) fn of_spec(ask: &Ask<'_>) -> Result<Env, Trouble> {
    let mut env = Env::default();
    for from in ask.container.env_from.iter().flatten() {
        add_all(&mut env, ask, from)?;
    }
    for variable in ask.container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (None, Some(from)) => value_from(ask, &variable.name, from)?,
            (value, _) => Some(env.expand(value.as_deref().unwrap_or_default())),
        };
        if let Some(value) = value {
            env.set(&variable.name, value);
        }
    }
    Ok(env)
}

fn add_all(env: &mut Env, ask: &Ask<'_>, from: &EnvFromSource) -> Result<(), Trouble> {
    let EnvFromSource {
        config_map_ref,
        secret_ref,
        prefix,
    } = from;
    let prefix = prefix.as_deref().unwrap_or_default();
    let mut add = |entries: &Entries, refused: &dyn Fn(&str) -> Option<Trouble>| {
        for (key, value) in entries {
            let name = format!("{prefix}{key}");
            if !is_name(&name) {
                continue;
            }
            match std::str::from_utf8(value) {
                Ok(value) => env.set(&name, value.to_owned()),
                Err(_) => refused(key).map_or(Ok(()), Err)?,
            }
        }
        Ok(())
    };
    if let Some(from) = config_map_ref {
        match ask.documents.config_maps.get(&from.name) {
            // bytes of a ConfigMap never become variables
            Some(entries) => add(entries, &|_| None)?,
            None if from.optional == Some(true) => {}
            None => return Err(no_config_map(&from.name)),
        }
    }
    if let Some(from) = secret_ref {
        match ask.documents.secrets.get(&from.name) {
            Some(entries) => add(entries, &|key| Some(no_text(&from.name, key)))?,
            None if from.optional == Some(true) => {}
            None => return Err(no_secret(&from.name)),
        }
    }
    Ok(())
}

/// Nothing if it is optional and not there: then there is no variable, not an empty one.
fn value_from(ask: &Ask<'_>, name: &str, from: &EnvVarSource) -> Result<Option<String>, Trouble> {
    let EnvVarSource {
        config_map_key_ref,
        field_ref,
        file_key_ref,
        resource_field_ref,
        secret_key_ref,
    } = from;
    if let Some(field) = field_ref {
        let value = ask.facts().field(&field.field_path);
        return value.map(Some).map_err(Trouble::config);
    }
    if let Some(selector) = resource_field_ref {
        let value = ask.facts().resource(selector, Some(ask.container));
        return value.map(Some).map_err(Trouble::config);
    }
    let namespace = ask.pod.metadata.namespace.as_deref().unwrap_or_default();
    let no_key = |key: &str, kind: &str, name: &str| {
        Trouble::config(format!(
            "couldn't find key {key} in {kind} {namespace}/{name}"
        ))
    };
    if let Some(from) = config_map_key_ref {
        let is_optional = from.optional == Some(true);
        let found = match ask.documents.config_maps.get(&from.name) {
            Some(entries) => entries.get(&from.key),
            None if is_optional => None,
            None => return Err(no_config_map(&from.name)),
        };
        return match found.map(|value| std::str::from_utf8(value)) {
            Some(Ok(value)) => Ok(Some(value.to_owned())),
            _ if is_optional => Ok(None),
            _ => Err(no_key(&from.key, "ConfigMap", &from.name)),
        };
    }
    if let Some(from) = secret_key_ref {
        let is_optional = from.optional == Some(true);
        let found = match ask.documents.secrets.get(&from.name) {
            Some(entries) => entries.get(&from.key),
            None if is_optional => None,
            None => return Err(no_secret(&from.name)),
        };
        return match found.map(|value| std::str::from_utf8(value)) {
            Some(Ok(value)) => Ok(Some(value.to_owned())),
            Some(Err(_)) => Err(no_text(&from.name, &from.key)),
            None if is_optional => Ok(None),
            None => Err(no_key(&from.key, "Secret", &from.name)),
        };
    }
    match file_key_ref {
        Some(_) => Err(Trouble::config(format!(
            "environment variable {name}: fileKeyRef is not supported by this node"
        ))),
        None => Ok(Some(String::new())),
    }
}

/// Any printable ASCII but `=`.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

fn no_secret(name: &str) -> Trouble {
    Trouble::config(format!("secret {name:?} not found"))
}

fn no_config_map(name: &str) -> Trouble {
    Trouble::config(format!("configmap {name:?} not found"))
}

fn no_text(name: &str, key: &str) -> Trouble {
    Trouble::config(format!(
        "key {key} of secret {name:?} is not text and cannot be an environment variable"
    ))
}
