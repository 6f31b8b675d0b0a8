//! Whose fault an error is: what a provider is not to blame for does not open its circuit.

/// Whether an answer that ended with this error speaks against the provider. Words of an abort are ours, and a
/// conversation that is too long is repaired by compacting it.
pub fn blames_provider(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    !is_abort(&error) && !is_overflow(&error)
}

/// The words of fetch, of the providers' own libraries, and of agents that pass them on.
fn is_abort(error: &str) -> bool {
    const WORDS: [&str; 6] = [
        "operation was aborted",
        "operation aborted",
        "request was aborted",
        "request aborted",
        "aborterror",
        "aborted by the user",
    ];
    WORDS.iter().any(|words| error.contains(words))
}

/// How providers say that a context is too long; all parts of one of them, in this order.
const OVERFLOWS: &[&[&str]] = &[
    &["prompt is too long"],
    &["prompt too long"],
    &["request_too_large"],
    &["input is too long for requested model"],
    &["exceeds the context window"],
    &["exceeds", "maximum context length"],
    &["input token count", "exceeds the maximum"],
    &["maximum prompt length is "],
    &["reduce the length of the messages"],
    &["maximum context length is ", " tokens"],
    &["exceeds", "maximum allowed input length of "],
    &["is longer than the model", "context length"],
    &["prompt token count of ", "exceeds the limit of "],
    &["exceeds the available context size"],
    &["greater than the context length"],
    &["context window exceeds limit"],
    &["exceeded model token limit"],
    &["too large for model with ", "maximum context length"],
    &["but the configured context size is "],
    &["model_context_window_exceeded"],
    &["range of input length should be"],
    &["context_length_exceeded"],
    &["context length exceeded"],
    &["too many tokens"],
    &["token limit exceeded"],
    // A summary that is too long: a limit of ours.
    &["generation hit the token cap"],
];

/// A provider that has enough of us may speak of tokens too.
const NO_OVERFLOWS: [&str; 4] = ["rate limit", "too many requests", "throttling", "service unavailable"];

fn is_overflow(error: &str) -> bool {
    let has_all = |parts: &&[&str]| {
        let mut rest = error;
        parts.iter().all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    };
    OVERFLOWS.iter().any(has_all) && !NO_OVERFLOWS.iter().any(|words| error.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_blamed_for_their_own_failures_only() {
        for error in [
            "This operation was aborted",
            "Request was aborted",
            "AbortError: stop",
            "prompt is too long: 213462 tokens > 200000 maximum",
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000",
            "Input length (265330) exceeds model's maximum context length (262144).",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
        ] {
            assert!(!blames_provider(error), "{error}");
        }
        for error in [
            "overloaded",
            "fetch failed",
            "",
            "ThrottlingException: Too many tokens, please wait before trying again.",
            "429 rate limit reached: too many tokens per minute",
        ] {
            assert!(blames_provider(error), "{error}");
        }
    }
}
