use qd_wire::command_table::Permission;

use super::*;
use crate::access::authenticate::hash;

#[test]
fn a_revoked_name_is_another_when_it_comes_back() {
    let principals = Principals::default();
    let before = principals.generation();
    let first = principals.enter_for_tests("ci", before).unwrap();
    let same = principals.enter_for_tests("ci", before).unwrap();
    let other = principals.enter_for_tests("bot", before).unwrap();
    principals.revoke("ci");
    assert!(first.revoked.is_cancelled() && same.revoked.is_cancelled() && !other.revoked.is_cancelled());
    assert!(principals.enter_for_tests("ci", before).is_none(), "what the store said before counts no more");
    let again = principals.enter_for_tests("ci", principals.generation()).unwrap();
    assert!(!again.revoked.is_cancelled());
    assert_eq!((first.life, again.life, other.life), (0, 1, 0));
}

fn person(principals: &Principals, secret: &str, expires_at: Option<i64>) -> Principal {
    let known = KnownAccess {
        name: "alice".to_owned(),
        rights: Rights { role: Role::Viewer, permissions: Role::Viewer.permissions() },
        access: Access::Login(hash(secret)),
        is_person: true,
        hash: hash(secret),
        expires_at,
    };
    principals.enter(known, principals.generation()).unwrap()
}

#[test]
fn one_access_of_a_person_ends_and_the_others_stay() {
    let principals = Principals::default();
    let (phone, desk) = (person(&principals, "phone", None), person(&principals, "desk", Some(100)));
    let before = principals.generation();
    principals.end(&hash("phone"));
    assert!(phone.revoked.is_cancelled() && !desk.revoked.is_cancelled());
    assert!(principals.generation() > before);
    assert_eq!(person(&principals, "desk", Some(200)).life, 0, "the same person as before");
    assert_eq!(principals.next_end(), Some(200), "each use gives it more time");
    assert!(!principals.expire(199));
    assert!(principals.expire(200) && desk.revoked.is_cancelled());
    let desk = person(&principals, "desk", Some(300));
    principals.revoke("alice");
    assert!(desk.revoked.is_cancelled());
    assert_eq!(principals.next_end(), None);
}

#[test]
fn what_is_refused_is_said_with_its_permission() {
    let principals = Principals::default();
    let alice = person(&principals, "phone", None);
    alice.rights().check("fs.read", Permission::View).unwrap();
    let error = alice.rights().check("fs.write", Permission::Files).unwrap_err();
    assert_eq!(error.code, ErrorCode::PermissionDenied);
    assert!(
        error.message.starts_with("Permission denied: 'fs.write' needs the permission 'files'"),
        "{error}"
    );
    for permission in Permission::ALL {
        Rights::ALL.check("anything", permission).unwrap();
    }
}
