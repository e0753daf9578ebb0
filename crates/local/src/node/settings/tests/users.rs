//! Whom containers run as.

use serde_json::{Value, json};

use super::{Scene, config};
use crate::node::trouble::Trouble;

/// User, group, further groups and home of a container, by what the pod, the container and the image ask for.
fn found(pod: &Value, own: &Value, image: &str) -> (u32, u32, Vec<u32>, String) {
    let scene = Scene::new(&json!({"securityContext": own})).image(config(image));
    let scene = scene.pod(&json!({"securityContext": pod}));
    let settings = scene.settings().unwrap();
    let home = settings
        .env
        .iter()
        .find_map(|line| line.strip_prefix("HOME="));
    let user = settings.user.clone();
    (
        user.uid,
        user.gid,
        user.additional_gids,
        home.unwrap().to_owned(),
    )
}

#[test]
fn an_image_says_whom_it_runs_as() {
    for (image, uid, gid, groups, home) in [
        ("", 0, 0, vec![], "/root"),
        ("www", 33, 34, vec![70], "/var/www"),
        ("www:docs", 33, 71, vec![70], "/var/www"),
        ("1000:1000", 1000, 1000, vec![], "/"),
    ] {
        let expected = (uid, gid, groups, home.to_owned());
        assert_eq!(found(&json!({}), &json!({}), image), expected, "{image}");
    }
    let unknown = Scene::new(&json!({})).image(config("nemo")).settings();
    let message = "unable to find user nemo: no matching entries in passwd file";
    assert_eq!(unknown.unwrap_err(), Trouble::create(message));
}

#[test]
fn a_spec_comes_before_the_image_and_a_container_before_its_pod() {
    let www = |gid: u32, groups: &[u32]| (33, gid, groups.to_vec(), "/var/www".to_owned());
    let none = || json!({});
    let user = |uid: u32| json!({"runAsUser": uid});
    let group = |gid: u32| json!({"runAsGroup": gid});
    let both = json!({"runAsUser": 33, "runAsGroup": 9});
    let more = json!({"supplementalGroups": [7, 70], "fsGroup": 5});
    let strict = json!({"supplementalGroups": [7], "supplementalGroupsPolicy": "Strict"});
    let is_not_root = json!({"runAsNonRoot": true});
    let may_be_root = json!({"runAsNonRoot": false});
    let nobody = (1000, 0, vec![], "/".to_owned());
    let root = (0, 0, vec![], "/root".to_owned());
    for (pod, own, image, expected) in [
        (user(33), none(), "", www(34, &[70])),
        (user(5), user(33), "", www(34, &[70])),
        (user(1000), none(), "www:docs", nobody),
        (both, none(), "", www(9, &[70])),
        (group(9), group(8), "www", www(8, &[70])),
        (more, none(), "www", www(34, &[5, 7, 70])),
        (strict, none(), "www", www(34, &[7])),
        (is_not_root.clone(), none(), "33", www(34, &[70])),
        (is_not_root, may_be_root, "", root),
    ] {
        assert_eq!(found(&pod, &own, image), expected, "{pod} {own} {image}");
    }
}

#[test]
fn who_must_not_be_root_is_not() {
    let refusal = |own: Value, image: &str| {
        let scene = Scene::new(&json!({"securityContext": own})).image(config(image));
        scene.message()
    };
    let wish = || json!({"runAsNonRoot": true});
    let whose = "(pod: \"p_ns(u-1)\", container: c)";
    for image in ["", "0", "0:5"] {
        assert_eq!(
            refusal(wish(), image),
            format!("container has runAsNonRoot and image will run as root {whose}")
        );
    }
    assert_eq!(
        refusal(wish(), "www:docs"),
        format!(
            "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root {whose}"
        )
    );
    assert_eq!(
        refusal(json!({"runAsNonRoot": true, "runAsUser": 0}), "33"),
        format!("container's runAsUser breaks non-root policy {whose}")
    );
}

#[test]
fn without_root_only_user_0_exists() {
    let scene = |context: Value, image: &str| {
        let scene = Scene::new(&json!({})).image(config(image)).ordinary_user();
        scene.pod(&json!({"securityContext": context}))
    };
    for (context, image) in [
        (json!({}), "www"),
        (json!({}), "1000:1000"),
        (json!({}), "nemo"),
        (json!({"runAsUser": 0, "runAsGroup": 0}), "www"),
        (json!({"fsGroup": 1000, "supplementalGroups": [0]}), ""),
    ] {
        let settings = scene(context.clone(), image).settings().unwrap();
        let user = settings.user;
        assert_eq!((user.uid, user.gid), (0, 0), "{context} {image}");
        assert!(user.additional_gids.is_empty(), "{context} {image}");
        assert!(settings.env.contains(&"HOME=/root".to_owned()));
    }
    for (context, field) in [
        (json!({"runAsUser": 1000}), "runAsUser"),
        (json!({"runAsGroup": 1000}), "runAsGroup"),
        (json!({"supplementalGroups": [0, 5]}), "supplementalGroups"),
        (json!({"runAsNonRoot": true}), "runAsNonRoot"),
    ] {
        let message = scene(context, "33").message();
        assert_eq!(
            message,
            format!(
                "container \"c\" cannot have its {field}: only user 0 and group 0 exist in containers while sandbar \
                 does not run as root; run sandbar as root or leave {field} out"
            )
        );
    }
}

#[test]
fn only_who_has_users_of_its_own_may_see_all_of_proc() {
    let settings = |mount: Option<&str>, host_users: Option<bool>| {
        let context = json!({"securityContext": {"procMount": mount}});
        let scene = Scene::new(&context).pod(&json!({"hostUsers": host_users}));
        let settings = scene.settings();
        settings.map(|settings| settings.unmasked_proc)
    };
    for (mount, host_users, is_unmasked) in [
        (None, None, false),
        (Some("Default"), None, false),
        (Some("Default"), Some(false), false),
        (Some("Unmasked"), Some(false), true),
    ] {
        assert_eq!(settings(mount, host_users), Ok(is_unmasked), "{mount:?}");
    }
    for (mount, host_users, why) in [
        ("Unmasked", None, "set hostUsers: false"),
        ("Unmasked", Some(true), "set hostUsers: false"),
        ("Half", Some(false), "\"Half\""),
    ] {
        let refused = settings(Some(mount), host_users).unwrap_err();
        assert_eq!(refused.reason, "CreateContainerConfigError");
        assert!(refused.message.contains(why), "{}", refused.message);
    }
}
