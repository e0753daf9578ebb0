//! The network of sandboxes, and which addresses it has.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::Path,
};

use anyhow::{Context as _, Result, anyhow, bail};
use local::network::{self, Ipv4Net, Network, NetworkError, Settings};

use super::isolation::Isolation;

/// Where the range that was asked for is kept for the next start.
const KEPT: &str = "pod-cidr";
const EXAMPLE: &str = "give a private network of IPv4, such as 10.99.0.0/20";

#[derive(clap::Args)]
pub(super) struct Range {
    /// Which addresses sandboxes have, such as 10.99.0.0/20; kept for later starts [default: some that this machine has no route to]
    #[arg(long, value_name = "CIDR", value_parser = parse)]
    pod_cidr: Option<Ipv4Net>,
}

fn parse(text: &str) -> Result<Ipv4Net, String> {
    text.parse().map_err(|error| format!("{error}: {EXAMPLE}"))
}

impl Range {
    /// The network that sandboxes have, if they can have one. `place` is where the node keeps what it notes of it.
    pub(super) async fn open(
        &self,
        isolation: Isolation,
        data: &Path,
        place: &Path,
    ) -> Result<Network> {
        if isolation == Isolation::None || !network::is_permitted() {
            return self.none();
        }
        fs::create_dir_all(place).with_context(|| format!("making {}", place.display()))?;
        let kept = self.kept(data)?;
        let network = match self.open_in(self.pod_cidr.or(kept), place).await {
            Err(NetworkError::NotPermitted) => return self.none(),
            Err(error) => return Err(self.explain(&error)),
            Ok(network) => network,
        };
        let Some(range) = self.pod_cidr.filter(|_| self.pod_cidr != kept) else {
            return Ok(network);
        };
        match keep(data, range) {
            Ok(()) => Ok(network),
            Err(error) => {
                give_back(network).await;
                Err(error)
            }
        }
    }

    /// Whoever names no range now is not refused for sandboxes that run with addresses of another: they keep them.
    async fn open_in(&self, range: Option<Ipv4Net>, place: &Path) -> Result<Network, NetworkError> {
        let settings = |range| Settings {
            range,
            ..Settings::new(place)
        };
        match Network::open(settings(range)).await {
            Err(NetworkError::Elsewhere { .. }) if self.pod_cidr.is_none() => {
                Network::open(settings(None)).await
            }
            opened => opened,
        }
    }

    /// The range that an earlier start was told. If it cannot be read, naming one is the remedy.
    fn kept(&self, data: &Path) -> Result<Option<Ipv4Net>> {
        match (kept(data), self.pod_cidr) {
            (Err(_), Some(_)) => Ok(None),
            (Err(error), None) => {
                Err(error.context("name the network of sandboxes with --pod-cidr"))
            }
            (kept, _) => kept,
        }
    }

    fn none(&self) -> Result<Network> {
        match self.pod_cidr {
            Some(range) => bail!(
                "--pod-cidr {range}: sandboxes have no addresses here, which takes root and isolation; leave the flag out"
            ),
            None => Ok(Network::none()),
        }
    }

    /// Whoever did not name a range now does not remember that it was named.
    fn explain(&self, error: &NetworkError) -> anyhow::Error {
        let remedy = match (self.pod_cidr, error) {
            (None, NetworkError::Range { .. }) => {
                "; it was named at an earlier start: name another with --pod-cidr"
            }
            (None, NetworkError::NoRange) => " with --pod-cidr",
            _ => "",
        };
        anyhow!("making the network of the node: {error}{remedy}")
    }
}

/// As it was before, but for sandboxes that run.
async fn give_back(network: Network) {
    match network.addresses().is_empty() {
        // why it is given back says more than why it could not be
        true => drop(network.close().await),
        false => network.leave().await,
    }
}

/// For the next start, which finds this range or the one before.
fn keep(data: &Path, range: Ipv4Net) -> Result<()> {
    let file = data.join(KEPT);
    let fresh = file.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&fresh)?;
        writeln!(file, "{range}")?;
        file.sync_all()
    };
    let written = write().and_then(|()| fs::rename(&fresh, &file));
    written.with_context(|| format!("writing {}", file.display()))
}

fn kept(data: &Path) -> Result<Option<Ipv4Net>> {
    let file = data.join(KEPT);
    let text = match fs::read_to_string(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("reading {}", file.display()))?,
    };
    let range = parse(text.trim());
    let range = range.map_err(|error| anyhow!("{} says {text:?}: {error}", file.display()))?;
    Ok(Some(range))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::{KEPT, Range, keep, kept, parse};

    #[test]
    fn what_is_no_network_is_refused_with_one_that_is() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/64", "ten"] {
            assert!(parse(text).unwrap_err().contains("10.99.0.0/20"), "{text}");
        }
        assert_eq!(parse("10.99.0.0/20").unwrap().to_string(), "10.99.0.0/20");
    }

    #[test]
    fn what_was_kept_is_found_and_what_it_is_not_is_named() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(kept(data.path()).unwrap(), None);
        let file = data.path().join(KEPT);
        keep(data.path(), parse("10.99.0.0/20").unwrap()).unwrap();
        assert_eq!(kept(data.path()).unwrap(), parse("10.99.0.0/20").ok());
        assert_eq!(data.path().read_dir().unwrap().count(), 1);
        std::fs::write(&file, "nonsense").unwrap();
        let error = kept(data.path()).unwrap_err().to_string();
        assert!(
            error.contains("pod-cidr") && error.contains("nonsense"),
            "{error}"
        );
    }

    #[test]
    fn whoever_names_a_network_is_not_held_up_by_one_that_cannot_be_read() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(KEPT), "nonsense").unwrap();
        let pod_cidr = parse("10.99.0.0/20").ok();
        let named = Range { pod_cidr };
        assert_eq!(named.kept(data.path()).unwrap(), None);
        let unnamed = Range { pod_cidr: None };
        let error = unnamed.kept(data.path()).unwrap_err().to_string();
        assert!(error.contains("--pod-cidr"), "{error}");
    }
}
