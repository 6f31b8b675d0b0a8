//! What a canonical command answered, looked at without building more of it than is needed.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The answer of a runner.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunnerAnswer<'a> {
    /// In the agent's own words, or else canonical.
    text: &'a str,
    pub(super) is_native: bool,
    /// Everything, with what stands beside the agent's words.
    whole: &'a str,
}

impl<'a> RunnerAnswer<'a> {
    pub(super) fn of(whole: &'a str) -> Self {
        #[derive(Deserialize)]
        struct Native<'a> {
            #[serde(default, borrow, deserialize_with = "present")]
            native: Option<&'a RawValue>,
        }
        match serde_json::from_str::<Native<'a>>(whole) {
            Ok(Native { native: Some(native) }) => {
                RunnerAnswer { text: native.get(), is_native: true, whole }
            }
            _ => RunnerAnswer { text: whole, is_native: false, whole },
        }
    }

    /// Without words of the agent's.
    pub(super) fn canonical(whole: &'a str) -> Self {
        RunnerAnswer { text: whole, is_native: false, whole }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn is_null(&self) -> bool {
        self.text.trim() == "null"
    }

    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text)
    }

    pub(super) fn value(&self) -> Result<Value, serde_json::Error> {
        self.read()
    }

    /// What stands beside the agent's words; null when nothing does.
    pub(super) fn beside(&self, field: &str) -> Value {
        // Only looked at for small answers; the whole was read as an object before.
        let mut whole: Value = serde_json::from_str(self.whole).unwrap_or_default();
        whole.get_mut(field).map(Value::take).unwrap_or_default()
    }
}

/// `null` in the agent's words is an answer too.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A field by the first of its names that is there: pi's, then ours.
pub(super) fn pick<'a>(value: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| value.get(name)).filter(|field| !field.is_null())
}

pub(super) fn pick_text(value: &Value, names: &[&str]) -> Option<String> {
    pick(value, names).and_then(Value::as_str).map(str::to_owned)
}

/// Numbers of JavaScript may have a fraction; `as` moves what is too large or negative to the nearest.
pub(super) fn pick_number(value: &Value, names: &[&str]) -> Option<u64> {
    let number = pick(value, names)?;
    number.as_u64().or_else(|| number.as_f64().map(|number| number as u64))
}

pub(super) fn to_text<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    serde_json::to_string(value)
}
