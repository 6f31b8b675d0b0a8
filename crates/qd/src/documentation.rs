//! Writes `docs/cli.md` and the table of `docs/settings.md` from the command line itself. The tests fail when either
//! page is out of date; `QD_UPDATE_DOCS=1 cargo test -p qd documentation` updates both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Args, Command, CommandFactory};

use crate::arguments::Cli;
use crate::settings::{CommonFlags, PiFlags, RunnerFlags, SETTINGS, SettingSpec, UpFlags, command_settings};

const UPDATE: &str = "`QD_UPDATE_DOCS=1 cargo test -p qd documentation`";
/// The table of settings stands between these lines of `docs/settings.md`; the rest of that page is written by hand.
const SETTINGS_BEGIN: &str = "<!-- settings -->\n";
const SETTINGS_END: &str = "<!-- /settings -->\n";

/// The settings that one group of commands takes as flags.
struct SettingGroup {
    title: &'static str,
    commands: &'static str,
    flags: BTreeSet<String>,
}

fn setting_groups() -> [SettingGroup; 4] {
    let group =
        |title, commands, command: Command| SettingGroup { title, commands, flags: flags_of(&command) };
    [
        group("Every command", "all commands", CommonFlags::augment_args(Command::new("qd"))),
        group("The hub", "`qd up`", UpFlags::augment_args(Command::new("qd"))),
        group(
            "The pi-server protocol",
            "`qd up` and `qd pi-server`",
            PiFlags::augment_args(Command::new("qd")),
        ),
        group(
            "The runner",
            "`qd up`, `qd pi-server`, `qd runner join` and `qd runner start`",
            RunnerFlags::augment_args(Command::new("qd")),
        ),
    ]
}

fn flags_of(command: &Command) -> BTreeSet<String> {
    command.get_arguments().filter_map(Arg::get_long).map(str::to_owned).collect()
}

/// The text of `docs/cli.md`.
fn command_page() -> String {
    let mut root = Cli::command();
    root.build();
    let mut text = format!(
        "# The command line\n\n<!-- Generated from the help texts in crates/qd/src/arguments; {UPDATE} updates it. -->\n\n\
         {}.\n\n{}\n",
        text_of(root.get_about()),
        notes(&root)
    );
    text.push_str("## Options of every command\n\n");
    text.push_str(&options(&root, |_| true));
    text.push_str("\n[settings.md](settings.md) explains the settings among them and lists all others.\n");
    text.push_str("\n## Commands\n\n| command | what it does |\n|---|---|\n");
    let commands: Vec<&Command> = root.get_subcommands().filter(|command| is_shown(command)).collect();
    for command in &commands {
        let name = command.get_name();
        text.push_str(&format!("| [`qd {name}`](#qd-{name}) | {} |\n", text_of(command.get_about())));
    }
    for command in &commands {
        text.push_str(&command_section(&root, command));
    }
    text
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn command_section(root: &Command, command: &Command) -> String {
    let path = format!("qd {}", command.get_name());
    let shared = flags_of(root);
    let mut text = format!("\n## {path}\n\n{}\n", description(command));
    let nested: Vec<&Command> = command.get_subcommands().filter(|nested| is_shown(nested)).collect();
    if nested.is_empty() {
        text.push_str(&format!("\nUsage: `{}`\n", usage(&path, command)));
    }
    let own = options(command, |argument| argument.get_long().is_none_or(|long| !shared.contains(long)));
    if !own.is_empty() {
        text.push_str(&format!("\n{own}"));
    }
    for nested in nested {
        let line = usage(&format!("{path} {}", nested.get_name()), nested);
        text.push_str(&format!("\n**`{line}`**: {}\n", description(nested)));
        let own = options(nested, |argument| !argument.is_global_set());
        if !own.is_empty() {
            text.push_str(&format!("\n{own}"));
        }
        text.push_str(&spaced(&notes(nested)));
    }
    text.push_str(&spaced(&notes(command)));
    text
}

fn spaced(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("\n{text}") }
}

/// The whole explanation, and which settings the command takes besides its options.
fn description(command: &Command) -> String {
    let text = text_of(command.get_long_about().or(command.get_about()));
    let flags = flags_of(command);
    let groups: Vec<String> = setting_groups()[1..]
        .iter()
        .filter(|group| group.flags.is_subset(&flags))
        .map(|group| format!("[{}](settings.md#{})", group.title.to_lowercase(), anchor(group.title)))
        .collect();
    let text = if text.ends_with('.') { text } else { format!("{text}.") };
    if groups.is_empty() {
        return text;
    }
    format!("{text}\n\nAlso takes the settings of {} as flags.", groups.join(", "))
}

fn anchor(title: &str) -> String {
    title.to_lowercase().replace(' ', "-")
}

/// `qd fs write [OPTIONS] PATH`.
fn usage(path: &str, command: &Command) -> String {
    let mut words = vec![path.to_owned()];
    let is_option =
        |argument: &Arg| !argument.is_positional() && !argument.is_global_set() && !is_of_clap(argument);
    if command.get_arguments().any(is_option) {
        words.push("[OPTIONS]".to_owned());
    }
    for argument in command.get_positionals() {
        let mut word = value_name(argument);
        if matches!(argument.get_action(), ArgAction::Append) {
            word.push('…');
        }
        if argument.is_last_set() {
            word = format!("-- {word}");
        }
        words.push(if argument.is_required_set() { word } else { format!("[{word}]") });
    }
    words.join(" ")
}

/// `--help` and `--version`, which every command has.
fn is_of_clap(argument: &Arg) -> bool {
    ["help", "version"].contains(&argument.get_id().as_str())
}

fn value_name(argument: &Arg) -> String {
    match argument.get_value_names() {
        Some([name, ..]) => name.to_string(),
        _ => argument.get_id().to_string().to_uppercase(),
    }
}

/// A list of arguments and options: what is typed, and what it means. Settings are left out but for the shared ones.
fn options(command: &Command, wanted: impl Fn(&Arg) -> bool) -> String {
    let settings: BTreeSet<String> =
        setting_groups().into_iter().skip(1).flat_map(|group| group.flags).collect();
    let is_setting = |argument: &Arg| argument.get_long().is_some_and(|long| settings.contains(long));
    command
        .get_arguments()
        .filter(|argument| !is_of_clap(argument) && wanted(argument))
        .filter(|argument| !is_setting(argument) || is_own_option(command, argument))
        .filter_map(|argument| {
            let help = text_of(argument.get_long_help().or(argument.get_help()));
            let details = details(argument);
            if argument.is_positional() && help.is_empty() && details.is_empty() {
                return None;
            }
            Some(format!("- `{}`: {}\n", typed(argument), format!("{help}{details}").trim()))
        })
        .collect()
}

/// An option with the name of a setting, in a command that does not take the group of that setting.
fn is_own_option(command: &Command, argument: &Arg) -> bool {
    let flags = flags_of(command);
    let Some(long) = argument.get_long() else { return true };
    setting_groups().iter().skip(1).all(|group| !group.flags.contains(long) || !group.flags.is_subset(&flags))
}

fn typed(argument: &Arg) -> String {
    if argument.is_positional() {
        return value_name(argument);
    }
    let mut names: Vec<String> = argument.get_short().map(|short| format!("-{short}")).into_iter().collect();
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    match argument.get_action().takes_values() {
        true => format!("{} {}", names.join(", "), value_name(argument)),
        false => names.join(", "),
    }
}

fn details(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let list = |values: Vec<String>| values.join(", ");
    let values = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let defaults =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    [("values", list(values)), ("default", list(defaults))]
        .iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| format!(" [{name}: {text}]"))
        .collect()
}

/// What stands below the options: examples as a block for the shell, tables as they are, sentences as sentences.
fn notes(command: &Command) -> String {
    let text = text_of(command.get_after_long_help().or(command.get_after_help()));
    let blocks: Vec<String> = text.split("\n\n").filter(|block| !block.is_empty()).map(note_block).collect();
    blocks.join("\n")
}

fn note_block(block: &str) -> String {
    if let Some(examples) = block.strip_prefix("Examples:\n") {
        let lines: Vec<String> = examples.lines().map(example).collect();
        return format!("```sh\n{}\n```\n", lines.join("\n"));
    }
    match block.split_once(":\n  ") {
        Some((title, rows)) => format!("{title}:\n\n```text\n  {rows}\n```\n"),
        None => format!("{block}\n"),
    }
}

/// A line of the help's examples, with its explanation as a comment.
fn example(line: &str) -> String {
    match line.trim().split_once("  ") {
        Some((command, comment)) => format!("{command:<50}  # {}", comment.trim()),
        None => line.trim().to_owned(),
    }
}

fn text_of(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(|text| text.to_string().trim().to_owned()).unwrap_or_default()
}

/// The tables of `docs/settings.md`.
fn settings_tables() -> String {
    let harnesses: Vec<SettingSpec> = command_settings()
        .map(|setting| SettingSpec {
            name: setting.name,
            environment: setting.env,
            flag: setting.flag,
            default: setting.default,
            help: setting.help,
        })
        .collect();
    let mut text = String::new();
    for group in setting_groups() {
        text.push_str(&format!("\n### {}\n\nFlags of {}.\n\n", group.title, group.commands));
        text.push_str("| `qd.toml` | environment | flag | default | meaning |\n|---|---|---|---|---|\n");
        let settings = SETTINGS.iter().chain(&harnesses).filter(|setting| group.flags.contains(setting.flag));
        for SettingSpec { name, environment, flag, default, help } in settings {
            text.push_str(&format!("| `{name}` | `{environment}` | `--{flag}` | {default} | {help} |\n"));
        }
    }
    text.push('\n');
    text
}

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn check(name: &str, written: &str, generated: &str) {
    if std::env::var_os("QD_UPDATE_DOCS").is_some() {
        std::fs::write(page(name), generated).unwrap();
        return;
    }
    assert!(written == generated, "docs/{name} is out of date: run {UPDATE}");
}

#[test]
fn the_page_of_commands_is_fresh() {
    let written = std::fs::read_to_string(page("cli.md")).unwrap_or_default();
    check("cli.md", &written, &command_page());
}

#[test]
fn the_table_of_settings_is_fresh() {
    let written = std::fs::read_to_string(page("settings.md")).unwrap();
    let (before, rest) = written.split_once(SETTINGS_BEGIN).expect("docs/settings.md has the first marker");
    let (_, after) = rest.split_once(SETTINGS_END).expect("docs/settings.md has the second marker");
    let generated = format!("{before}{SETTINGS_BEGIN}{}{SETTINGS_END}{after}", settings_tables());
    check("settings.md", &written, &generated);
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}
