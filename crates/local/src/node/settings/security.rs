//! Whom a container runs as and what it may do. What a pod asks for is granted or refused, never quietly weakened.

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};

use super::Ask;
use crate::image::UserError;
use crate::node::ids::COUNT;
use crate::node::trouble::Trouble;

/// What the container's own context says, else what the pod's says.
pub(super) struct Wishes<'a> {
    own: Option<&'a SecurityContext>,
    pod: Option<&'a PodSecurityContext>,
}

/// Whom a container runs as.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) additional_gids: Vec<u32>,
    pub(super) home: Option<String>,
}

impl<'a> Wishes<'a> {
    pub(super) fn of(ask: &Ask<'a>) -> Self {
        Self {
            own: ask.container.security_context.as_ref(),
            pod: ask
                .pod
                .spec
                .as_ref()
                .and_then(|it| it.security_context.as_ref()),
        }
    }

    fn user(&self) -> Option<i64> {
        let own = self.own.and_then(|it| it.run_as_user);
        own.or_else(|| self.pod?.run_as_user)
    }

    fn group(&self) -> Option<i64> {
        let own = self.own.and_then(|it| it.run_as_group);
        own.or_else(|| self.pod?.run_as_group)
    }

    fn is_non_root(&self) -> bool {
        let own = self.own.and_then(|it| it.run_as_non_root);
        own.or_else(|| self.pod?.run_as_non_root) == Some(true)
    }

    fn supplemental_groups(&self) -> &'a [i64] {
        let groups = self.pod.and_then(|it| it.supplemental_groups.as_deref());
        groups.unwrap_or_default()
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.own.and_then(|it| it.read_only_root_filesystem) == Some(true)
    }

    pub(super) fn is_privileged(&self) -> bool {
        self.own.and_then(|it| it.privileged) == Some(true)
    }

    pub(super) fn capabilities(&self) -> container::Capabilities {
        let wish = self.own.and_then(|it| it.capabilities.as_ref());
        container::Capabilities {
            add: wish.and_then(|it| it.add.clone()).unwrap_or_default(),
            drop: wish.and_then(|it| it.drop.clone()).unwrap_or_default(),
        }
    }

    /// Whether `/proc` is shown whole. Only who has users of their own may have it so, as everywhere in Kubernetes.
    pub(super) fn unmasked_proc(&self, ask: &Ask<'_>) -> Result<bool, Trouble> {
        let host_users = ask.pod.spec.as_ref().and_then(|spec| spec.host_users);
        let name = &ask.container.name;
        match self.own.and_then(|it| it.proc_mount.as_deref()) {
            None | Some("Default") => Ok(false),
            Some("Unmasked") if host_users == Some(false) => Ok(true),
            Some("Unmasked") => Err(Trouble::config(format!(
                "container {name:?} cannot have procMount Unmasked with the users of this machine: \
                 set hostUsers: false in its pod, or leave procMount out"
            ))),
            Some(other) => Err(Trouble::config(format!(
                "container {name:?} asks for procMount {other:?}: there are Default and Unmasked"
            ))),
        }
    }

    pub(super) fn seccomp(&self) -> Result<container::Seccomp, Trouble> {
        let own = self.own.and_then(|it| it.seccomp_profile.as_ref());
        let profile = own.or_else(|| self.pod?.seccomp_profile.as_ref());
        match profile.map(|profile| profile.type_.as_str()) {
            None | Some("RuntimeDefault") => Ok(container::Seccomp::Default),
            Some("Unconfined") => Ok(container::Seccomp::Unconfined),
            Some(other) => Err(Trouble::config(format!(
                "seccompProfile {other} is not supported by this node: ask for RuntimeDefault or Unconfined"
            ))),
        }
    }
}

/// Nothing of the machine is given away, whatever a pod asks for.
pub(super) fn refuse_the_machine(ask: &Ask<'_>) -> Result<(), Trouble> {
    let Some(spec) = &ask.pod.spec else {
        return Ok(());
    };
    let asked = [
        ("hostNetwork", spec.host_network),
        ("hostPID", spec.host_pid),
        ("hostIPC", spec.host_ipc),
    ];
    if let Some((field, _)) = asked.iter().find(|(_, wish)| *wish == Some(true)) {
        return Err(Trouble::config(format!(
            "{field} is never granted by this node: leave {field} out"
        )));
    }
    let missing = [
        (
            "shareProcessNamespace",
            spec.share_process_namespace == Some(true),
            "each container has processes of its own here",
        ),
        (
            "hostUsers: false",
            spec.host_users == Some(false) && !ask.is_isolated,
            "without isolation users are those of this machine",
        ),
    ];
    match missing.iter().find(|(_, is_asked, _)| *is_asked) {
        Some((field, _, why)) => Err(Trouble::config(format!(
            "{field} is not supported by this node: {why}; leave it out"
        ))),
        None => Ok(()),
    }
}

/// Whom the container runs as, by its wishes and then by its image.
pub(super) fn identity(ask: &Ask<'_>, wishes: &Wishes<'_>) -> Result<Identity, Trouble> {
    let of_image = ask.image.config.user.as_str();
    if !ask.is_isolated {
        return only_caller(ask, wishes);
    }
    check_non_root(ask, wishes, of_image)?;
    if !ask.is_root {
        return only_root(ask, wishes);
    }
    let user = |spec: &str| {
        let found = ask.image.user(spec);
        found.map_err(|error: UserError| Trouble::create(error.to_string()))
    };
    let who = match wishes.user() {
        Some(uid) => uid.to_string(),
        None => of_image.split(':').next().unwrap_or_default().to_owned(),
    };
    // without the group: which groups the user is in does not depend on it
    let found = user(&who)?;
    let gid = match (wishes.group(), wishes.user()) {
        (Some(gid), _) => id("runAsGroup", gid)?,
        (None, Some(_)) => found.gid,
        (None, None) => user(of_image)?.gid,
    };
    let pod = wishes.pod;
    let is_strict = pod.and_then(|it| it.supplemental_groups_policy.as_deref()) == Some("Strict");
    let mut groups = if is_strict { Vec::new() } else { found.groups };
    for asked in wishes.supplemental_groups() {
        groups.push(id("supplementalGroups", *asked)?);
    }
    if let Some(asked) = pod.and_then(|it| it.fs_group) {
        groups.push(id("fsGroup", asked)?);
    }
    groups.sort_unstable();
    groups.dedup();
    check_own_users(ask, found.uid, gid, &groups)?;
    Ok(Identity {
        uid: found.uid,
        gid,
        additional_gids: groups,
        home: found.home,
    })
}

/// Where this process is not root, user 0 is all there is. An image that names another user runs as that one; who asks for
/// another is told. An `fsGroup` asks for nothing then: all files of volumes belong to the one user.
fn only_root(ask: &Ask<'_>, wishes: &Wishes<'_>) -> Result<Identity, Trouble> {
    let asked = [
        ("runAsUser", wishes.user()),
        ("runAsGroup", wishes.group()),
        (
            "supplementalGroups",
            wishes
                .supplemental_groups()
                .iter()
                .copied()
                .find(|id| *id != 0),
        ),
        ("runAsNonRoot", wishes.is_non_root().then_some(1)),
    ];
    let refused = asked
        .iter()
        .find(|(_, wish)| wish.is_some_and(|id| id != 0));
    if let Some((field, _)) = refused {
        return Err(Trouble::config(format!(
            "container {:?} cannot have its {field}: only user 0 and group 0 exist in containers while sandbar does not run \
             as root; run sandbar as root or leave {field} out",
            ask.container.name
        )));
    }
    let root = ask.image.user("0").ok();
    Ok(Identity {
        home: root.and_then(|root| root.home),
        ..Identity::default()
    })
}

/// A plain process is of the user that sandbar runs as, and has what rights that user has. What is asked for beyond that is
/// refused; what is asked for to be withheld is not withheld, which is what no isolation means.
fn only_caller(ask: &Ask<'_>, wishes: &Wishes<'_>) -> Result<Identity, Trouble> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let differs = |asked: Option<i64>, own: u32| asked.is_some_and(|id| id != i64::from(own));
    let groups = wishes.supplemental_groups();
    let asked = [
        ("runAsUser", differs(wishes.user(), uid)),
        ("runAsGroup", differs(wishes.group(), gid)),
        (
            "supplementalGroups",
            groups.iter().any(|id| differs(Some(*id), gid)),
        ),
        ("runAsNonRoot", wishes.is_non_root() && uid == 0),
        ("capabilities", !wishes.capabilities().add.is_empty()),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        Some((field, _)) => Err(Trouble::config(format!(
            "container {:?} cannot have its {field}: without isolation containers are processes of user {uid} and group {gid}; \
             leave {field} out, or run sandbar where it can isolate",
            ask.container.name
        ))),
        None => Ok(Identity {
            uid,
            gid,
            ..Identity::default()
        }),
    }
}

/// A pod with users of its own has so many, and no more.
fn check_own_users(ask: &Ask<'_>, uid: u32, gid: u32, groups: &[u32]) -> Result<(), Trouble> {
    let host_users = ask.pod.spec.as_ref().and_then(|spec| spec.host_users);
    let mut ids = groups.iter().chain([&uid, &gid]);
    match (host_users, ids.find(|id| **id >= COUNT)) {
        (Some(false), Some(id)) => Err(Trouble::config(format!(
            "container {:?} cannot have user or group {id}: with hostUsers: false there are {COUNT}",
            ask.container.name
        ))),
        _ => Ok(()),
    }
}

fn check_non_root(ask: &Ask<'_>, wishes: &Wishes<'_>, of_image: &str) -> Result<(), Trouble> {
    if !wishes.is_non_root() {
        return Ok(());
    }
    let metadata = &ask.pod.metadata;
    let text = |field: &'_ Option<String>| field.clone().unwrap_or_default();
    let whose = format!(
        "(pod: \"{}_{}({})\", container: {})",
        text(&metadata.name),
        text(&metadata.namespace),
        text(&metadata.uid),
        ask.container.name
    );
    let who = of_image.split(':').next().unwrap_or_default();
    let message = match (wishes.user(), who.parse::<i64>()) {
        (Some(0), _) => format!("container's runAsUser breaks non-root policy {whose}"),
        (Some(_), _) => return Ok(()),
        (None, Ok(0)) => format!("container has runAsNonRoot and image will run as root {whose}"),
        (None, Ok(_)) => return Ok(()),
        (None, Err(_)) if who.is_empty() => {
            format!("container has runAsNonRoot and image will run as root {whose}")
        }
        (None, Err(_)) => format!(
            "container has runAsNonRoot and image has non-numeric user ({who}), cannot verify user is non-root {whose}"
        ),
    };
    Err(Trouble::config(message))
}

fn id(field: &str, id: i64) -> Result<u32, Trouble> {
    u32::try_from(id).map_err(|_| Trouble::config(format!("{field} {id} is no user or group")))
}
