//! Distils the protobuf messages of Kubernetes' kinds into the table `crates/api/src/protobuf/messages.json`.
//!
//! The `.proto` files say what is on the wire; what a field is called in JSON, and which messages stand in the place of
//! their fields, only the Go types say. Both number the fields alike.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use crate::go_types::{self, Declared, OWN_JSON, PACKAGES, ROOTS, beside, declared};

const SCALARS: &[&str] = &["bool", "bytes", "double", "int32", "int64", "string"];

type Messages = HashMap<String, Vec<Field>>;

struct Field {
    number: u32,
    name: String,
    /// `string`, `core/v1.Pod`, `[]core/v1.Container`, `map[string]string`
    wire_type: String,
}

/// Renders the table from the sources of the modules beside `kubernetes`: one message a line, sorted.
pub fn table(kubernetes: &Path) -> Result<String> {
    let mut messages = Messages::new();
    for (module, folder, package) in PACKAGES {
        let path = beside(kubernetes, module)?
            .join(folder)
            .join("generated.proto");
        // some packages have no messages
        if path.exists() {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
            read_file(&text, package, &mut messages)
                .with_context(|| format!("reading {}", path.display()))?;
        }
    }
    let declared = declared(kubernetes)?;
    let mut rendered = BTreeMap::new();
    for root in ROOTS {
        collect(root, &messages, &declared, &mut rendered)?;
    }
    let lines: Vec<String> = rendered
        .iter()
        .map(|(name, message)| format!("{}:{message}", Value::from(name.as_str())))
        .collect();
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

fn read_file(text: &str, package: &str, messages: &mut Messages) -> Result<()> {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line
            .strip_prefix("message ")
            .and_then(|rest| rest.strip_suffix(" {"))
        else {
            continue;
        };
        let body = lines.by_ref().take_while(|line| !line.starts_with('}'));
        let fields = body
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("//"))
            .map(|line| field(line, package).with_context(|| format!("{name}: {line}")))
            .collect::<Result<_>>()?;
        messages.insert(format!("{package}.{name}"), fields);
    }
    Ok(())
}

/// A line such as `repeated Container containers = 2;`.
fn field(line: &str, package: &str) -> Result<Field> {
    let (before, after) = line.split_once(" = ").context("no field")?;
    let number = after.trim_end_matches(';').parse().context("no number")?;
    let (written, name) = before.rsplit_once(' ').context("no name")?;
    let wire_type = if let Some(entry) = written.strip_prefix("map<") {
        let entry = entry.trim_end_matches('>').split_once(", ");
        let (key, value) = entry.context("no map")?;
        format!("map[{key}]{}", qualified(value, package)?)
    } else if let Some(element) = written.strip_prefix("repeated ") {
        format!("[]{}", qualified(element, package)?)
    } else {
        let one = written.strip_prefix("optional ");
        qualified(one.context("neither optional nor repeated")?, package)?
    };
    Ok(Field {
        number,
        name: name.to_owned(),
        wire_type,
    })
}

/// The type with its package as the table calls it.
fn qualified(written: &str, package: &str) -> Result<String> {
    if SCALARS.contains(&written) {
        return Ok(written.to_owned());
    }
    let Some(path) = written.strip_prefix(".k8s.io.") else {
        return Ok(format!("{package}.{written}"));
    };
    let (of_package, name) = path.rsplit_once('.').context("no package")?;
    let known = PACKAGES.iter().find(|(module, folder, _)| {
        let path = format!("{module}/{folder}");
        path.replace('/', ".").replace('-', "_") == of_package
    });
    match known {
        Some((_, _, package)) => Ok(format!("{package}.{name}")),
        // reachable from none of the kinds, else it is missed later
        None => Ok(path.to_owned()),
    }
}

fn collect(
    name: &str,
    messages: &Messages,
    declared: &BTreeMap<String, Declared>,
    rendered: &mut BTreeMap<String, Value>,
) -> Result<()> {
    if rendered.contains_key(name) {
        return Ok(());
    }
    let fields = messages
        .get(name)
        .with_context(|| format!("no file has the message {name}"))?;
    let message = match declared.get(name) {
        _ if OWN_JSON.contains(&name) => fields
            .iter()
            .map(|field| (field.number.to_string(), shown(&field.name, field)))
            .collect(),
        Some(Declared::Struct(of_go)) => render(fields, of_go).context(name.to_owned())?,
        // a message around a list, for protobuf has no lists of lists
        Some(Declared::As(list)) if list.starts_with("[]") => Value::from(list.as_str()),
        _ => bail!("no source declares {name}"),
    };
    rendered.insert(name.to_owned(), message);
    for field in fields {
        let of = field.wire_type.rsplit(']').next().unwrap_or_default();
        if !SCALARS.contains(&of) {
            collect(of, messages, declared, rendered)?;
        }
    }
    Ok(())
}

/// Fields by number as `name:type`. There is no name if the fields of the type stand in its place. What Go calls the
/// field stands behind the name and a slash where it is not the same in upper case.
fn render(fields: &[Field], of_go: &[go_types::Field]) -> Result<Value> {
    let mut out = Map::new();
    for field in fields {
        let number = field.number;
        let same = of_go.iter().find(|same| same.number == Some(number));
        let same = same.with_context(|| format!("Go has no field {number}"))?;
        let name = same.name.as_deref().unwrap_or_default();
        let usual = match name {
            "" => field
                .wire_type
                .rsplit('.')
                .next()
                .unwrap_or_default()
                .to_owned(),
            name => capitalized(name),
        };
        let rendered = match same.go_name == usual {
            true => shown(name, field),
            false => shown(&format!("{name}/{}", same.go_name), field),
        };
        out.insert(number.to_string(), rendered);
    }
    Ok(Value::Object(out))
}

fn shown(name: &str, field: &Field) -> Value {
    format!("{name}:{}", field.wire_type).into()
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
