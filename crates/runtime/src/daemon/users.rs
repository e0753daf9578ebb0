//! Users and groups, read from their files: a static program in an empty image has nobody to ask.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};

use super::Daemon;
use super::error::Error;
use crate::code::Code;

/// Who a request acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// All groups, the first one included. Of no meaning where nobody can become another.
    pub(super) groups: Vec<u32>,
    pub(super) home: PathBuf,
}

pub(super) struct Accounts {
    etc: PathBuf,
}

/// Names by number, as they are at one moment.
pub(super) struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl Accounts {
    pub(super) fn new(etc: PathBuf) -> Self {
        Self { etc }
    }

    /// Nothing if there is no such file. One that cannot be read now must not make another user of `user`.
    fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.etc.join(file);
        match fs::read(&path) {
            // names that are not UTF-8 must not hide those that are
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(error) => {
                let message = format!("error reading '{}': {error}", path.display());
                Err(Error::new(Code::Unavailable, message))
            }
        }
    }

    pub(super) fn find(&self, name: &str) -> Result<Option<User>, Error> {
        let passwd = self.read("passwd")?;
        let account = accounts(&passwd).find(|account| account.name == name);
        let mut account = match account {
            Some(account) => account,
            None if name == "root" => root(),
            None => return Ok(None),
        };
        if account.uid == geteuid().as_raw() && !may_change() {
            account.gid = getegid().as_raw();
        }
        let groups = self.read("group")?;
        let further = groups_of(&groups)
            .filter(|group| group.gid != account.gid && has_member(group, name))
            .map(|group| group.gid);
        Ok(Some(User {
            name: name.to_owned(),
            uid: account.uid,
            gid: account.gid,
            groups: [account.gid].into_iter().chain(further).collect(),
            home: account.home.into(),
        }))
    }

    /// Who acts when nobody is named: `user`, as in E2B's images, else whoever runs the daemon.
    fn fallback(&self) -> Result<User, Error> {
        match self.find("user")?.filter(may_become) {
            Some(user) => Ok(user),
            None => self.myself(),
        }
    }

    /// Whoever runs the daemon, also if no file says who that is.
    fn myself(&self) -> Result<User, Error> {
        let uid = geteuid().as_raw();
        let passwd = self.read("passwd")?;
        let account = accounts(&passwd).find(|account| account.uid == uid);
        let name = match account {
            Some(account) => account.name,
            None if uid == 0 => "root",
            None => "",
        };
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute());
        Ok(self.find(name)?.unwrap_or_else(|| User {
            name: uid.to_string(),
            uid,
            gid: getegid().as_raw(),
            groups: Vec::new(),
            home: home.unwrap_or_else(|| "/".into()),
        }))
    }

    pub(super) fn names(&self) -> Names {
        let named = |(id, name): (u32, &str)| (id, name.to_owned());
        // numbers are names as well
        let read = |file| self.read(file).unwrap_or_default();
        Names {
            users: accounts(&read("passwd"))
                .map(|account| named((account.uid, account.name)))
                .collect(),
            groups: groups_of(&read("group"))
                .map(|group| named((group.gid, group.name)))
                .collect(),
        }
    }
}

impl Names {
    pub(super) fn user(&self, uid: u32) -> String {
        let name = self.users.get(&uid).cloned();
        name.unwrap_or_else(|| uid.to_string())
    }

    pub(super) fn group(&self, gid: u32) -> String {
        let name = self.groups.get(&gid).cloned();
        name.unwrap_or_else(|| gid.to_string())
    }
}

impl Daemon {
    /// The user that a request names, or the default one.
    pub(super) fn user(&self, named: Option<&str>) -> Result<User, Error> {
        let named = named.filter(|name| !name.is_empty()).map(str::to_owned);
        let Some(name) = named.or_else(|| self.settings.default_user()) else {
            return self.accounts.fallback();
        };
        let user = self.accounts.find(&name)?.ok_or_else(|| {
            let message = format!("invalid username: '{name}'");
            Error::new(Code::Unauthenticated, message)
        })?;
        if may_become(&user) {
            return Ok(user);
        }
        let myself = self.accounts.myself()?.name;
        let message = format!("the daemon runs as '{myself}' and cannot act as '{name}'");
        Err(Error::new(Code::PermissionDenied, message))
    }
}

fn may_become(user: &User) -> bool {
    user.uid == geteuid().as_raw() || may_change()
}

/// Whether commands can be started as somebody else. A sandbox may forbid it even to root.
pub(super) fn may_change() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    may_set_groups() && capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Root of a namespace that an ordinary user has made keeps the groups that he has, and with them his only id. That is for ever.
fn may_set_groups() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let said = fs::read("/proc/self/setgroups");
        !said.is_ok_and(|said| said.starts_with(b"deny"))
    })
}

/// There is always root, also where no file says so.
fn root() -> Account<'static> {
    let home = if Path::new("/root").is_dir() {
        "/root"
    } else {
        "/"
    };
    Account {
        name: "root",
        uid: 0,
        gid: 0,
        home,
    }
}

fn accounts(passwd: &str) -> impl Iterator<Item = Account<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let home = fields.nth(1).filter(|home| !home.is_empty()).unwrap_or("/");
        Some(Account {
            name,
            uid,
            gid,
            home,
        })
    })
}

fn groups_of(group: &str) -> impl Iterator<Item = Group<'_>> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = fields.nth(1)?.parse().ok()?;
        let members = fields.next().unwrap_or_default();
        Some(Group { name, gid, members })
    })
}

fn has_member(group: &Group<'_>, name: &str) -> bool {
    group.members.split(',').any(|member| member.trim() == name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::Accounts;

    #[test]
    fn users_have_all_their_groups_and_broken_lines_are_passed_over() {
        let etc = tempfile::tempdir().unwrap();
        let passwd = "broken\nalice:x:1001:1001::/home/alice:/bin/sh\nbob:x:many:1:::\n";
        let group = "alice:x:1001:\nstaff:x:50:bob,alice\nother:x:51:malice\nagain:x:1001:alice\n";
        fs::write(etc.path().join("passwd"), passwd).unwrap();
        fs::write(etc.path().join("group"), group).unwrap();
        let accounts = Accounts::new(etc.path().into());
        let alice = accounts.find("alice").unwrap().unwrap();
        assert_eq!((alice.uid, alice.gid), (1001, 1001));
        assert_eq!(alice.groups, [1001, 50]);
        assert_eq!(alice.home, Path::new("/home/alice"));
        assert_eq!(accounts.find("bob").unwrap(), None);
        assert_eq!(accounts.names().user(1001), "alice");
        assert_eq!(accounts.names().group(7), "7");
    }

    #[test]
    fn an_empty_image_has_root() {
        let etc = tempfile::tempdir().unwrap();
        let accounts = Accounts::new(etc.path().into());
        assert_eq!(accounts.find("root").unwrap().unwrap().uid, 0);
        assert_eq!(accounts.find("user").unwrap(), None);
    }
}
