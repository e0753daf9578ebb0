//! `sandbar get -w`: what is there, and then every change.

use std::{pin::pin, process::ExitCode};

use anyhow::{Result, anyhow};
use futures::TryStreamExt as _;
use kube::{api::WatchParams, core::WatchEvent};
use serde_json::Value;

use super::{
    get::{Output, View},
    is_heard,
    print::{self, Table},
    targets::Ask,
};
use crate::{refusal::said, table::Columns};

/// Goes on until somebody ends it, or nobody reads any more.
pub(super) async fn follow(view: &View, ask: &Ask<'_>) -> Result<ExitCode> {
    let fields = match &ask.name {
        // one that is not there is missed, and not waited for
        Some(name) => {
            view.fetch(ask).await?;
            Some(format!("metadata.name={name}"))
        }
        None => None,
    };
    let at = ask.kind.request(view.namespace(ask.kind));
    let mut params = view.list_params();
    params.field_selector.clone_from(&fields);
    let request = view.accepting(at.list(&params)?);
    let listed: Value = view.place.ask(view.place.client.request(request)).await?;
    let mut version = listed["metadata"]["resourceVersion"].clone();
    let mut paper = Paper::new(view, ask);
    if !is_heard(paper.show(listed)?.as_bytes())? {
        return Ok(ExitCode::SUCCESS);
    }
    let params = WatchParams {
        label_selector: view.selector.clone(),
        field_selector: fields,
        bookmarks: false,
        ..WatchParams::default()
    };
    // a server ends every watch after some minutes
    loop {
        let from = version.as_str().unwrap_or_default();
        let request = view.accepting(at.watch(&params, from)?);
        let asking = view.place.client.request_events::<Value>(request);
        let mut events = pin!(view.place.ask(asking).await?);
        let explain = |error| view.place.explain(error);
        while let Some(event) = events.try_next().await.map_err(explain)? {
            let object = match event {
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) => object,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => {
                    return Err(anyhow!(said(&status.reason, &status.message)));
                }
            };
            if let Some(new) = version_of(&object) {
                version = new.clone();
            }
            if !is_heard(paper.show(object)?.as_bytes())? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// The version of the one object in an event.
fn version_of(event: &Value) -> Option<&Value> {
    let row = &event["rows"][0]["object"]["metadata"]["resourceVersion"];
    let own = &event["metadata"]["resourceVersion"];
    [row, own].into_iter().find(|version| version.is_string())
}

/// What has been printed so far, where that matters for what follows.
struct Paper<'a> {
    view: &'a View,
    ask: &'a Ask<'a>,
    columns: Columns,
    /// The one that had the columns.
    first: Option<Table>,
    has_header: bool,
    documents: usize,
}

impl<'a> Paper<'a> {
    fn new(view: &'a View, ask: &'a Ask<'a>) -> Self {
        Self {
            view,
            ask,
            columns: Columns::default(),
            first: None,
            has_header: false,
            documents: 0,
        }
    }

    fn show(&mut self, answer: Value) -> Result<String> {
        let kind = self.ask.kind;
        let objects = match self.view.output {
            None | Some(Output::Wide) => return Ok(self.rows(&answer)),
            Some(_) => print::objects(kind, answer),
        };
        let mut text = String::new();
        for object in objects {
            match self.view.output {
                Some(Output::Yaml) => {
                    if self.documents > 0 {
                        text.push_str("---\n");
                    }
                    text.push_str(&print::yaml(&object)?);
                }
                Some(Output::Json) => text.push_str(&print::json(&object)?),
                None | Some(Output::Wide | Output::Name) => {
                    text.push_str(&print::name(kind, &object));
                }
            }
            self.documents += 1;
        }
        Ok(text)
    }

    fn rows(&mut self, answer: &Value) -> String {
        let table = Table::of(answer);
        let table = match &self.first {
            Some(first) => table.with_columns_of(first),
            None => table,
        };
        let extras = self.view.extras(self.ask.kind);
        let mut rows = Vec::new();
        if !self.has_header && !table.is_empty() {
            rows.push(table.header(extras));
            self.has_header = true;
        }
        rows.extend(table.lines(self.ask.kind, extras));
        self.first.get_or_insert(table);
        self.columns.render(&rows)
    }
}
