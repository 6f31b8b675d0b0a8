//! Which runner a command goes to.

use std::cmp::Ordering;
use std::sync::Arc;

use qd_wire::command::SessionCreateParams;
use qd_wire::command_table::{CommandClass, Lane};
use qd_wire::data::RunnerStatus;
use qd_wire::{CodedError, ErrorCode};

use super::Command;
use crate::hub::Hub;
use crate::runners::link::RunnerLink;
use crate::runners::runner::{Runner, RunnerStanding};
use crate::sessions::session::SessionEntry;

/// A runner and the connection to it.
#[derive(Clone)]
pub(super) struct Destination {
    pub(super) runner: Arc<Runner>,
    pub(super) link: Arc<RunnerLink>,
}

/// Why a command cannot be sent now.
#[derive(Debug, PartialEq)]
pub(super) enum NoRoute {
    /// It can when a runner comes: the wanted one, or any that will do.
    Away {
        error: CodedError,
        wanted: Option<Arc<str>>,
    },
    Never(CodedError),
}

/// The named runner, else the session's, else the one that can best take it.
pub(super) fn route(
    hub: &Hub,
    command: &Command<'_>,
    session: Option<&Arc<SessionEntry>>,
) -> Result<Destination, NoRoute> {
    let spec = command.spec;
    if let Some(session) = session {
        return named(hub, &session.runner_id, true);
    }
    if let Some(runner_id) = &command.runner_id {
        return named(hub, runner_id, false);
    }
    if spec.lane == Lane::Service {
        return only_one(hub, spec.name);
    }
    if spec.class != CommandClass::Create {
        return anyone(hub);
    }
    match command.parameters::<SessionCreateParams>() {
        Ok(create) => for_harness(hub, &create.config.harness),
        Err(error) => Err(NoRoute::Never(error)),
    }
}

fn named(hub: &Hub, runner_id: &str, is_owner: bool) -> Result<Destination, NoRoute> {
    let Some(runner) = hub.runner(runner_id) else {
        // The owner of a session was here once, so it may come again.
        return Err(if is_owner { away(runner_id) } else { unknown(runner_id) });
    };
    match runner.link() {
        Some(link) => Ok(Destination { runner, link }),
        None => Err(away(runner_id)),
    }
}

fn away(runner_id: &str) -> NoRoute {
    NoRoute::Away {
        error: ErrorCode::RunnerOffline
            .with(format!("Runner {runner_id} is offline, that is not connected; start it and try again")),
        wanted: Some(Arc::from(runner_id)),
    }
}

fn unknown(runner_id: &str) -> NoRoute {
    let error = format!("There is no runner {runner_id}; get_runners lists those there are");
    NoRoute::Never(ErrorCode::RunnerNotFound.with(error))
}

fn nobody() -> NoRoute {
    let error = ErrorCode::RunnerOffline.with("No runner is connected; start one and try again");
    NoRoute::Away { error, wanted: None }
}

/// For reads that any runner can answer.
fn anyone(hub: &Hub) -> Result<Destination, NoRoute> {
    let mut connected = hub.runners().into_iter().filter_map(|runner| {
        let link = runner.link()?;
        Some(Destination { runner, link })
    });
    // A runner without a harness speaks for machines of another protocol, and knows only what that has.
    let first = connected.next().ok_or_else(nobody)?;
    if !first.runner.standing().harnesses.is_empty() {
        return Ok(first);
    }
    Ok(connected.find(|other| !other.runner.standing().harnesses.is_empty()).unwrap_or(first))
}

/// A service is of one machine; where there are several it must be named.
fn only_one(hub: &Hub, cmd: &str) -> Result<Destination, NoRoute> {
    let connected = hub.runners().iter().filter(|runner| runner.link().is_some()).count();
    if connected > 1 {
        let error = format!("'{cmd}' needs a session_id or a runner_id; get_runners lists the runners");
        return Err(NoRoute::Never(CodedError::invalid(error)));
    }
    anyone(hub)
}

/// The least loaded runner that has the harness and room.
fn for_harness(hub: &Hub, harness: &str) -> Result<Destination, NoRoute> {
    let runners = hub.runners().into_iter().map(|runner| {
        let standing = runner.standing();
        (runner, standing)
    });
    let runners: Vec<(Arc<Runner>, RunnerStanding)> = runners.collect();
    let candidates: Vec<(&str, &RunnerStanding)> =
        runners.iter().map(|(runner, standing)| (&*runner.id, standing)).collect();
    let best = choose(&candidates, harness)?;
    let found = runners.iter().find(|(runner, _)| *runner.id == *best);
    let link = found.and_then(|(runner, _)| Some((runner, runner.link()?)));
    // It went away just now.
    let (runner, link) = link.ok_or_else(nobody)?;
    Ok(Destination { runner: Arc::clone(runner), link })
}

/// Decides from data alone, without the hub, so that tests can name the runners. Ties go to the smaller id, which makes
/// the choice repeatable.
fn choose(runners: &[(&str, &RunnerStanding)], harness: &str) -> Result<String, NoRoute> {
    let is_online = |standing: &RunnerStanding| standing.status == RunnerStatus::Online;
    let has_it = |standing: &RunnerStanding| standing.harnesses.iter().any(|it| it == harness);
    let online: Vec<_> = runners.iter().filter(|(_, standing)| is_online(standing)).collect();
    let able: Vec<_> = online.iter().filter(|(_, standing)| has_it(standing)).collect();
    if able.is_empty() {
        let away = |(_, standing): &&(&str, &RunnerStanding)| !is_online(standing) && has_it(standing);
        let away: Vec<&str> = runners.iter().filter(away).map(|(id, _)| *id).collect();
        if !away.is_empty() {
            let error = format!("No online runner has the harness '{harness}'; {} would", away.join(", "));
            return Err(NoRoute::Away {
                error: ErrorCode::RunnerOffline.with(format!("{error}, but is not online: start it")),
                wanted: None,
            });
        }
        if online.is_empty() {
            return Err(nobody());
        }
        if let [(only, _)] = online.as_slice() {
            // It says best what is missing, and how to install it.
            return Ok((*only).to_owned());
        }
        let list: Vec<String> = online.iter().map(|(id, standing)| harnesses(id, standing)).collect();
        let error = format!("No runner has the harness '{harness}': {}", list.join("; "));
        return Err(NoRoute::Never(ErrorCode::HarnessNotFound.with(error)));
    }
    // `agents` also counts sessions that were sent since the last heartbeat; otherwise a burst would go to one runner.
    let roomy = able.iter().filter(|(_, standing)| standing.agents < standing.max_sessions);
    let best = roomy.min_by(|(left_id, left), (right_id, right)| {
        compare(left, right).then_with(|| left_id.cmp(right_id))
    });
    best.map(|(id, _)| (*id).to_owned()).ok_or_else(|| {
        let full = |(id, standing): &&&(&str, &RunnerStanding)| {
            format!("{id} runs {} of {}", standing.agents, standing.max_sessions)
        };
        let list: Vec<String> = able.iter().map(full).collect();
        NoRoute::Never(ErrorCode::LimitReached.with(format!(
            "Every runner that has the harness '{harness}' is full: {}; close a session, or raise max_sessions",
            list.join("; ")
        )))
    })
}

fn harnesses(id: &str, standing: &RunnerStanding) -> String {
    if standing.harnesses.is_empty() {
        return format!("{id} has none");
    }
    format!("{id} has {}", standing.harnesses.join(", "))
}

/// The share of a runner's places that are taken, then how busy its machine is.
fn compare(left: &RunnerStanding, right: &RunnerStanding) -> Ordering {
    // a/b < c/d is a*d < c*b, without rounding.
    let share = |one: &RunnerStanding, other: &RunnerStanding| {
        u128::from(one.agents) * u128::from(other.max_sessions)
    };
    share(left, right).cmp(&share(right, left)).then_with(|| left.machine_load.total_cmp(&right.machine_load))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(
        status: RunnerStatus,
        harnesses: &[&str],
        agents: u64,
        max: u64,
        load: f64,
    ) -> RunnerStanding {
        RunnerStanding {
            status,
            harnesses: harnesses.iter().map(|name| (*name).to_owned()).collect(),
            max_sessions: max,
            agents,
            machine_load: load,
        }
    }

    fn error(result: Result<String, NoRoute>) -> String {
        match result.unwrap_err() {
            NoRoute::Away { error, .. } => format!("away: {error}"),
            NoRoute::Never(error) => error.message,
        }
    }

    #[test]
    fn the_least_loaded_online_runner_that_has_harness_and_room_is_chosen() {
        use RunnerStatus::{Offline, Online, Unhealthy};
        let half = standing(Online, &["demo", "pi"], 4, 8, 0.1);
        let third = standing(Online, &["demo"], 1, 3, 9.0);
        let third_calm = standing(Online, &["demo"], 2, 6, 0.5);
        let empty_sick = standing(Unhealthy, &["demo"], 0, 8, 0.0);
        let empty_gone = standing(Offline, &["demo", "codex"], 0, 8, 0.0);
        let all = [("a", &half), ("b", &third), ("c", &third_calm), ("d", &empty_sick), ("e", &empty_gone)];
        assert_eq!(choose(&all, "demo").unwrap(), "c");
        assert_eq!(choose(&all, "pi").unwrap(), "a");
        assert_eq!(choose(&[("z", &third), ("b", &third)], "demo").unwrap(), "b");
        assert!(
            error(choose(&all, "codex"))
                .starts_with("away: No online runner has the harness 'codex'; e would")
        );
        let text = error(choose(&all, "claude"));
        assert_eq!(text, "No runner has the harness 'claude': a has demo, pi; b has demo; c has demo");
        let full = standing(Online, &["demo"], 3, 3, 0.0);
        assert!(error(choose(&[("a", &full)], "demo")).contains("is full: a runs 3 of 3; close a session"));
        assert!(error(choose(&[], "demo")).starts_with("away: No runner is connected"));
    }
}
