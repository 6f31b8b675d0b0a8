//! What a request says about where the conversation stands.

use serde_json::Value;

/// The script in force and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// Text of the user message that is being answered; empty if there is none.
    pub(crate) prompt: String,
    /// How many answers the model has already given to it: 0 for the first request, 1 when the first tools have run.
    pub(crate) round: u64,
}

/// Reads the messages of either API. They differ in how tool results travel (a role of their own, or blocks of a user
/// message), and neither counts as a prompt.
pub(crate) fn read_conversation(body: &Value) -> Conversation {
    let mut round = 0;
    for message in body["messages"].as_array().into_iter().flatten().rev() {
        match message["role"].as_str() {
            Some("assistant") => round += 1,
            Some("user") => {
                if let Some(prompt) = text_of(&message["content"]) {
                    return Conversation { prompt, round };
                }
            }
            _ => {}
        }
    }
    Conversation { prompt: String::new(), round }
}

/// The text of a message's content; none if it has no text at all.
pub(crate) fn text_of(content: &Value) -> Option<String> {
    if let Some(text) = content.as_str() {
        return Some(text.to_owned());
    }
    let texts: Vec<&str> = content
        .as_array()?
        .iter()
        .filter(|b| b["type"] == "text")
        .filter_map(|b| b["text"].as_str())
        .collect();
    if texts.is_empty() { None } else { Some(texts.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_prompt_and_its_round_are_found() {
        let cases = [
            (json!([]), "", 0),
            (json!([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]), "a", 0),
            (
                json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]),
                "a",
                0,
            ),
            (
                json!([{"role": "user", "content": "a"}, {"role": "assistant"}, {"role": "tool", "content": "r"}]),
                "a",
                1,
            ),
            (
                json!([{"role": "user", "content": "a"}, {"role": "assistant"},
                       {"role": "user", "content": [{"type": "tool_result", "content": "r"}]}]),
                "a",
                1,
            ),
            (
                json!([{"role": "user", "content": "a"}, {"role": "assistant"}, {"role": "user", "content": "b"}]),
                "b",
                0,
            ),
        ];
        for (messages, prompt, round) in cases {
            let found = read_conversation(&json!({ "messages": messages }));
            assert_eq!(found, Conversation { prompt: prompt.to_owned(), round }, "{messages}");
        }
    }
}
