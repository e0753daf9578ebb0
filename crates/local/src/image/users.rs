//! `user[:group]` of an image or a container as numbers, by the image's own `/etc/passwd` and `/etc/group`.

/// Longer files of users than this are not read.
pub(super) const LONGEST: u64 = 1 << 20;

/// Larger numbers are no users.
const LAST: u32 = i32::MAX as u32;

/// Whom a container runs as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// What `/etc/passwd` says, if it knows the user.
    pub name: Option<String>,
    pub home: Option<String>,
}

/// Why nobody is meant by a `user[:group]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    #[error("unable to find user {0}: no matching entries in passwd file")]
    User(String),
    #[error("unable to find group {0}: no matching entries in group file")]
    Group(String),
    #[error("{0} is no user or group: numbers are from 0 to {LAST}")]
    Range(String),
    #[error("cannot read {path} of the image: {reason}")]
    File { path: &'static str, reason: String },
}

struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// Finds a user. A number is a number even where somebody is called so; who is in no file has group 0.
pub(super) fn resolve(spec: &str, passwd: &str, group: &str) -> Result<User, UserError> {
    let (who, which) = match spec.split_once(':') {
        Some((who, which)) => (who, Some(which).filter(|which| !which.is_empty())),
        None => (spec, None),
    };
    let number = match who {
        "" => Some(0),
        who => number(who)?,
    };
    let found = entries(passwd).find(|entry| match number {
        Some(number) => entry.uid == number,
        None => entry.name == who,
    });
    let mut user = match (found, number) {
        (Some(entry), _) => User {
            uid: entry.uid,
            gid: entry.gid,
            groups: Vec::new(),
            name: Some(entry.name.to_owned()),
            home: Some(entry.home.to_owned()).filter(|home| !home.is_empty()),
        },
        (None, Some(number)) => User {
            uid: number,
            ..User::default()
        },
        (None, None) => return Err(UserError::User(shown(who))),
    };
    match which {
        Some(which) => user.gid = named_group(which, group)?,
        None => user.groups = memberships(user.name.as_deref(), user.gid, group),
    }
    Ok(user)
}

/// Nothing if it is a name.
fn number(text: &str) -> Result<Option<u32>, UserError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    match text.parse() {
        Ok(number) if number <= LAST => Ok(Some(number)),
        _ => Err(UserError::Range(shown(text))),
    }
}

fn entries(passwd: &str) -> impl Iterator<Item = Entry<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let uid = id(fields.nth(1)?)?;
        let gid = id(fields.next()?)?;
        let home = fields.nth(1).unwrap_or_default();
        Some(Entry {
            name,
            uid,
            gid,
            home,
        })
    })
}

/// Name, number and members of each group.
fn groups(file: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    file.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let gid = id(fields.nth(1)?)?;
        Some((name, gid, fields.next().unwrap_or_default()))
    })
}

fn id(field: &str) -> Option<u32> {
    field.trim().parse().ok().filter(|id| *id <= LAST)
}

fn named_group(which: &str, file: &str) -> Result<u32, UserError> {
    if let Some(number) = number(which)? {
        return Ok(number);
    }
    let found = groups(file).find(|(name, ..)| *name == which);
    found
        .map(|(_, gid, _)| gid)
        .ok_or_else(|| UserError::Group(shown(which)))
}

fn memberships(name: Option<&str>, own: u32, file: &str) -> Vec<u32> {
    let Some(name) = name else {
        return Vec::new();
    };
    let is_member = |members: &str| members.split(',').any(|member| member.trim() == name);
    let mut ids: Vec<u32> = groups(file)
        .filter(|(_, gid, members)| *gid != own && is_member(members))
        .map(|(_, gid, _)| gid)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    // more than this many the kernel does not take
    ids.truncate(65_536);
    ids
}

fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::{User, UserError, resolve};

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n# note\nbroken\n:x:5:5::/:\n\
        www:x:33:34::/var/www:/bin/sh\n44:x:45:46::/home/44:\nbig:x:4294967295:0::/:\n";
    const GROUP: &str =
        "root:x:0:\nwww:x:34:www\nlogs:x:70:root, www\ndocs:x:71:www,other\nbroken\n";

    fn ids(spec: &str) -> Result<(u32, u32, Vec<u32>), UserError> {
        let User {
            uid, gid, groups, ..
        } = resolve(spec, PASSWD, GROUP)?;
        Ok((uid, gid, groups))
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        for (spec, uid, gid, groups) in [
            ("", 0, 0, vec![70]),
            ("root", 0, 0, vec![70]),
            ("www", 33, 34, vec![70, 71]),
            ("33", 33, 34, vec![70, 71]),
            ("www:", 33, 34, vec![70, 71]),
            ("www:logs", 33, 70, vec![]),
            ("www:9", 33, 9, vec![]),
            ("1000", 1000, 0, vec![]),
            ("1000:1000", 1000, 1000, vec![]),
            ("1000:docs", 1000, 71, vec![]),
            ("44", 44, 0, vec![]),
            ("2147483647", 2_147_483_647, 0, vec![]),
        ] {
            assert_eq!(ids(spec), Ok((uid, gid, groups)), "{spec}");
        }
    }

    #[test]
    fn who_is_not_there_is_named() {
        let unknown = "unable to find user nemo: no matching entries in passwd file";
        assert_eq!(ids("nemo").unwrap_err().to_string(), unknown);
        let unknown = "unable to find group crew: no matching entries in group file";
        assert_eq!(ids("www:crew").unwrap_err().to_string(), unknown);
        for spec in ["2147483648", "4294967295", "1:99999999999999999999"] {
            assert!(matches!(ids(spec), Err(UserError::Range(_))), "{spec}");
        }
        assert!(matches!(ids("big"), Err(UserError::User(_))));
    }
}
