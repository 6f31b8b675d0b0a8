//! The shapes of secrets.
//!
//! What is missed is shown; what is found too much makes a log unreadable. So a shape must be one that only secrets
//! have, and a name only counts where a value is assigned to it.

use std::ops::Range;
use std::sync::OnceLock;

use regex::Regex;

use super::REDACTED;

/// Names whose values are secrets. `pwd` is not one: it is the working directory. Nor is a plural: `max_tokens` counts.
const NAME: &str = r"(?:[A-Za-z0-9_.-]*(?:password|passwd|passphrase|_pass|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key|auth[_-]?key|credential))";

/// Words of a question whose answer is a secret. They stand alone or as parts of a name like `GITHUB_TOKEN`; `tokens` by
/// itself is none of them, since models count them, nor is the verb `pin`.
const ASKED: &str = r"(?:^|[^A-Za-z])(?:pass(?:word|wd|phrase|code)s?|(?-i:PIN)|pin (?:code|number)|your pin|otp|(?:one-time|verification|security|authenticator|authentication|[2m]fa|recovery|backup|login) codes?|(?:seed|recovery|backup|mnemonic) phrases?|secrets?|token|(?:api|access|auth) tokens|(?:api|access|private|secret|auth|encryption|decryption|signing|ssh|deploy|licen[cs]e|recovery|master)[ _-]?keys?|credentials?)(?:$|[^A-Za-z])|^\W*pin\W*$";

/// Shapes that are secrets by themselves. A group `s` is the secret; without it all of the match is.
const SHAPES: [&str; 20] = [
    // OpenAI, Anthropic, OpenRouter and who followed them; slugs of words have no digits (see `is_random`).
    r"\b(?P<random>sk-[A-Za-z0-9_-]{16,})",
    // Stripe.
    r"\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}",
    r"\bwhsec_[A-Za-z0-9+/=]{20,}",
    // GitHub, GitLab.
    r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\bglpat-[A-Za-z0-9_.-]{20,}",
    // Amazon.
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    // Slack.
    r"\bxox[abceoprs]-[A-Za-z0-9-]{10,}",
    r"\bxapp-[0-9]-[A-Za-z0-9-]{10,}",
    r"hooks\.slack\.com/services/(?P<s>[A-Za-z0-9/]{20,})",
    // Google.
    r"\bAIza[A-Za-z0-9_-]{35}",
    r"\bya29\.[A-Za-z0-9_-]{20,}",
    // Signed web tokens.
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    // Registries and hosts of models.
    r"\bnpm_[A-Za-z0-9]{36}",
    r"\bpypi-[A-Za-z0-9_-]{50,}",
    r"\bhf_[A-Za-z0-9]{30,}",
    r"\bdop_v1_[a-f0-9]{64}",
    r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}",
];

/// Places where a secret stands, whatever its own shape. `v` is the secret unless it is a word that says nothing.
const PLACES: [&str; 9] = [
    r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?P<s>.+?)(?:-----END|\z)",
    r#"(?i)\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token)\s+)?(?P<v>[^\s"',;]+)"#,
    r"(?i)\bbearer\s+(?P<random>[A-Za-z0-9._~+/=-]{16,})",
    r"(?i)\b(?:set-)?cookie:\s*(?P<v>[^\r\n'\x22]+)",
    // Addresses with a password, or with a token as the user.
    r#"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/@:"']*:(?P<v>[^\s/@"']+)@"#,
    r#"\bhttps?://(?P<random>[^\s/@:"']{20,})@"#,
    // Options of commands.
    r#"(?i)(?:^|\s)--?(?:[a-z0-9-]*-)?(?:password|passwd|passphrase|secret|token|api-key|access-key)\s+["']?(?P<v>[^\s"'-][^\s"']*)"#,
    r#"\b(?:mysql|mysqldump|mysqladmin|mariadb|sshpass)\b[^\r\n|;&]*?\s-p\s?["']?(?P<v>[^\s"']+)"#,
    r#"\bcurl\b[^\r\n|;&]*?\s(?:-u|--user)[\s=]*["']?[^\s:"']+:(?P<v>[^\s"']+)"#,
];

/// Values that are no secrets.
const NO_SECRETS: [&str; 12] =
    ["true", "false", "null", "none", "nil", "undefined", "yes", "no", "on", "off", "required", "optional"];

/// Something of this is in every text in which a rule finds a secret; a test holds it. Most texts have nothing of it, and
/// then one look is enough.
const HINTS: &str = r"(?i)sk-|[sr]k_|whsec_|gh[pousr]_|github_pat_|glpat-|akia|asia|xox|xapp-|hooks\.slack|aiza|ya29|eyj|npm_|pypi-|hf_|dop_v1_|sg\.|:aa|age-secret|authorization|bearer|cookie|://|pass|secret|token|key|credential|mysql|mariadb|curl";

struct RedactionRules {
    hints: Option<Regex>,
    all: Vec<Regex>,
    name: Option<Regex>,
    asked: Option<Regex>,
}

fn rules() -> &'static RedactionRules {
    static RULES: OnceLock<RedactionRules> = OnceLock::new();
    RULES.get_or_init(|| {
        // Quoted values may hold anything; bare ones end with the word.
        let assignments = [
            format!(r#"(?i){NAME}\\?["']?\s*(?::=|=>|[:=])\s*\\?"(?P<v>(?:[^"\\\r\n]|\\[^\r\n])*)"#),
            format!(r#"(?i){NAME}["']?\s*(?::=|=>|[:=])\s*'(?P<v>[^'\r\n]*)'"#),
            format!(r#"(?i){NAME}["']?\s*(?::=|=>|[:=])[ \t]*(?P<v>[^\s"'&;,|\\)}}\]][^\s"'&;,|)}}\]]*)"#),
        ];
        let patterns = SHAPES.into_iter().chain(PLACES).chain(assignments.iter().map(String::as_str));
        // Patterns are constants and a test compiles each of them.
        let all = patterns.filter_map(|pattern| Regex::new(pattern).ok()).collect();
        let name = Regex::new(&format!(r"(?i)^(?:{NAME}|authorization|cookie|set-cookie)$")).ok();
        let asked = Regex::new(&format!("(?i){ASKED}")).ok();
        RedactionRules { hints: Regex::new(HINTS).ok(), all, name, asked }
    })
}

/// Every secret, in no order; they may overlap.
pub(super) fn find(text: &str) -> Vec<Range<usize>> {
    let rules = rules();
    let mut found = Vec::new();
    if rules.hints.as_ref().is_some_and(|hints| !hints.is_match(text)) {
        return found;
    }
    for rule in &rules.all {
        for captures in rule.captures_iter(text) {
            let (value, is_secret) = if let Some(value) = captures.name("v") {
                (Some(value), !is_no_secret(value.as_str()))
            } else if let Some(value) = captures.name("random") {
                (Some(value), is_random(value.as_str()))
            } else {
                (captures.name("s").or_else(|| captures.get(0)), true)
            };
            if let Some(value) = value.filter(|value| is_secret && !value.as_str().trim().is_empty()) {
                found.push(value.range());
            }
        }
    }
    // What was redacted before stays as it is.
    found.retain(|range| !text[range.clone()].contains(REDACTED));
    found
}

/// Whether the value under this name is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    rules().name.as_ref().is_some_and(|rule| rule.is_match(name))
}

/// Whether these words ask for a secret; in doubt they do.
pub(super) fn asks_for_secret(question: &str) -> bool {
    let is_asked = |words: &str| rules().asked.as_ref().is_none_or(|rule| rule.is_match(words));
    is_asked(question) || is_asked(&words_apart(question))
}

/// `dbPassword` as `db Password`.
fn words_apart(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 8);
    let mut was_lowercase = false;
    for letter in name.chars() {
        if was_lowercase && letter.is_uppercase() {
            words.push(' ');
        }
        was_lowercase = letter.is_lowercase();
        words.push(letter);
    }
    words
}

/// A word that says nothing, the name of a variable, a place for a value.
pub(super) fn is_no_secret(value: &str) -> bool {
    let is_reference = value.starts_with('$') || value.starts_with('%') || value.starts_with('<');
    let is_hidden = value.chars().all(|character| matches!(character, '*' | '•' | '.'))
        || value.len() > 2 && value.chars().all(|character| matches!(character, 'x' | 'X'));
    is_reference || is_hidden || NO_SECRETS.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Words joined by dashes have no digits in them; keys do.
fn is_random(value: &str) -> bool {
    value.bytes().any(|byte| byte.is_ascii_digit()) && value.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
pub(super) fn counts() -> (usize, usize, bool) {
    let has_others = rules().name.is_some() && rules().hints.is_some() && rules().asked.is_some();
    (rules().all.len(), SHAPES.len() + PLACES.len() + 3, has_others)
}

#[cfg(test)]
pub(super) fn patterns() -> Vec<String> {
    rules().all.iter().map(|rule| rule.as_str().to_owned()).collect()
}

#[cfg(test)]
pub(super) fn is_hinted(text: &str) -> bool {
    rules().hints.as_ref().is_some_and(|hints| hints.is_match(text))
}
