use proptest::prelude::*;
use serde_json::json;

use super::{REDACTED, Scrubber, is_guessable, redact, redact_question, redact_value, rules, secrets};

#[test]
fn every_pattern_compiles() {
    let (compiled, written, has_name) = rules::counts();
    assert_eq!(compiled, written);
    assert!(has_name);
}

/// The first look never says that there is nothing where a rule would find something.
#[test]
fn whatever_a_rule_finds_is_hinted_at() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for pattern in rules::patterns() {
        // The generator knows no edges.
        let plain =
            pattern.replace(r"\b", "").replace("(?:^|", "(?:").replace(r"|\z)", ")").replace("(?s)", "");
        let texts = proptest::string::string_regex(&plain).unwrap();
        for _ in 0..200 {
            let text = texts.new_tree(&mut runner).unwrap().current();
            assert!(rules::is_hinted(&text), "{pattern}: {text:?}");
        }
    }
}

/// Made-up values of real shapes; the marked part is the secret.
const SECRETS: [&str; 44] = [
    "export OPENAI_API_KEY=«sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z»",
    "use «sk-ant-api03-Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0-Fe_DcBa» please",
    "key «sk-or-v1-0123456789abcdef0123456789abcdef»",
    "stripe «sk_live_4eC39HqLyjWDarjtT1zdp7dc» and «rk_test_4eC39HqLyjWDarjtT1zdp7dc»",
    "«whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw»",
    "git clone with «ghp_16C7e42F292c6912E7710c838347Ae178B4a» now",
    "«gho_16C7e42F292c6912E7710c838347Ae178B4a»",
    "«github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789»",
    "«glpat-Ab3dEf6hIj9kLm2nOp5q»",
    "AWS_ACCESS_KEY_ID «AKIAIOSFODNN7EXAMPLE» there",
    "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
    "slack «xoxb-123456789012-abcdefGHIJKL»",
    "«xapp-1-A0123456789-0123456789012-abcdef0123456789»",
    "https://hooks.slack.com/services/«T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX»",
    "maps «AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q»",
    "«ya29.a0AfH6SMBx0123456789abcdefghij»",
    "jwt «eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U»",
    "«npm_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d»",
    "«pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3LTg5YWItY2RlZi0wMTIzLTQ1Njc4OWFi»",
    "«hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567»",
    "«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»",
    "bot «123456789:AAF-abcdefghijklmnopqrstuvwxyz01234»",
    "curl -H 'Authorization: Bearer «abc.def-123»' https://x",
    "authorization: Basic «dXNlcjpwYXNzd29yZA==»",
    "Bearer «0123456789abcdef0123»",
    "Cookie: «session=abcdef»",
    "password=«hunter2»",
    "PASSWORD: «hunter2»",
    "DB_PASSWORD='«hunter 2»' ./run",
    "{\"password\": \"«hun\\\"ter2»\", \"user\": \"bob\"}",
    "token := «t0psecret»",
    "MY_API_KEY=«abc123» npm start",
    "client_secret=«s3cr3t»&redirect=1",
    "postgres://app:«p4ss»@db.example.com/app",
    "git push https://bob:«hunter2»@github.com/x/y",
    "https://«abcdefghij0123456789»@github.com/x/y",
    "login --password «hunter2» --user bob",
    "cmd --api-key «abc123»",
    "mysql -u root -p«hunter2» db",
    "sshpass -p «hunter2» ssh host",
    "curl -u bob:«hunter2» https://x",
    "DB_PASS=«hunter2»",
    "-----BEGIN OPENSSH PRIVATE KEY-----«\nb3BlbnNzaC1rZXktdjEAAAAA\nBG5vbmU=\n»-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----«\nMIIEvQIBADANBg»",
];

/// Nothing of these is a secret: an approver, a reader of a log must be able to read them.
const NO_SECRETS: [&str; 24] = [
    // Hole 6: any word of 32 characters was hidden.
    "cat /home/someuser/projects/webapp/config/development/settings.production.json",
    "git checkout 5dff324a1b2c3d4e5f60718293a4b5c6d7e8f901",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "a_very_long_function_name_that_somebody_wrote_for_a_reason()",
    "ThisIsAVeryLongClassNameThatSomebodyWroteForAReasonFactoryBean",
    "uuid 550e8400-e29b-41d4-a716-446655440000",
    "PWD=/home/alice OLDPWD=/tmp",
    "max_tokens=4096 --token-limit 100",
    "input_tokens: 1234, output_tokens: 99",
    "the task-management-system-for-everybody is up",
    "sk-learn-like-names-without-a-digit",
    "password=$DB_PASSWORD --token ${TOKEN}",
    "password: true, secret: null",
    "export TOKEN=<your-token>",
    "passwords are stored hashed",
    "keyboard=us monkey=1 turkey: fried",
    "https://example.com/a/b?x=1#frag",
    "ssh://git@github.com/owner/repo.git",
    "mailto:alice@example.com",
    "cp -p a b && mkdir -p /tmp/x",
    "docker run -p 8080:80 nginx",
    "tokenizer=bert secretary: Bob",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "漢字 😀 שלום",
];

fn marked(line: &str) -> (String, Vec<String>) {
    let (mut text, mut found) = (String::new(), Vec::new());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('«') {
        let (secret, after) = after.split_once('»').unwrap();
        text.push_str(before);
        text.push_str(secret);
        found.push(secret.to_owned());
        rest = after;
    }
    text.push_str(rest);
    (text, found)
}

#[test]
fn real_shapes_are_found_and_nothing_else_of_the_line() {
    for line in SECRETS {
        let (text, expected) = marked(line);
        let found: Vec<&str> = secrets(&text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, expected, "in {text}");
        let hidden = expected.iter().fold(text.clone(), |text, secret| text.replacen(secret, REDACTED, 1));
        assert_eq!(redact(&text), hidden);
        assert_eq!(redact(&hidden), hidden, "twice is once");
    }
}

#[test]
fn hole_6_paths_hashes_and_long_words_stay() {
    for line in NO_SECRETS {
        assert_eq!(redact(line), line);
        assert!(matches!(redact(line), std::borrow::Cow::Borrowed(_)));
    }
}

#[test]
fn values_of_secret_names_go_whole() {
    let value = json!({
        "request_id": "550e8400-e29b-41d4-a716-446655440000",
        "password": "hunter2", "pin_token": 1234, "max_tokens": 100, "is_secret": true,
        "cmd": "mysql -phunter2", "list": [{ "Authorization": "x" }, "ghp_16C7e42F292c6912E7710c838347Ae178B4a"],
    });
    let expected = json!({
        "request_id": "550e8400-e29b-41d4-a716-446655440000",
        "password": REDACTED, "pin_token": REDACTED, "max_tokens": 100, "is_secret": true,
        "cmd": format!("mysql -p{REDACTED}"), "list": [{ "Authorization": REDACTED }, REDACTED],
    });
    assert_eq!(redact_value(&value), expected);
}

#[test]
fn what_could_be_guessed_is_known() {
    for text in
        ["", "y\n", "hunter2", "correct horse battery staple", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
    {
        assert!(is_guessable(text), "{text}");
    }
    // All but the secret is readable beside the hash.
    let command =
        "export DATABASE_PASSWORD=hunter2 && ./deploy.sh --environment production --region eu-west-3";
    assert!(is_guessable(command));
    for text in [
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "token=0f8e2c7a91b3d4560f8e2c7a91b3d4560f8e2c7a91b3d456",
        "please refactor the parser so that it reports the line and the column of every error it finds",
    ] {
        assert!(!is_guessable(text), "{text}");
    }
}

fn scrub_all(scrubber: &mut Scrubber, now: i64, pieces: &[&str]) -> String {
    let mut out: String =
        pieces.iter().map(|piece| scrubber.scrub(now, (*piece).to_owned(), false)).collect();
    out.push_str(&scrubber.scrub(now, String::new(), true));
    out
}

#[test]
fn hole_5_an_echoed_secret_is_hidden_however_it_is_cut() {
    let mut scrubber = Scrubber::default();
    assert!(!scrubber.is_active());
    scrubber.expect(0, "p4ssw0rd!é\n");
    assert!(scrubber.is_active());
    let out = scrub_all(&mut scrubber, 1, &["login p4s", "sw0", "rd!é ok p4", "x p4ssw0rd!é"]);
    assert_eq!(out, "login ********** ok p4x **********");
    // Later the same text is the program's own.
    assert_eq!(scrubber.scrub(60_001, "p4ssw0rd!é".into(), false), "p4ssw0rd!é");
    assert!(!scrubber.is_active());
}

#[test]
fn a_short_secret_hides_its_echo_and_not_the_output() {
    let mut scrubber = Scrubber::default();
    scrubber.expect(0, "test");
    let out = scrub_all(&mut scrubber, 1, &["pw test test ", "test: 14 tests"]);
    assert_eq!(out, "pw **** **** test: 14 tests");
    scrubber.expect(2, "ab");
    assert!(!scrubber.is_active(), "too short to hide anything");
}

proptest! {
    #[test]
    fn redaction_never_panics_and_is_done_once(text in "\\PC{0,80}") {
        let once = redact(&text).into_owned();
        prop_assert_eq!(redact(&once).into_owned(), once);
    }

    #[test]
    fn ranges_are_in_order_and_apart(
        parts in prop::collection::vec(prop::sample::select(&SECRETS[..]), 1..4),
        glue in prop::sample::select(&[" ", "\n", " && ", "; "][..]),
    ) {
        let text = parts.iter().map(|part| marked(part).0).collect::<Vec<_>>().join(glue);
        let found = secrets(&text);
        prop_assert!(!found.is_empty());
        prop_assert!(found.iter().all(|range| range.start < range.end && text.get(range.clone()).is_some()));
        prop_assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn scrubbing_keeps_everything_else(
        secret in "[a-c]{8,12}",
        text in "[a-c\\r\\n]{0,60}",
        cuts in prop::collection::vec(0..9usize, 0..20),
    ) {
        let whole = format!("{text}{secret}{text}");
        let mut scrubber = Scrubber::default();
        scrubber.expect(0, &secret);
        let (mut pieces, mut from) = (Vec::new(), 0);
        for cut in cuts {
            let to = (from + cut).min(whole.len());
            pieces.push(&whole[from..to]);
            from = to;
        }
        pieces.push(&whole[from..]);
        let out = scrub_all(&mut scrubber, 1, &pieces);
        prop_assert!(!out.contains(&secret));
        prop_assert_eq!(out.chars().count(), whole.chars().count());
        let same = out.chars().zip(whole.chars()).all(|(left, right)| left == right || left == '*');
        prop_assert!(same);
    }
}

#[test]
fn a_decided_question_is_stored_without_its_secrets_and_as_long_as_before() {
    let asked = |args: serde_json::Value| {
        let request = json!({"type": "permission", "request_id": "q", "title": "Run it?",
            "metadata": {"source": "gate", "op_tool": "rpc.bash", "op_args": args}});
        format!("{{\"seq\":7,\"event\":\"agent.input_needed\",\"request\":{request},\"ts\":1}}\n")
    };
    let key = "sk-ant-REDACTED";
    let long = asked(json!({"cmd": format!("curl -H 'x-api-key: {key}' https://example.org")}));
    // The names say what these are; they are shorter than the mark, or no text at all.
    let short = asked(json!({"password": "hunter2"}));
    let number = asked(json!({"pin": 1, "password": 2, "secret": 3}));
    for (line, secret) in [(&long, key), (&short, "hunter2"), (&number, "\"password\":2")] {
        let stored = redact_question(line.as_bytes()).unwrap();
        let text = String::from_utf8(stored).unwrap();
        assert_eq!(text.len(), line.len(), "{text}");
        assert!(!text.contains(secret), "{text}");
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&record["seq"], &record["ts"]), (&json!(7), &json!(1)));
        let request: qd_wire::InputRequest = serde_json::from_value(record["request"].clone()).unwrap();
        assert_eq!(request.request_id(), "q");
        assert_eq!(redact_question(text.as_bytes()), None, "nothing is left to hide");
    }
    let first = String::from_utf8(redact_question(long.as_bytes()).unwrap()).unwrap();
    assert!(first.contains("curl") && first.contains(REDACTED), "the rest stays: {first}");
    assert_eq!(redact_question(asked(json!({"cmd": "ls"})).as_bytes()), None);
    assert_eq!(redact_question(b"{\"event\":\"agent.idle\"}"), None);
    assert_eq!(redact_question(b"no json"), None);
}

proptest! {
    #[test]
    fn a_stored_question_never_changes_its_length(
        fields in prop::collection::btree_map("[a-z_]{1,12}|password|token|secret|pin", "\\PC{0,40}|[0-9]{1,4}", 0..6),
        title in "\\PC{0,40}",
    ) {
        let request = json!({"type": "permission", "request_id": "q", "title": title, "metadata": fields});
        let line = format!("{{\"event\":\"agent.input_needed\",\"request\":{request}}}\n");
        if let Some(stored) = redact_question(line.as_bytes()) {
            prop_assert_eq!(stored.len(), line.len());
            let record: serde_json::Value = serde_json::from_slice(&stored).unwrap();
            prop_assert_eq!(&record["request"]["request_id"], "q");
        }
    }
}
