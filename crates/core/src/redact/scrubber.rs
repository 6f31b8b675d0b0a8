//! Secrets that a terminal echoes: taken out of its output for as long as an echo may come.

/// An echo comes at once, a redrawn line soon after; later the same text is the program's own.
const ECHO_MS: i64 = 60_000;

/// Secrets waited for at once; the oldest is given up for a new one.
const SECRETS_MAX: usize = 16;

/// A longer one is looked for by its beginning: what an echo shows of it is hidden that far.
const SECRET_BYTES_MAX: usize = 4096;

/// Shorter texts are in everything a program says; hiding them would hide nothing but the output.
const SECRET_CHARACTERS_MIN: usize = 4;

/// Shorter texts are words of the output too, so that only their first sightings are an echo.
const LONG_CHARACTERS_MIN: usize = 8;

/// An echo, and a line drawn once more.
const SHORT_SIGHTINGS_MAX: u32 = 2;

/// Takes secrets that were typed out of what the terminal shows: the same number of `*` instead.
#[derive(Default)]
pub struct Scrubber {
    secrets: Vec<ExpectedEcho>,
    /// The end of the last piece, which may be the beginning of a secret.
    held: String,
}

struct ExpectedEcho {
    text: String,
    until: i64,
    /// How often it may still be hidden; without a limit where it is long.
    sightings_left: Option<u32>,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Scrubber {{ {} secrets }}", self.secrets.len())
    }
}

impl Scrubber {
    /// From now on the output may show this. Each line of it is looked for by itself, as each is echoed by itself.
    pub fn expect(&mut self, now: i64, secret: &str) {
        for line in secret.split(['\r', '\n']) {
            let count = line.chars().count();
            if count < SECRET_CHARACTERS_MIN {
                continue;
            }
            let text = &line[..line.floor_char_boundary(SECRET_BYTES_MAX)];
            self.secrets.retain(|known| known.text != text);
            if self.secrets.len() == SECRETS_MAX {
                self.secrets.remove(0);
            }
            let sightings_left = (count < LONG_CHARACTERS_MIN).then_some(SHORT_SIGHTINGS_MAX);
            self.secrets.push(ExpectedEcho { text: text.to_owned(), until: now + ECHO_MS, sightings_left });
        }
    }

    /// The output without the secrets. What may be the beginning of one is held back until the next piece, unless this
    /// is a flush: then everything comes.
    pub fn scrub(&mut self, now: i64, text: String, is_flush: bool) -> String {
        self.secrets.retain(|secret| secret.until > now && secret.sightings_left != Some(0));
        if !self.is_active() {
            return text;
        }
        let mut whole = if self.held.is_empty() { text } else { std::mem::take(&mut self.held) + &text };
        // The longest first: one secret may be a part of another.
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.text.len()));
        for secret in &mut self.secrets {
            whole = secret.hide(whole);
        }
        if !is_flush {
            let keep = self.secrets.iter().map(|secret| secret.begun(&whole)).max().unwrap_or(0);
            self.held = whole.split_off(whole.len() - keep);
        }
        whole
    }

    /// Whether output has to go through here.
    pub fn is_active(&self) -> bool {
        !self.secrets.is_empty() || !self.held.is_empty()
    }
}

impl ExpectedEcho {
    fn hide(&mut self, text: String) -> String {
        if self.sightings_left == Some(0) {
            return text;
        }
        let finder = memchr::memmem::Finder::new(self.text.as_bytes());
        let Some(mut at) = finder.find(text.as_bytes()) else { return text };
        let stars = "*".repeat(self.text.chars().count());
        let (mut clean, mut from) = (String::with_capacity(text.len()), 0);
        loop {
            clean.push_str(&text[from..at]);
            clean.push_str(&stars);
            from = at + self.text.len();
            if let Some(left) = &mut self.sightings_left {
                *left -= 1;
                if *left == 0 {
                    break;
                }
            }
            match finder.find(&text.as_bytes()[from..]) {
                Some(next) => at = from + next,
                None => break,
            }
        }
        clean.push_str(&text[from..]);
        clean
    }

    /// How many bytes at the end of the text are a beginning of this secret.
    fn begun(&self, text: &str) -> usize {
        if self.sightings_left == Some(0) {
            return 0;
        }
        let longest = (self.text.len() - 1).min(text.len());
        let is_beginning = |len: &usize| {
            self.text.is_char_boundary(*len) && text.as_bytes().ends_with(&self.text.as_bytes()[..*len])
        };
        (1..=longest).rev().find(is_beginning).unwrap_or(0)
    }
}
