//! The layer of a built-in image: everything but the programs of the host.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use super::{Addition, Content, Layout};

/// Nothing that is copied is longer: the largest is the bundle of certificates.
const LONGEST: u64 = 4 << 20;

/// The user of the image.
const USER: u32 = 1000;

const DIRECTORIES: [(&str, u32); 23] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("home/user", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
    ("etc/alternatives", 0o755),
    ("etc/ssl", 0o755),
    ("etc/ssl/certs", 0o755),
];

const FILES: [(&str, &str); 7] = [
    (
        "etc/hosts",
        "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
    ),
    // the node puts these in; here they are places for it
    ("etc/hostname", ""),
    ("etc/resolv.conf", ""),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
         protocols: files\nservices: files\n",
    ),
    (
        "etc/profile",
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\numask 022\n",
    ),
    ("etc/shells", "/bin/sh\n/bin/bash\n"),
    ("etc/host.conf", "multi on\n"),
];

/// Files of the host that its libraries and programs read.
const COPIED: [&str; 5] = [
    "etc/ld.so.conf",
    "etc/ld.so.cache",
    "etc/services",
    "etc/protocols",
    "etc/mime.types",
];

/// Directories of the host that belong to what is in `/usr`.
const COPIED_TREES: [&str; 2] = ["etc/ld.so.conf.d", "etc/perl"];

/// Certificates of authorities, in one file.
const BUNDLES: [&str; 5] = [
    "etc/ssl/certs/ca-certificates.crt",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

/// Fills an empty directory.
pub(super) fn make(host: &Path, layout: &Layout, into: &Path) -> io::Result<()> {
    for (path, mode) in DIRECTORIES {
        make_directory(&into.join(path), mode)?;
    }
    for (path, text) in FILES {
        write(&into.join(path), text.as_bytes())?;
    }
    for (path, text) in users(id_of_user()) {
        write(&into.join(path), text.as_bytes())?;
    }
    for (link, target) in &layout.links {
        symlink(target, into.join(link))?;
    }
    for overlay in &layout.overlays {
        make_directory(&into.join(overlay), 0o755)?;
    }
    for (link, target) in [
        ("var/run", "/run"),
        ("var/lock", "/run/lock"),
        ("etc/mtab", "/proc/self/mounts"),
    ] {
        symlink(target, into.join(link))?;
    }
    for path in COPIED.iter().chain(&BUNDLES) {
        copy(host, into, Path::new(path))?;
    }
    for path in COPIED_TREES {
        copy_tree(host, into, Path::new(path), 4)?;
    }
    for path in names(&host.join("etc"))? {
        if path.starts_with("python3") {
            copy_tree(host, into, &Path::new("etc").join(path), 4)?;
        }
    }
    alternatives(host, into)?;
    certificates(host, into)?;
    release(host, into)?;
    local_time(host, into)?;
    give_to_user(&into.join("home/user"))
}

/// The image's user. Where containers have one user only, root, it is another name of his.
fn id_of_user() -> u32 {
    match rustix::process::geteuid().is_root() {
        true => USER,
        false => 0,
    }
}

fn users(user: u32) -> [(&'static str, String); 2] {
    let passwd = format!(
        "root:x:0:0:root:/root:/bin/sh\n\
         user:x:{user}:{user}:user:/home/user:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\ntty:x:5:\nuser:x:{user}:\nnogroup:x:65534:\n");
    [("etc/passwd", passwd), ("etc/group", group)]
}

fn give_to_user(path: &Path) -> io::Result<()> {
    match id_of_user() {
        // whoever made it is who root is in the container
        0 => Ok(()),
        user => chown(path, Some(user), Some(user)),
    }
}

/// Adds what only one image has.
pub(super) fn add(additions: &[Addition], into: &Path) -> io::Result<()> {
    for (path, content) in additions {
        let path = Path::new(path.trim_start_matches('/'));
        make_way(into, path)?;
        let at = into.join(path);
        match content {
            Content::Program(program) => {
                write(&at, program)?;
                fs::set_permissions(&at, Permissions::from_mode(0o755))?;
            }
            Content::Link(target) => symlink(target, &at)?,
            Content::Directory => {
                make_directory(&at, 0o755)?;
                give_to_user(&at)?;
            }
        }
    }
    Ok(())
}

/// Makes a directory and gives it this mode, whatever the mask of the process.
fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Makes the directories on the way to a file.
fn make_way(into: &Path, path: &Path) -> io::Result<()> {
    let mut at = into.to_owned();
    for part in path.parent().into_iter().flat_map(Path::iter) {
        at.push(part);
        match make_directory(&at, 0o755) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// The content of a file of the host that may go into an image: everybody can read it, and it holds no key.
fn content(path: &Path) -> Option<Vec<u8>> {
    let about = fs::metadata(path).ok()?;
    let is_public = about.permissions().mode() & 0o004 != 0;
    if !about.is_file() || !is_public || about.len() > LONGEST {
        return None;
    }
    let mut content = Vec::new();
    let file = File::open(path).ok()?;
    file.take(LONGEST).read_to_end(&mut content).ok()?;
    let key = b"PRIVATE KEY";
    let has_key = content.windows(key.len()).any(|part| part == key);
    (!has_key).then_some(content)
}

fn copy(host: &Path, into: &Path, path: &Path) -> io::Result<()> {
    match content(&host.join(path)) {
        Some(content) => {
            make_way(into, path)?;
            write(&into.join(path), &content)
        }
        None => Ok(()),
    }
}

fn copy_tree(host: &Path, into: &Path, path: &Path, depth: u32) -> io::Result<()> {
    for name in names(&host.join(path))? {
        let path = path.join(name);
        match host.join(&path).is_dir() {
            true if depth > 0 => copy_tree(host, into, &path, depth - 1)?,
            true => {}
            false => copy(host, into, &path)?,
        }
    }
    Ok(())
}

/// The names in a directory; none if it is not there.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// Which of several programs a name means, as far as they are in `/usr`. Pages of manuals are left out: they are most.
fn alternatives(host: &Path, into: &Path) -> io::Result<()> {
    let directory = Path::new("etc/alternatives");
    for name in names(&host.join(directory))? {
        let path = directory.join(&name);
        let Ok(target) = fs::read_link(host.join(&path)) else {
            continue;
        };
        let is_inside = target.starts_with("/usr") && target.iter().all(|part| part != "..");
        if is_inside && !name.ends_with(".gz") {
            symlink(target, into.join(path))?;
        }
    }
    Ok(())
}

/// The certificates of authorities one by one, under the names by which OpenSSL looks for them. What was made on the host
/// itself stays out: such a certificate is the host's own, and has its name in it.
fn certificates(host: &Path, into: &Path) -> io::Result<()> {
    let directory = Path::new("etc/ssl/certs");
    let Ok(here) = fs::canonicalize(host.join(directory)) else {
        return Ok(());
    };
    for name in names(&here)? {
        let target = into.join(directory).join(&name);
        let path = here.join(&name);
        let Ok(real) = fs::canonicalize(&path) else {
            continue;
        };
        if target.exists() || real.parent() == Some(here.as_path()) {
            continue;
        }
        let link = fs::read_link(&path).unwrap_or_default();
        // names by hash are links to a neighbour, which is a link to where the certificate is
        if link.components().count() == 1 && !link.is_absolute() {
            symlink(link, target)?;
        } else if let Some(content) = content(&real) {
            write(&target, &content)?;
        }
    }
    Ok(())
}

/// Which system this is: that of `/usr`, or a line of our own.
fn release(host: &Path, into: &Path) -> io::Result<()> {
    let target = into.join("etc/os-release");
    match host.join("usr/lib/os-release").is_file() {
        true => symlink("../usr/lib/os-release", target),
        false => write(&target, b"ID=sandbar\nNAME=Sandbar\nPRETTY_NAME=Sandbar\n"),
    }
}

fn local_time(host: &Path, into: &Path) -> io::Result<()> {
    let path = Path::new("etc/localtime");
    let link = fs::read_link(host.join(path)).ok();
    let zone = link.filter(|link| is_zone(link));
    match zone {
        Some(zone) => symlink(zone, into.join(path)),
        None => copy(host, into, path),
    }
}

fn is_zone(link: &Path) -> bool {
    let zones = [
        Path::new("/usr/share/zoneinfo"),
        Path::new("../usr/share/zoneinfo"),
    ];
    let inside: Option<&Path> = zones.iter().find_map(|zones| link.strip_prefix(zones).ok());
    inside.is_some_and(|zone: &Path| zone.iter().all(|part| part != ".."))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    use super::super::Layout;
    use super::make;

    const SECRETS: [(&str, &str); 12] = [
        ("etc/shadow", "root:$6$secret"),
        ("etc/passwd", "secretadmin:x:1:1::/:/bin/sh"),
        ("etc/hostname", "secret-host"),
        ("etc/hosts", "10.0.0.1 secret-host"),
        ("etc/resolv.conf", "nameserver 10.0.0.53 # secret"),
        ("etc/machine-id", "secret"),
        ("etc/ssh/ssh_host_ed25519_key", "secret"),
        ("etc/ssl/private/server.key", "secret"),
        ("etc/ssl/certs/ssl-cert-snakeoil.pem", "CN=secret-host"),
        ("etc/pip.conf", "index-url = https://user:secret@example"),
        ("etc/perl/server.pem", "-----BEGIN PRIVATE KEY-----\nsecret"),
        ("root/.ssh/id", "secret"),
    ];

    fn host() -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (path, text) in SECRETS {
            put(path, text);
        }
        put("etc/ld.so.conf.d/a.conf", "/usr/local/lib");
        put("etc/python3.13/sitecustomize.py", "pass");
        put("etc/ssl/certs/ca-certificates.crt", "CERTIFICATES");
        put("usr/share/ca-certificates/root.crt", "CERTIFICATE");
        put("usr/lib/os-release", "ID=test");
        let certs = host.path().join("etc/ssl/certs");
        symlink(
            "../../../usr/share/ca-certificates/root.crt",
            certs.join("root.pem"),
        )
        .unwrap();
        symlink("root.pem", certs.join("0a1b2c3d.0")).unwrap();
        symlink("ssl-cert-snakeoil.pem", certs.join("ffffffff.0")).unwrap();
        let other = host.path().join("etc/alternatives");
        fs::create_dir_all(&other).unwrap();
        symlink("/usr/bin/vim.basic", other.join("editor")).unwrap();
        symlink("/opt/secret/bin/awk", other.join("awk")).unwrap();
        symlink(
            "/usr/share/zoneinfo/Europe/Berlin",
            host.path().join("etc/localtime"),
        )
        .unwrap();
        host
    }

    fn files(root: &Path) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut rest = vec![root.to_owned()];
        while let Some(directory) = rest.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() && !path.is_symlink() {
                    true => rest.push(path),
                    false => _ = found.insert(path),
                }
            }
        }
        found
    }

    #[test]
    fn nothing_secret_of_the_host_is_in_the_layer() {
        let (host, into) = (host(), tempfile::tempdir().unwrap());
        make(host.path(), &Layout::of(host.path()), into.path()).unwrap();
        let files = files(into.path());
        for file in &files {
            let name = file.to_string_lossy().into_owned();
            assert!(
                !name.contains("shadow") && !name.contains("secret"),
                "{name}"
            );
            let text = match fs::read_link(file) {
                Ok(target) => target.to_string_lossy().into_owned(),
                Err(_) => String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned(),
            };
            assert!(!text.contains("secret"), "{name}: {text}");
        }
    }

    #[test]
    fn what_programs_need_is_in_the_layer() {
        let (host, into) = (host(), tempfile::tempdir().unwrap());
        make(host.path(), &Layout::of(host.path()), into.path()).unwrap();
        let at = |path: &str| into.path().join(path);
        for (path, text) in [
            ("etc/ssl/certs/root.pem", "CERTIFICATE"),
            ("etc/ssl/certs/0a1b2c3d.0", "CERTIFICATE"),
            ("etc/ssl/certs/ca-certificates.crt", "CERTIFICATES"),
            ("etc/python3.13/sitecustomize.py", "pass"),
            ("etc/ld.so.conf.d/a.conf", "/usr/local/lib"),
        ] {
            assert_eq!(fs::read_to_string(at(path)).unwrap(), text, "{path}");
        }
        for (path, target) in [
            ("etc/alternatives/editor", "/usr/bin/vim.basic"),
            ("etc/os-release", "../usr/lib/os-release"),
            ("etc/localtime", "/usr/share/zoneinfo/Europe/Berlin"),
        ] {
            assert_eq!(
                fs::read_link(at(path)).unwrap(),
                Path::new(target),
                "{path}"
            );
        }
        assert!(!at("etc/alternatives/awk").is_symlink());
        for (path, mode) in [
            ("tmp", 0o1777),
            ("var/tmp", 0o1777),
            ("root", 0o700),
            ("usr", 0o755),
        ] {
            let about = fs::metadata(at(path)).unwrap();
            assert_eq!(about.permissions().mode() & 0o7777, mode, "{path}");
        }
        if rustix::process::geteuid().is_root() {
            let home = fs::metadata(at("home/user")).unwrap();
            assert_eq!((home.uid(), home.gid()), (1000, 1000));
        }
    }
}
