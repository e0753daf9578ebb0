//! How long admission of a Sandbox with a full pod spec takes:
//! `cargo run --release -p bench --bin bench-structural`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use api::{
    crds::{Conversion, Family, Versions, render},
    structural::Schema,
};
use bench::sandbox;

const ROUNDS: u32 = 5_000;

fn main() {
    let crds = render(&[Family::Sigs], Versions::V1beta1, Conversion::None).unwrap_or_default();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == "Sandbox");
    let schema = crd
        .and_then(|crd| serde_json::to_value(&crd.spec.versions[0].schema).ok())
        .map(|mut schema| schema["openAPIV3Schema"].take())
        .unwrap_or_default();
    let begun = Instant::now();
    let Ok(compiled) = Schema::compile(&schema) else {
        println!("our own schema does not compile");
        return;
    };
    println!("compile            {:>10.1?}", begun.elapsed());
    let object = sandbox();
    println!("object             {:>8} bytes", object.to_string().len());
    let mut admitted = object.clone();
    let unknown = compiled.admit(&mut admitted);
    println!(
        "unknown, errors    {unknown:?} {:?}",
        compiled.validate(&admitted)
    );

    let copy = measure(|| {
        black_box(object.clone());
    });
    let admit = measure(|| {
        let mut object = object.clone();
        _ = compiled.admit(&mut object);
        black_box(&object);
    });
    let validate = measure(|| {
        black_box(compiled.validate(&admitted));
    });
    let update = measure(|| {
        black_box(compiled.validate_update(&admitted, &admitted));
    });
    let admit = admit.saturating_sub(copy);
    println!("copy               {copy:>10.1?}");
    println!("default + prune    {admit:>10.1?}");
    println!("validate           {validate:>10.1?}");
    println!("validate an update {update:>10.1?}");
    println!("create, all        {:>10.1?}", admit + validate);
}

fn measure(mut work: impl FnMut()) -> Duration {
    for _ in 0..ROUNDS / 10 {
        work();
    }
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    begun.elapsed() / ROUNDS
}
