//! What is at a path, as clients are told.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::daemon::files::metadata;
use crate::daemon::rights::Rights;
use crate::daemon::users::{Accounts, Names};
use crate::messages::filesystem::{EntryInfo, FileType, Timestamp};

/// Describes the entry itself; of a link, also what it leads to.
pub(super) fn describe(path: &Path, names: &Names) -> io::Result<EntryInfo> {
    let own = fs::symlink_metadata(path)?;
    let is_symlink = own.is_symlink();
    let target = if is_symlink {
        fs::metadata(path).ok()
    } else {
        None
    };
    let kind = match (&target, is_symlink) {
        (Some(target), _) => kind_of(target),
        (None, true) => FileType::Unspecified,
        (None, false) => kind_of(&own),
    };
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(EntryInfo {
        name: name.to_string_lossy().into_owned(),
        r#type: kind.into(),
        path: path.to_string_lossy().into_owned(),
        size: i64::try_from(own.len()).unwrap_or(i64::MAX),
        mode: target.as_ref().unwrap_or(&own).mode() & 0o777,
        permissions: permissions(&own),
        owner: names.user(own.uid()),
        group: names.group(own.gid()),
        modified_time: Some(Timestamp {
            seconds: within_calendar(own.mtime()),
            nanos: i32::try_from(own.mtime_nsec()).unwrap_or_default(),
        }),
        symlink_target: is_symlink.then(|| resolved(path)),
        metadata: metadata::of_path(path),
        is_symlink,
    })
}

/// What was found at a path, by whom: one event may be told to many. Good for events of one moment.
#[derive(Default)]
pub(super) struct Described {
    names: Option<Names>,
    last: Option<(PathBuf, Option<Rights>, Option<Arc<EntryInfo>>)>,
}

impl Described {
    /// With the rights that were assumed. Nothing if there is nothing.
    pub(super) fn entry(
        &mut self,
        path: PathBuf,
        rights: Option<&Rights>,
        accounts: &Accounts,
    ) -> Option<Arc<EntryInfo>> {
        if let Some((known, by, entry)) = &self.last
            && *known == path
            && by.as_ref() == rights
        {
            return entry.clone();
        }
        let names = self.names.get_or_insert_with(|| accounts.names());
        let entry = describe(&path, names).ok().map(Arc::new);
        self.last = Some((path, rights.cloned(), entry.clone()));
        entry
    }

    /// Something else has happened, after which it may be another.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

fn kind_of(metadata: &Metadata) -> FileType {
    if metadata.is_dir() {
        FileType::Directory
    } else if metadata.is_file() {
        FileType::File
    } else {
        FileType::Unspecified
    }
}

/// The seconds of a time that can be written down: from year 1 to year 9999. Files may be of any other.
pub(in crate::daemon) fn within_calendar(seconds: i64) -> i64 {
    seconds.clamp(-62_135_596_800, 253_402_300_799)
}

/// Of a link that leads nowhere, its own path.
fn resolved(path: &Path) -> String {
    let target = fs::canonicalize(path);
    let target = target.as_deref().unwrap_or(path);
    target.to_string_lossy().into_owned()
}

/// Letters for what it is, then three triplets.
fn permissions(metadata: &Metadata) -> String {
    let kind = metadata.file_type();
    let mode = metadata.mode();
    let letters = [
        (kind.is_dir(), 'd'),
        (kind.is_symlink(), 'L'),
        (kind.is_block_device() || kind.is_char_device(), 'D'),
        (kind.is_fifo(), 'p'),
        (kind.is_socket(), 'S'),
        (mode & 0o4000 != 0, 'u'),
        (mode & 0o2000 != 0, 'g'),
        (kind.is_char_device(), 'c'),
        (mode & 0o1000 != 0, 't'),
    ];
    let mut text: String = letters
        .iter()
        .filter_map(|(applies, letter)| applies.then_some(*letter))
        .collect();
    if text.is_empty() {
        text.push('-');
    }
    text.extend("rwxrwxrwx".chars().enumerate().map(|(position, letter)| {
        let set = mode & (0o400 >> position) != 0;
        if set { letter } else { '-' }
    }));
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::describe;
    use crate::daemon::users::Accounts;
    use crate::messages::filesystem::FileType;

    #[test]
    fn links_tell_of_themselves_and_of_their_target() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let names = Accounts::new(root.clone()).names();
        fs::write(root.join("file"), "12345").unwrap();
        fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", root.join("link")).unwrap();
        symlink("nowhere", root.join("broken")).unwrap();

        let file = describe(&root.join("file"), &names).unwrap();
        assert_eq!((file.size, file.mode), (5, 0o640));
        assert_eq!(file.permissions, "-rw-r-----");
        assert_eq!(file.symlink_target, None);

        let link = describe(&root.join("link"), &names).unwrap();
        assert_eq!((link.r#type(), link.mode), (FileType::File, 0o640));
        assert_eq!(link.permissions, "Lrwxrwxrwx");
        let target = root.join("file").to_string_lossy().into_owned();
        assert_eq!(link.symlink_target, Some(target));

        let broken = describe(&root.join("broken"), &names).unwrap();
        assert_eq!(broken.r#type(), FileType::Unspecified);
        assert_eq!(broken.symlink_target, Some(broken.path));
    }

    #[test]
    fn special_bits_come_before_the_triplets() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let names = Accounts::new(dir.path().into()).names();
        let entry = describe(dir.path(), &names).unwrap();
        assert_eq!(entry.permissions, "dtrwxrwxrwx");
    }
}
