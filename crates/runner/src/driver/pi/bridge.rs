//! What our extension inside pi has told the driver.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use qd_core::agent::{AgentRequest, QuestionAnswer};
use qd_core::harness::AgentRefusal;
use qd_core::harness::pi::{BridgeMessage, PiNavigated, PiTool};
use qd_link::mutex::Mutex;

/// Dialogs remembered as the extension's own; more than may be open at once.
const ASKED_MAX: usize = 1024;

/// Kept for whoever asks; the words themselves go to no session.
#[derive(Default)]
pub(super) struct ExtensionBridge {
    tools: Mutex<Option<Vec<PiTool>>>,
    /// Navigations under way, and what became of them.
    navigations: Mutex<BTreeMap<String, Option<Result<PiNavigated, AgentRefusal>>>>,
    /// Dialogs whose answer the extension waits for, oldest first.
    asked: Mutex<VecDeque<String>>,
    /// pi has moved in its session tree since somebody looked.
    has_moved: AtomicBool,
}

impl ExtensionBridge {
    /// Takes a word of the extension. Returns what it must be told at once, if anything.
    pub(super) fn handle_word(&self, word: BridgeMessage) -> Option<AgentRequest> {
        match word {
            BridgeMessage::Tools(tools) => *self.tools.lock() = Some(tools),
            BridgeMessage::Navigated { id, result } => {
                // Only what we asked for is kept, so that nobody can fill the list.
                if let Some(place) = self.navigations.lock().get_mut(&id) {
                    *place = Some(result);
                }
            }
            BridgeMessage::Moved => self.has_moved.store(true, Ordering::Relaxed),
            BridgeMessage::Asks { request_id } => {
                let mut asked = self.asked.lock();
                if asked.len() >= ASKED_MAX {
                    asked.pop_front();
                }
                asked.push_back(request_id);
            }
            BridgeMessage::UnreadableInterview { request_id } => {
                return Some(AgentRequest::Answer { request_id, answer: QuestionAnswer::Cancelled });
            }
            BridgeMessage::Unreadable { key } => tracing::debug!(key, "a word of the bridge cannot be read"),
        }
        None
    }

    /// What pi may be told. Only a dialog that the extension waits for understands that nobody answered in time; to
    /// any other that would be an answer, so it is cancelled.
    pub(super) fn translate<'a>(&self, request: &'a AgentRequest) -> Cow<'a, AgentRequest> {
        let AgentRequest::Answer { request_id, answer } = request else { return Cow::Borrowed(request) };
        let mut asked = self.asked.lock();
        let place = asked.iter().position(|known| known == request_id);
        let is_asked = place.and_then(|place| asked.remove(place)).is_some();
        match answer {
            QuestionAnswer::TimedOut if !is_asked => {
                let request_id = request_id.clone();
                Cow::Owned(AgentRequest::Answer { request_id, answer: QuestionAnswer::Cancelled })
            }
            _ => Cow::Borrowed(request),
        }
    }

    /// Whether pi has moved in its session tree since this was asked last.
    pub(super) fn take_moved(&self) -> bool {
        self.has_moved.swap(false, Ordering::Relaxed)
    }

    /// Whether the extension runs: it tells the tools as soon as it does.
    pub(super) fn is_loaded(&self) -> bool {
        self.tools.lock().is_some()
    }

    pub(super) fn tools(&self) -> Option<Vec<PiTool>> {
        self.tools.lock().clone()
    }

    /// Makes room for the result of a navigation; it is forgotten with the returned value.
    pub(super) fn expect(&self, id: String) -> ExpectedNavigation<'_> {
        self.navigations.lock().insert(id.clone(), None);
        ExpectedNavigation { bridge: self, id }
    }
}

/// A navigation under way.
pub(super) struct ExpectedNavigation<'a> {
    bridge: &'a ExtensionBridge,
    id: String,
}

impl ExpectedNavigation<'_> {
    /// What became of it, if the extension has said so.
    pub(super) fn result(&self) -> Option<Result<PiNavigated, AgentRefusal>> {
        self.bridge.navigations.lock().get_mut(&self.id)?.take()
    }
}

impl Drop for ExpectedNavigation<'_> {
    fn drop(&mut self) {
        self.bridge.navigations.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dialog_the_extension_waits_for_hears_that_nobody_answered() {
        let bridge = ExtensionBridge::default();
        bridge.handle_word(BridgeMessage::Tools(Vec::new()));
        let over =
            |id: &str| AgentRequest::Answer { request_id: id.into(), answer: QuestionAnswer::TimedOut };
        let cancelled =
            |id: &str| AgentRequest::Answer { request_id: id.into(), answer: QuestionAnswer::Cancelled };
        assert_eq!(*bridge.translate(&over("a")), cancelled("a"), "that it is loaded is not enough");
        bridge.handle_word(BridgeMessage::Asks { request_id: "a".into() });
        assert_eq!(*bridge.translate(&over("b")), cancelled("b"));
        assert_eq!(*bridge.translate(&over("a")), over("a"));
        assert_eq!(*bridge.translate(&over("a")), cancelled("a"), "it is answered once");
        let form = BridgeMessage::UnreadableInterview { request_id: "c".into() };
        assert_eq!(bridge.handle_word(form), Some(cancelled("c")));
    }

    #[test]
    fn a_move_is_told_once() {
        let bridge = ExtensionBridge::default();
        assert!(!bridge.take_moved());
        bridge.handle_word(BridgeMessage::Moved);
        assert!(bridge.take_moved());
        assert!(!bridge.take_moved());
    }
}
