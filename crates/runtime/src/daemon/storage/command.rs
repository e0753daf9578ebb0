//! The program `sandbox-runtime-storage`, which controllers execute in a sandbox by its name.

use std::ffi::OsString;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;

use crate::messages::csi::NodePublishVolumeRequest;

/// The name by which controllers execute it.
pub const NAME: &str = "sandbox-runtime-storage";

const HELP: &str = "\
Mounts a volume into the sandbox that this is run in.

usage: sandbox-runtime-storage mount --driver NAME --config BASE64

  --driver NAME    'bind' (attribute 'path'), 'nfs' or 'nfs.csi.k8s.io' (attributes 'server', 'share', 'subDir', 'path')
  --config BASE64  CSI's NodePublishVolumeRequest as protobuf
  -h, --help       this text

A volume that is mounted already is left as it is. Status 0: it is mounted, 1: it is not, 2: the arguments are wrong.
";

pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (driver, request) = match parse(arguments) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{NAME}: {error}\nTry '{NAME} --help'.");
            return ExitCode::from(2);
        }
    };
    match super::mount(&driver, &request) {
        Ok(()) => {
            println!("mounted at {}", request.target_path);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{NAME}: {}", error.message);
            ExitCode::FAILURE
        }
    }
}

type Asked = (String, NodePublishVolumeRequest);

/// Nothing if help is asked for.
fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Asked>, String> {
    let (mut mount, mut driver, mut config) = (false, None, None);
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with('-') => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let mut value = || {
            let value = value.clone().or_else(|| arguments.next());
            value.ok_or_else(|| format!("{name} needs a value"))
        };
        match name {
            "-h" | "--help" => return Ok(None),
            "mount" => mount = true,
            "--driver" => driver = Some(value()?),
            "--config" => config = Some(value()?),
            _ => return Err(format!("unknown argument '{argument}'")),
        }
    }
    match (mount, driver, config) {
        (true, Some(driver), Some(config)) => Ok(Some((driver, decode(&config)?))),
        (false, _, _) => Err("only 'mount' can be asked for".to_owned()),
        (true, None, _) => Err("--driver is missing".to_owned()),
        (true, _, None) => Err("--config is missing".to_owned()),
    }
}

fn decode(config: &str) -> Result<NodePublishVolumeRequest, String> {
    let bytes = STANDARD
        .decode(config)
        .map_err(|e| format!("--config is not base64: {e}"))?;
    NodePublishVolumeRequest::decode(&*bytes)
        .map_err(|e| format!("--config is not a NodePublishVolumeRequest: {e}"))
}
