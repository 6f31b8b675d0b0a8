//! Fingerprints: digests of what a command means, whatever the order of its fields. Two commands under one name with
//! two fingerprints are two intents.

use std::io;

use qd_wire::JsonObject;
use serde::ser::{SerializeMap, Serializer};
use sha2::{Digest, Sha256};

/// SHA-256 of the meaning.
pub type Fingerprint = [u8; 32];

/// The fingerprint of a command's fields without those that say who asks and how to answer.
pub fn of_fields(fields: &JsonObject, left_out: &[&str]) -> Fingerprint {
    let kept = fields.iter().filter(|(name, _)| !left_out.contains(&name.as_str()));
    let mut digest = Digesting(Sha256::new());
    let mut serializer = serde_json::Serializer::new(&mut digest);
    // A digest takes every byte and the keys are strings, so nothing here can fail.
    let written = serializer.serialize_map(None).and_then(|mut map| {
        for (name, value) in kept {
            map.serialize_entry(name, value)?;
        }
        map.end()
    });
    debug_assert!(written.is_ok(), "{written:?}");
    digest.0.finalize().into()
}

/// The fingerprint of a text that is no object.
pub fn of_text(text: &str) -> Fingerprint {
    Sha256::digest(text.as_bytes()).into()
}

/// Hashes what is written; objects are kept sorted by key, so equal meaning gives equal text.
struct Digesting(Sha256);

impl io::Write for Digesting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> JsonObject {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_order_of_fields_does_not_matter_and_identity_is_left_out() {
        let one = of_fields(&object(r#"{"id":"1","type":"x","a":{"c":1,"b":[1.5,"ü"]}}"#), &["id"]);
        let two = of_fields(&object(r#"{"a":{"b":[1.5,"ü"],"c":1},"type":"x","id":"2"}"#), &["id"]);
        assert_eq!(one, two);
        assert_ne!(one, of_fields(&object(r#"{"a":{"b":["ü",1.5],"c":1},"type":"x"}"#), &["id"]));
    }

    #[test]
    fn it_is_the_digest_of_the_text_with_sorted_keys() {
        let fields = object(r#"{"z":1,"a":"x","id":2}"#);
        assert_eq!(of_fields(&fields, &["id"]), of_text(r#"{"a":"x","z":1}"#));
    }
}
