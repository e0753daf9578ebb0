//! `sandbar image`: the images that sandboxes on this machine can run.

use std::{
    io::{self, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use local::image::{
    Auth, Image, Images, Options, Progress, Reference, reference, write_runtime_image,
};

use crate::{api::default_directory, daemon::DAEMON, table};

/// Import, pull, list and remove the images of this machine
///
/// Two are always there: `sandbar/base`, the programs of this machine in a system of their own, with the daemon that E2B's clients
/// talk to; and `sandbar/runtime`, a sidecar that brings the daemon into containers of other images.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Take images from an OCI layout or from the output of `docker save`
    ///
    /// An archive may be compressed with gzip or zstd.
    Import {
        /// A directory or an archive
        path: PathBuf,
        /// The name of the image, such as team/app:1; that in the archive if left out
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Fetch an image from its registry
    ///
    /// Without --username, what `docker login` has stored is used. Registries on this machine are asked without TLS.
    Pull {
        /// The name of the image, such as busybox or registry.example/team/app:1
        name: String,
        /// Who asks; the password is read from standard input
        #[arg(long, requires = "password_stdin")]
        username: Option<String>,
        /// Read the password from standard input
        #[arg(long, requires = "username")]
        password_stdin: bool,
        /// A registry to ask without TLS, such as registry.example:5000; can be repeated
        #[arg(long, value_name = "REGISTRY")]
        insecure_registry: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
    /// List the images that are here
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Write the image that brings the daemon of sandboxes into containers of other images, for a cluster
    ///
    /// It goes where `agent-runtime` of OpenKruise goes: a sidecar that runs `sh /workspace/entrypoint.sh`. The base has to bring
    /// the shell; Alpine and busybox do. The file is an OCI layout, for `ctr images import`, `skopeo copy oci-archive:` or
    /// `docker load`.
    Runtime {
        /// Where to write it
        output: PathBuf,
        /// An OCI layout or the output of `docker save` that holds one image
        #[arg(long, value_name = "PATH")]
        base: PathBuf,
        /// The name of the image
        #[arg(long, default_value = "sandbar/runtime:latest")]
        name: String,
    },
    /// Remove images, with the layers that no other image needs
    Rm {
        /// The names of the images
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(clap::Args)]
struct Place {
    /// Where images are kept, with all other data; made if it is not there [default: ~/.sandbar]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Place {
    fn open(self, options: Options) -> Result<Images> {
        let directory = match self.data_dir {
            Some(directory) => directory,
            None => default_directory()?,
        };
        let options = Options {
            daemon: Some(DAEMON),
            ..options
        };
        Ok(Images::open_with(&directory.join("images"), options)?)
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Import { path, name, place } => {
                let images = place.open(Options::default())?;
                import(&images, &path, name.as_deref())
            }
            Command::Pull {
                name,
                username,
                password_stdin: _,
                insecure_registry,
                place,
            } => {
                let images = place.open(Options {
                    insecure_registries: insecure_registry,
                    ..Options::default()
                })?;
                pull(&images, &reference(&name)?, username)
            }
            Command::Runtime { output, base, name } => {
                let name = reference(&name)?;
                write_runtime_image(&base, &name, DAEMON, &output)?;
                println!("wrote {name} to {}", output.display());
                Ok(())
            }
            Command::List { place } => list(&place.open(Options::default())?),
            Command::Rm { names, place } => remove(&place.open(Options::default())?, &names),
        }
    }
}

fn import(images: &Images, path: &Path, name: Option<&str>) -> Result<()> {
    let name = name.map(reference).transpose()?;
    let mut bar = Bar::new();
    let imported = images.import(path, name.as_ref(), |progress| bar.show(progress));
    drop(bar);
    for image in imported? {
        for name in &image.names {
            println!("imported {name}");
        }
        if let Some(first) = image.left_out.first() {
            eprintln!("note: device nodes were left out, among them {first}");
        }
    }
    Ok(())
}

fn pull(images: &Images, name: &Reference, username: Option<String>) -> Result<()> {
    let auth = match username {
        Some(user) => Auth::Password {
            user,
            password: password()?,
        },
        None => stored(name),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut bar = Bar::new();
    let pulled = runtime.block_on(images.pull(name, &auth, |progress| bar.show(progress)));
    drop(bar);
    let image = pulled?;
    println!("pulled {}", image.name);
    if let Some(digest) = image.digest {
        println!("digest {digest}");
    }
    Ok(())
}

fn password() -> Result<String> {
    let mut text = String::new();
    io::stdin()
        .take(64 << 10)
        .read_to_string(&mut text)
        .context("cannot read the password from standard input")?;
    let password = text.trim_end_matches(['\r', '\n']);
    ensure!(
        !password.is_empty(),
        "the password on standard input is empty"
    );
    Ok(password.to_owned())
}

/// What `docker login` keeps for the registry.
fn stored(name: &Reference) -> Auth {
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let directory = directory.or_else(|| Some(std::env::home_dir()?.join(".docker")));
    let text = directory.and_then(|path| std::fs::read(path.join("config.json")).ok());
    text.and_then(|text| Auth::from_docker_config(&text, name))
        .unwrap_or_default()
}

fn list(images: &Images) -> Result<()> {
    let mut rows = vec![["NAME", "ID", "SIZE", "AGE"].map(str::to_owned)];
    rows.extend(images.list()?.iter().map(row));
    print!("{}", table::render(&rows));
    Ok(())
}

fn row(image: &Image) -> [String; 4] {
    let id = image.id.trim_start_matches("sha256:");
    let short: String = id.chars().take(12).collect();
    if image.is_built_in {
        let nothing = "-".to_owned();
        return [image.name.clone(), short, nothing.clone(), nothing];
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let age = now
        .map_or(0, |now| now.as_secs())
        .saturating_sub(image.taken);
    [
        image.name.clone(),
        short,
        size(image.bytes),
        table::age(i64::try_from(age).unwrap_or(i64::MAX)),
    ]
}

fn remove(images: &Images, names: &[String]) -> Result<()> {
    for name in names {
        let name = reference(name)?;
        let freed = images.remove(&name)?;
        println!("removed {name} ({} freed)", size(freed));
    }
    Ok(())
}

/// Bytes in the unit of thousands that leaves one to three digits before the point.
fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = 0;
    while tenths >= 10_000 && unit + 1 < units.len() {
        tenths /= 1_000;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{}.{} {}", tenths / 10, tenths % 10, units[unit]),
    }
}

/// A bar for whoever has waited for two seconds before a terminal.
struct Bar {
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Bar {
    const PATIENCE: Duration = Duration::from_secs(2);

    fn new() -> Self {
        Self {
            began: Instant::now(),
            bar: None,
        }
    }

    fn show(&mut self, progress: Progress) {
        if self.bar.is_none() {
            if self.began.elapsed() < Self::PATIENCE || !io::stderr().is_terminal() {
                return;
            }
            let bar = ProgressBar::new(progress.total);
            let template = "{bar:40} {bytes}/{total_bytes} ({eta})";
            // the template is a constant; a wrong one would show in the first run
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (1_250_000, "1.2 MB"),
            (20 << 30, "21.4 GB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
