//! What the record of a settled question says was answered.

use crate::support::{events_of, session};
use qd_core::agent::AgentEvent;
use qd_core::event_writer::EventWriter;
use qd_core::session::{ANSWER_CHARACTERS_MAX, Session};
use qd_wire::InputRequest;
use qd_wire::command::InputResponseParams;
use qd_wire::run::Decision;
use serde_json::{Value, json};

const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

fn open(session: &mut Session, request: Value) {
    let request: InputRequest = serde_json::from_value(request).unwrap();
    session.agent_event(0, AgentEvent::InputNeeded(request), &mut EventWriter::default());
}

fn settle(session: &mut Session, response: Value) -> Value {
    let params: InputResponseParams = serde_json::from_value(response).unwrap();
    let mut out = EventWriter::default();
    session.answer(1, &params, Some("ann"), &mut out).unwrap();
    let resolved = events_of(out.bytes()).pop().unwrap();
    assert_eq!(resolved["event"], "agent.input_resolved");
    assert!(resolved["seq"].is_u64(), "it is a record: {resolved}");
    resolved
}

/// The `answer` of the record that settles this question with this response; null where it has none.
fn answer_to(request: Value, response: Value) -> Value {
    let (mut asked, mut answered) = (request, response);
    asked["request_id"] = json!("q");
    answered["request_id"] = json!("q");
    let mut session = session();
    open(&mut session, asked);
    settle(&mut session, answered)["answer"].clone()
}

fn typed(title: &str, text: &str) -> Value {
    answer_to(json!({"type": "input", "title": title}), json!({"value": text}))
}

#[test]
fn what_was_answered_is_in_the_record() {
    assert_eq!(typed("Name?", "Ada"), "Ada");
    assert_eq!(typed("Name?", ""), "", "an empty text is an answer too");
    let editor = json!({"type": "editor", "title": "Text", "prefill": "a"});
    assert_eq!(answer_to(editor, json!({"value": "a\nb"})), "a\nb");
    let select = json!({"type": "select", "title": "Colour", "options": ["red", "green"]});
    assert_eq!(answer_to(select.clone(), json!({"value": "green"})), "green");
    assert_eq!(answer_to(select, json!({"cancelled": true})), Value::Null);
    let confirm = json!({"type": "confirm", "title": "Sure?", "message": ""});
    assert_eq!(answer_to(confirm.clone(), json!({"confirmed": true})), "yes");
    assert_eq!(answer_to(confirm, json!({"confirmed": false})), "no");
}

#[test]
fn a_decision_is_told_by_itself_and_its_reason_is_the_answer() {
    let permission = || json!({"type": "permission", "title": "May it?"});
    let deny = serde_json::to_value(Decision::Deny).unwrap();
    assert_eq!(answer_to(permission(), json!({"decision": deny})), Value::Null);
    let with_reason = json!({"decision": deny, "reason": "not on a Friday"});
    assert_eq!(answer_to(permission(), with_reason), "not on a Friday");
}

#[test]
fn the_answers_to_a_form_are_lines() {
    let form = json!({"type": "interview", "title": "Tell", "questions": [
        {"id": "name", "type": "text", "question": "Your name"},
        {"id": "tags", "type": "multiselect", "options": ["x", "y", "z"]},
        {"id": "sure", "type": "confirm", "question": "Sure?"},
        {"id": "login", "type": "password", "question": "Log in"},
        {"id": "github_token", "type": "text", "question": "For the repository"},
        {"id": "left_out", "type": "text"},
    ]});
    let responses = json!({"responses": {"name": "Ada", "tags": ["x", "z"], "sure": true, "login": "hunter2",
        "github_token": "hunter3", "left_out": "", "more": {"count": 1, "password": "hunter4"}}});
    let answer = answer_to(form, responses);
    let expected = "Your name: Ada\ntags: x, z\nSure?: yes\nLog in: ***REDACTED***\n\
                    For the repository: ***REDACTED***\nmore: {\"count\":1,\"password\":\"***REDACTED***\"}";
    assert_eq!(answer, expected);
}

#[test]
fn what_a_form_calls_secret_in_any_of_its_words_is_not_in_the_record() {
    let forms = [
        json!({"title": "Enter the database password", "questions": [{"id": "value", "question": "Value"}]}),
        json!({"title": "Tell", "questions": [{"id": "value", "question": "Log in", "placeholder": "GitHub token"}]}),
        json!({"title": "Tell", "questions": [{"id": "value", "question": "dbPassword"}]}),
    ];
    for mut form in forms {
        form["type"] = "interview".into();
        let answer = answer_to(form, json!({"responses": {"value": "hunter2"}}));
        assert!(
            !answer.to_string().contains("hunter2") && answer.to_string().contains("REDACTED"),
            "{answer}"
        );
    }
}

#[test]
fn secrets_are_not_in_the_record() {
    let secret_titles = [
        "Password:",
        "Your API key",
        "GITHUB_TOKEN",
        "passphrase for id_ed25519",
        "Enter PIN",
        "Client secret?",
        "Your API keys",
        "Passwords:",
        "authToken",
        "dbPassword",
        "2FA code",
        "Authenticator code",
        "Encryption key",
        "Recovery phrase",
        "Enter your pin",
        "pin",
    ];
    for title in secret_titles {
        assert_eq!(typed(title, "hunter2"), Value::Null, "{title}");
    }
    for title in [
        "Pin which version?",
        "How many tokens?",
        "Secretary's name",
        "Keyboard layout",
        "Primary key",
        "Zip code",
    ] {
        assert_eq!(typed(title, "hunter2"), "hunter2", "{title}");
    }
    let hinted = json!({"type": "input", "title": "Log in", "placeholder": "password"});
    assert_eq!(answer_to(hinted, json!({"value": "hunter2"})), Value::Null);
    let found = typed("Which remote?", &format!("https://x:{TOKEN}@example.org"));
    assert!(!found.to_string().contains(TOKEN), "{found}");
    assert!(found.to_string().contains("example.org"), "{found}");
}

#[test]
fn an_answer_is_kept_whole_up_to_the_limit_and_visibly_cut_beyond_it() {
    let whole = "я".repeat(ANSWER_CHARACTERS_MAX);
    assert_eq!(typed("Text", &whole), whole.as_str());
    let cut = typed("Text", &format!("{whole}z"));
    let expected = format!("{whole}… [cut: the first 200000 of 200001 characters are kept]");
    assert_eq!(cut, expected.as_str());
}

#[test]
fn a_secret_at_the_limit_is_not_kept_in_part() {
    let before = "a ".repeat((ANSWER_CHARACTERS_MAX - 10) / 2);
    let cut = typed("Text", &format!("{before}{TOKEN} and more"));
    assert!(!cut.as_str().unwrap().contains("ghp_"), "the token begins before the limit and ends after it");
    assert!(cut.as_str().unwrap().contains("[cut: "), "it is still a long answer");
}

#[test]
fn what_is_redacted_early_lets_nothing_in_from_beyond_the_limit() {
    let long_secret = format!("password={} ", "x1".repeat(6_000));
    let filler = "a ".repeat((ANSWER_CHARACTERS_MAX + 8 * 1024 - long_secret.len()) / 2 - 5);
    let cut = typed("Text", &format!("{long_secret}{filler}{TOKEN} and more"));
    let cut = cut.as_str().unwrap();
    assert!(!cut.contains("ghp_") && !cut.contains("x1x1"), "the token ends where nobody looks any more");
    assert!(cut.contains("[cut: "), "it is still a long answer");
}

#[test]
fn what_nobody_answered_has_no_answer() {
    let mut session = session();
    open(&mut session, json!({"type": "input", "request_id": "q", "title": "Name?"}));
    let mut out = EventWriter::default();
    session.withdraw_questions(1, &mut out);
    let resolved = events_of(out.bytes()).pop().unwrap();
    assert_eq!((&resolved["outcome"], resolved.get("answer")), (&json!("withdrawn"), None));
}
