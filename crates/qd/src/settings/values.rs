//! Types of settings that are not plain text or numbers.

use std::path::PathBuf;
use std::str::FromStr;

use qd_wire::people::Role;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;

/// A word out of a few: read from text, and in the file from a string.
macro_rules! words_of_a_setting {
    ($(#[$doc:meta])* $name:ident { $( $(#[$variant_doc:meta])* $variant:ident = $word:literal ),* } expected $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
        #[serde(try_from = "String")]
        pub(crate) enum $name { $( $(#[$variant_doc])* $variant ),* }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text.to_ascii_lowercase().as_str() {
                    $( $word => Ok($name::$variant), )*
                    other => Err(format!(concat!("'{}' is not ", $expected), other)),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    };
}

words_of_a_setting! {
    /// How much is written to stderr.
    LogLevel {
        Off = "off",
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace"
    } expected "off, error, warn, info, debug or trace"
}

impl LogLevel {
    pub(crate) fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

words_of_a_setting! {
    /// When the server encrypts.
    Tls {
        /// When machines beyond this one can reach it.
        Auto = "auto",
        On = "on",
        Off = "off"
    } expected "auto, on or off"
}

words_of_a_setting! {
    /// When agents of last time are started again.
    Resume { OnUse = "on-use", AtStart = "at-start" } expected "on-use or at-start"
}

words_of_a_setting! {
    /// Whether something is done.
    OnOff { On = "on", Off = "off" } expected "on or off"
}

/// Where the runner of this machine listens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub(crate) enum RunnerSocket {
    Off,
    At(PathBuf),
}

impl From<String> for RunnerSocket {
    fn from(text: String) -> Self {
        match text.as_str() {
            "off" => RunnerSocket::Off,
            _ => RunnerSocket::At(PathBuf::from(text)),
        }
    }
}

impl FromStr for RunnerSocket {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.to_owned().into())
    }
}

/// A number of seconds, or `off`; in the file a number or a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub(crate) enum SecondsOrOff {
    Off,
    After(u64),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl TryFrom<NumberOrText> for SecondsOrOff {
    type Error = String;

    fn try_from(value: NumberOrText) -> Result<Self, Self::Error> {
        match value {
            NumberOrText::Number(seconds) => Ok(SecondsOrOff::After(seconds)),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl FromStr for SecondsOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "off" => Ok(SecondsOrOff::Off),
            number => number
                .parse()
                .map(SecondsOrOff::After)
                .map_err(|_| format!("'{number}' is neither off nor a number of seconds")),
        }
    }
}

/// Names of hosts: a list in the file, separated by commas elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct HostList(pub(crate) Vec<String>);

impl FromStr for HostList {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(HostList(names.map(str::to_owned).collect()))
    }
}

/// Names of environment variables: a list in the file, separated by commas elsewhere. One that ends with `*` stands for
/// all that begin so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct VariableList(pub(crate) Vec<String>);

impl TryFrom<Vec<String>> for VariableList {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, Self::Error> {
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match names.iter().find(|name| name.is_empty() || !is_name(name.strip_suffix('*').unwrap_or(name))) {
            Some(bad) => Err(format!("'{bad}' is not the name of a variable, such as HTTP_PROXY or AWS_*")),
            None => Ok(VariableList(names)),
        }
    }
}

impl FromStr for VariableList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect::<Vec<_>>().try_into()
    }
}

/// Directories: a list in the file, separated by colons elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct PathList(pub(crate) Vec<PathBuf>);

impl FromStr for PathList {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(PathList(text.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect()))
    }
}

/// Roles: a list in the file, separated by commas elsewhere, `none` for nobody.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct RoleList(pub(crate) Vec<Role>);

impl FromStr for RoleList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none");
        let role = |word: &str| {
            Role::parse(word).ok_or_else(|| format!("'{word}' is not viewer, operator, owner or none"))
        };
        words.map(role).collect::<Result<_, _>>().map(RoleList)
    }
}

/// A program and its arguments, written as a shell would read them; nothing is expanded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Words(pub(crate) Vec<String>);

impl TryFrom<String> for Words {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl FromStr for Words {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut quote: Option<char> = None;
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match (quote, character) {
                (Some(open), _) if character == open => quote = None,
                // As in a shell, a backslash within single quotes is only a backslash.
                (Some('\''), _) => word.get_or_insert_default().push(character),
                (_, '\\') => {
                    let escaped = characters.next().ok_or("a backslash at the end escapes nothing")?;
                    word.get_or_insert_default().push(escaped);
                }
                (None, '\'' | '"') => {
                    // The word exists from here on, so that `''` is an empty argument and not none.
                    quote = Some(character);
                    word.get_or_insert_default();
                }
                (None, _) if character.is_whitespace() => words.extend(word.take()),
                (None | Some(_), _) => word.get_or_insert_default().push(character),
            }
        }
        if let Some(open) = quote {
            return Err(format!("the quote {open} is not closed"));
        }
        words.extend(word);
        if words.first().is_none_or(String::is_empty) {
            return Err("no program is named".to_owned());
        }
        Ok(Words(words))
    }
}
