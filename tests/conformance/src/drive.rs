//! Runs one case: sends its requests and writes down the answers.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::Error;
use crate::cases::{Awaited, Case, Request, Step, Until};
use crate::mask::{Masks, View, is_noise};
use crate::print::pretty;
use crate::shape::Shape;
use crate::variables::{Variables, bytes, random};
use crate::watch::{Next, Watch};

/// For what controllers do in their own time: garbage collection, the end of a namespace.
const PATIENCE: Duration = Duration::from_secs(60);
/// No single answer takes this long.
const ANSWER: Duration = Duration::from_secs(60);
/// An event that was caused by a finished request is on its way already.
const EVENT: Duration = Duration::from_secs(10);
/// Silence that counts as the end of a burst.
const QUIET: Duration = Duration::from_millis(600);
const POLL: Duration = Duration::from_millis(30);
/// The status of a server whose cache is behind.
const BEHIND: u16 = 504;
/// More pages than any case needs; a server whose tokens go round in circles must not hang the run.
const PAGES: usize = 50;

const NAMESPACES: &str = "/api/v1/namespaces";
/// The name under which field managers and events see us.
const USER_AGENT: &str = "conformance/1";

pub(crate) struct Driver<'a> {
    client: &'a Client,
    variables: Variables,
    masks: Masks,
    watches: HashMap<String, Watch>,
    last: Value,
    out: String,
    namespace: Option<String>,
    /// Cluster-scoped objects that the case created.
    created: Vec<String>,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

/// Runs the case and removes what it created, of namespaces only if asked.
pub(crate) async fn run(client: &Client, case: &Case, tidy: bool) -> Result<String, Error> {
    let mut driver = Driver {
        client,
        variables: Variables::default(),
        masks: Masks::default(),
        watches: HashMap::new(),
        last: Value::Null,
        out: String::new(),
        namespace: None,
        created: Vec::new(),
    };
    let result = driver.case(case).await;
    driver.clean(tidy).await;
    result.map(|()| driver.out)
}

impl Driver<'_> {
    async fn case(&mut self, case: &Case) -> Result<(), Error> {
        let token = random();
        self.masks.text(&format!("conf-{token}"), "$ns");
        self.masks.text(&token, "$rand");
        self.variables.set("rand", token.clone());
        self.variables.set("ns", format!("conf-{token}"));
        for (name, value) in &case.lets {
            self.variables.set(name, value.clone());
        }
        let needs = Needs::of(case, &self.variables, &token);
        if needs.namespace {
            self.create_namespace(&format!("conf-{token}"), needs.account)
                .await?;
        }
        for step in &case.steps {
            self.step(step).await?;
        }
        Ok(())
    }

    async fn create_namespace(&mut self, name: &str, account: bool) -> Result<(), Error> {
        let request = Request {
            method: "POST".to_owned(),
            target: NAMESPACES.to_owned(),
            body: format!(r#"{{"metadata": {{"name": "{name}"}}}}"#),
            ..Request::default()
        };
        let answer = self.send(&request).await?;
        if answer.status != 201 {
            return Err(Error::Setup {
                what: format!("namespace {name}"),
                answer: answer.text,
            });
        }
        self.namespace = Some(format!("{NAMESPACES}/{name}"));
        if account {
            let account = format!("{NAMESPACES}/{name}/serviceaccounts/default");
            self.wait(&Awaited::Status(200), &account).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Send(request) => {
                self.say(&format!("> {} {}", request.method, request.shown));
                let answer = self.send_in_time(request).await?;
                self.note_created(request, &answer);
                self.say_answer(&answer, &request.shape);
            }
            Step::Watch { name, request } => {
                self.say(&format!("> watch {name}: GET {}", request.shown));
                let response = self.start(request).await?;
                if response.status().is_success() {
                    self.say(&head(response.status().as_u16(), response.headers()));
                    self.watches
                        .insert(name.clone(), Watch::new(response.into_body()));
                } else {
                    let answer = collect(response).await?;
                    self.last = serde_json::from_str(&answer.text).unwrap_or(Value::Null);
                    self.say_answer(&answer, &request.shape);
                }
            }
            Step::Events {
                watch,
                until,
                shape,
            } => self.events(watch, until, shape).await?,
            Step::Await { what, target } => {
                let shown = match what {
                    Awaited::Status(code) => code.to_string(),
                    Awaited::Value { pointer, value } => format!("{pointer}={value}"),
                };
                self.say(&format!("> await {shown}: GET {target}"));
                let target = self.variables.expand(target);
                let verdict = match self.wait(what, &target).await? {
                    true => "came",
                    false => "did not come",
                };
                self.say(verdict);
            }
            Step::Pages { limit, request } => self.pages(*limit, request).await?,
            Step::Capture { name, pointer } => {
                let value = plain(self.last.pointer(pointer));
                self.variables.set(name, value);
            }
        }
        Ok(())
    }

    async fn pages(&mut self, limit: u32, request: &Request) -> Result<(), Error> {
        let mut request = request.clone();
        let sign = if request.target.contains('?') {
            '&'
        } else {
            '?'
        };
        let base = format!("{}{sign}limit={limit}", request.target);
        request.target.clone_from(&base);
        for page in 1..=PAGES {
            self.say(&format!("> page {page}: GET {base}"));
            let answer = self.send(&request).await?;
            self.say_answer(&answer, &request.shape);
            match self.last.pointer("/metadata/continue") {
                Some(Value::String(token)) if !token.is_empty() => {
                    request.target = format!("{base}&continue={token}");
                }
                _ => return Ok(()),
            }
        }
        self.say("(no end of pages)");
        Ok(())
    }

    async fn events(&mut self, name: &str, until: &Until, shape: &Shape) -> Result<(), Error> {
        let Some(mut watch) = self.watches.remove(name) else {
            self.say(&format!("> events of {name}\n(no such watch)"));
            return Ok(());
        };
        let (count, patience) = match until {
            Until::Count(count) => (*count, EVENT),
            Until::Quiet => (usize::MAX, QUIET),
            Until::End => (usize::MAX, PATIENCE),
        };
        self.say(&format!("> events of {name}"));
        let mut read = 0;
        while read < count {
            let mut event = match watch.next(patience).await {
                Next::Event(event) => event,
                Next::End => {
                    self.say("(end)");
                    break;
                }
                Next::Nothing => {
                    self.say(match until {
                        Until::Quiet => "(quiet)",
                        Until::Count(_) | Until::End => "(nothing more)",
                    });
                    break;
                }
            };
            let rows = event.pointer("/object/rows/0");
            if is_noise(rows.unwrap_or(&event)) {
                continue;
            }
            read += 1;
            self.variables.learn(&event["object"]);
            let kind = event["type"].as_str().unwrap_or_default().to_owned();
            let mut object = event["object"].take();
            let view = View {
                bookmark: kind == "BOOKMARK",
                ..view(shape)
            };
            self.masks.body(&mut object, view);
            shape.apply(&mut object);
            self.say(&format!("{kind} {}", pretty(&object)));
        }
        self.watches.insert(name.to_owned(), watch);
        Ok(())
    }

    async fn wait(&mut self, what: &Awaited, target: &str) -> Result<bool, Error> {
        let request = Request {
            method: "GET".to_owned(),
            target: target.to_owned(),
            ..Request::default()
        };
        let give_up = Instant::now() + PATIENCE;
        loop {
            let answer = self.send(&request).await?;
            let came = match what {
                Awaited::Status(code) => answer.status == *code,
                Awaited::Value { pointer, value } => plain(self.last.pointer(pointer)) == *value,
            };
            if came || Instant::now() > give_up {
                return Ok(came);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn start(&mut self, request: &Request) -> Result<Response<Body>, Error> {
        let mut builder = http::Request::builder()
            .method(request.method.as_str())
            .uri(self.variables.expand(&request.target))
            .header("User-Agent", USER_AGENT);
        let has = |name: &str| {
            let mut headers = request.headers.iter();
            headers.any(|(header, _)| header.eq_ignore_ascii_case(name))
        };
        if !has("Accept") {
            builder = builder.header("Accept", "application/json");
        }
        let body = self.variables.expand(&request.body);
        if !has("Content-Type") && !body.is_empty() {
            let media = match body.starts_with(['{', '[']) {
                true => "application/json",
                false => "application/yaml",
            };
            builder = builder.header("Content-Type", media);
        }
        for (name, value) in &request.headers {
            builder = builder.header(name, self.variables.expand(value));
        }
        let failed = |what: String| Error::Request {
            request: format!("{} {}", request.method, request.target),
            what,
        };
        let request = builder
            .body(Body::from(bytes(&body)))
            .map_err(|e| failed(e.to_string()))?;
        let sent = tokio::time::timeout(ANSWER, self.client.send(request));
        let sent = sent.await.map_err(|_| failed("no answer".to_owned()))?;
        sent.map_err(|e| failed(e.to_string()))
    }

    /// A server whose cache has not come to a version that the server itself has given asks to come again.
    async fn send_in_time(&mut self, request: &Request) -> Result<Answer, Error> {
        let is_its_own = request.target.contains("resourceVersion=$");
        let give_up = Instant::now() + PATIENCE;
        loop {
            let answer = self.send(request).await?;
            if !is_its_own || answer.status != BEHIND || Instant::now() > give_up {
                return Ok(answer);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn send(&mut self, request: &Request) -> Result<Answer, Error> {
        let answer = collect(self.start(request).await?).await?;
        self.last = serde_json::from_str(&answer.text).unwrap_or(Value::Null);
        self.variables.learn(&self.last);
        Ok(answer)
    }

    fn note_created(&mut self, request: &Request, answer: &Answer) {
        let metadata = &self.last["metadata"];
        let target = self.variables.expand(&request.target);
        let path = target.split('?').next().unwrap_or_default();
        let name = metadata["name"].as_str();
        if answer.status == 201
            && metadata.get("namespace").is_none()
            && !target.contains("dryRun")
            && let Some(name) = name
        {
            self.created.push(match request.method.as_str() {
                "POST" => format!("{path}/{name}"),
                _ => path.to_owned(),
            });
        }
    }

    /// What goes wrong here is not the case's: the next run has other names.
    async fn clean(&mut self, tidy: bool) {
        self.watches.clear();
        let namespaces = self.namespace.take().into_iter();
        let doomed: Vec<String> = self.created.drain(..).rev().chain(namespaces).collect();
        for target in doomed {
            if !tidy && target.starts_with(NAMESPACES) {
                continue;
            }
            let request = Request {
                method: "DELETE".to_owned(),
                target,
                ..Request::default()
            };
            let _ = self.send(&request).await;
        }
    }

    fn say(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    fn say_answer(&mut self, answer: &Answer, shape: &Shape) {
        let head = head(answer.status, &answer.headers);
        let head = self.masks.line(&head);
        self.say(&head);
        let is_json = self.last.is_object() || self.last.is_array();
        if is_json {
            let mut body = self.last.clone();
            self.masks.body(&mut body, view(shape));
            if !shape.brief {
                shape.apply(&mut body);
                self.say(&pretty(&body));
            }
        } else if !shape.brief && !answer.text.trim().is_empty() {
            let text = self.masks.line(answer.text.trim_end());
            self.say(&text);
        }
    }
}

/// What must exist before the first request.
struct Needs {
    namespace: bool,
    account: bool,
}

impl Needs {
    fn of(case: &Case, variables: &Variables, token: &str) -> Self {
        let texts = case.steps.iter().flat_map(|step| match step {
            Step::Send(r) | Step::Watch { request: r, .. } | Step::Pages { request: r, .. } => {
                vec![variables.expand(&r.target), variables.expand(&r.body)]
            }
            Step::Await { target, .. } => vec![variables.expand(target)],
            Step::Events { .. } | Step::Capture { .. } => Vec::new(),
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        let namespace = text.contains(&format!("conf-{token}"));
        Self {
            namespace,
            // the admission of pods asks for it
            account: namespace && (text.contains("/pods") || text.contains("/serviceaccounts")),
        }
    }
}

/// A value as a variable holds it: without quotes, and nothing if it is not there.
fn plain(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn view(shape: &Shape) -> View {
    View {
        managed: shape.managed,
        exact: shape.exact,
        bookmark: false,
    }
}

/// `200 application/json`, and the headers that carry meaning, each on its own line.
fn head(status: u16, headers: &HeaderMap) -> String {
    let mut head = status.to_string();
    if let Some(media) = headers.get("content-type") {
        let _ = write!(head, " {}", String::from_utf8_lossy(media.as_bytes()));
    }
    for name in ["warning", "retry-after", "allow", "location"] {
        for value in headers.get_all(name) {
            let _ = write!(
                head,
                "\n{name}: {}",
                String::from_utf8_lossy(value.as_bytes())
            );
        }
    }
    head
}

async fn collect(response: Response<Body>) -> Result<Answer, Error> {
    let (parts, body) = response.into_parts();
    let failed = |what: String| Error::Request {
        request: "reading a body".to_owned(),
        what,
    };
    let collected = tokio::time::timeout(ANSWER, body.collect());
    let collected = collected.await.map_err(|_| failed("no end".to_owned()))?;
    let bytes = collected.map_err(|e| failed(e.to_string()))?.to_bytes();
    Ok(Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        text: String::from_utf8_lossy(&bytes).into_owned(),
    })
}
