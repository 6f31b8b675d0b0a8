//! The text of the canonical command that does the work of a request.

use qd_core::view::pi_server::request::{FieldWriter, PiServerRequest, named_runner, write_parameters};
use serde::Serialize;
use serde_json::to_string;

struct Text(String);

impl FieldWriter for Text {
    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.0.push_str(&format!(",\"{name}\":{}", to_string(value).expect("it can be written")));
    }
}

/// As the hub sends it; empty for commands that the hub answers by itself. `session_id` takes the place of the one the
/// client named, `key` becomes the `idempotency_key`.
pub(crate) fn canonical(request: &PiServerRequest, session_id: Option<&str>, key: Option<&str>) -> String {
    let cmd = request.spec.canonical;
    if cmd.is_empty() {
        return String::new();
    }
    let mut text = Text(format!("{{\"cmd\":\"{cmd}\""));
    text.maybe("session_id", session_id.or(request.session_id.as_deref()));
    text.maybe("runner_id", named_runner(request));
    text.maybe("idempotency_key", key);
    text.maybe("if_session_version", request.envelope.if_session_version);
    write_parameters(request, &mut text);
    text.0 + "}"
}
