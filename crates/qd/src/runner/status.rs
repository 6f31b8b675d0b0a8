//! `qd runner status`: the runner of this machine, asked through its socket.
//!
//! It needs no hub and no token: the socket belongs to the user, and the file of the link says why there is no hub.

use qd_wire::data::{RunnerInfo, SessionSummary};
use serde::Serialize;

use super::link_state::LinkState;
use super::list::load;
use super::membership::Membership;
use crate::client::connection;
use crate::error::{CliError, Result};
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// Says whether the hub hears the runner, and what it does.
pub(super) async fn run(settings: &Settings, output: &Output) -> Result<()> {
    let connection =
        connection::connect_local(settings).await?.ok_or_else(|| connection::no_runner(settings))?;
    let runners = connection.runners().await?;
    let runner =
        runners.first().ok_or_else(|| CliError::failed("the runner sent no information about itself"))?;
    let sessions = connection.sessions().await?;
    // A membership that cannot be read is no reason to hide what the runner itself says.
    let hub = Membership::read(&settings.data_dir)
        .ok()
        .flatten()
        .map(|membership| HubStatus { url: membership.url, link: LinkState::read(&settings.data_dir) });
    let socket = connection.options.url.trim_start_matches("unix:");
    if output.json {
        return output.json_line(&serde_json::json!({
            "runner": runner, "hub": hub, "socket": socket, "sessions": sessions,
        }));
    }
    output.out(&text(runner, hub.as_ref(), socket, &sessions))
}

/// The hub elsewhere, and how the link to it stands.
#[derive(Serialize)]
struct HubStatus {
    url: String,
    link: Option<LinkState>,
}

impl HubStatus {
    fn text(&self) -> String {
        let link = self.link.as_ref();
        let standing = match link.map(|link| (link.connected_since, &link.last_failure)) {
            None => "unknown; is this the data directory of the runner?".to_owned(),
            Some((Some(_), _)) => "connected".to_owned(),
            Some((None, Some(reason))) => {
                format!("not connected ({reason}); sessions keep running; everything is delivered later")
            }
            Some((None, None)) => "connecting".to_owned(),
        };
        format!("{}: {standing}", self.url)
    }
}

fn text(runner: &RunnerInfo, hub: Option<&HubStatus>, socket: &str, sessions: &[SessionSummary]) -> String {
    let of_state = |state: &str| sessions.iter().filter(|session| session.state == state).count();
    let waiting = sessions.iter().filter(|session| session.pending_input_count > 0).count();
    let spool = runner.load.as_ref().map_or(0, |load| load.spool_bytes);
    let busy = runner.load.as_ref().map(load).unwrap_or_default();
    harmless(&format!(
        "runner    {} ({}, {})\n\
         hub       {}\n\
         socket    {socket}\n\
         waiting   {} KiB for the hub\n\
         sessions  {} of {}: {} working, {} idle, {waiting} with a question\n\
         load      {}\n",
        runner.runner_id,
        runner.hostname,
        runner.version,
        hub.map_or_else(|| "in the same process".to_owned(), HubStatus::text),
        spool.div_ceil(1024),
        sessions.len(),
        runner.max_sessions,
        of_state("working"),
        of_state("idle"),
        if busy.is_empty() { "unknown" } else { &busy },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use qd_runner::UplinkStatus;
    use serde_json::json;

    #[test]
    fn the_state_of_a_runner_is_said_in_words() {
        let runner: RunnerInfo = serde_json::from_value(json!({"runner_id":"desk","hostname":"desk.lan",
            "os":"linux","version":"0.1.0","status":"offline","harnesses":["demo"],"max_sessions":10,
            "session_count":2,"load":{"agents":1,"cpu_count":8,"load_1m":0.5,"spool_bytes":1025}}))
        .unwrap();
        let session = |id: &str, state: &str, questions: u64| -> SessionSummary {
            serde_json::from_value(json!({"session_id":id,"runner_id":"desk","harness":"demo","state":state,
                "created_at":0,"last_activity":0,"seq":1,"message_count":1,"subscriber_count":0,
                "pending_input_count":questions}))
            .unwrap()
        };
        let sessions = [session("a", "working", 1), session("b", "idle", 0)];
        let link =
            LinkState::of(&UplinkStatus { last_failure: Some("no route".into()), ..UplinkStatus::default() });
        let hub = HubStatus { url: "https://deck.example".into(), link: Some(link) };
        insta::assert_snapshot!(text(&runner, Some(&hub), "/run/qd.sock", &sessions));
    }
}
