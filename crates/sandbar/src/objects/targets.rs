//! The objects that somebody names: `KIND[,KIND…] [NAME…]` or `KIND/NAME…`.

use anyhow::{Result, bail, ensure};

use super::discover::{Kind, Kinds};

/// A word for a kind, and the name of an object unless all of them are meant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    word: String,
    name: Option<String>,
}

impl Target {
    pub(super) fn is_named(&self) -> bool {
        self.name.is_some()
    }
}

/// The same, of a kind that is served.
pub(super) struct Ask<'a> {
    pub(super) kind: &'a Kind,
    pub(super) name: Option<String>,
}

pub(super) fn parse(words: &[String]) -> Result<Vec<Target>> {
    if words.iter().any(|word| word.contains('/')) {
        return words.iter().map(|word| pair(word)).collect();
    }
    let Some((kinds, names)) = words.split_first() else {
        bail!("name a kind of objects, such as pods");
    };
    let mut targets = Vec::new();
    for word in kinds.split(',').filter(|word| !word.is_empty()) {
        let target = |name: Option<&String>| Target {
            word: word.to_owned(),
            name: name.cloned(),
        };
        match names {
            [] => targets.push(target(None)),
            _ => targets.extend(names.iter().map(|name| target(Some(name)))),
        }
    }
    ensure!(!targets.is_empty(), "name a kind of objects, such as pods");
    Ok(targets)
}

fn pair(word: &str) -> Result<Target> {
    match word.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Target {
                word: kind.to_owned(),
                name: Some(name.to_owned()),
            })
        }
        Some(_) => bail!("{word:?} is not KIND/NAME"),
        None => bail!("{word:?} stands beside KIND/NAME: write all objects so, or none"),
    }
}

pub(super) fn resolve(targets: Vec<Target>, kinds: &Kinds) -> Result<Vec<Ask<'_>>> {
    let mut asks = Vec::new();
    for target in targets {
        for kind in kinds.find(&target.word)? {
            asks.push(Ask {
                kind,
                name: target.name.clone(),
            });
        }
    }
    Ok(asks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::parse;

    fn told(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let targets = parse(&words).map_err(|error| error.to_string())?;
        let told = targets.into_iter().map(|target| match target.name {
            Some(name) => format!("{}/{name}", target.word),
            None => target.word,
        });
        Ok(told.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn kinds_and_names_are_combined() {
        for (line, expected) in [
            ("pods", "pods"),
            ("pods,svc", "pods svc"),
            ("pod a b", "pod/a pod/b"),
            ("pod,svc a", "pod/a svc/a"),
            ("pod/a svc/b", "pod/a svc/b"),
        ] {
            assert_eq!(told(line).unwrap(), expected);
        }
    }

    #[test]
    fn both_ways_at_once_are_refused() {
        let error = told("pod/a b").unwrap_err();
        assert!(
            error.starts_with("\"b\" stands beside KIND/NAME"),
            "{error}"
        );
        for line in ["pod/", "/a", "a/b/c"] {
            assert!(told(line).unwrap_err().ends_with("is not KIND/NAME"));
        }
        assert!(told(",").is_err());
    }
}
