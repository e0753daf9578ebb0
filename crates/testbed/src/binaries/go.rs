//! Programs built from the Go module registry, pinned by the `go.mod` and `go.sum` that this crate carries.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{make_once, on_path};
use crate::command::run;
use crate::paths::short_hash;
use crate::progress::Progress;

/// A Go module whose only purpose is to pin programs.
pub(super) struct Set {
    name: &'static str,
    version: &'static str,
    /// A program found on the machine fits if its version begins so.
    fits: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    tools: &'static str,
    ldflags: &'static str,
    /// Program and the package it is built from.
    programs: &'static [(&'static str, &'static str)],
    /// What to expect of the build.
    duration: &'static str,
}

pub(super) const KUBERNETES: Set = Set {
    name: "kubernetes",
    version: "1.36.3",
    fits: "1.36.",
    go_mod: include_str!("../../go/kubernetes/go.mod"),
    go_sum: include_str!("../../go/kubernetes/go.sum"),
    tools: include_str!("../../go/kubernetes/tools.go"),
    ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36",
    programs: &[
        ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        (
            "kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
        ),
        ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
        ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
        ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ],
    duration: "about 6 minutes on two cores, once",
};

/// The oldest that we promise to serve.
pub(super) const OLD_KUBECTL: Set = Set {
    name: "kubectl",
    version: "1.32.13",
    fits: "1.32.",
    go_mod: include_str!("../../go/kubectl/go.mod"),
    go_sum: include_str!("../../go/kubectl/go.sum"),
    tools: include_str!("../../go/kubectl/tools.go"),
    ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.32.13 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=32",
    programs: &[("kubectl", "k8s.io/kubernetes/cmd/kubectl")],
    duration: "about 2 minutes, once",
};

pub(super) const ETCD: Set = Set {
    name: "etcd",
    version: "3.6.16",
    fits: "3.6.",
    go_mod: include_str!("../../go/etcd/go.mod"),
    go_sum: include_str!("../../go/etcd/go.sum"),
    tools: include_str!("../../go/etcd/tools.go"),
    ldflags: "-s -w",
    programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
    duration: "about a minute, once",
};

pub(super) const KWOK: Set = Set {
    name: "kwok",
    version: "0.8.0",
    fits: "0.8.",
    go_mod: include_str!("../../go/kwok/go.mod"),
    go_sum: include_str!("../../go/kwok/go.sum"),
    tools: include_str!("../../go/kwok/tools.go"),
    ldflags: "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=v0.8.0",
    programs: &[("kwok", "sigs.k8s.io/kwok/cmd/kwok")],
    duration: "about 2 minutes, once",
};

pub(super) const REGISTRY: Set = Set {
    name: "registry",
    version: "3.1.2",
    fits: "3.",
    go_mod: include_str!("../../go/registry/go.mod"),
    go_sum: include_str!("../../go/registry/go.sum"),
    tools: include_str!("../../go/registry/tools.go"),
    ldflags: "-s -w -X github.com/distribution/distribution/v3/version.version=v3.1.2",
    programs: &[(
        "registry",
        "github.com/distribution/distribution/v3/cmd/registry",
    )],
    duration: "about 2 minutes, once",
};

impl Set {
    /// The paths of `wanted`: what KUBEBUILDER_ASSETS offers, else what was built before, else what PATH offers,
    /// else a new build.
    pub(super) fn ensure(
        &self,
        cache: &Path,
        wanted: &[&str],
        progress: &mut Progress,
    ) -> Result<BTreeMap<String, PathBuf>> {
        if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS")
            && let Some(found) = self.find(wanted, |p| Some(Path::new(&assets).join(p)))
        {
            return Ok(found);
        }
        let name = self.directory();
        if !cache.join(&name).is_dir()
            && let Some(found) = self.find(wanted, on_path)
        {
            return Ok(found);
        }
        let dir = make_once(cache, &name, |dir| self.build(dir, progress))?;
        Ok(wanted
            .iter()
            .map(|p| ((*p).to_owned(), dir.join(p)))
            .collect())
    }

    fn directory(&self) -> String {
        let programs = self
            .programs
            .iter()
            .flat_map(|(program, package)| [*program, *package]);
        let parts = [self.go_mod, self.go_sum, self.ldflags]
            .into_iter()
            .chain(programs);
        format!(
            "{}-{}-{}",
            self.name,
            self.version,
            short_hash(parts.map(str::as_bytes))
        )
    }

    fn find(
        &self,
        wanted: &[&str],
        locate: impl Fn(&str) -> Option<PathBuf>,
    ) -> Option<BTreeMap<String, PathBuf>> {
        wanted
            .iter()
            .map(|program| {
                let path = locate(program)?.canonicalize().ok()?;
                let version = version_of(&path, program)?;
                version
                    .starts_with(self.fits)
                    .then(|| ((*program).to_owned(), path))
            })
            .collect()
    }

    fn build(&self, dir: &Path, progress: &mut Progress) -> Result<()> {
        if on_path("go").is_none() {
            bail!(
                "go is missing, and no fitting {} {} was found: install Go 1.26 or newer, or point KUBEBUILDER_ASSETS at a directory with {}",
                self.name,
                self.version,
                self.programs
                    .iter()
                    .map(|(p, _)| *p)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
        }
        progress.step(&format!(
            "building {} {} ({})",
            self.name, self.version, self.duration
        ));
        let source = tempfile::tempdir().context("creating a directory for the build")?;
        for (file, text) in [
            ("go.mod", self.go_mod),
            ("go.sum", self.go_sum),
            ("tools.go", self.tools),
        ] {
            fs::write(source.path().join(file), text).with_context(|| format!("writing {file}"))?;
        }
        for (program, package) in self.programs {
            let mut go = Command::new("go");
            go.current_dir(source.path())
                .args(["build", "-trimpath", "-ldflags", self.ldflags, "-o"])
                .arg(dir.join(program))
                .arg(package)
                .env("CGO_ENABLED", "0")
                .env("GOTOOLCHAIN", "local")
                .env("GOWORK", "off")
                .env("GOFLAGS", "-mod=readonly");
            run(&mut go, &format!("building {program}"))?;
        }
        Ok(())
    }
}

/// The version a program says it has, without the leading `v`.
fn version_of(path: &Path, program: &str) -> Option<String> {
    let mut command = Command::new(path);
    if program == "kubectl" {
        command.args(["version", "--client"]);
    } else {
        command.arg("--version");
    }
    let output = command.output().ok().filter(|o| o.status.success())?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

fn parse_version(output: &str) -> Option<String> {
    output
        .split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_are_read_from_what_each_program_prints() {
        for (output, version) in [
            ("Kubernetes v1.36.3\n", "1.36.3"),
            (
                "Client Version: v1.32.4\nKustomize Version: v5.5.0",
                "1.32.4",
            ),
            (
                "etcd Version: 3.6.16\nGit SHA: 12\nGo Version: go1.26",
                "3.6.16",
            ),
            ("kwok version v0.8.0 go1.26.8 (linux/amd64)", "0.8.0"),
        ] {
            assert_eq!(parse_version(output).as_deref(), Some(version));
        }
        assert_eq!(parse_version("no version here"), None);
    }
}
