//! What a push says where its person has allowed that.

use std::path::Path;

use qd_core::redact::redact;
use qd_store::HubSession;
use qd_wire::InputRequest;
use qd_wire::run::PermissionDetails;

/// A notification shows a line or two; the app has the rest.
const TITLE_CHARS_MAX: usize = 120;
const BODY_CHARS_MAX: usize = 300;

/// Title and text of a notification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NotificationText {
    pub(super) title: String,
    pub(super) body: String,
}

impl NotificationText {
    fn new(title: &str, body: &str) -> NotificationText {
        NotificationText {
            title: cut(&redact(title), TITLE_CHARS_MAX),
            body: cut(&redact(body), BODY_CHARS_MAX),
        }
    }
}

/// What a person calls a session.
fn name(session: Option<&HubSession>, session_id: &str) -> String {
    let Some(session) = session else { return session_id.to_owned() };
    let directory = Path::new(&session.cwd).file_name().map(|name| name.to_string_lossy().into_owned());
    session.title.clone().filter(|title| !title.is_empty()).or(directory).unwrap_or(session_id.to_owned())
}

pub(super) fn of_question(
    request: &InputRequest,
    session: Option<&HubSession>,
    session_id: &str,
) -> NotificationText {
    let detail = match request {
        InputRequest::Permission { description, metadata, .. } => {
            let details = metadata.clone();
            let details = details.and_then(|value| serde_json::from_value::<PermissionDetails>(value).ok());
            details.and_then(|details| details.op_args_summary).or_else(|| description.clone())
        }
        InputRequest::Confirm { message, .. } => Some(message.clone()),
        InputRequest::Select { options, .. } => Some(options.join(", ")),
        InputRequest::Input { .. } | InputRequest::Editor { .. } | InputRequest::Interview { .. } => None,
    };
    let name = name(session, session_id);
    match detail.filter(|detail| !detail.trim().is_empty()) {
        Some(detail) => NotificationText::new(request.title(), &format!("{name}: {detail}")),
        None => NotificationText::new(request.title(), &name),
    }
}

/// How a turn, a program or a session has ended; `said` is the last of it.
pub(super) fn of_end(session: Option<&HubSession>, session_id: &str, said: Option<&str>) -> NotificationText {
    NotificationText::new(&name(session, session_id), said.unwrap_or_default())
}

fn cut(text: &str, chars_max: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_its_session_and_no_secret() {
        let session = HubSession { cwd: "/home/x/deck".into(), ..HubSession::default() };
        let request = InputRequest::Permission {
            request_id: "q".into(),
            title: "Run a command?".into(),
            description: Some("export GH=ghp_0123456789abcdefghijABCDEFGHIJ012345".into()),
            metadata: None,
            timeout: None,
        };
        let words = of_question(&request, Some(&session), "s");
        assert_eq!(words.title, "Run a command?");
        assert!(words.body.starts_with("deck: export GH=") && !words.body.contains("ghp_0123"), "{words:?}");
        let long = of_end(None, "s", Some(&"ы".repeat(999)));
        assert_eq!((&*long.title, long.body.chars().count()), ("s", BODY_CHARS_MAX + 1));
    }
}
