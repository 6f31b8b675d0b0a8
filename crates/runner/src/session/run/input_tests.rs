use super::*;

fn lines(line: &mut TypedLine, keys: &str, is_hidden: bool) -> Vec<(String, bool)> {
    line.push(keys, is_hidden).into_iter().map(|line| (line.text, line.is_hidden)).collect()
}

#[test]
fn keys_become_lines_as_a_person_sees_them() {
    let mut line = TypedLine::default();
    assert_eq!(lines(&mut line, "lx\u{7f}s", false), []);
    assert_eq!(lines(&mut line, " -l\r\rab\u{3}c", false), [("ls -l\n".into(), false), ("\n".into(), false)]);
    assert_eq!(lines(&mut line, "d\n", false), [("cd\n".into(), false)]);
    // One hidden key hides its line, and no other.
    assert_eq!(lines(&mut line, "se", true), []);
    assert_eq!(lines(&mut line, "cret\rx", false), [("secret\n".into(), true)]);
    assert_eq!(lines(&mut line, "\r", false), [("x\n".into(), false)]);
}

#[test]
fn a_line_without_end_is_recorded_in_pieces() {
    let mut line = TypedLine::default();
    let found = lines(&mut line, &"ä".repeat(LINE_BYTES_MAX), false);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|(text, _)| text.len() == LINE_BYTES_MAX));
}

#[test]
fn a_secret_is_found_with_what_was_typed_before_it() {
    let mut line = TypedLine::default();
    let token = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    assert_eq!(line.secrets_with(&format!("echo {token}\r")), [token]);
    line.push(&format!("echo {}", &token[..7]), false);
    // The echo shows what the keys are; a line that is drawn once more shows all.
    assert_eq!(line.secrets_with(&format!("{}\r", &token[7..])), [&token[7..], token]);
    line.push(&token[7..], false);
    assert_eq!(line.secrets_with(" and more"), Vec::<String>::new(), "it is known already");
}
