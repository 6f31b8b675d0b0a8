use super::*;

const PLANTED: &str = r#"
[[advisory]]
id = "RUSTSEC-2026-9999"
package = "bytes"
date = "2026-11-01"
title = "Planted"
patched = [">= 1.13.1, < 1.14.0", ">= 2.0.0"]
unaffected = ["< 1.2.1"]
"#;

#[test]
fn a_planted_advisory_is_found() {
    let known = Advisories::read(PLANTED).expect("it can be read");
    for (version, is_found) in [
        ("1.12.1", true),
        ("1.13.0", true),
        ("1.13.1", false),
        ("1.14.0", true),
        ("2.0.0-alpha.1", true),
        ("2.0.0", false),
        ("1.2.0", false),
        ("1.2.1", true),
        ("not a version", true),
    ] {
        assert_eq!(!known.of("bytes", version, &[]).is_empty(), is_found, "{version}");
    }
    assert!(known.of("tokio", "1.0.0", &[]).is_empty());
    assert!(known.of("bytes", "1.12.1", &["RUSTSEC-2026-9999".to_owned()]).is_empty());
    assert_eq!(known.check_ignored(&["RUSTSEC-2026-0001".to_owned()]).len(), 1);
}

#[test]
fn a_range_that_cannot_be_read_is_an_error_and_no_pass() {
    for range in ["latest", ">> 1", "1.2.3.4", ">= 1, "] {
        let text = PLANTED.replace(">= 2.0.0", range);
        assert!(Advisories::read(&text).is_err(), "{range}");
    }
}

#[test]
fn the_checked_in_copy_finds_old_versions_of_what_we_use() {
    let copy = read(&root().join(FILE)).expect("a file of the repository");
    let known = Advisories::read(&copy).expect("it can be read");
    assert!(known.count() > 20 && known.newest() > "2026-01-01");
    for (package, old) in
        [("rustls", "0.23.20"), ("time", "0.3.40"), ("tokio", "1.44.1"), ("ring", "0.16.20")]
    {
        assert!(!known.of(package, old, &[]).is_empty(), "{package} {old}");
    }
}

#[test]
fn a_clone_of_the_database_replaces_the_copy() {
    let file = "```toml\n[advisory]\nid = \"RUSTSEC-2026-0001\"\npackage = \"it\"\ndate = \"2026-01-01\"\n\n\
                [affected.functions]\n\"it::f\" = [\"< 1.0.0\"]\n\n[versions]\npatched = [\">= 1.0.0\"]\n```\n\n\
                # A \"title\"\n\ntext\n";
    let advisory = from_markdown(file).expect("it can be read").expect("it is no withdrawn one");
    let again = Advisories::read(&written(&[advisory])).expect("what is written can be read");
    assert_eq!(
        again.of("it", "0.9.0", &[]),
        ["it 0.9.0 has RUSTSEC-2026-0001: A \"title\"; mended in >= 1.0.0"]
    );
    let withdrawn = file.replace("date =", "withdrawn = \"2026-02-01\"\ndate =");
    assert!(from_markdown(&withdrawn).expect("it can be read").is_none());
    assert!(from_markdown("# no block").is_err());
}
