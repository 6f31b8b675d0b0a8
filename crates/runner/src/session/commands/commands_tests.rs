use super::*;

fn beginning_of(message: &str) -> String {
    let text = serde_json::json!({ "message": message }).to_string();
    command_preview(&Command::parse("prompt", &text).unwrap())
}

#[test]
fn a_beginning_is_short_and_has_no_secrets() {
    let token = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    assert_eq!(beginning_of("  ls\n -l  "), "ls -l");
    let found = beginning_of(&format!("export TOKEN={token}"));
    assert!(found.starts_with("export TOKEN=") && !found.contains("0123456789"), "{found}");
    // Also where what is shown would end within it, so that its shape is not to be seen any more.
    let found = beginning_of(&format!("{} {token}", "x".repeat(70)));
    assert!(!found.contains("ghp_") && found.ends_with('…'), "{found}");
    assert_eq!(beginning_of(&"日".repeat(20_000)).chars().count(), 81);
}
