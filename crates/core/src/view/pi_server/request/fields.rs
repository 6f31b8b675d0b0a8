//! The fields of one frame: each is taken out as what it must be, and what it is instead is noted.

use qd_wire::JsonObject;
use serde_json::Value;

/// A frame while it is read.
#[derive(Debug)]
pub(super) struct Fields {
    object: JsonObject,
    errors: Vec<String>,
    /// Put before the names in errors (`options.`).
    prefix: &'static str,
}

impl Fields {
    pub(super) fn new(object: JsonObject) -> Self {
        Fields { object, errors: Vec::new(), prefix: "" }
    }

    pub(super) fn object(&self) -> &JsonObject {
        &self.object
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    pub(super) fn into_parts(self) -> (JsonObject, Vec<String>) {
        (self.object, self.errors)
    }

    /// Notes what is wrong with a field.
    pub(super) fn error(&mut self, field: &str, message: impl std::fmt::Display) {
        self.errors.push(format!("{}{field}: {message}", self.prefix));
    }

    pub(super) fn peek(&self, field: &str) -> Option<&Value> {
        self.object.get(field)
    }

    pub(super) fn peek_text(&self, field: &str) -> Option<&str> {
        self.object.get(field).and_then(Value::as_str)
    }

    pub(super) fn take(&mut self, field: &str) -> Option<Value> {
        self.object.remove(field)
    }

    /// A text that must be there and not empty.
    pub(super) fn required_text(&mut self, field: &str) -> String {
        match self.object.remove(field) {
            Some(Value::String(text)) if !text.is_empty() => text,
            _ => {
                self.error(field, "Required string");
                String::new()
            }
        }
    }

    /// As [`Self::required_text`], with a bound.
    pub(super) fn required_text_within(&mut self, field: &str, chars_max: usize) -> String {
        let text = self.required_text(field);
        if is_longer_than(&text, chars_max) {
            self.error(field, format_args!("Too long (max {chars_max} chars)"));
        }
        text
    }

    /// Any text, if there is one.
    pub(super) fn optional_text(&mut self, field: &str) -> Option<String> {
        if let Value::String(text) = self.object.remove(field)? {
            return Some(text);
        }
        self.error(field, "Must be a string if provided");
        None
    }

    /// A text that says something, if there is one.
    pub(super) fn optional_name(&mut self, field: &str) -> Option<String> {
        if let Value::String(text) = self.object.remove(field)?
            && !text.trim().is_empty()
        {
            return Some(text);
        }
        self.error(field, "Must be a non-empty string if provided");
        None
    }

    pub(super) fn optional_flag(&mut self, field: &str) -> Option<bool> {
        if let Value::Bool(flag) = self.object.remove(field)? {
            return Some(flag);
        }
        self.error(field, "Must be a boolean if provided");
        None
    }

    pub(super) fn required_flag(&mut self, field: &str) -> bool {
        match self.object.remove(field) {
            Some(Value::Bool(flag)) => flag,
            _ => {
                self.error(field, "Required boolean");
                false
            }
        }
    }

    pub(super) fn optional_texts(&mut self, field: &str) -> Option<Vec<String>> {
        let Value::Array(items) = self.object.remove(field)? else {
            self.error(field, "Must be an array of strings if provided");
            return None;
        };
        let mut texts = Vec::with_capacity(items.len());
        for (position, item) in items.into_iter().enumerate() {
            if let Value::String(text) = item
                && !text.trim().is_empty()
            {
                texts.push(text);
            } else {
                self.error(&format!("{field}[{position}]"), "Must be a non-empty string");
            }
        }
        Some(texts)
    }

    /// Reads an object inside the frame; its errors are this frame's.
    pub(super) fn within<T>(
        &mut self,
        prefix: &'static str,
        object: JsonObject,
        read: impl FnOnce(&mut Fields) -> T,
    ) -> T {
        let mut inner = Fields { object, errors: std::mem::take(&mut self.errors), prefix };
        let result = read(&mut inner);
        self.errors = inner.errors;
        result
    }
}

/// Counts as JavaScript does (UTF-16 units), which are never more than bytes.
pub(super) fn is_longer_than(text: &str, chars_max: usize) -> bool {
    text.len() > chars_max && text.encode_utf16().count() > chars_max
}

/// A whole number from 0; `1.0` is one too. What is too large becomes the largest.
pub(super) fn whole_number(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    if let Some(whole) = number.as_u64() {
        return Some(whole);
    }
    let float = number.as_f64()?;
    // `as` saturates, which is what is wanted here.
    (float >= 0.0 && float.fract() == 0.0).then_some(float as u64)
}
