//! Counts what was written to the API server, and by whom.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One write that the API server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub user_agent: String,
    pub user: String,
    /// create, update, patch, delete, deletecollection
    pub verb: String,
    /// `pods`, or with a subresource `pods/status`
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
}

/// A place in an audit log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mark(u64);

impl Mark {
    pub(crate) fn end(log: &Path) -> Result<Self> {
        let metadata = open(log)?.metadata().context("measuring the audit log")?;
        Ok(Self(metadata.len()))
    }
}

fn open(log: &Path) -> Result<File> {
    File::open(log).with_context(|| {
        format!(
            "opening {}: the cluster must be started with audit",
            log.display()
        )
    })
}

/// The writes in an audit log, in the order of their answers.
#[derive(Debug, Clone, Default)]
pub struct Writes(pub Vec<Write>);

impl Writes {
    /// The writes after `mark`.
    pub(crate) fn read(log: &Path, mark: Mark) -> Result<Self> {
        let mut file = open(log)?;
        file.seek(SeekFrom::Start(mark.0))
            .context("finding the place in the audit log")?;
        let mut writes = Vec::new();
        for line in BufReader::new(file).lines() {
            // the last line may still be under way
            if let Ok(event) =
                serde_json::from_str::<Event>(&line.context("reading the audit log")?)
            {
                writes.extend(event.into_write());
            }
        }
        Ok(Self(writes))
    }

    /// How many writes fit.
    pub fn count(&self, fits: impl Fn(&Write) -> bool) -> usize {
        self.0.iter().filter(|w| fits(w)).count()
    }

    /// How many writes each program made; a program is its user agent up to the first slash.
    pub fn by_user_agent(&self) -> std::collections::BTreeMap<&str, usize> {
        let mut counts = std::collections::BTreeMap::new();
        for write in &self.0 {
            let program = write.user_agent.split('/').next().unwrap_or_default();
            *counts.entry(program).or_default() += 1;
        }
        counts
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(default)]
    user_agent: String,
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl Event {
    fn into_write(self) -> Option<Write> {
        let ObjectRef {
            resource,
            subresource,
            namespace,
            name,
        } = self.object_ref?;
        if self.stage != "ResponseComplete" {
            return None;
        }
        Some(Write {
            user_agent: self.user_agent,
            user: self.user.username,
            verb: self.verb,
            resource: if subresource.is_empty() {
                resource
            } else {
                format!("{resource}/{subresource}")
            },
            namespace,
            name,
            code: self.response_status.map_or(0, |s| s.code),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Mark, Writes};

    #[test]
    fn a_log_that_is_still_being_written_is_read_up_to_its_last_complete_line() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let line = |verb: &str, stage: &str| {
            format!(
                r#"{{"stage":"{stage}","verb":"{verb}","userAgent":"kubectl/v1.36.3 (linux)","user":{{"username":"admin"}},"objectRef":{{"resource":"pods","subresource":"status","name":"a"}},"responseStatus":{{"code":200}}}}"#
            )
        };
        let text = [
            line("patch", "ResponseComplete"),
            line("patch", "Panic"),
            line("x", "y"),
        ];
        let text = text.join("\n");
        std::fs::write(log.path(), &text[..text.len() - 5]).unwrap();
        let writes = Writes::read(log.path(), Mark::default()).unwrap();
        assert_eq!(writes.0.len(), 1);
        assert_eq!(writes.0[0].resource, "pods/status");
        assert_eq!(writes.by_user_agent()["kubectl"], 1);
    }

    #[test]
    fn writes_are_read_from_a_mark_on() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let line = |name: &str| {
            format!(
                r#"{{"stage":"ResponseComplete","verb":"create","user":{{}},"objectRef":{{"resource":"pods","name":"{name}"}},"responseStatus":{{"code":201}}}}"#
            ) + "\n"
        };
        std::fs::write(log.path(), line("before")).unwrap();
        let mark = Mark::end(log.path()).unwrap();
        std::fs::write(log.path(), line("before") + &line("after")).unwrap();
        let writes = Writes::read(log.path(), mark).unwrap();
        assert_eq!(writes.0.len(), 1);
        assert_eq!(writes.0[0].name, "after");
    }
}
