//! `sandbar get`.

use std::process::ExitCode;

use anyhow::{Error, Result, bail, ensure};
use clap::ValueEnum;
use http::{HeaderValue, Request, header::ACCEPT};
use kube::api::{GetParams, ListParams};
use serde_json::Value;

use super::{
    code, complain,
    discover::{Kind, Kinds},
    place::{Place, Where},
    print::{self, ACCEPT_TABLE, Extras, Table},
    run, say,
    targets::{self, Ask},
    watch,
};
use crate::table::Columns;

/// Show objects
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sandbar get pods                        the pods of the namespace
  sandbar get sandboxes,pods -A -o wide   of all namespaces, with more columns
  sandbar get sandbox box -o yaml         one object, whole
  sandbar get pod/a service/b             objects of several kinds
  sandbar get sandboxclaims -l team=a -w  and every change from now on; Ctrl-C ends it")]
pub(crate) struct Args {
    /// KIND[,KIND…] [NAME…] or KIND/NAME…; a kind by any of its names, with its group where that is needed
    #[arg(required = true, value_name = "KIND")]
    what: Vec<String>,
    #[command(flatten)]
    place: Where,
    /// Of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only objects with these labels, such as app=web,tier!=back
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// How to show them; a table if left out
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    /// Show what is there and then every change
    #[arg(short, long)]
    watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A table with all its columns
    Wide,
    Yaml,
    Json,
    /// KIND/NAME
    Name,
}

/// How somebody looks at a server.
pub(super) struct View {
    pub(super) place: Place,
    pub(super) all_namespaces: bool,
    pub(super) selector: Option<String>,
    pub(super) output: Option<Output>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        run(self.get())
    }

    async fn get(self) -> Result<ExitCode> {
        let targets = targets::parse(&self.what)?;
        let view = View {
            place: self.place.open().await?,
            all_namespaces: self.all_namespaces,
            selector: self.selector,
            output: self.output,
        };
        let kinds = Kinds::of(&view.place).await?;
        let asks = targets::resolve(targets, &kinds)?;
        if asks.iter().any(|ask| ask.name.is_some()) {
            ensure!(
                view.selector.is_none(),
                "objects are named or selected with -l, not both"
            );
            ensure!(
                !view.all_namespaces,
                "a resource cannot be retrieved by name across all namespaces"
            );
        }
        if self.watch {
            let [ask] = asks.as_slice() else {
                bail!("one can watch a single kind of objects, or a single object");
            };
            return watch::follow(&view, ask).await;
        }
        let (found, failures) = view.fetch_all(&asks).await;
        view.show(&asks, found)?;
        failures.iter().for_each(complain);
        Ok(code(failures.len()))
    }
}

impl View {
    pub(super) fn is_table(&self) -> bool {
        matches!(self.output, None | Some(Output::Wide))
    }

    pub(super) fn namespace(&self, kind: &Kind) -> Option<&str> {
        kind.namespace(&self.place.namespace)
            .filter(|_| !self.all_namespaces)
    }

    pub(super) fn list_params(&self) -> ListParams {
        ListParams {
            label_selector: self.selector.clone(),
            ..ListParams::default()
        }
    }

    pub(super) fn extras(&self, kind: &Kind) -> Extras {
        Extras {
            wide: self.output == Some(Output::Wide),
            namespaces: self.all_namespaces && kind.is_namespaced,
            kinds: false,
        }
    }

    /// Says in which form the answer should be.
    pub(super) fn accepting(&self, mut request: Request<Vec<u8>>) -> Request<Vec<u8>> {
        if self.is_table() {
            let table = HeaderValue::from_static(ACCEPT_TABLE);
            request.headers_mut().insert(ACCEPT, table);
        }
        request
    }

    /// What was found, by the number of its ask; and what was not.
    async fn fetch_all(&self, asks: &[Ask<'_>]) -> (Vec<(usize, Value)>, Vec<Error>) {
        let (mut found, mut failures) = (Vec::new(), Vec::new());
        for (index, ask) in asks.iter().enumerate() {
            match self.fetch(ask).await {
                Ok(answer) => found.push((index, answer)),
                Err(error) => failures.push(error),
            }
        }
        (found, failures)
    }

    pub(super) async fn fetch(&self, ask: &Ask<'_>) -> Result<Value> {
        let at = ask.kind.request(self.namespace(ask.kind));
        let request = match &ask.name {
            Some(name) => at.get(name, &GetParams::default())?,
            None => at.list(&self.list_params())?,
        };
        let request = self.accepting(request);
        self.place.ask(self.place.client.request(request)).await
    }

    fn show(&self, asks: &[Ask<'_>], found: Vec<(usize, Value)>) -> Result<()> {
        let is_one = matches!(asks, [ask] if ask.name.is_some());
        let render = match self.output {
            None | Some(Output::Wide) => return self.show_tables(asks, found),
            Some(Output::Name) => {
                let names = found.into_iter().flat_map(|(index, answer)| {
                    let kind = asks[index].kind;
                    let objects = print::objects(kind, answer).into_iter();
                    objects.map(|object| print::name(kind, &object))
                });
                return say(&names.collect::<String>());
            }
            Some(Output::Yaml) => print::yaml,
            Some(Output::Json) => print::json,
        };
        let objects = found.into_iter();
        let objects = objects.flat_map(|(index, answer)| print::objects(asks[index].kind, answer));
        let mut objects: Vec<Value> = objects.collect();
        match (is_one, objects.pop()) {
            (true, None) => Ok(()),
            (true, Some(object)) => say(&render(&object)?),
            (false, last) => {
                objects.extend(last);
                say(&render(&print::as_list(objects))?)
            }
        }
    }

    fn show_tables(&self, asks: &[Ask<'_>], found: Vec<(usize, Value)>) -> Result<()> {
        let is_silent = found.len() < asks.len();
        let several = asks.windows(2).any(|pair| pair[0].kind != pair[1].kind);
        let mut tables: Vec<(&Kind, Table)> = Vec::new();
        for (index, answer) in found {
            let (kind, table) = (asks[index].kind, Table::of(&answer));
            match tables.last_mut() {
                Some((last, before)) if *last == kind => before.append(table),
                _ => tables.push((kind, table)),
            }
        }
        tables.retain(|(_, table)| !table.is_empty());
        if tables.is_empty() && !is_silent {
            let all_namespaced = asks.iter().all(|ask| ask.kind.is_namespaced);
            match all_namespaced && !self.all_namespaces {
                true => eprintln!("No resources found in {} namespace.", self.place.namespace),
                false => eprintln!("No resources found"),
            }
        }
        let texts = tables.iter().map(|(kind, table)| {
            let extras = Extras {
                kinds: several,
                ..self.extras(kind)
            };
            let mut rows = vec![table.header(extras)];
            rows.extend(table.lines(kind, extras));
            Columns::default().render(&rows)
        });
        say(&texts.collect::<Vec<_>>().join("\n"))
    }
}
