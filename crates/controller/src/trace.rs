//! Passes as spans, and traces that go from object to object in an annotation.
//!
//! Who exports spans is not known here; it is handed in as a [`Tracer`]. Without one there are no spans and nobody writes
//! anything for their sake.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tracing::{
    Instrument as _, Span,
    field::{Empty, display},
    info_span,
};

use crate::{
    meta::{Key, Pairs},
    queue::Next,
    sigs::names::TRACE_CONTEXT,
};

/// The target of all spans. Where nobody listens to it, a span costs the look at a flag.
pub const TARGET: &str = "reconcile";

/// What tells others of a trace, as W3C has it: `traceparent`, and there may be `tracestate`.
pub type Headers = BTreeMap<String, String>;

/// Knows which span belongs to which trace.
pub trait Tracer: Send + Sync {
    /// Makes a span that nobody has entered yet part of the trace that the headers name, if they do name one.
    fn join(&self, span: &Span, headers: &Headers);

    /// What others need to join the trace of this span.
    fn headers(&self, span: &Span) -> Headers;
}

/// Clones are one. By default there is no tracing.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<dyn Tracer>>);

impl fmt::Debug for Traces {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Traces({})", self.are_on())
    }
}

impl Traces {
    pub fn with(tracer: impl Tracer + 'static) -> Self {
        Self(Some(Arc::new(tracer)))
    }

    pub(crate) fn are_on(&self) -> bool {
        self.0.is_some()
    }

    /// The pass of an object whose annotation, if it has one, names this trace.
    pub(crate) async fn pass(
        &self,
        name: &'static str,
        key: &Key,
        trace: Option<String>,
        work: impl Future<Output = Next>,
    ) -> Next {
        let span = span(name, key);
        if let (Some(tracer), Some(headers)) = (&self.0, trace.as_deref().and_then(read)) {
            tracer.join(&span, &headers);
        }
        let next = work.instrument(span.clone()).await;
        if next == Next::Retry {
            span.record("otel.status_code", "ERROR");
        }
        next
    }

    /// The annotation by which others join the trace of this pass.
    pub(crate) fn context(&self) -> Option<String> {
        let tracer = self.0.as_ref()?;
        write(&tracer.headers(&Span::current()))
    }

    /// The annotation that an object lacks.
    pub(crate) fn missing(&self, annotations: &Pairs) -> Option<String> {
        match of(annotations) {
            Some(_) => None,
            None => self.context(),
        }
    }
}

/// A part of a pass that has a span of its own, if it has a name.
pub(crate) async fn part<T, E: fmt::Display>(
    name: Option<&'static str>,
    key: &Key,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let span = name.map_or_else(Span::none, |name| span(name, key));
    let done = work.instrument(span.clone()).await;
    if let Err(failure) = &done {
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", display(failure));
    }
    done
}

fn span(name: &'static str, key: &Key) -> Span {
    info_span!(
        target: TARGET,
        "reconcile",
        otel.name = name,
        namespace = &*key.namespace,
        name = &*key.name,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
}

/// The annotation that names the trace of an object, well-formed or not.
pub(crate) fn of(annotations: &Pairs) -> Option<&str> {
    annotations.get(TRACE_CONTEXT).filter(|it| !it.is_empty())
}

/// Anybody may have written it; what is not a map of strings names no trace.
pub(crate) fn read(annotation: &str) -> Option<Headers> {
    let headers: Headers = serde_json::from_str(annotation).ok()?;
    headers.contains_key("traceparent").then_some(headers)
}

fn write(headers: &Headers) -> Option<String> {
    let has_parent = headers.contains_key("traceparent");
    has_parent.then(|| serde_json::to_string(headers).ok())?
}

#[cfg(test)]
mod tests {
    use super::{Headers, Pairs, TRACE_CONTEXT, of, read, write};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        for headers in [
            headers(&[("traceparent", PARENT)]),
            headers(&[("traceparent", PARENT), ("tracestate", "a=b,c=\"d\"")]),
        ] {
            let text = write(&headers).unwrap();
            assert_eq!(read(&text), Some(headers), "{text}");
        }
        let text = write(&headers(&[("traceparent", PARENT)])).unwrap();
        assert_eq!(text, format!(r#"{{"traceparent":"{PARENT}"}}"#));
    }

    #[test]
    fn what_is_not_a_map_of_headers_names_no_trace() {
        for malformed in [
            "",
            "{",
            "null",
            "[]",
            "{}",
            PARENT,
            r#"{"traceparent": 1}"#,
            r#"{"tracestate": "a=b"}"#,
            r#"{"traceparent": {"traceparent": "x"}}"#,
        ] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn no_trace_is_not_written() {
        assert_eq!(write(&Headers::new()), None);
        assert_eq!(write(&headers(&[("tracestate", "a=b")])), None);
    }

    #[test]
    fn an_empty_annotation_is_none() {
        let annotated = |value| [(TRACE_CONTEXT, value)].into_iter().collect::<Pairs>();
        assert_eq!(of(&annotated("")), None);
        assert_eq!(of(&annotated("x")), Some("x"));
        assert_eq!(of(&Pairs::default()), None);
    }
}
