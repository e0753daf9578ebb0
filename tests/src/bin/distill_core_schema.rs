//! Writes `crates/api/src/core_schema.json` anew from the OpenAPI files of a Kubernetes release, and `go_types.json` and
//! `protobuf/messages.json` beside it and `revision/types.txt` of the engine from the sources of the modules that the
//! release is made of:
//! `cargo run -p suite --bin distill-core-schema -- "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)"`
//! (run in `crates/testbed/go/kubernetes`, where the release is pinned).

use std::path::Path;

use anyhow::{Context, Result};
use suite::{distill, go_types, proto, template_types};

fn main() -> Result<()> {
    let module = std::env::args_os()
        .nth(1)
        .context("usage: distill-core-schema <directory of the k8s.io/kubernetes module>")?;
    let module = Path::new(&module);
    let files = module.join("api/openapi-spec/v3");
    let documents = distill::DOCUMENTS
        .iter()
        .map(|name| {
            let path = files.join(format!("{}_openapi.json", name.replace('/', "__")));
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
            serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))
        })
        .collect::<Result<Vec<_>>>()?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let tables = [
        ("api/src/core_schema.json", distill::table(&documents)?),
        ("api/src/go_types.json", go_types::table(module)?),
        ("api/src/protobuf/messages.json", proto::table(module)?),
        (
            "engine/src/revision/types.txt",
            template_types::table(module)?,
        ),
    ];
    for (name, table) in tables {
        let path = folder.join(name);
        std::fs::write(&path, table).with_context(|| format!("writing {}", path.display()))?;
        println!("{}: written", path.display());
    }
    Ok(())
}
