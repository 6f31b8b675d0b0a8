//! What of the runner's own environment the programs it starts get.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Variables that nothing inherits, whatever else it does: they open the hub or the runner to whoever has them, or say
/// in which session the runner itself was started. A program that needs one gets one of its own.
const NEVER_INHERITED: [&str; 7] =
    ["QD_TOKEN", "QD_RUNNER_KEY", "QD_RUNNER_CODE", "QD_SOCKET", "QD_SESSION_ID", "QD_RUN_ID", "QD_TOOL"];

/// What every agent gets: who and where the user is, how to show text, how to reach the network, and where compilers and
/// their caches are. No credential is among them: those that a harness needs, it names itself, and what a person wants to
/// add is a setting. A name that ends with `*` stands for all that begin so.
const OF_EVERY_AGENT: &[&str] = &[
    // The user and the machine.
    "HOME",
    "HOSTNAME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TEMP",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_*",
    // Text.
    "CI",
    "COLORTERM",
    "EDITOR",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "NO_COLOR",
    "PAGER",
    "TERM",
    "TERMINFO",
    "TERMINFO_DIRS",
    "VISUAL",
    // The network. An address of a proxy may have a password in it, without which nothing is reached.
    "ALL_PROXY",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    // Tools for building.
    "ANDROID_HOME",
    "ASDF_*",
    "BUN_INSTALL",
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "CC",
    "CFLAGS",
    "CONDA_PREFIX",
    "CPATH",
    "CXX",
    "CXXFLAGS",
    "DENO_DIR",
    "DOTNET_ROOT",
    "FNM_*",
    "GOBIN",
    "GOCACHE",
    "GOMODCACHE",
    "GOPATH",
    "GOPROXY",
    "GOROOT",
    "JAVA_HOME",
    "LDFLAGS",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "MAKEFLAGS",
    "MANPATH",
    "MISE_*",
    "NIX_*",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NVM_*",
    "PIP_CACHE_DIR",
    "PKG_CONFIG_PATH",
    "PNPM_HOME",
    "PYENV_ROOT",
    "PYTHONPATH",
    "RBENV_ROOT",
    "RUSTFLAGS",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "SDKMAN_DIR",
    "UV_CACHE_DIR",
    "VIRTUAL_ENV",
    "VOLTA_HOME",
    // Who commits.
    "EMAIL",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
];

/// The agent's environment: what is inherited, minus `remove`, plus `set`.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub inherit: InheritedVariables,
    pub remove: Vec<OsString>,
    pub set: Vec<(OsString, OsString)>,
}

/// Which of the runner's own variables a program gets; never those that nothing inherits.
#[derive(Debug, Clone, Default)]
pub enum InheritedVariables {
    #[default]
    All,
    /// Those of these names; one that ends with `*` stands for all that begin so.
    Only(Vec<OsString>),
    Nothing,
}

impl InheritedVariables {
    /// What an agent gets: what all do, what its harness needs, and what a person allows besides.
    pub fn of_agent(needed: &[&str], allowed: &[String]) -> InheritedVariables {
        let known = OF_EVERY_AGENT.iter().chain(needed).map(OsString::from);
        InheritedVariables::Only(known.chain(allowed.iter().map(OsString::from)).collect())
    }

    fn has(&self, name: &OsStr) -> bool {
        if NEVER_INHERITED.iter().any(|never| name == *never) {
            return false;
        }
        match self {
            InheritedVariables::All => true,
            InheritedVariables::Only(names) => names.iter().any(|known| stands_for(known, name)),
            InheritedVariables::Nothing => false,
        }
    }
}

fn stands_for(known: &OsStr, name: &OsStr) -> bool {
    match known.as_bytes().strip_suffix(b"*") {
        Some(beginning) => name.as_bytes().starts_with(beginning),
        None => known == name,
    }
}

impl Environment {
    /// The value a variable will have.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        let own = std::env::vars_os().filter(|(known, _)| known == name);
        self.resolve(own).remove(OsStr::new(name))
    }

    /// All variables with their values.
    pub(crate) fn variables(&self) -> BTreeMap<OsString, OsString> {
        self.resolve(std::env::vars_os())
    }

    fn resolve(&self, own: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<OsString, OsString> {
        let mut result: BTreeMap<_, _> =
            own.filter(|(name, _)| self.inherit.has(name) && !self.remove.contains(name)).collect();
        result.extend(self.set.iter().cloned());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (OsString, OsString) {
        (OsString::from(name), OsString::from(value))
    }

    fn names_of(environment: &Environment, own: &[&str]) -> Vec<String> {
        let own = own.iter().map(|name| pair(name, "x"));
        environment.resolve(own).into_keys().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn environment_is_inherited_then_cut_then_extended() {
        let own = [pair("A", "1"), pair("B", "2"), pair("C", "3")];
        for (inherit, expected) in [
            (InheritedVariables::All, vec![pair("A", "1"), pair("C", "new")]),
            (InheritedVariables::Only(vec!["B".into(), "C".into()]), vec![pair("C", "new")]),
            (InheritedVariables::Nothing, vec![pair("C", "new")]),
        ] {
            let environment = Environment { inherit, remove: vec!["B".into()], set: vec![pair("C", "new")] };
            let resolved: Vec<_> = environment.resolve(own.iter().cloned()).into_iter().collect();
            assert_eq!(resolved, expected);
        }
    }

    #[test]
    fn an_agent_gets_what_is_named_for_it() {
        let inherit = InheritedVariables::of_agent(&["MODEL_KEY"], &["MINE_*".to_owned(), "ONE".to_owned()]);
        let environment = Environment { inherit, ..Environment::default() };
        let own = [
            "HOME",
            "PATH",
            "LC_ALL",
            "XDG_RUNTIME_DIR",
            "MODEL_KEY",
            "MINE_A",
            "ONE", // these
            "MODEL_KEY_2",
            "ONES",
            "LCX",
            "SSH_AUTH_SOCK",
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "QD_DATA_DIR",
        ];
        let got = names_of(&environment, &own);
        assert_eq!(got, ["HOME", "LC_ALL", "MINE_A", "MODEL_KEY", "ONE", "PATH", "XDG_RUNTIME_DIR"]);
    }

    #[test]
    fn credentials_of_the_runner_are_never_inherited() {
        let everything = InheritedVariables::of_agent(&[], &["*".to_owned(), "QD_TOKEN".to_owned()]);
        for inherit in [InheritedVariables::All, everything] {
            let environment = Environment { inherit, ..Environment::default() };
            let own: Vec<&str> = NEVER_INHERITED.into_iter().chain(["QD_DATA_DIR", "OTHER"]).collect();
            assert_eq!(names_of(&environment, &own), ["OTHER", "QD_DATA_DIR"]);
        }
    }
}
