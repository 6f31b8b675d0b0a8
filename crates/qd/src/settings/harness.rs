//! The settings of harnesses: one for each row of the runner's table that has some. Flags, environment and file know
//! them from there, so that a new harness needs no word here.
//!
//! They cannot be fields of the table of settings, whose names are known when it is compiled.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};
use qd_runner::driver::{CommandSetting, Harness, HarnessSettings, Harnesses, TABLE};
use toml::Spanned;

use super::{Environment, Words};
use crate::error::Result;

/// How to start harnesses, as far as one source of settings says; by the name of the setting.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HarnessCommands(BTreeMap<&'static str, Words>);

/// The settings that the table declares.
pub(crate) fn command_settings() -> impl Iterator<Item = CommandSetting> {
    TABLE.iter().filter_map(|harness| harness.command_setting())
}

impl HarnessCommands {
    /// This one where it says something, else the one below.
    pub(super) fn over(mut self, below: HarnessCommands) -> HarnessCommands {
        for (name, words) in below.0 {
            self.0.entry(name).or_insert(words);
        }
        self
    }

    pub(super) fn from_environment(environment: &Environment) -> Result<HarnessCommands> {
        let mut commands = BTreeMap::new();
        for setting in command_settings() {
            if let Some(words) = environment.parse(setting.env)? {
                commands.insert(setting.name, words);
            }
        }
        Ok(HarnessCommands(commands))
    }

    /// Those of a file, and the file without them: spaces in their place, so that errors name the right lines.
    pub(super) fn take_from(text: &str) -> Result<(HarnessCommands, String), String> {
        let values: BTreeMap<String, Spanned<toml::Value>> =
            toml::from_str(text).map_err(|error| error.to_string())?;
        let (mut commands, mut rest) = (BTreeMap::new(), text.to_owned());
        for setting in command_settings() {
            let Some(value) = values.get(setting.name) else { continue };
            let Some(words) = value.get_ref().as_str() else {
                return Err(format!("{} must be a text of words", setting.name));
            };
            let words = words.parse().map_err(|error| format!("{}: {error}", setting.name))?;
            commands.insert(setting.name, words);
            let Range { start, end } = value.span();
            let line = rest[..start].rfind('\n').map_or(0, |place| place + 1);
            let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
            let blanks: String = rest[line..end].bytes().map(blank).collect();
            rest.replace_range(line..end, &blanks);
        }
        Ok((HarnessCommands(commands), rest))
    }

    /// What is in force for one.
    fn of(&self, setting: &CommandSetting) -> Result<Vec<String>, String> {
        match self.0.get(setting.name) {
            Some(words) => Ok(words.0.clone()),
            None => setting.default.parse::<Words>().map(|words| words.0),
        }
    }
}

/// The harnesses of the table with what is set for each.
pub(super) fn harnesses(environment: &Environment, commands: &HarnessCommands) -> Harnesses {
    Harnesses::new(TABLE, |harness| settings_of(environment, commands, harness))
}

fn settings_of(
    environment: &Environment,
    commands: &HarnessCommands,
    harness: &dyn Harness,
) -> HarnessSettings {
    let command = harness.command_setting().and_then(|setting| commands.of(&setting).ok());
    let home = environment.home().unwrap_or_else(|| PathBuf::from("/"));
    let user_dir = harness.directory_setting().map(|setting| {
        environment.get(setting.env).map_or_else(|| home.join(setting.below_home), PathBuf::from)
    });
    HarnessSettings { command: command.unwrap_or_default(), user_dir: user_dir.unwrap_or_default() }
}

impl clap::Args for HarnessCommands {
    fn augment_args(command: Command) -> Command {
        command_settings().fold(command, |command, setting| {
            let help = format!("{} [env: {}] [default: {}]", setting.help, setting.env, setting.default);
            let argument = Arg::new(setting.name)
                .long(setting.flag)
                .value_name("WORDS")
                .value_parser(clap::value_parser!(Words))
                .help(help);
            command.arg(argument)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for HarnessCommands {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut commands = HarnessCommands::default();
        commands.update_from_arg_matches(matches)?;
        Ok(commands)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in command_settings() {
            if let Some(words) = matches.get_one::<Words>(setting.name) {
                self.0.insert(setting.name, words.clone());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_harnesses_leave_the_lines_of_a_file_as_they_are() {
        let setting = command_settings().next().unwrap();
        let text = format!("a = 1\n{} = \"node 'x y'\" # why\nb = 2\n", setting.name);
        let (commands, rest) = HarnessCommands::take_from(&text).unwrap();
        assert_eq!(commands.of(&setting).unwrap(), ["node", "x y"]);
        assert_eq!(rest.len(), text.len());
        assert_eq!(rest.lines().map(str::trim).collect::<Vec<_>>(), ["a = 1", "# why", "b = 2"]);
        assert!(HarnessCommands::take_from(&format!("{} = 7", setting.name)).is_err());
    }

    #[test]
    fn every_default_can_be_read() {
        for setting in command_settings() {
            assert!(!HarnessCommands::default().of(&setting).unwrap().is_empty(), "{}", setting.name);
        }
    }
}
