use super::*;

fn session() -> SessionSummary {
    SessionSummary {
        session_id: "s1".to_owned(),
        title: Some("<b>Fix & \"run\"</b> ../../etc".to_owned()),
        ..SessionSummary::default()
    }
}

fn read(json: &str) -> Message {
    serde_json::from_str(json).unwrap()
}

fn html_of(parts: &str) -> String {
    let mut out = String::new();
    let json = format!(r#"{{"id":"m","idx":0,"role":"assistant","parts":[{parts}],"created_at":5}}"#);
    html::message(&mut out, &read(&json));
    out
}

#[test]
fn a_file_name_has_nothing_a_system_would_trip_over() {
    assert_eq!(file_name(&session(), ExportFormat::Html, 0), "b-fix-run-b-etc-1970-01-01.html");
    let named = |title: &str| SessionSummary { title: Some(title.to_owned()), ..session() };
    assert_eq!(file_name(&named(""), ExportFormat::Json, 0), "s1-1970-01-01.json");
    assert_eq!(file_name(&named("…"), ExportFormat::Markdown, 0), "session-1970-01-01.md");
    assert_eq!(file_name(&named(&"x y".repeat(100)), ExportFormat::Html, 0).len(), 60 + 16);
}

#[test]
fn what_an_agent_writes_is_text_and_nothing_else() {
    let head = html::head(&session(), 0);
    assert!(head.contains("<title>&lt;b&gt;Fix &amp; &quot;run&quot;&lt;/b&gt; ../../etc</title>"), "{head}");
    let bad = r#"</pre><script>alert(1)</script><img src=x onerror='alert(2)'>"#;
    for part in [
        format!(r#"{{"type":"text","id":"p","text":"{bad}"}}"#),
        format!(r#"{{"type":"thinking","id":"p","text":"{bad}"}}"#),
        format!(
            r#"{{"type":"tool_call","id":"p","tool_call_id":"t","name":"{bad}","input":{{"a":"{bad}"}},"status":"success"}}"#
        ),
        format!(r#"{{"type":"tool_result","id":"p","tool_call_id":"t","output":"{bad}","is_error":true}}"#),
        format!(r#"{{"type":"image","id":"p","source":{{"source":"url","url":"{bad}"}},"alt":"{bad}"}}"#),
        format!(
            r#"{{"type":"image","id":"p","source":{{"source":"base64","data":"AA==","mime_type":"image/png"}},"alt":"{bad}"}}"#
        ),
        format!(r#"{{"type":"file_ref","id":"p","uri":"{bad}"}}"#),
        format!(
            r#"{{"type":"attachment","id":"p","source":{{"source":"attachment_ref","attachment_id":"{bad}"}},"filename":"{bad}"}}"#
        ),
        format!(r#"{{"type":"x-{bad}","id":"p","payload":"{bad}"}}"#),
    ] {
        let out = html_of(&part);
        assert!(
            !out.contains("<script") && !out.contains("<img src=x") && !out.contains("onerror='"),
            "{out}"
        );
        assert!(out.contains("alert(1)"), "{out}");
    }
}

#[test]
fn only_images_become_images() {
    let image = |mime: &str, data: &str| {
        html_of(&format!(
            r#"{{"type":"image","id":"p","source":{{"source":"base64","data":"{data}","mime_type":"{mime}"}}}}"#
        ))
    };
    assert!(image("image/png", "AA==").contains(r#"<img src="data:image/png;base64,AA==""#));
    for (mime, data) in [("image/svg+xml", "AA=="), ("text/html", "AA=="), ("image/png", "' onload=")] {
        assert!(!image(mime, data).contains("<img"), "{mime} {data}");
    }
}

#[test]
fn fences_controls_and_directions() {
    let out = html_of(
        r#"{"type":"text","id":"p","text":"a\n```rust\nlet x = 1 < 2;\n```\nb \u0007\u202e end\r\n````\nopen ``` inside"}"#,
    );
    assert!(out.contains("<div class=\"text\">a</div>\n<pre>let x = 1 &lt; 2;</pre>"), "{out}");
    assert!(out.contains("b \u{fffd}[U+202E] end</div>\n<pre>open ``` inside</pre>"), "{out}");
    let out = html_of(
        r#"{"type":"tool_result","id":"p","tool_call_id":"t","is_error":false,
        "output":{"content":[{"type":"text","text":"\u001b[31mred\u001b[0m \u001b]0;title\u0007plain"}]}}"#,
    );
    assert!(out.contains("<pre>red plain</pre>"), "{out}");
}

#[test]
fn nothing_in_a_block_of_markdown_ends_it() {
    let mut out = markdown::head(&session(), 0);
    let json = r#"{"id":"m","idx":0,"role":"tool","tool_name":"bash","created_at":5,"parts":[
        {"type":"tool_result","id":"p","tool_call_id":"t","is_error":false,"output":"````\n# no heading"}]}"#;
    markdown::message(&mut out, &read(json));
    assert!(out.starts_with("# <b>Fix & \"run\"</b> ../../etc\n\n- Session: s1\n"), "{out}");
    let expected =
        "\n## Tool bash · 1970-01-01 00:00 UTC\n\n**Result**\n\n`````\n````\n# no heading\n`````\n";
    assert!(out.ends_with(expected), "{out}");
}
