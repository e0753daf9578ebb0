//! `sandbar api`: a Kubernetes API in one process.

use std::{
    io::{self, ErrorKind, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, Error, Result, anyhow};
use local::{
    Cluster,
    serve::{self, Home, Limits, Running, StartError},
    store::Location,
};
use tokio::runtime::Runtime;

use crate::signals::asked_to_stop;

/// Run a Kubernetes API on this machine, without a cluster
///
/// Clients connect over TLS with the kubeconfig that is written to the data directory; `kubeconfig` may do
/// everything, `kubeconfig-viewer` may read everything but Secrets. Both stay good across restarts.
///
/// Ctrl-C or SIGTERM stops it once the requests under way are answered; a second one stops it at once.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where objects, certificates, tokens and kubeconfigs are kept; made if it is not there [default: ~/.sandbar]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    door: Door,
    /// Keep objects in memory only: they end with the process
    #[arg(long)]
    ephemeral: bool,
}

/// Where the API listens.
#[derive(clap::Args)]
pub(crate) struct Door {
    /// The port of the Kubernetes API; 0 is any free one
    #[arg(long, value_name = "PORT", default_value_t = 7443)]
    port: u16,
    /// The address of the Kubernetes API; 0.0.0.0 or :: is every address of this machine
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::LOCALHOST.into())]
    listen: IpAddr,
    /// Another name or address that clients may use for this machine; can be repeated
    #[arg(long, value_name = "NAME")]
    tls_san: Vec<String>,
}

impl Door {
    pub(crate) fn options(&self) -> serve::Options {
        serve::Options {
            listen: SocketAddr::new(self.listen, self.port),
            names: self.tls_san.clone(),
            limits: Limits::default(),
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = Runtime::new().context("starting the threads of the server")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        let asked = asked_to_stop().context("waiting for signals")?;
        let directory = match self.data_dir {
            Some(directory) => directory,
            None => default_directory()?,
        };
        let home = Home::open(directory).map_err(with_remedy)?;
        let location = if self.ephemeral {
            Location::Ephemeral
        } else {
            Location::Directory(home.store())
        };
        let objects = match &location {
            Location::Ephemeral => "in memory, gone when it stops".to_owned(),
            Location::Directory(path) => path.display().to_string(),
        };
        let cluster = Cluster::open(local::Options::at(location)).await?;
        let running = serve::start(home, cluster.service(), self.door.options())
            .await
            .map_err(with_remedy)?;
        say(&introduction(&running, &objects))?;
        let _ = asked.await;
        say("stopping; once more to stop at once\n")?;
        running.stop().await;
        Ok(())
    }
}

/// Where data are kept if nobody says where.
pub(crate) fn default_directory() -> Result<PathBuf> {
    std::env::home_dir()
        .filter(|home| !home.as_os_str().is_empty())
        .map(|home| home.join(".sandbar"))
        .context("you have no home directory: say with --data-dir where to keep the data")
}

fn introduction(running: &Running, objects: &str) -> String {
    let (url, kubeconfig) = (running.url(), running.kubeconfig());
    let (kubeconfig, viewer) = (kubeconfig.display(), running.viewer_kubeconfig());
    format!(
        "Kubernetes API: {url}\n\
         objects:        {objects}\n\
         kubeconfig:     {kubeconfig}\n\
         read only:      {}\n\
         try:            kubectl --kubeconfig {kubeconfig} get namespaces\n\
         ready\n",
        viewer.display(),
    )
}

/// Nobody has to listen: a server whose output is closed goes on.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// What went wrong, and what to do about it.
pub(crate) fn with_remedy(error: StartError) -> Error {
    match &error {
        StartError::InUse { .. } => {
            anyhow!("{error}: stop it, or choose another directory with --data-dir")
        }
        StartError::Directory { .. } => anyhow!("{error}: choose another with --data-dir"),
        StartError::Listen { address, source } if source.kind() == ErrorKind::AddrInUse => {
            let port = address.port();
            anyhow!(
                "port {port} of {} is in use: choose another with --port, or any free one with --port 0",
                address.ip()
            )
        }
        StartError::Listen { address, source } => match source.kind() {
            ErrorKind::AddrNotAvailable => {
                anyhow!(
                    "{} is no address of this machine: choose one with --listen",
                    address.ip()
                )
            }
            ErrorKind::PermissionDenied => {
                anyhow!("{error}: choose a port above 1023 with --port")
            }
            _ => error.into(),
        },
        _ => error.into(),
    }
}
