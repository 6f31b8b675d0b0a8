//! Screens as text files: what is on them, where the cursor is (`▮`), and the question that is there.

use std::fmt::Write;
use std::path::Path;

use qd_wire::run::{AwaitingReason, ScreenChoice};

use super::questions::check_data;
use super::{QuestionRules, Screen, ScreenQuestion, ScreenRequest};

struct Golden {
    tool: String,
    echo_off: bool,
    cursor_hidden: bool,
    screen: String,
    expected: String,
}

fn golden(text: &str) -> Golden {
    let parts: Vec<&str> = text.split("=====\n").collect();
    let [head, screen, expected] = parts[..] else { panic!("three parts") };
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().to_owned()
    };
    Golden {
        tool: field("tool:"),
        echo_off: field("echo:") == "off",
        cursor_hidden: field("cursor:") == "hidden",
        screen: screen.strip_suffix('\n').unwrap().to_owned(),
        expected: expected.trim().to_owned(),
    }
}

fn show(golden: &Golden) -> Screen {
    let mut screen = Screen::new(80, 24);
    let (before, after) = golden.screen.split_once('▮').unwrap_or((&golden.screen, ""));
    let lines = |text: &str| text.replace('\n', "\r\n");
    // A program draws all of it and puts the cursor back.
    screen.push(&format!("{}\x1b7{}\x1b8", lines(before), lines(after)));
    if golden.cursor_hidden {
        screen.push("\x1b[?25l");
    }
    screen
}

fn describe(question: Option<&ScreenQuestion>) -> String {
    let Some(question) = question else { return "none".to_owned() };
    let mut out = String::new();
    let word = match (question.reason, &question.request) {
        (AwaitingReason::Prompt, ScreenRequest::Permission { .. }) => "enter",
        (AwaitingReason::Permission, ScreenRequest::Permission { .. }) => "permission",
        (AwaitingReason::Choice, ScreenRequest::Choice { .. }) => "choose",
        (AwaitingReason::Prompt, ScreenRequest::Text { .. }) => "prompt",
        other => panic!("{other:?}"),
    };
    writeln!(out, "{word} \"{}\"", question.prompt.replace('\n', "\\n")).unwrap();
    let mut list = |choices: &[ScreenChoice]| {
        for choice in choices {
            writeln!(out, "choice \"{}\" {:?}", choice.label, choice.text).unwrap();
        }
    };
    match &question.request {
        ScreenRequest::Permission { approve_text, deny_text, choices } => {
            let mut shown = String::new();
            writeln!(shown, "approve {approve_text:?}\ndeny {deny_text:?}").unwrap();
            list(choices);
            let at = out.find('\n').unwrap() + 1;
            out.insert_str(at, &shown);
        }
        ScreenRequest::Choice { choices } => list(choices),
        ScreenRequest::Text { secret } => out.push_str(if *secret { "secret" } else { "text" }),
    }
    out.trim().to_owned()
}

#[test]
fn the_data_file_is_right_and_knows_the_tools() {
    let tools = check_data().unwrap();
    assert_eq!(tools, ["claude", "codex", "gemini", "iflow", "opencode", "pi"]);
    assert_eq!(super::known_tools(), tools);
}

#[test]
fn every_screen_has_its_question() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/terminal/questions/screens");
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    names.sort();
    assert!(names.len() > 40, "the screens are missing");
    let mut wrong = String::new();
    for path in names {
        let golden = golden(&std::fs::read_to_string(&path).unwrap());
        let mut screen = show(&golden);
        let found = screen.question(QuestionRules::for_tool(&golden.tool), golden.echo_off);
        let found = describe(found.as_ref());
        if found != golden.expected {
            let name = path.file_stem().unwrap().to_string_lossy();
            writeln!(wrong, "--- {name}\nexpected:\n{}\nfound:\n{found}", golden.expected).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_prompt_split_over_two_reads_is_found() {
    // The notes' first miss: it was looked for in each piece that was read.
    let mut screen = Screen::new(80, 24);
    screen.push("Con");
    assert_eq!(screen.question(QuestionRules::for_tool(""), false), None);
    screen.push("\x1b[1mtin\x1b[0mue? [y/");
    screen.push("N] ");
    let question = screen.question(QuestionRules::for_tool(""), false).unwrap();
    assert_eq!(question.prompt, "Continue? [y/N]");
    // Nothing more is asked once the line has been answered.
    screen.push("y\r\nworking\r\n");
    assert_eq!(screen.question(QuestionRules::for_tool(""), false), None);
}

#[test]
fn a_long_prompt_keeps_its_end() {
    let mut screen = Screen::new(500, 5);
    screen.push(&format!("{} Continue? [y/N] ", "x".repeat(400)));
    let prompt = screen.question(QuestionRules::for_tool("codex"), false).unwrap().prompt;
    assert_eq!(prompt.chars().count(), 200);
    assert!(prompt.starts_with('…') && prompt.ends_with("Continue? [y/N]"));
}
