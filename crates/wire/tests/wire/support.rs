//! The one door of these tests: JSON in, the same JSON out.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The JSON of an example file with the section it stands under (`# Part 2, …`).
pub(crate) fn examples(text: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(name) => section = name.to_owned(),
            None => found.push((section.clone(), line.to_owned())),
        }
    }
    assert!(!found.is_empty(), "an example file without examples proves nothing");
    found
}

/// Reads `text` as a `T`, writes it again, and expects an equal value.
pub(crate) fn check_round_trip<T: Serialize + DeserializeOwned>(section: &str, text: &str) -> T {
    let before: Value = serde_json::from_str(text).expect("the example is JSON");
    let typed: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{section}: {error}\n{text}"));
    let after = serde_json::to_value(&typed).expect("the type serialises");
    assert_eq!(after, before, "{section}");
    typed
}
