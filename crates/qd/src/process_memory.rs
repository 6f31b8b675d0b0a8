//! What other programs may see of this process's memory, and secrets that leave it when they have been used.

use std::ops::Deref;

/// Closes this process to other programs of the same user: an agent must not read keys and tokens from its memory, nor
/// stop it in a debugger. Only root still can. The kernel forgets it when another program is started, so agents and
/// their guards are not affected by what the server does here; a guard calls it for itself.
pub(crate) fn protect() {
    #[cfg(target_os = "linux")]
    {
        // No kernel refuses it. If one did, the process would be as open as any other of its user.
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
}

/// Overwrites bytes that are a secret, before their memory is used for something else.
pub(crate) fn wipe(mut bytes: Vec<u8>) {
    bytes.fill(0);
    // Without somebody who could look at the zeros the compiler would leave the writing out.
    std::hint::black_box(&bytes);
}

/// A secret in text; overwritten when it is dropped.
pub(crate) struct SecretText(String);

impl SecretText {
    /// Takes the text without the blanks around it.
    pub(crate) fn trimmed(text: String) -> SecretText {
        let trimmed = text.trim().to_owned();
        wipe(text.into_bytes());
        SecretText(trimmed)
    }
}

impl Deref for SecretText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        wipe(std::mem::take(&mut self.0).into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_text_without_blanks() {
        assert_eq!(&*SecretText::trimmed("  token\n".to_owned()), "token");
        assert!(SecretText::trimmed(" \n".to_owned()).is_empty());
    }
}
