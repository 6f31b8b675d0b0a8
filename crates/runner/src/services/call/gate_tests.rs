use qd_wire::command_table::Permission;
use qd_wire::people::{Permissions, Role};
use serde_json::json;

use super::*;

fn wanted(principal: &str, actor: &str, op_tool: &str) -> Allowance {
    Allowance { principal: principal.to_owned(), actor: actor.to_owned(), op_tool: op_tool.to_owned() }
}

fn applicant(role: Role, ask: AskWish) -> GateRequest<'static> {
    static WANTED: std::sync::LazyLock<Allowance> = std::sync::LazyLock::new(|| wanted("ann", "web", "bash"));
    GateRequest { wanted: &WANTED, rights: Rights::of(role), ask }
}

fn facts(gate: Option<GatePolicy>, allowed: &[[&str; 3]]) -> ServiceFacts {
    let allowances = allowed.iter().map(|[principal, actor, tool]| wanted(principal, actor, tool)).collect();
    ServiceFacts { exists: true, gate, allowances, ..ServiceFacts::default() }
}

#[test]
fn who_is_asked() {
    let config = ServiceConfig::default();
    let owner = applicant(Role::Owner, AskWish::None);
    let operator = applicant(Role::Operator, AskWish::None);
    let nobody = GateRequest { rights: Rights::default(), ..owner };
    // A token with fewer scopes than its role has permissions.
    let narrow = Permissions::of(&[Permission::View, Permission::Shell, Permission::Manage]);
    let narrow = GateRequest { rights: Rights::said(Some(Role::Owner), Some(narrow)), ..owner };
    let insistent = applicant(Role::Owner, AskWish::Always);
    let face = applicant(Role::Owner, AskWish::UnlessAllowed);
    const OWN: [&str; 3] = ["ann", "web", "bash"];
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
        (Some(GatePolicy::Ask), &[OWN], operator, false),
        (Some(GatePolicy::Ask), &[OWN], owner, false),
        (None, &[OWN], face, false),
        (Some(GatePolicy::Open), &[OWN], face, false),
        (None, &[], face, true),
        (Some(GatePolicy::Open), &[], face, true),
        // Who wants a person to be asked has a reason.
        (None, &[OWN], insistent, true),
        (Some(GatePolicy::Open), &[OWN], insistent, true),
        // A permission is for its own operation, its own asker and the way they came only.
        (None, &[["ann", "web", "rpc.fs.write"]], operator, true),
        (None, &[["bob", "web", "bash"]], operator, true),
        (None, &[["ann", "agent", "bash"]], operator, true),
    ] {
        let facts = facts(gate, allowed);
        assert_eq!(must_ask(&config, Some(&facts), who), Ok(expected), "{gate:?} {allowed:?} {who:?}");
    }
}

#[test]
fn without_a_session_nobody_can_be_asked() {
    let config = ServiceConfig::default();
    assert_eq!(must_ask(&config, None, applicant(Role::Owner, AskWish::None)), Ok(false));
    for refused in [applicant(Role::Owner, AskWish::Always), applicant(Role::Operator, AskWish::None)] {
        let error = must_ask(&config, None, refused).unwrap_err().to_string();
        assert!(error.starts_with("denied: "), "{error}");
    }
}

#[test]
fn the_roles_that_pass_are_a_setting() {
    let config = ServiceConfig { gate_skip_roles: Vec::new(), ..ServiceConfig::default() };
    let facts = facts(None, &[]);
    assert_eq!(must_ask(&config, Some(&facts), applicant(Role::Owner, AskWish::None)), Ok(true));
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
