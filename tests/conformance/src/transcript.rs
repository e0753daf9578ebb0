//! What a run recorded, as files and as a comparison.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::{Error, diff};

/// Topic → cases in the order of their file → what was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcripts(pub BTreeMap<String, Vec<(String, String)>>);

/// How two sets of transcripts relate.
#[derive(Debug)]
pub struct Comparison {
    pub topics: Vec<TopicResult>,
}

#[derive(Debug)]
pub struct TopicResult {
    pub topic: String,
    pub cases: usize,
    pub different: Vec<Difference>,
}

#[derive(Debug)]
pub struct Difference {
    pub case: String,
    /// Lines with ` `, `-` (expected) and `+` (got) in front.
    pub diff: String,
}

impl Transcripts {
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Read {
            path: dir.to_owned(),
            source,
        };
        let mut topics = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|e| e == "txt") {
                let text = fs::read_to_string(&path).map_err(failed)?;
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                topics.insert(name.into_owned(), split(&text));
            }
        }
        Ok(Self(topics))
    }

    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let failed = |source| Error::Write {
            path: dir.to_owned(),
            source,
        };
        fs::create_dir_all(dir).map_err(failed)?;
        for (topic, cases) in &self.0 {
            let mut text = String::new();
            for (name, said) in cases {
                // writing to a string cannot fail
                let _ = writeln!(text, "### {name}\n{said}");
            }
            fs::write(dir.join(format!("{topic}.txt")), text).map_err(failed)?;
        }
        Ok(())
    }

    pub fn cases(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Compares the cases of `self`, what a server said, with `golden`. Cases that only `golden` has were not run
    /// and are not counted.
    pub fn compare(&self, golden: &Self) -> Comparison {
        let topics = self.0.iter().map(|(topic, cases)| {
            let known = golden.0.get(topic).map_or(&[][..], Vec::as_slice);
            let different = cases.iter().filter_map(|(name, said)| {
                let expected = known.iter().find(|(known, _)| known == name);
                let expected = expected.map_or("", |(_, text)| text.as_str());
                (expected != said).then(|| Difference {
                    case: name.clone(),
                    diff: diff::lines(expected, said),
                })
            });
            TopicResult {
                topic: topic.clone(),
                cases: cases.len(),
                different: different.collect(),
            }
        });
        Comparison {
            topics: topics.collect(),
        }
    }
}

fn split(text: &str) -> Vec<(String, String)> {
    let mut cases: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            cases.push((name.to_owned(), String::new()));
        } else if let Some((_, said)) = cases.last_mut() {
            said.push_str(line);
            said.push('\n');
        }
    }
    for (_, said) in &mut cases {
        // the empty line that `write` puts between cases
        if said.ends_with("\n\n") {
            said.pop();
        }
    }
    cases
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.topics.iter().all(|topic| topic.different.is_empty())
    }

    /// Topic, cases, same, different; and a line of totals.
    pub fn table(&self) -> String {
        let width = self.topics.iter().map(|t| t.topic.len()).max();
        let width = width.unwrap_or(0).max("topic".len());
        let mut text = String::new();
        let mut row = |name: &str, cases: &str, same: &str, different: &str| {
            let _ = writeln!(text, "{name:width$}  {cases:>5}  {same:>5}  {different:>9}");
        };
        row("topic", "cases", "same", "different");
        let (mut all, mut bad) = (0, 0);
        for topic in &self.topics {
            let different = topic.different.len();
            let same = topic.cases - different;
            row(
                &topic.topic,
                &topic.cases.to_string(),
                &same.to_string(),
                &different.to_string(),
            );
            all += topic.cases;
            bad += different;
        }
        row(
            "total",
            &all.to_string(),
            &(all - bad).to_string(),
            &bad.to_string(),
        );
        text
    }

    /// `topic: case` of those that differ.
    pub fn different(&self) -> impl Iterator<Item = String> {
        self.topics.iter().flat_map(|topic| {
            let cases = topic.different.iter();
            cases.map(|difference| format!("{}: {}", topic.topic, difference.case))
        })
    }

    /// Every difference with its diff.
    pub fn diffs(&self) -> String {
        let mut text = String::new();
        for topic in &self.topics {
            for difference in &topic.different {
                let _ = writeln!(text, "{}: {}", topic.topic, difference.case);
                let _ = writeln!(text, "{}", difference.diff);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Transcripts;
    use std::collections::BTreeMap;

    fn one(said: &str) -> Transcripts {
        let cases = vec![("a case".to_owned(), said.to_owned())];
        Transcripts(BTreeMap::from([("topic".to_owned(), cases)]))
    }

    #[test]
    fn a_changed_line_is_a_difference() {
        let comparison = one("GET /a\n200\n").compare(&one("GET /a\n404\n"));
        assert!(!comparison.is_same());
        assert!(comparison.diffs().contains("-404\n+200"));
        assert!(
            comparison
                .table()
                .contains("topic      1      0          1")
        );
    }

    #[test]
    fn what_was_written_is_read_back() {
        let dir = std::env::temp_dir().join(format!("conformance-{}", std::process::id()));
        let transcripts = one("GET /a\n200\n\n  x\n");
        transcripts.write(&dir).unwrap();
        assert_eq!(Transcripts::read(&dir).unwrap(), transcripts);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
