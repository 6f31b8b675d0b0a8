use qd_wire::command_table::Permission;
use qd_wire::people::{Permissions, Role};
use serde_json::json;

use super::*;

fn applicant(role: Role, ask: bool) -> GateRequest<'static> {
    GateRequest { op_tool: "bash", rights: Rights::of(role), ask }
}

fn facts(gate: Option<GatePolicy>, allowed: &[&str]) -> ServiceFacts {
    let allowed_tools = allowed.iter().map(|tool| (*tool).to_owned()).collect();
    ServiceFacts { exists: true, gate, allowed_tools, ..ServiceFacts::default() }
}

#[test]
fn who_is_asked() {
    let config = ServiceConfig::default();
    let owner = applicant(Role::Owner, false);
    let operator = applicant(Role::Operator, false);
    let nobody = GateRequest { rights: Rights::default(), ..owner };
    // A token with fewer scopes than its role has permissions.
    let narrow = Permissions::of(&[Permission::View, Permission::Shell, Permission::Manage]);
    let narrow = GateRequest { rights: Rights::said(Some(Role::Owner), Some(narrow)), ..owner };
    let insistent = applicant(Role::Owner, true);
    for (gate, allowed, who, expected) in [
        (None, &[][..], owner, false),
        (None, &[], operator, true),
        (None, &[], nobody, true),
        (None, &[], narrow, true),
        (None, &[], insistent, true),
        (Some(GatePolicy::Roles), &[], owner, false),
        (Some(GatePolicy::Ask), &[], owner, true),
        (Some(GatePolicy::Open), &[], operator, false),
        (Some(GatePolicy::Open), &[], insistent, true),
        (Some(GatePolicy::Ask), &["bash"], operator, false),
        // A permission is for its own operation only.
        (None, &["rpc.fs.write"], operator, true),
    ] {
        let facts = facts(gate, allowed);
        assert_eq!(must_ask(&config, Some(&facts), who), Ok(expected), "{gate:?} {allowed:?} {who:?}");
    }
}

#[test]
fn without_a_session_nobody_can_be_asked() {
    let config = ServiceConfig::default();
    assert_eq!(must_ask(&config, None, applicant(Role::Owner, false)), Ok(false));
    for refused in [applicant(Role::Owner, true), applicant(Role::Operator, false)] {
        let error = must_ask(&config, None, refused).unwrap_err().to_string();
        assert!(error.starts_with("denied: "), "{error}");
    }
}

#[test]
fn the_roles_that_pass_are_a_setting() {
    let config = ServiceConfig { gate_skip_roles: Vec::new(), ..ServiceConfig::default() };
    let facts = facts(None, &[]);
    assert_eq!(must_ask(&config, Some(&facts), applicant(Role::Owner, false)), Ok(true));
}

/// Hole 6: what a person decides about is shown whole, however much it looks like a secret.
#[test]
fn hole_06_the_approver_sees_all_of_it() {
    // The second word is none of our secrets, the last one is: neither is hidden from who decides.
    let line = "cat /home/someuser/projects/webapp/config/aVeryLongNameThatLooksLikeAToken0123456789/x \
                --token ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let text = json!({ "cmd": "host.bash", "command": line }).to_string();
    let command = Command::parse("host.bash", &text).unwrap();
    let asked = GateQuestion {
        request_id: "q1",
        cmd: "host.bash",
        command: &command,
        text: &text,
        principal: "ann",
        actor: "web",
        staged: None,
    };
    let request = question(&ServiceConfig::default(), &asked).unwrap();
    let InputRequest::Permission { title, metadata, timeout, .. } = request else { panic!() };
    let details: PermissionDetails = serde_json::from_value(metadata.unwrap()).unwrap();
    assert_eq!(details.op_args, Some(json!({ "command": line })));
    assert_eq!(details.op_tool.as_deref(), Some("bash"));
    assert_eq!(details.command.as_deref(), Some(&*text));
    let summary = details.op_args_summary.unwrap();
    assert!(summary.chars().count() <= 80 && line.starts_with(summary.trim_end_matches('…')), "{summary}");
    assert!(title.starts_with("Approve bash: cat /home/someuser"), "{title}");
    assert_eq!(timeout, None);
}

#[test]
fn a_command_too_long_to_show_is_not_asked_about() {
    let content = "x".repeat(COMMAND_BYTES_MAX);
    let text = json!({ "cmd": "fs.write", "path": "a", "content": content }).to_string();
    let command = Command::parse("fs.write", &text).unwrap();
    let asked = GateQuestion {
        request_id: "q1",
        cmd: "fs.write",
        command: &command,
        text: &text,
        principal: "ann",
        actor: "web",
        staged: None,
    };
    let error = question(&ServiceConfig::default(), &asked).unwrap_err().to_string();
    assert!(error.contains("fs.upload"), "{error}");
}
