//! Writes `crates/api/src/core_schema.json` anew from the OpenAPI files of a Kubernetes release:
//! `cargo run -p suite --bin distill-core-schema -- "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)"`
//! (run in `crates/testbed/go/kubernetes`, where the release is pinned).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use suite::distill;

fn main() -> Result<()> {
    let module = std::env::args_os()
        .nth(1)
        .context("usage: distill-core-schema <directory of the k8s.io/kubernetes module>")?;
    let files = Path::new(&module).join("api/openapi-spec/v3");
    let documents = distill::DOCUMENTS
        .iter()
        .map(|name| {
            let path = files.join(format!("{}_openapi.json", name.replace('/', "__")));
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
            serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))
        })
        .collect::<Result<Vec<_>>>()?;
    let table: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/api/src/core_schema.json");
    std::fs::write(&table, distill::table(&documents)?)
        .with_context(|| format!("writing {}", table.display()))?;
    println!("{}: written", table.display());
    Ok(())
}
