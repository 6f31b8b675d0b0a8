//! What of the server's environment real pi gets.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{pi_in, pi_session};

/// The variables of the agent in this server's sandbox, as the kernel has them.
fn environment_of_agent(data_dir: &std::path::Path) -> Option<BTreeMap<String, String>> {
    let mut environments = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let bytes = std::fs::read(entry.path().join("environ")).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some(text.split('\0').filter_map(pair).collect::<BTreeMap<_, _>>())
    });
    // Its guard has all of these but the last.
    let is_agent = |environment: &BTreeMap<String, String>| {
        let home = environment.get("PI_CODING_AGENT_DIR");
        home.is_some_and(|home| std::path::Path::new(home).starts_with(data_dir))
            && environment.contains_key("QD_GUARD_KEY")
    };
    environments.find(is_agent)
}

/// An agent has the keys of its models and the paths of its tools, and no secret of anybody else.
#[tokio::test]
async fn an_agent_gets_the_variables_that_are_named_for_it_and_no_others() {
    let (qd, mut mux, _llm) = pi_in(|sandbox| {
        for secret in ["QD_RUNNER_KEY", "QD_RUNNER_CODE", "QD_SOCKET", "QD_SESSION_ID", "QD_TOKEN"] {
            sandbox.set(secret, "secret");
        }
        for name in
            ["SSH_AUTH_SOCK", "GITHUB_TOKEN", "DATABASE_URL", "QD_LOG_LEVEL", "MINE", "GROQ_API_KEY_2"]
        {
            sandbox.set(name, if name == "QD_LOG_LEVEL" { "error" } else { "secret" });
        }
        for name in ["GROQ_API_KEY", "LC_CTYPE", "NO_PROXY", "MINE_A"] {
            sandbox.set(name, "for the agent");
        }
        sandbox.set("QD_AGENT_ENVIRONMENT", "MINE_*, QD_TOKEN")
    })
    .await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&session, "@@text").await;
    let environment = environment_of_agent(&qd.sandbox().data_dir()).unwrap();
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    let expected = [
        "GROQ_API_KEY",
        "HOME",
        "LC_CTYPE",
        "MINE_A",
        "NODE_COMPILE_CACHE",
        "NO_PROXY",
        "PATH",
        "PI_CODING_AGENT_DIR",
        "PI_OFFLINE",
        "PI_SKIP_VERSION_CHECK",
        "PI_TELEMETRY",
        "QD_GUARD_KEY",
        "TMPDIR",
    ];
    assert_eq!(names, expected);
    assert_eq!(environment["GROQ_API_KEY"], "for the agent");
}
