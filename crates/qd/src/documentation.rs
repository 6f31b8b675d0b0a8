//! `docs/cli.md` is made from the command line itself; the test proves it fresh. To write it anew:
//! `QD_UPDATE_DOCS=1 cargo test -p qd documentation`.

use std::path::Path;

use clap::CommandFactory;

use crate::arguments::Cli;
use crate::settings::{SETTINGS, command_settings};

const WIDTH: usize = 100;

fn generate() -> String {
    let mut text = String::from(
        "# The command line\n\nGenerated from `qd --help`; do not edit. \
         `QD_UPDATE_DOCS=1 cargo test -p qd documentation` writes it anew.\n\n## qd\n\n",
    );
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    text.push_str(&help(&mut command.clone()));
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let mut subcommand = subcommand.clone().term_width(WIDTH);
        let name = subcommand.get_name().to_owned();
        text.push_str(&format!("\n## qd {name}\n\n{}", help(&mut subcommand)));
        for nested in subcommand.get_subcommands().filter(|nested| nested.get_name() != "help") {
            let mut nested = nested.clone().term_width(WIDTH);
            let title = format!("\n### qd {name} {}\n\n", nested.get_name());
            text.push_str(&format!("{title}{}", help(&mut nested)));
        }
    }
    text.push_str(
        "\n## Settings\n\nDefaults < `qd.toml` < environment < flags. The file is `$XDG_CONFIG_HOME/qd/qd.toml` \
         (`~/.config/qd/qd.toml`), or what `--config` or `QD_CONFIG` names; an unknown name in it is an error.\n\n\
         | `qd.toml` | environment | flag | default | meaning |\n|---|---|---|---|---|\n",
    );
    for setting in SETTINGS {
        text.push_str(&format!(
            "| `{}` | `{}` | `--{}` | {} | {} |\n",
            setting.name, setting.environment, setting.flag, setting.default, setting.help
        ));
    }
    for setting in command_settings() {
        let (name, flag) = (setting.name, setting.flag);
        text.push_str(&format!(
            "| `{name}` | `{}` | `--{flag}` | {} | {} |\n",
            setting.env, setting.default, setting.help
        ));
    }
    text.push_str(
        "\n`allowed_hosts` is a list in the file (`[\"deck.example\"]`) and comma-separated elsewhere. \
         `hang_restart` is a number or `\"off\"`. `NO_COLOR` turns colours off.\n",
    );
    text
}

fn help(command: &mut clap::Command) -> String {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    format!("```text\n{}\n```\n", lines.join("\n").trim_end())
}

#[test]
fn the_documentation_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let generated = generate();
    if std::env::var_os("QD_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "docs/cli.md is old: run `QD_UPDATE_DOCS=1 cargo test -p qd documentation`"
    );
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}
