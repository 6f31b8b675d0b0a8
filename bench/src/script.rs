//! The small language of prompts that the fake agents understand: `@@name key=number …`.

/// One request to a fake agent.
pub(crate) struct Script<'a> {
    pub(crate) name: &'a str,
    text: &'a str,
}

impl<'a> Script<'a> {
    /// Reads a prompt; `None` when it asks for nothing of ours.
    pub(crate) fn parse(message: &'a str) -> Option<Self> {
        let rest = message.strip_prefix("@@")?;
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Script { name, text })
    }

    /// A number by its key.
    pub(crate) fn number(&self, key: &str, default: usize) -> usize {
        let mut pairs = self.text.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.find(|(name, _)| *name == key).and_then(|(_, value)| value.parse().ok()).unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_a_name_and_numbers() {
        let script = Script::parse("@@deltas n=20 per=x").map(|script| {
            (script.name, script.number("n", 1), script.number("per", 7), script.number("other", 9))
        });
        assert_eq!(script, Some(("deltas", 20, 7, 9)));
        assert!(Script::parse("hello").is_none());
    }
}
