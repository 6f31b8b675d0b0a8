//! Sessions and runners as the server lists them, and how they are named on the command line.

use qd_link::client::ClientRequest;
use qd_runner::driver::first_try;
use qd_wire::Command;
use qd_wire::command::NoParams;
use qd_wire::data::{RunnerInfo, RunnersData, SessionState, SessionStatus, SessionSummary, SessionsData};

use crate::client::connection::Connection;
use crate::error::{CliError, Result};

impl Connection {
    /// All sessions, newest first.
    pub(crate) async fn sessions(&self) -> Result<Vec<SessionSummary>> {
        let request = ClientRequest::system(Command::ListSessions(NoParams {}));
        let SessionsData { mut sessions, .. } = self.client.query(&request).await?;
        sessions.sort_by(|left, right| {
            right.created_at.cmp(&left.created_at).then_with(|| right.session_id.cmp(&left.session_id))
        });
        Ok(sessions)
    }

    /// All runners the server knows.
    pub(crate) async fn runners(&self) -> Result<Vec<RunnerInfo>> {
        let data: RunnersData =
            self.client.query(&ClientRequest::system(Command::GetRunners(NoParams {}))).await?;
        Ok(data.runners)
    }

    /// What a session does at the moment, with its open questions.
    pub(crate) async fn session_state(&self, session_id: &str) -> Result<SessionState> {
        Ok(self.client.query(&ClientRequest::session(session_id, Command::GetState(NoParams {}))).await?)
    }

    /// The session a person means by `name`, or the newest one.
    pub(crate) async fn resolve_session(&self, name: Option<&str>) -> Result<String> {
        let sessions = self.sessions().await?;
        let ids: Vec<&str> = sessions.iter().map(|session| session.session_id.as_str()).collect();
        match name {
            Some(name) => {
                resolve_name(&ids, name, "session", "`qd ls` shows the sessions").map(str::to_owned)
            }
            None => ids.first().map(|id| (*id).to_owned()).ok_or_else(|| {
                CliError::failed("there is no session yet").hint(format!("start one: {}", first_try()))
            }),
        }
    }
}

/// Whether an agent works, or is about to.
pub(crate) fn is_busy(status: SessionStatus) -> bool {
    match status {
        SessionStatus::Working | SessionStatus::Starting => true,
        SessionStatus::Idle
        | SessionStatus::Dormant
        | SessionStatus::Failed
        | SessionStatus::Closed
        | SessionStatus::Offline => false,
    }
}

/// The one id that is `name` or begins with it.
pub(crate) fn resolve_name<'a>(ids: &[&'a str], name: &str, what: &str, hint: &str) -> Result<&'a str> {
    if let Some(exact) = ids.iter().find(|id| **id == name) {
        return Ok(exact);
    }
    let matching: Vec<&str> =
        ids.iter().copied().filter(|id| !name.is_empty() && id.starts_with(name)).collect();
    match matching.as_slice() {
        [one] => Ok(one),
        [] => Err(CliError::failed(format!("no {what} begins with '{name}'")).hint(hint)),
        several => {
            let list = several.iter().take(8).copied().collect::<Vec<_>>().join(", ");
            Err(CliError::failed(format!(
                "'{name}' is not enough: {} {what}s begin with it ({list})",
                several.len()
            ))
            .hint("type more of the id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_beginning_names_a_session() {
        let ids = ["s1", "s12", "s123", "t9"];
        let find = |name: &str| resolve_name(&ids, name, "session", "look").map_err(|error| error.to_human());
        assert_eq!(find("t"), Ok("t9"));
        assert_eq!(find("s1"), Ok("s1"));
        assert_eq!(find("s123"), Ok("s123"));
        insta::assert_snapshot!([find("s"), find("x"), find("")].map(Result::unwrap_err).join("\n"));
    }
}
