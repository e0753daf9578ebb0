//! What can go wrong with images, said so that somebody who only sees the message can help themselves.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::digest::Digest;
use super::document::DocumentError;
use super::layer::LayerError;

/// Why an image cannot be had, kept or removed. The reason is in the words, and so not told as a source once more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{0:?} is no name of an image: {1}")]
    Name(String, oci_spec::distribution::ParseError),
    #[error("cannot {doing} {}: {reason}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        reason: io::Error,
    },
    #[error(
        "no space is left on the disk to {doing} {}: remove images with `sandbar image rm`, or choose another disk with --data-dir",
        path.display()
    )]
    Full { doing: &'static str, path: PathBuf },
    #[error("image {image} cannot be used: {reason}")]
    Document {
        image: String,
        reason: DocumentError,
    },
    #[error("layer {layer} of image {image} is refused: {reason}")]
    Layer {
        image: String,
        layer: Digest,
        reason: LayerError,
    },
    #[error("{} is neither an OCI layout nor the output of `docker save`", .0.display())]
    NoImage(PathBuf),
    #[error("{} lacks {part}, which its index names: it is not whole", path.display())]
    Incomplete { path: PathBuf, part: String },
    #[error("{part} of {} is longer than {most} bytes", path.display())]
    Long {
        path: PathBuf,
        part: String,
        most: u64,
    },
    #[error("{part} of {} has the digest {actual} instead of {expected}: the copy is damaged or forged", path.display())]
    Forged {
        path: PathBuf,
        part: String,
        expected: Digest,
        actual: Digest,
    },
    #[error("the image {id} in {} has no name: give it one with --name", path.display())]
    Unnamed { path: PathBuf, id: Digest },
    #[error("{} holds {count} images, and one name was given: leave it out to import all under their own", path.display())]
    Several { path: PathBuf, count: usize },
    #[error("{0} is built in and cannot be replaced or removed")]
    BuiltIn(String),
    #[error("image {0} is not here: `sandbar image list` shows what is")]
    Absent(String),
    #[error(
        "image {name} is used by {count} running containers, among them {holder}: delete their pods first"
    )]
    InUse {
        name: String,
        count: usize,
        holder: String,
    },
    #[error("image {0} was removed while it was being taken: try again")]
    Vanished(String),
    #[error("{0:?} cannot be the name of a container")]
    Holder(String),
    #[error(
        "image {reference} is not in the registry {registry}: check name and tag, and whether it is private"
    )]
    NotFound { reference: String, registry: String },
    #[error(
        "the registry {registry} does not let {who} read {reference} (status {status}): {help}"
    )]
    Unauthorized {
        reference: String,
        registry: String,
        who: String,
        status: u16,
        help: &'static str,
    },
    #[error(
        "the registry {registry} answered the request for {reference} with status {status}{said}"
    )]
    Status {
        reference: String,
        registry: String,
        status: u16,
        /// Empty, or a colon and what the registry says.
        said: String,
    },
    #[error("cannot reach the registry {registry} for {reference}: {reason}")]
    Unreachable {
        reference: String,
        registry: String,
        reason: String,
    },
    #[error(
        "the registry {registry} does not keep to the protocol when asked for {reference}: {reason}"
    )]
    Protocol {
        reference: String,
        registry: String,
        reason: String,
    },
    #[error(
        "the download of {digest} of {reference} from {registry} broke off {times} times: {reason}"
    )]
    Interrupted {
        reference: String,
        registry: String,
        digest: Digest,
        times: u32,
        reason: String,
    },
}

impl Error {
    /// An error of the file system.
    pub(super) fn io(doing: &'static str, path: &Path, reason: impl Into<io::Error>) -> Self {
        let (path, reason) = (path.to_owned(), reason.into());
        match reason.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full { doing, path },
            _ => Self::Io {
                doing,
                path,
                reason,
            },
        }
    }

    /// Whether the registry may answer somebody else otherwise: some say of what is private that it is not there.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unauthorized { .. } | Self::NotFound { .. } => true,
            Self::Status { status, .. } => (400..500).contains(status),
            _ => false,
        }
    }

    pub(super) fn document(image: &str) -> impl FnOnce(DocumentError) -> Self {
        let image = image.to_owned();
        move |reason| Self::Document { image, reason }
    }
}
