//! The rules, from the data file.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use qd_wire::run::ScreenChoice;
use regex::Regex;
use serde::Deserialize;

const DATA: &str = include_str!("../questions.json");

/// What the questions of one tool look like.
#[derive(Debug)]
pub struct QuestionRules {
    pub(super) marked: MenuAnswer,
    pub(super) lines: Vec<LineRule>,
    pub(super) bottom: Vec<BottomRule>,
}

/// How a menu with a mark is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MenuAnswer {
    Digit,
    DigitEnter,
    Arrows,
}

#[derive(Debug)]
pub(super) struct LineRule {
    pub(super) pattern: Regex,
    pub(super) kind: LineKind,
    pub(super) approve: String,
    pub(super) deny: String,
    pub(super) above: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LineKind {
    Permission,
    /// A key is waited for.
    Enter,
    Text,
    Secret,
    /// No question, whatever later rules say.
    None,
}

#[derive(Debug)]
pub(super) struct BottomRule {
    pub(super) pattern: Regex,
    pub(super) choices: Vec<ScreenChoice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    #[serde(rename = "about")]
    _about: String,
    base: FileRules,
    tools: BTreeMap<String, FileRules>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRules {
    marked: MenuAnswer,
    lines: Vec<FileLine>,
    bottom: Vec<FileBottom>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLine {
    pattern: String,
    kind: LineKind,
    #[serde(default)]
    approve: String,
    #[serde(default)]
    deny: String,
    #[serde(default)]
    above: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBottom {
    pattern: String,
    choices: Vec<ScreenChoice>,
}

struct ToolRules {
    base: QuestionRules,
    tools: BTreeMap<String, QuestionRules>,
}

impl QuestionRules {
    /// The rules for a tool: its own and those of every program. A tool nobody knows has only these.
    pub fn for_tool(tool: &str) -> &'static QuestionRules {
        static ALL: OnceLock<ToolRules> = OnceLock::new();
        let all = ALL.get_or_init(|| {
            // The file is part of the program and a test reads it; without it there are no questions.
            parse(DATA).unwrap_or_else(|error| {
                debug_assert!(false, "questions.json: {error}");
                let base =
                    QuestionRules { marked: MenuAnswer::Arrows, lines: Vec::new(), bottom: Vec::new() };
                ToolRules { base, tools: BTreeMap::new() }
            })
        });
        all.tools.get(tool).unwrap_or(&all.base)
    }
}

/// What is wrong with the data file.
#[derive(Debug, thiserror::Error)]
pub(in crate::terminal) enum RulesError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Pattern(#[from] regex::Error),
}

fn parse(data: &str) -> Result<ToolRules, RulesError> {
    let file: RulesFile = serde_json::from_str(data)?;
    let mut tools = BTreeMap::new();
    for (name, own) in &file.tools {
        tools.insert(name.clone(), compile(own, Some(&file.base))?);
    }
    Ok(ToolRules { base: compile(&file.base, None)?, tools })
}

fn compile(own: &FileRules, base: Option<&FileRules>) -> Result<QuestionRules, RulesError> {
    let mut lines = Vec::new();
    for line in own.lines.iter().chain(base.into_iter().flat_map(|base| &base.lines)) {
        let (approve, deny) = (line.approve.clone(), line.deny.clone());
        let pattern = Regex::new(&line.pattern)?;
        lines.push(LineRule { pattern, kind: line.kind, approve, deny, above: line.above });
    }
    let mut bottom = Vec::new();
    for rule in own.bottom.iter().chain(base.into_iter().flat_map(|base| &base.bottom)) {
        bottom.push(BottomRule { pattern: Regex::new(&rule.pattern)?, choices: rule.choices.clone() });
    }
    Ok(QuestionRules { marked: own.marked, lines, bottom })
}

/// The programs of agents that have rules of their own, by name.
pub fn known_tools() -> Vec<String> {
    let file: Result<RulesFile, _> = serde_json::from_str(DATA);
    // A test reads the file; without it no program is known.
    file.map(|file| file.tools.into_keys().collect()).unwrap_or_default()
}

/// The tools of the data file, or what is wrong with it.
#[cfg(test)]
pub(in crate::terminal) fn check_data() -> Result<Vec<String>, RulesError> {
    parse(DATA).map(|all| all.tools.into_keys().collect())
}
