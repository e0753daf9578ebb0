//! What a request is answered with, and how that becomes bytes in the form the client asked for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use futures::StreamExt as _;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::encode;
use super::media::{self, Expected, Form};
use super::read::{shown, write_shown, write_without_head};
use super::resource::Resource;
use crate::status::Failure;
use crate::store::Entry;
use crate::table::{Include, MetaVersion, Printer, partial, partial_list, table};

type Frames = Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send>>;
/// Whole, or as long as a watch or a log lasts.
pub type Body = Either<Full<Bytes>, StreamBody<Frames>>;

pub(super) enum Answer {
    /// An object as it is stored.
    Stored {
        entry: Arc<Entry>,
        code: u16,
    },
    /// An object of the kind that is not stored in this state.
    Object {
        object: Value,
        code: u16,
    },
    /// A `Scale`.
    Scale(Value),
    /// A `Status`, or anything else that is no object of the kind.
    Status {
        status: Value,
        code: u16,
    },
    List(Listed),
    Watch(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

pub(super) struct Listed {
    pub(super) items: Vec<Arc<Entry>>,
    pub(super) revision: u64,
    pub(super) resume: Option<String>,
    pub(super) remaining: Option<usize>,
}

impl Answer {
    pub(super) fn stored(entry: Arc<Entry>) -> Self {
        Self::Stored { entry, code: 200 }
    }

    pub(super) fn ok(object: Value) -> Self {
        Self::Object { object, code: 200 }
    }
}

/// What the client wants to see.
pub(super) struct View {
    pub(super) how: media::Answer,
    pub(super) include: Include,
    pub(super) now: Timestamp,
}

impl View {
    /// Whether stored bytes can be sent as they are.
    fn is_raw(&self) -> bool {
        self.how == media::Answer::JSON
    }

    pub(super) fn respond(
        &self,
        resource: &Resource,
        answer: Answer,
    ) -> Result<Response<Body>, Failure> {
        let printer = || Printer::of(resource);
        let (code, value) = match answer {
            Answer::Watch(events) => return Ok(stream(events)),
            Answer::Stored { entry, code } if self.is_raw() => {
                return Ok(json_bytes(code, shown(resource, &entry)?));
            }
            Answer::List(list) if self.is_raw() => {
                return Ok(json_bytes(200, list.bytes(resource)?.into()));
            }
            Answer::Stored { entry, code } => {
                let object = resource.read_whole(&entry)?;
                (code, self.object(resource, printer(), object)?)
            }
            Answer::Object { object, code } => (code, self.object(resource, printer(), object)?),
            Answer::Scale(scale) => {
                let printer = Printer::of_scale(resource);
                (200, self.object(resource, printer, scale)?)
            }
            Answer::Status { status, code } => (code, status),
            Answer::List(list) => (200, self.list(resource, &list)?),
        };
        let bytes = self.how.render(&value)?;
        Ok(whole(code, self.how.content_type(), bytes.into()))
    }

    fn object(
        &self,
        resource: &Resource,
        printer: Printer<'_>,
        object: Value,
    ) -> Result<Value, Failure> {
        match self.how.form {
            Form::Plain | Form::AggregatedDiscovery => Ok(object),
            Form::Partial(version) => Ok(partial(&object, version)),
            Form::PartialList(_) => Err(Failure::is_no_list(&media::go_type(
                resource.expected(),
                false,
            ))),
            Form::Table(version) => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let row = printer.row(&object, self.now, self.include, version);
                Ok(table(version, metadata, printer.columns(), vec![row]))
            }
        }
    }

    fn list(&self, resource: &Resource, list: &Listed) -> Result<Value, Failure> {
        let whole = |list: &Listed| -> Result<Value, Failure> {
            let bytes = list.bytes(resource)?;
            serde_json::from_slice(&bytes).map_err(|error| Failure::internal(error.to_string()))
        };
        match self.how.form {
            Form::Plain | Form::AggregatedDiscovery => whole(list),
            Form::PartialList(version) => {
                let mut partial = partial_list(&whole(list)?, version);
                partial["metadata"] = list.metadata();
                Ok(partial)
            }
            Form::Partial(_) => Err(Failure::is_a_list(&media::go_type(
                resource.expected(),
                true,
            ))),
            Form::Table(version) => {
                let printer = Printer::of(resource);
                let mut rows = Vec::with_capacity(list.items.len());
                for entry in &list.items {
                    let object = resource.read_whole(entry)?;
                    rows.push(printer.row(&object, self.now, self.include, version));
                }
                Ok(table(version, list.metadata(), printer.columns(), rows))
            }
        }
    }

    /// What makes the objects of a watch's events.
    pub(super) fn events(&self, resource: &Arc<Resource>) -> Events {
        Events {
            resource: Arc::clone(resource),
            form: self.how.form,
            include: self.include,
            first: true,
        }
    }
}

/// Makes the objects of events. Of tables, only the first has its columns.
pub(super) struct Events {
    resource: Arc<Resource>,
    form: Form,
    include: Include,
    first: bool,
}

impl Events {
    pub(super) fn write_stored(
        &mut self,
        entry: &Entry,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match self.form {
            Form::Plain | Form::AggregatedDiscovery => write_shown(&self.resource, entry, out),
            _ => {
                let object = self.resource.read_whole(entry)?;
                out.extend_from_slice(&self.object(&object, now));
                Ok(())
            }
        }
    }

    pub(super) fn object(&mut self, object: &Value, now: Timestamp) -> Bytes {
        let value = match self.form {
            Form::Plain | Form::AggregatedDiscovery => return object.to_string().into(),
            Form::Partial(version) | Form::PartialList(version) => partial(object, version),
            Form::Table(version) => self.table(object, now, version),
        };
        value.to_string().into()
    }

    fn table(&mut self, object: &Value, now: Timestamp, version: MetaVersion) -> Value {
        let printer = Printer::of(&self.resource);
        let columns = match std::mem::take(&mut self.first) {
            true => printer.columns(),
            false => Value::Null,
        };
        let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
        let row = printer.row(object, now, self.include, version);
        table(version, metadata, columns, vec![row])
    }
}

impl Resource {
    pub(super) fn expected(&self) -> Expected<'_> {
        Expected {
            api_version: &self.api_version,
            kind: &self.kind,
            custom: self.custom().is_some(),
        }
    }
}

impl Listed {
    fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(resume) = &self.resume {
            metadata["continue"] = json!(resume);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }

    /// The list as JSON; items of built-in kinds have no kind of their own.
    fn bytes(&self, resource: &Resource) -> Result<Vec<u8>, Failure> {
        let size: usize = self.items.iter().map(|entry| entry.value.len()).sum();
        let mut out = Vec::with_capacity(size + 256);
        let head = encode::head(&resource.api_version, &resource.list_kind);
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(b"\"metadata\":");
        let mut metadata = self.metadata();
        if resource.custom().is_some() && self.resume.is_none() {
            metadata["continue"] = json!("");
        }
        out.extend_from_slice(metadata.to_string().as_bytes());
        out.extend_from_slice(b",\"items\":[");
        for (index, entry) in self.items.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match resource.custom() {
                Some(_) => write_shown(resource, entry, &mut out)?,
                None => {
                    out.push(b'{');
                    write_without_head(resource, entry, &mut out)?;
                }
            }
        }
        out.extend_from_slice(b"]}");
        Ok(out)
    }
}

pub(super) fn failed(failure: &Failure) -> Response<Body> {
    let body = failure.body().to_string();
    let mut response = json_bytes(failure.code(), body.into());
    if let Some(seconds) = failure.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

pub(super) fn json_bytes(code: u16, body: Bytes) -> Response<Body> {
    whole(code, "application/json", body)
}

pub(super) fn text(code: u16, body: &'static str) -> Response<Body> {
    let body = Bytes::from_static(body.as_bytes());
    whole(code, "text/plain; charset=utf-8", body)
}

pub(super) fn whole(code: u16, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn stream(events: Pin<Box<dyn Stream<Item = Bytes> + Send>>) -> Response<Body> {
    let frames: Frames = Box::pin(events.map(|bytes| Ok(Frame::data(bytes))));
    let mut response = Response::new(Either::Right(StreamBody::new(frames)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// `Warning` headers, as clients print them.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
