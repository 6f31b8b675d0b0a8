//! `qd shims`: scripts by which the name of an agent starts a run that can be watched.
//!
//! A shim must never be worse than the program: inside a run, without a server, or after `qd` is gone it starts the
//! program itself.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use qd_core::terminal::known_tools;
use qd_runner::{SHIM_MARKER, find_program, is_shim};

use crate::arguments::{ShimsArguments, ShimsCommand};
use crate::error::{CliError, Result};
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// Does what the arguments say.
pub(crate) fn run(settings: &Settings, output: &Output, arguments: ShimsArguments) -> Result<()> {
    let directory = arguments.directory.unwrap_or_else(|| settings.data_dir.join("shims"));
    match arguments.command {
        ShimsCommand::Install { tools } => install(output, &directory, &tools),
        ShimsCommand::List => list(output, &directory),
        ShimsCommand::Remove => remove(output, &directory),
    }
}

fn install(output: &Output, directory: &Path, tools: &[String]) -> Result<()> {
    // The agents people start by name.
    let known = known_tools();
    let wanted: Vec<&str> = match tools {
        [] => known.iter().map(String::as_str).filter(|tool| program(tool, directory).is_some()).collect(),
        tools => tools.iter().map(String::as_str).collect(),
    };
    if wanted.is_empty() {
        return Err(CliError::failed("none of the known agents was found in PATH")
            .hint(format!("name one: qd shims install NAME (known: {})", known.join(", "))));
    }
    std::fs::create_dir_all(directory)?;
    // The path and not the name: a shim must find this program whatever PATH says later.
    let qd = std::env::current_exe()?;
    for tool in wanted {
        if tool.is_empty()
            || !tool.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
        {
            return Err(CliError::usage(format!("'{tool}' is not the name of a program"))
                .hint("use letters, digits, '.', '_' and '-'"));
        }
        let Some(program) = program(tool, directory) else {
            return Err(CliError::failed(format!("{tool} is not in PATH")).hint("install it first"));
        };
        let path = directory.join(tool);
        // A directory of the person's own may be named, and their scripts must survive.
        if path.exists() && !is_shim(&path) {
            return Err(CliError::failed(format!(
                "{} was not created by qd, so it was not changed",
                path.display()
            ))
            .hint("use another directory with --directory"));
        }
        std::fs::write(&path, script(&qd, tool, &program))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        output.out(&format!("{tool} → {}\n", harmless(&program.display().to_string())))?;
    }
    let in_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).next().is_some_and(|first| first == directory));
    if !in_path {
        output.note(&format!(
            "put this into the file your shell reads first (~/.bashrc, ~/.zshrc):\n  export PATH={}:$PATH\n",
            quoted(&directory.display().to_string())
        ));
    }
    Ok(())
}

/// Inside a run, and where no server answers, the agent starts as it always did.
fn script(qd: &Path, tool: &str, program: &Path) -> String {
    let (qd, program) = (quoted(&qd.display().to_string()), quoted(&program.display().to_string()));
    format!(
        "#!/bin/sh\n# {SHIM_MARKER}: {tool}, made by `qd shims install`; remove with `qd shims remove`\n\
         if [ -n \"$QD_SESSION_ID\" ] || [ ! -t 0 ] || [ ! -t 1 ] || ! {qd} ls --json >/dev/null 2>&1; then\n\
         \x20   exec {program} \"$@\"\nfi\nexec {qd} run --tool {tool} -- {program} \"$@\"\n"
    )
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn list(output: &Output, directory: &Path) -> Result<()> {
    let found = shims(directory);
    if found.is_empty() {
        output.note("no shims installed; `qd shims install` creates them\n");
    }
    found.iter().try_for_each(|path| output.out(&format!("{}\n", harmless(&path.display().to_string()))))
}

fn remove(output: &Output, directory: &Path) -> Result<()> {
    for path in shims(directory) {
        std::fs::remove_file(&path)?;
        output.out(&format!("removed {}\n", harmless(&path.display().to_string())))?;
    }
    Ok(())
}

fn shims(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_shim(path)).collect();
    found.sort();
    found
}

/// Where the program itself is: the first in PATH that is none of ours.
fn program(name: &str, shims: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    find_program(name, std::env::split_paths(&path).filter(|directory| directory != shims))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_starts_the_program_it_was_made_for() {
        let text = script(Path::new("/opt/it's/qd"), "codex", Path::new("/usr/bin/codex"));
        insta::assert_snapshot!(text);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("codex");
        std::fs::write(&path, &text).unwrap();
        assert!(is_shim(&path));
        std::fs::write(&path, "#!/bin/sh\necho mine\n").unwrap();
        assert!(!is_shim(&path), "somebody else's file is not ours");
    }
}
