use super::*;

const LOCK: &str = r#"
[[package]]
name = "ours"
version = "0.1.0"
dependencies = ["a", "b 1.0.0"]

[[package]]
name = "a"
version = "1.0.0"
source = "REGISTRY"
dependencies = ["b 2.0.0"]

[[package]]
name = "b"
version = "1.0.0"
source = "REGISTRY"

[[package]]
name = "b"
version = "2.0.0"
source = "REGISTRY"
"#;

const CONFIG: &str = r#"
[bans]
multiple-versions = "deny"
deny = [BANS]
skip = [SKIP]
[sources]
unknown-registry = "deny"
unknown-git = "deny"
"#;

fn packages() -> Vec<Locked> {
    parse_lock(&LOCK.replace("REGISTRY", &REGISTRY.concat())).expect("a lock file")
}

fn config(bans: &str, skip: &str) -> Config {
    Config::read(&CONFIG.replace("BANS", bans).replace("SKIP", skip)).expect("a configuration")
}

#[test]
fn a_package_from_elsewhere_is_found() {
    assert!(check_sources(&packages()).is_empty());
    for source in ["git+https://example.com/it#1", "registry+https://example.com/index", "sparse+https://x/"]
    {
        let text = LOCK.replacen("REGISTRY", source, 1).replace("REGISTRY", &REGISTRY.concat());
        assert_eq!(check_sources(&parse_lock(&text).expect("a lock file")).len(), 1, "{source}");
    }
}

#[test]
fn a_banned_package_is_found_unless_it_comes_with_a_wrapper() {
    let errors = |bans: &str| check_banned(&packages(), &config(bans, ""));
    assert_eq!(errors(r#"{ crate = "a", reason = "r" }"#), ["a is banned (r); it comes with ours"]);
    assert!(errors(r#"{ crate = "a", reason = "r", wrappers = ["ours"] }"#).is_empty());
    assert_eq!(errors(r#"{ crate = "b", reason = "r", wrappers = ["a"] }"#).len(), 1);
    assert!(errors(r#"{ crate = "c", reason = "r" }"#).is_empty());
}

#[test]
fn a_package_in_two_versions_is_found() {
    let errors = |skip: &str| check_doubled(&packages(), &config("", skip));
    assert_eq!(errors(""), ["b is there in the versions 1.0.0, 2.0.0; see `cargo tree -d`"]);
    assert!(errors(r#"{ crate = "b@1.0.0", reason = "r" }"#).is_empty());
    assert_eq!(errors(r#"{ crate = "b@3.0.0", reason = "r" }"#).len(), 1);
}

#[test]
fn an_exception_needs_a_reason_and_a_rule_cannot_be_switched_off() {
    let skip = CONFIG.replace("BANS", "").replace("SKIP", r#"{ crate = "b@1.0.0" }"#);
    assert!(Config::read(&skip).is_err());
    let whole = CONFIG.replace("BANS", "").replace("SKIP", "");
    assert!(Config::read(&whole).is_ok());
    assert!(Config::read(&whole.replacen("\"deny\"", "\"warn\"", 1)).is_err());
    assert!(Config::read(&whole.replace("unknown-git = \"deny\"", "")).is_err());
}

#[test]
fn versions_are_ordered_and_ranges_read_as_cargo_does() {
    let is_in = |version: &str, range: &str| {
        version::is_in(&version::Version::parse(version).expect("a version"), range).expect("a range")
    };
    for (version, range, expected) in [
        ("0.22.9", "<= 0.22", true),
        ("0.23.0", "<= 0.22", false),
        ("1.2.3", "> 1.2", false),
        ("1.3.0", "> 1.2", true),
        ("0.10.9", "^0.10.4", true),
        ("0.11.0", "^0.10.4", false),
        ("0.0.3", "^0.0.2", false),
        ("1.9.0", "1.2", true),
        ("2.0.0", "1.2", false),
        ("1.2.9", "~1.2.3", true),
        ("1.3.0", "~1.2.3", false),
        ("1.2.9", "= 1.2", true),
        ("1.2.3", "= 1.2.3", true),
        ("1.2.3-rc.2", "< 1.2.3", true),
        ("1.2.3-rc.2", ">= 1.2.3-rc.10", false),
        ("1.2.3-alpha", "< 1.2.3-beta", true),
        ("1.2.3+build", "= 1.2.3", true),
        ("0.103.13", ">= 0.103.13, < 0.104.0-alpha.1", true),
    ] {
        assert_eq!(is_in(version, range), expected, "{version} in {range}");
    }
}
