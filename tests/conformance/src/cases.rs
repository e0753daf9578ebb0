//! The cases as written: `cases/*.http` read into steps. `tests/conformance/README.md` describes the format.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::shape::Shape;

const METHODS: [&str; 8] = [
    "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE",
];

/// One file of cases.
#[derive(Debug, Clone)]
pub struct Topic {
    pub name: String,
    pub cases: Vec<Case>,
}

/// Requests that belong together and share a namespace of their own.
#[derive(Debug, Clone)]
pub struct Case {
    /// Unique within its topic.
    pub name: String,
    pub(crate) steps: Vec<Step>,
    /// `@let`s of the file and of the case, in order; a value may use earlier names.
    pub(crate) lets: Vec<(String, String)>,
}

impl Case {
    /// Whether the case waits for what controllers do in their own time.
    pub(crate) fn waits(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| matches!(step, Step::Await { .. }))
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send(Request),
    /// Opens a watch that later steps call by name.
    Watch {
        name: String,
        request: Request,
    },
    Events {
        watch: String,
        until: Until,
        shape: Shape,
    },
    Await {
        what: Awaited,
        target: String,
    },
    /// A list read page by page until the server gives no more continue token.
    Pages {
        limit: u32,
        request: Request,
    },
    /// Remembers a value of the last answer.
    Capture {
        name: String,
        pointer: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Until {
    Count(usize),
    /// No event for a moment.
    Quiet,
    /// The server ends the stream.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaited {
    Status(u16),
    Value { pointer: String, value: String },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    /// The target and its `as` words, for the transcript.
    pub(crate) shown: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) shape: Shape,
}

/// Reads every `*.http` file of a directory, in the order of their names.
pub fn load(dir: &Path) -> Result<Vec<Topic>, Error> {
    let read = |source| Error::Read {
        path: dir.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.extension().is_some_and(|e| e == "http") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut topics = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        topics.push(parse(&name, &text)?);
    }
    Ok(topics)
}

/// Reads one file's text.
pub fn parse(topic: &str, text: &str) -> Result<Topic, Error> {
    let mut parser = Parser::default();
    for (index, line) in text.lines().enumerate() {
        parser.line(line).map_err(|what| Error::Syntax {
            topic: topic.to_owned(),
            line: index + 1,
            what,
        })?;
    }
    parser.end_request();
    Ok(Topic {
        name: topic.to_owned(),
        cases: parser.cases,
    })
}

#[derive(Default)]
struct Parser {
    cases: Vec<Case>,
    /// What the head of the file says for all cases.
    lets: Vec<(String, String)>,
    shape: Shape,
    /// Masks that wait for the next step.
    pending: Shape,
    request: Option<Open>,
}

/// A request whose headers or body may still follow.
struct Open {
    request: Request,
    watch: Option<String>,
    in_body: bool,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(name) = line.strip_prefix("### ") {
            self.end_request();
            let name = name.trim().to_owned();
            if self.cases.iter().any(|case| case.name == name) {
                return Err(format!("the name {name:?} is used twice"));
            }
            self.cases.push(Case {
                name,
                steps: Vec::new(),
                lets: self.lets.clone(),
            });
        } else if line.starts_with('#') {
            // a comment, also between the lines of a body
        } else if let Some(directive) = line.strip_prefix('@') {
            self.end_request();
            self.directive(directive)?;
        } else if let Some((method, rest)) = request_line(line) {
            self.end_request();
            let mut request = self.request(method.trim_start_matches('~'), rest)?;
            request.shape.brief |= method.starts_with('~');
            self.open(request, None);
        } else {
            self.continuation(line)?;
        }
        Ok(())
    }

    fn continuation(&mut self, line: &str) -> Result<(), String> {
        let Some(open) = &mut self.request else {
            return match line.trim() {
                "" => Ok(()),
                other => Err(format!("{other:?} is neither a request nor a directive")),
            };
        };
        if !open.in_body && line.trim().is_empty() {
            open.in_body = true;
        } else if open.in_body || line.starts_with(['{', '[', '$']) {
            open.in_body = true;
            open.request.body.push_str(line);
            open.request.body.push('\n');
        } else {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| format!("{line:?} is not a header"))?;
            let header = (name.trim().to_owned(), value.trim().to_owned());
            open.request.headers.push(header);
        }
        Ok(())
    }

    /// `TARGET [as WORD]…`
    fn request(&mut self, method: &str, rest: &str) -> Result<Request, String> {
        let mut words = rest.split(" as ");
        let target = words.next().unwrap_or_default().trim().to_owned();
        let mut shape = self.shape.clone();
        shape.add(std::mem::take(&mut self.pending));
        let mut request = Request {
            method: method.to_owned(),
            target,
            shown: rest.trim().to_owned(),
            shape,
            ..Request::default()
        };
        for word in words {
            let header = media_type(word.trim())
                .ok_or_else(|| format!("\"as {word}\" names no media type"))?;
            request.headers.push(header);
        }
        Ok(request)
    }

    fn open(&mut self, request: Request, watch: Option<String>) {
        self.request = Some(Open {
            request,
            watch,
            in_body: false,
        });
    }

    fn end_request(&mut self) {
        if let Some(open) = self.request.take()
            && let Some(case) = self.cases.last_mut()
        {
            let mut request = open.request;
            request.body = request.body.trim().to_owned();
            case.steps.push(match open.watch {
                Some(name) => Step::Watch { name, request },
                None => Step::Send(request),
            });
        }
    }

    fn directive(&mut self, directive: &str) -> Result<(), String> {
        let (verb, rest) = directive.split_once(' ').unwrap_or((directive, ""));
        let rest = rest.trim();
        let missing = || format!("@{directive} lacks an argument");
        match verb {
            "let" => {
                let (name, value) = rest.split_once('=').ok_or_else(missing)?;
                let pair = (name.trim().to_owned(), value.trim().to_owned());
                match self.cases.last_mut() {
                    Some(case) => case.lets.push(pair),
                    None => self.lets.push(pair),
                }
                return Ok(());
            }
            "watch" => {
                let (name, rest) = rest.split_once(' ').ok_or_else(missing)?;
                let request = self.request("GET", rest)?;
                self.open(request, Some(name.to_owned()));
                return Ok(());
            }
            _ => {}
        }
        let shape = match self.cases.last() {
            Some(_) => &mut self.pending,
            None => &mut self.shape,
        };
        if shape.directive(verb, rest)? {
            return Ok(());
        }
        let step = self.step(verb, rest)?.ok_or_else(missing)?;
        let case = self
            .cases
            .last_mut()
            .ok_or("a step stands before the first case")?;
        case.steps.push(step);
        Ok(())
    }

    fn step(&mut self, verb: &str, rest: &str) -> Result<Option<Step>, String> {
        let Some((first, second)) = rest.split_once(' ') else {
            return Ok(None);
        };
        let second = second.trim();
        Ok(Some(match verb {
            "events" => {
                let mut shape = self.shape.clone();
                shape.add(std::mem::take(&mut self.pending));
                let until = match second {
                    "quiet" => Until::Quiet,
                    "end" => Until::End,
                    count => Until::Count(count.parse().map_err(|_| format!("{count:?}?"))?),
                };
                Step::Events {
                    watch: first.to_owned(),
                    until,
                    shape,
                }
            }
            "await" => Step::Await {
                what: match first.split_once('=') {
                    Some((pointer, value)) => Awaited::Value {
                        pointer: pointer.to_owned(),
                        value: value.to_owned(),
                    },
                    None => Awaited::Status(first.parse().map_err(|_| format!("{first:?}?"))?),
                },
                target: second.to_owned(),
            },
            "pages" => Step::Pages {
                limit: first.parse().map_err(|_| format!("{first:?}?"))?,
                request: self.request("GET", second)?,
            },
            "capture" => Step::Capture {
                name: first.to_owned(),
                pointer: second.to_owned(),
            },
            _ => return Err(format!("@{verb} is not known")),
        }))
    }
}

/// `METHOD target` at the start of a line; the target begins with a slash or a variable. A `~` before the method
/// asks for the status line alone.
fn request_line(line: &str) -> Option<(&str, &str)> {
    let (method, rest) = line.split_once(' ')?;
    let known = METHODS.contains(&method.strip_prefix('~').unwrap_or(method));
    (known && rest.starts_with(['/', '$'])).then_some((method, rest))
}

fn media_type(word: &str) -> Option<(String, String)> {
    let (header, value) = match word {
        "yaml" => ("Content-Type", "application/yaml"),
        "merge" => ("Content-Type", "application/merge-patch+json"),
        "json" => ("Content-Type", "application/json-patch+json"),
        "strategic" => ("Content-Type", "application/strategic-merge-patch+json"),
        "apply" => ("Content-Type", "application/apply-patch+yaml"),
        "table" => ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        "metadata" => (
            "Accept",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ),
        "metadata-list" => (
            "Accept",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ),
        "discovery" => (
            "Accept",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
        _ => return None,
    };
    Some((header.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Awaited, Step, Until, parse};

    #[test]
    fn a_file_becomes_cases_and_steps() {
        let text = "# a comment\n\
                    @let cms = /x/$ns/configmaps\n\
                    ### first\n\
                    ~POST $cms as yaml\n\
                    Accept: application/json\n\
                    \n\
                    metadata:\n\
                    \x20 name: a\n\
                    PATCH $cms/a as merge\n\
                    {\"data\": {}}\n\
                    ### second\n\
                    @watch w $cms?watch=true\n\
                    @events w quiet\n\
                    @await 404 $cms/a\n";
        let topic = parse("topic", text).unwrap();
        let names: Vec<_> = topic.cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        let [Step::Send(create), Step::Send(patch)] = topic.cases[0].steps.as_slice() else {
            panic!("{:?}", topic.cases[0].steps);
        };
        assert_eq!(create.body, "metadata:\n  name: a");
        assert_eq!(create.headers.len(), 2);
        assert!(create.shape.brief && !patch.shape.brief);
        assert_eq!(patch.headers[0].1, "application/merge-patch+json");
        let [
            Step::Watch { .. },
            Step::Events { until, .. },
            Step::Await { what, .. },
        ] = topic.cases[1].steps.as_slice()
        else {
            panic!("{:?}", topic.cases[1].steps);
        };
        assert_eq!((until, what), (&Until::Quiet, &Awaited::Status(404)));
        assert!(topic.cases[1].waits());
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, line) in [
            ("### a\nhello", 2),
            ("### a\n@frobnicate x y", 2),
            ("### a\n### a", 2),
            ("### a\nGET /x as nonsense", 2),
            ("@events w 3", 1),
        ] {
            let error = parse("topic", text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("topic.http, line {line}: ")),
                "{error}"
            );
        }
    }
}
