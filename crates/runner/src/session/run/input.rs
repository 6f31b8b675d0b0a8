//! What people type into a program: inputs with a name, written once for ever, and keys as they are pressed.
//!
//! What is typed is recorded without its secrets, as far as they are recognised: text typed while the terminal shows
//! nothing is recorded as hidden, keys and tokens are redacted, and their echo in the output is scrubbed.

use std::time::Duration;

use qd_core::agent::AgentEvent;
use qd_core::redact::{is_guessable, redact, secrets};
use qd_core::session::{RunInputNote, SettledAnswer};
use qd_store::InputClaim;
use qd_wire::command::InputResponseParams;
use qd_wire::run::{RunInputData, RunInputParams, RunStdinParams};
use qd_wire::{CodedError, Command, ErrorCode};
use serde_json::json;

use crate::clock::now_ms;
use crate::driver::{AgentFailure, AgentResult, PromptDisposition, TerminalHandle};
use crate::session::actor::SessionActor;
use crate::session::agent::agent_state::AgentState;
use crate::session::commands::admission::AdmittedCommand;
use crate::session::commands::{command_preview, json_text};
use crate::text::random_id;

/// The name of an input: any text a client likes, but no book.
const INPUT_ID_BYTES_MAX: usize = 256;

/// A line that is typed and never ended is recorded in pieces of this size.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// So much of the line before new keys is looked at for the beginning of a secret that ends in them.
const SECRET_BYTES_MAX: usize = 8 * 1024;

/// What is recorded of a text that was typed without echo. Its length says nothing of the text's.
const HIDDEN: &str = "••••";

/// How long keys wait for their echo before they are answered without it: some programs show nothing.
const ECHO_WAIT: Duration = Duration::from_millis(2);

/// Who types, where nobody says.
const ACTOR: &str = "web";

/// What is being typed by keys, until its line is complete.
#[derive(Default)]
pub(crate) struct TypedLine {
    text: String,
    /// Some of it was typed without echo.
    is_hidden: bool,
}

/// A text that goes to the program at once.
pub(crate) struct TypedText<'a> {
    pub(crate) text: &'a str,
    pub(crate) input_id: String,
    pub(crate) actor: Option<&'a str>,
    pub(crate) user_id: &'a str,
}

impl SessionActor {
    /// `run.input`: stored under its name, then written. Agents get it as a prompt.
    pub(crate) async fn run_input(&mut self, mut admitted: AdmittedCommand, params: &RunInputParams) {
        let input_id = &params.input_id;
        if input_id.trim().is_empty() || input_id.len() > INPUT_ID_BYTES_MAX {
            let error = format!("input_id: Must be a text of 1 to {INPUT_ID_BYTES_MAX} bytes");
            return self.finish(admitted, Err(CodedError::invalid(error).into()));
        }
        if params.text.is_empty() {
            let error = "text: Must not be empty; a newline alone is \"\\n\"";
            return self.finish(admitted, Err(CodedError::invalid(error).into()));
        }
        if self.is_run() && self.agent.state == AgentState::Starting {
            return self.park_until_ready(admitted);
        }
        // Before its name is taken: an input that cannot be written must leave its name free.
        let checked = if self.is_run() {
            self.run_handle().and_then(|handle| handle.check_input(&params.text))
        } else {
            Ok(())
        };
        if let Err(error) = checked {
            return self.finish(admitted, Err(AgentFailure::refused(error)));
        }
        if !admitted.is_input_taken {
            match self.claim_input(input_id).await {
                Ok(true) => admitted.is_input_taken = true,
                Ok(false) => {
                    let data = RunInputData { input_id: input_id.clone(), duplicate: true };
                    return self.answer_with(admitted, &data);
                }
                Err(failure) => return self.finish(admitted, Err(failure)),
            }
        }
        if self.is_run() { self.write_input(admitted, params) } else { self.execute_on_agent(admitted) }
    }

    /// Takes the name of an input; false if an input of this name was written before. The name is on disk before
    /// anything is typed, so that through any crash it is written once at most.
    async fn claim_input(&mut self, input_id: &str) -> AgentResult<bool> {
        let session_id = &self.session.identity().session_id;
        let claim = self.shared.store.take_input(session_id, input_id).await.map_err(|error| {
            let error = format!("The input cannot be stored, so it was not written: {error}");
            AgentFailure::from(ErrorCode::StoreUnavailable.with(error))
        })?;
        match claim {
            InputClaim::New => {
                self.publishing.begun_inputs.insert(input_id.to_owned());
                Ok(true)
            }
            InputClaim::Settled => Ok(false),
            InputClaim::Begun if self.publishing.is_input_settled(input_id) => Ok(false),
            InputClaim::Begun if self.publishing.take_refused_input(input_id) => Ok(true),
            InputClaim::Begun if self.publishing.begun_inputs.contains(input_id) => {
                let error = format!(
                    "Input '{input_id}' is being written; send it again in a moment to learn how it ended"
                );
                Err(ErrorCode::Busy.with(error).into())
            }
            InputClaim::Begun => Err(AgentFailure::lost(format!(
                "Input '{input_id}' was cut off before its outcome was stored, so it may or may not have been \
                 written; look at the session, and send it under a new input_id if it is missing"
            ))),
        }
    }

    fn write_input(&mut self, admitted: AdmittedCommand, params: &RunInputParams) {
        let user_id = admitted.incoming.principal.clone();
        let typed = TypedText {
            text: &params.text,
            input_id: params.input_id.clone(),
            actor: params.actor.as_deref(),
            user_id: &user_id,
        };
        match self.type_text(typed) {
            Ok(()) => {
                let data = RunInputData { input_id: params.input_id.clone(), duplicate: false };
                self.answer_with(admitted, &data);
            }
            Err(failure) => self.finish(admitted, Err(failure)),
        }
    }

    /// A prompt is typed, with Enter.
    pub(crate) fn prompt_run(&mut self, admitted: AdmittedCommand) {
        if self.agent.state == AgentState::Starting {
            return self.park_until_ready(admitted);
        }
        let (message, images) = match &admitted.command {
            Command::Prompt(params) => (&params.message, &params.images),
            Command::Steer(params) | Command::FollowUp(params) => (&params.message, &params.images),
            _ => return,
        };
        if images.as_ref().is_some_and(|images| !images.is_empty()) {
            let error = "images: A program in a terminal takes text only";
            return self.finish(admitted, Err(ErrorCode::Unsupported.with(error).into()));
        }
        let user_id = admitted.incoming.principal.clone();
        let result = self.run_handle().map_err(AgentFailure::refused).and_then(|handle| {
            let text = format!("{message}{}", enter(&handle));
            handle.check_input(&text)?;
            self.type_text(TypedText {
                text: &text,
                input_id: random_id("i"),
                actor: None,
                user_id: &user_id,
            })
        });
        let data = json!({ "disposition": PromptDisposition::Started.as_str() });
        let result = result.and_then(|()| json_text(&data).map(Some));
        self.finish(admitted, result);
    }

    /// A person has answered what the screen asks: it is typed.
    pub(crate) fn answer_screen(
        &mut self,
        admitted: AdmittedCommand,
        params: &InputResponseParams,
        answered: &SettledAnswer,
    ) {
        let Some(text) = answered.text_to_type().filter(|text| !text.is_empty()) else {
            return self.finish(admitted, Ok(None));
        };
        let user_id = admitted.incoming.principal.clone();
        let (input_id, actor) = (params.request_id.clone(), params.actor.as_deref());
        let result = self.type_text(TypedText { text: &text, input_id, actor, user_id: &user_id });
        self.finish(admitted, result.map(|()| None));
    }

    /// Writes a text to the program and records it, without its secrets.
    fn type_text(&mut self, typed: TypedText<'_>) -> AgentResult<()> {
        let handle = self.run_handle()?;
        let TypedText { text, input_id, actor, user_id } = typed;
        let is_hidden = self.is_typing_hidden(&handle);
        // Before it is written, so that its echo finds us ready.
        if is_hidden {
            handle.hide(text);
        } else {
            secrets(text).into_iter().for_each(|range| handle.hide(&text[range]));
        }
        handle.write(text)?;
        self.record_input(text, is_hidden, input_id, actor, user_id);
        Ok(())
    }

    /// `run.stdin`: keys as they are pressed; recorded when their line is complete.
    pub(crate) fn run_stdin(&mut self, admitted: AdmittedCommand, params: &RunStdinParams) {
        let handle = match self.run_handle() {
            Ok(handle) => handle,
            Err(_) if self.is_run() && self.agent.state == AgentState::Starting => {
                return self.park_until_ready(admitted);
            }
            Err(error) => return self.finish(admitted, Err(AgentFailure::refused(error))),
        };
        let is_hidden = self.is_typing_hidden(&handle);
        // Before it is written, so that its echo finds us ready.
        self.run.line.secrets_with(&params.text).iter().for_each(|secret| handle.hide(secret));
        if let Err(failure) = handle.write(&params.text) {
            return self.finish(admitted, Err(failure));
        }
        let now = now_ms();
        self.run.is_secret_asked = false;
        self.session.run_screen_question(now, None, &mut self.out);
        self.run_active(now);
        let user_id = admitted.incoming.principal.clone();
        for line in self.run.line.push(&params.text, is_hidden) {
            if line.is_hidden {
                handle.hide(&line.text);
            }
            self.record_input(&line.text, line.is_hidden, random_id("i"), params.actor.as_deref(), &user_id);
        }
        self.run.typed.push(admitted);
    }

    /// Keys are mostly echoed at once. Who pressed them is answered with the echo, or a moment later where there is none:
    /// so the answer is not in the way of what a person waits for.
    pub(crate) async fn wait_for_echo(&mut self, events: &mut Vec<AgentEvent>) {
        if self.run.typed.is_empty() {
            return;
        }
        let moment = tokio::time::sleep(ECHO_WAIT);
        tokio::pin!(moment);
        while !self.finished && !self.is_held_back() {
            let Some(driver) = self.agent.driver.as_mut() else { break };
            tokio::select! {
                progress = driver.next(events) => {
                    self.agent_progress(progress, events).await;
                    break;
                }
                input = self.mailbox.recv() => match input {
                    Some(input) => self.take_inputs(input).await,
                    None => break,
                },
                () = &mut moment => break,
            }
        }
        for admitted in std::mem::take(&mut self.run.typed) {
            self.finish(admitted, Ok(None));
        }
    }

    /// Whether what is typed now is not to be seen.
    fn is_typing_hidden(&self, handle: &TerminalHandle) -> bool {
        handle.input_mode().is_hidden || self.run.is_secret_asked
    }

    /// Whether an answer to the screen would be typed without being shown.
    pub(crate) fn is_answer_hidden(&self) -> bool {
        self.run_handle().is_ok_and(|handle| self.is_typing_hidden(&handle))
    }

    /// The beginning of what a command says; of what is typed without echo, nothing.
    pub(crate) fn command_preview(&self, command: &Command) -> String {
        let preview = command_preview(command);
        if !preview.is_empty() && self.is_answer_hidden() { HIDDEN.to_owned() } else { preview }
    }

    fn record_input(
        &mut self,
        text: &str,
        is_hidden: bool,
        input_id: String,
        actor: Option<&str>,
        user_id: &str,
    ) {
        let now = now_ms();
        let text_redacted = if is_hidden { HIDDEN.to_owned() } else { redact(text).into_owned() };
        let key = &self.shared.input_key;
        let text_sha256 =
            if is_hidden || is_guessable(text) { key.keyed(text) } else { super::input_hash::plain(text) };
        let note = RunInputNote {
            actor: actor.filter(|actor| !actor.is_empty()).unwrap_or(ACTOR).to_owned(),
            input_id,
            text_redacted,
            text_sha256,
            user_id: Some(user_id.to_owned()).filter(|user| !user.is_empty()),
        };
        self.session.run_input(now, note, &mut self.out);
        self.run.is_secret_asked = false;
        self.run_active(now);
    }
}

impl TypedLine {
    /// What is secret of the line with these keys, and is not known yet: all of it, for a line that is drawn once more,
    /// and what the keys themselves are of it, for their echo.
    fn secrets_with(&self, keys: &str) -> Vec<String> {
        let begun =
            &self.text[self.text.ceil_char_boundary(self.text.len().saturating_sub(SECRET_BYTES_MAX))..];
        let text = format!("{begun}{keys}");
        let mut found = Vec::new();
        for range in secrets(&text).into_iter().filter(|range| range.end > begun.len()) {
            if range.start < begun.len() {
                found.push(text[begun.len()..range.end].to_owned());
            }
            found.push(text[range].to_owned());
        }
        found
    }

    /// Takes keys; returns the lines that are complete with them.
    fn push(&mut self, keys: &str, is_hidden: bool) -> Vec<TypedLine> {
        let mut complete = Vec::new();
        for key in keys.chars() {
            // Erased, typed or sent: it was done without echo.
            self.is_hidden |= is_hidden;
            match key {
                '\r' | '\n' => {
                    self.text.push('\n');
                    complete.push(std::mem::take(self));
                }
                // Backspace and delete.
                '\u{8}' | '\u{7f}' => {
                    self.text.pop();
                }
                // Ctrl-C, Ctrl-D and Ctrl-U take the line away.
                '\u{3}' | '\u{4}' | '\u{15}' => *self = TypedLine::default(),
                key => self.text.push(key),
            }
            if self.text.len() >= LINE_BYTES_MAX {
                complete.push(std::mem::take(self));
            }
        }
        complete
    }
}

/// What Enter sends: programs that read keys know nothing else, and those that read lines get a newline of it.
fn enter(handle: &TerminalHandle) -> &'static str {
    if handle.input_mode().is_return_newline { "\n" } else { "\r" }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
