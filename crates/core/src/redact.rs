//! Secrets in texts, found by the shapes real ones have. What is found is left out of what is stored; who has to decide
//! about a text always sees all of it.
//!
//! A rule names a shape. There is no rule for "any long word": paths, hashes and names must stay readable.

mod rules;
mod scrubber;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

pub use scrubber::Scrubber;

/// What stands in place of a secret.
pub const REDACTED: &str = "***REDACTED***";

/// Below this many bits somebody with a graphics card finds the text to a plain hash.
const GUESSABLE_BITS: f64 = 80.0;

/// A run of letters is worth this at most: it may be a word of a list.
const WORD_BITS: f64 = 13.0;

/// The text without its secrets.
pub fn redact(text: &str) -> Cow<'_, str> {
    let found = secrets(text);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut from = 0;
    for range in found {
        clean.push_str(&text[from..range.start]);
        clean.push_str(REDACTED);
        from = range.end;
    }
    clean.push_str(&text[from..]);
    Cow::Owned(clean)
}

/// The same of everything in a JSON value; what stands under a name like `password` goes whole.
pub fn redact_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact(text).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(redact_value).collect()),
        Value::Object(fields) => {
            let clean = |(name, value): (&String, &Value)| {
                let is_secret = rules::is_secret_name(name)
                    && value.as_str().is_some_and(|text| !rules::is_no_secret(text))
                    || rules::is_secret_name(name) && value.is_number();
                (name.clone(), if is_secret { REDACTED.into() } else { redact_value(value) })
            };
            Value::Object(fields.iter().map(clean).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// A stored record with a question in it, without the question's secrets; `None` if there are none. It is as long as
/// before, so that whoever counts what is stored need not count again.
pub fn redact_question(record: &[u8]) -> Option<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct Asked<'a> {
        #[serde(borrow)]
        request: &'a serde_json::value::RawValue,
    }
    let asked: Asked<'_> = serde_json::from_slice(record).ok()?;
    let whole = asked.request.get();
    let request: Value = serde_json::from_str(whole).ok()?;
    let clean = redact_value(&request);
    if clean == request {
        return None;
    }
    let fits = |text: &String| text.len() <= whole.len();
    // A secret may be shorter than what stands in its place.
    let marked = clean.to_string();
    let text = Some(marked.replace(REDACTED, "***")).filter(|_| !fits(&marked)).unwrap_or(marked);
    let text = Some(text).filter(fits).unwrap_or_else(|| without_details(clean));
    let start = record.windows(whole.len()).position(|window| window == whole.as_bytes())?;
    let mut stored = record[..start].to_vec();
    stored.extend_from_slice(text.as_bytes());
    stored.resize(stored.len().max(start + whole.len()), b' ');
    stored.extend_from_slice(&record[start + whole.len()..]);
    Some(stored)
}

/// What a question was about is gone then, but not that it was asked.
fn without_details(mut request: Value) -> String {
    if let Value::Object(fields) = &mut request {
        fields.retain(|name, _| name == "type" || name == "request_id");
        fields.insert("title".to_owned(), "".into());
    }
    request.to_string()
}

/// Whether a question in these words asks for a secret, such as a password or an API key.
pub fn asks_for_secret(question: &str) -> bool {
    rules::asks_for_secret(question)
}

/// Where secrets are in the text: in order, apart from each other, at edges of characters.
pub fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = rules::find(text);
    found.sort_by_key(|range| (range.start, range.end));
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for range in found {
        match apart.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// Whether a plain SHA-256 of the text would give away what redaction hides: it is then to be keyed. Everything but
/// the secrets can be read beside the hash, so only they count.
pub fn is_guessable(text: &str) -> bool {
    let found = secrets(text);
    if found.is_empty() {
        return bits(text) < GUESSABLE_BITS;
    }
    found.into_iter().map(|range| bits(&text[range])).sum::<f64>() < GUESSABLE_BITS
}

/// How many bits of chance are in the text; rather too few than too many.
fn bits(text: &str) -> f64 {
    let characters: Vec<char> = text.trim().chars().collect();
    let mut sorted = characters.clone();
    sorted.sort_unstable();
    let total = sorted.len() as f64;
    let per_character: f64 = sorted
        .chunk_by(|left, right| left == right)
        .map(|same| same.len() as f64 / total)
        .map(|share| -share * share.log2())
        .sum();
    let runs = characters.chunk_by(|left, right| left.is_alphabetic() == right.is_alphabetic());
    runs.map(|run| {
        let whole = run.len() as f64 * per_character;
        if run.first().is_some_and(|first| first.is_alphabetic()) { whole.min(WORD_BITS) } else { whole }
    })
    .sum()
}
