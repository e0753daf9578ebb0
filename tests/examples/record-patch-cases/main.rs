//! Writes `crates/api/tests/fixtures/patch/*.json` anew: sends the cases in `cases/*.yaml` to a kube-apiserver of
//! its own. `cargo run -p suite --example record-patch-cases` (as root, like all that uses the testbed).

mod cases;

use std::path::Path;

use anyhow::{Context, Result};
use api::crds::{Conversion, Family, Versions, render};
use cases::{Cases, install, record};
use testbed::{OwnOptions, Testbed};

#[tokio::main]
async fn main() -> Result<()> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixtures = package.join("../crates/api/tests/fixtures/patch");
    let mut files = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(package.join("examples/record-patch-cases/cases"))
        .context("listing the cases")?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        files.push(Cases::read(&name, &std::fs::read_to_string(&path)?)?);
    }
    let mut crds = render(&[Family::Sigs], Versions::V1beta1, Conversion::None)?
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<Vec<_>, _>>()?;
    crds.extend(files.iter().filter_map(Cases::crd).cloned());

    let bed = Testbed::own(OwnOptions::default()).await?;
    install(&bed.client(), &crds).await?;
    let recorded = record(&bed.client(), &mut files).await?;
    std::fs::create_dir_all(&fixtures).context("creating the directory of the fixtures")?;
    for (file, text) in files.iter().zip(recorded) {
        let path = fixtures.join(format!("{}.json", file.name));
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        println!("{}: written", path.display());
    }
    bed.stop().await
}
