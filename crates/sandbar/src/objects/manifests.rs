//! Reading manifests: YAML and JSON, several in a file, lists of them, directories of files.

use std::{
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

/// An object that somebody has written down.
#[derive(Debug)]
pub(super) struct Manifest {
    source: String,
    pub(super) object: Value,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
}

/// Where it stands and what it is.
impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", self.source, self.kind, self.name)
    }
}

impl Manifest {
    fn of(source: &str, object: Value) -> Result<Self> {
        let field = |value: &Value| {
            value
                .as_str()
                .map(str::to_owned)
                .filter(|text| !text.is_empty())
        };
        let missing = |what: &str| anyhow!("{source}: an object has no {what}");
        let metadata = &object["metadata"];
        let (api_version, kind) = (field(&object["apiVersion"]), field(&object["kind"]));
        let kind = kind.ok_or_else(|| missing("kind"))?;
        let missing = |what: &str| anyhow!("{source}: a {kind} has no {what}");
        Ok(Self {
            source: source.to_owned(),
            api_version: api_version.ok_or_else(|| missing("apiVersion"))?,
            name: field(&metadata["name"]).ok_or_else(|| missing("metadata.name"))?,
            namespace: field(&metadata["namespace"]),
            kind,
            object,
        })
    }

    pub(super) fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// The namespace that it is to be in, unless it says another than somebody has asked for.
    pub(super) fn namespace_in<'a>(
        &'a self,
        asked: Option<&str>,
        default: &'a str,
    ) -> Result<&'a str> {
        match (&self.namespace, asked) {
            (Some(own), Some(asked)) if own != asked => {
                bail!(
                    "it is in namespace {own:?} and not in {asked:?}: leave out -n, or pass -n {own}"
                )
            }
            (Some(own), _) => Ok(own),
            (None, _) => Ok(default),
        }
    }
}

/// All manifests in the order in which they are written, and in their places what cannot be read.
pub(super) fn read(paths: &[PathBuf]) -> Vec<Result<Manifest>> {
    let mut manifests = Vec::new();
    for path in paths {
        match files(path) {
            Ok(files) => manifests.extend(files.iter().flat_map(|file| read_one(file))),
            Err(error) => manifests.push(Err(error)),
        }
    }
    manifests
}

/// A file, or those of a directory that have the names of manifests.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let reading = || format!("cannot read {}", path.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(reading)? {
        let file = entry.with_context(reading)?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) && !file.is_dir() {
            files.push(file);
        }
    }
    if files.is_empty() {
        bail!(
            "{} has no files that end in .yaml, .yml or .json",
            path.display()
        );
    }
    files.sort();
    Ok(files)
}

fn read_one(path: &Path) -> Vec<Result<Manifest>> {
    let (source, text) = match path.to_str() {
        Some("-") => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            ("standard input".to_owned(), read.map(|_| text))
        }
        _ => (path.display().to_string(), std::fs::read_to_string(path)),
    };
    match text.with_context(|| format!("cannot read {source}")) {
        Ok(text) => parse(&source, &text),
        Err(error) => vec![Err(error)],
    }
}

fn parse(source: &str, text: &str) -> Vec<Result<Manifest>> {
    match documents(text) {
        Ok(documents) => {
            let objects = documents.into_iter().flat_map(items);
            objects.map(|object| Manifest::of(source, object)).collect()
        }
        Err(problem) => vec![Err(anyhow!("{source}: {problem}"))],
    }
}

fn documents(text: &str) -> Result<Vec<Value>, String> {
    if text.trim_start().starts_with('{') {
        let stream = serde_json::Deserializer::from_str(text).into_iter();
        // YAML may begin so as well
        if let Ok(documents) = stream.collect::<Result<Vec<Value>, _>>() {
            return Ok(documents);
        }
    }
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let line = error.location().map(|location| location.line());
        let text = error.to_string();
        match line {
            Some(line) if !text.contains("line ") => format!("line {line}: {text}"),
            _ => text,
        }
    })
}

/// The objects of a list, or the one that it is; nothing of an empty document.
fn items(mut document: Value) -> Vec<Value> {
    let is_list = document["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(other) => {
            document["items"] = other;
            vec![document]
        }
        None if document.is_null() => Vec::new(),
        None => vec![document],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::{parse, read};

    fn told(text: &str) -> Vec<String> {
        let manifests = parse("f.yaml", text).into_iter();
        let told = manifests.map(|one| match one {
            Ok(manifest) => manifest.to_string(),
            Err(error) => error.to_string(),
        });
        told.collect()
    }

    #[test]
    fn documents_and_lists_are_read_in_their_order() {
        let yaml = "# first\n---\n{apiVersion: v1, kind: A, metadata: {name: a}}\n---\n---\napiVersion: v1\nkind: List\nitems:\n\
                    - {apiVersion: v1, kind: B, metadata: {name: b}}\n- {apiVersion: v1, kind: C, metadata: {name: c}}\n";
        assert_eq!(
            told(yaml),
            ["f.yaml: A \"a\"", "f.yaml: B \"b\"", "f.yaml: C \"c\""]
        );
        let json = r#"{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}
                      {"apiVersion": "v1", "kind": "B", "metadata": {"name": "b"}}"#;
        assert_eq!(told(json), ["f.yaml: A \"a\"", "f.yaml: B \"b\""]);
        let flow = "{apiVersion: v1, kind: A, metadata: {name: a}}";
        assert_eq!(told(flow), ["f.yaml: A \"a\""]);
        assert!(told("").is_empty());
    }

    #[test]
    fn what_is_no_manifest_is_named() {
        assert_eq!(told("a: 1"), ["f.yaml: an object has no kind"]);
        assert_eq!(told("kind: A"), ["f.yaml: a A has no apiVersion"]);
        assert_eq!(
            told("{apiVersion: v1, kind: A, metadata: {generateName: x}}"),
            ["f.yaml: a A has no metadata.name"]
        );
        let broken = &told("a: 1\nb: [")[0];
        assert!(
            broken.starts_with("f.yaml: ") && broken.contains("line "),
            "{broken}"
        );
    }

    #[test]
    fn a_directory_is_its_manifests_by_name() {
        let directory = tempfile::tempdir().unwrap();
        for (file, name) in [
            ("2.yaml", "b"),
            ("1.json", "a"),
            ("3.yml", "c"),
            ("4.txt", "d"),
        ] {
            let text =
                format!(r#"{{"apiVersion": "v1", "kind": "A", "metadata": {{"name": "{name}"}}}}"#);
            std::fs::write(directory.path().join(file), text).unwrap();
        }
        let found = read(&[directory.path().to_owned()]);
        let names: Vec<String> = found.into_iter().map(|one| one.unwrap().name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let missing = read(&[directory.path().join("none.yaml")]);
        let error = missing[0].as_ref().unwrap_err().to_string();
        assert!(
            error.contains("cannot read") && error.contains("none.yaml"),
            "{error}"
        );
    }

    #[test]
    fn a_namespace_that_is_not_the_asked_one_is_refused() {
        let object = "{apiVersion: v1, kind: A, metadata: {name: a, namespace: here}}";
        let manifest = parse("f", object).remove(0).unwrap();
        assert_eq!(manifest.namespace_in(None, "default").unwrap(), "here");
        assert_eq!(manifest.namespace_in(Some("here"), "here").unwrap(), "here");
        assert!(manifest.namespace_in(Some("there"), "there").is_err());
    }
}
