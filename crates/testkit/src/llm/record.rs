//! What the server remembers of the requests it got.

use serde_json::Value;

use super::conversation::{read_conversation, text_of};

/// Which protocol a request spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    OpenAi,
    Anthropic,
}

/// How a request came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Still being answered.
    Open,
    /// Answered to the last byte.
    Complete,
    /// Answered with an error status.
    Failed,
    /// Broken off by the script.
    Dropped,
    /// Broken off by the client.
    ClientGone,
}

/// An image as it reached the model, whatever shape the API gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub mime_type: String,
    /// Base64, as it was sent.
    pub data: String,
}

/// One request to the model.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub api: Api,
    pub body: Value,
    pub ending: Ending,
}

impl RecordedRequest {
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    /// The text of the user message that is being answered.
    pub fn prompt(&self) -> String {
        read_conversation(&self.body).prompt
    }

    /// Every message as its role and text; a message without text has an empty one.
    pub fn messages(&self) -> Vec<(String, String)> {
        let messages = self.body["messages"].as_array().into_iter().flatten();
        messages
            .map(|message| {
                let role = message["role"].as_str().unwrap_or_default().to_owned();
                (role, text_of(&message["content"]).unwrap_or_default())
            })
            .collect()
    }

    /// The images of all messages, in order.
    pub fn images(&self) -> Vec<Image> {
        let messages = self.body["messages"].as_array().into_iter().flatten();
        messages
            .flat_map(|message| message["content"].as_array().into_iter().flatten())
            .filter_map(image_of)
            .collect()
    }
}

fn image_of(block: &Value) -> Option<Image> {
    let url =
        block["image_url"]["url"].as_str().and_then(|url| url.strip_prefix("data:")?.split_once(";base64,"));
    let source = &block["source"];
    let (mime_type, data) =
        url.or_else(|| Some((source["media_type"].as_str()?, source["data"].as_str()?)))?;
    Some(Image { mime_type: mime_type.to_owned(), data: data.to_owned() })
}
