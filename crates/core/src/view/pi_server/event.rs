//! Events of agents in the document's form: made for every agent that does not tell them itself.

mod message_stream;
mod producer;

pub use producer::EventProducer;

fn is_automatic(reason: &str) -> bool {
    matches!(reason, "threshold" | "overflow")
}
