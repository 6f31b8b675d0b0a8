//! Commands about sessions as a whole.
//!
//! Creating takes three steps when a closed session has the name: asking the runner whether a new one could be made,
//! deleting the old one, and making the new one. So a create that the runner would refuse leaves the old session as
//! it was.

use std::sync::Arc;

use qd_core::view::pi_server::{answer, request};
use qd_wire::command_table::CommandName;
use qd_wire::data::{
    AttachData, RunnerSessionsData, SessionCreatedData, SessionState, SessionStatus, SessionSummary,
    StoredSessionsData,
};
use qd_wire::pi_server::{
    NAME_CHARS_MAX, SessionCreated, SessionInfo, SessionList, SessionSwitched, StoredSessionList,
};
use qd_wire::{CodedError, ErrorCode};

use crate::command::Command;
use crate::command::ask::{RunnerAnswers, ask_runners};
use crate::faces::pi_server::clients::followers::NewFollower;
use crate::faces::pi_server::clients::resync;
use crate::faces::pi_server::commands::execute::{
    ask_for, ask_for_success, canonical, failed, failure, finish, finish_with, open_session, runner_key,
    session_command, success,
};
use crate::faces::pi_server::commands::lifecycle;
use crate::faces::pi_server::commands::pending_commands::{AfterResponse, CommandJob};
use crate::faces::pi_server::counters::PiCounters;
use crate::faces::pi_server::{is_open, open_sessions, running_count};
use crate::hub::Hub;
use crate::sessions::reads;
use crate::sessions::reads::unreadable;

/// Which part of the time of a read all runners together may take: one that is silent must not keep the answers of
/// the others for so long that nobody waits for them any more.
pub(crate) const ALL_RUNNERS_PART: u32 = 3;
/// The same for listing the files on their disks.
const STORED_PART: u32 = 2;

/// `create_session` and `load_session`.
pub(crate) fn create(hub: &Arc<Hub>, job: CommandJob) {
    let Some(session_id) = job.session_id.clone() else {
        return finish(hub, &job, failure(CodedError::invalid("A session needs a name; send sessionId")));
    };
    let under_way = {
        let mut pending = hub.faces.pi_server.pending.lock();
        // Counted in the same lock that lists those under way, so that two creates cannot both take the last place.
        pending.begin_session_change(job.token);
        pending.under_way()
    };
    // A restart interrupted it. The runner knows whether it was done, by its key; checks against today's state could
    // refuse what has succeeded.
    if job.is_taken_up_again {
        return create_now(hub, job, None);
    }
    if session_id.chars().count() > NAME_CHARS_MAX {
        let error = format!("Session ID too long (max {NAME_CHARS_MAX} characters)");
        return finish(hub, &job, failure(CodedError::invalid(error)));
    }
    let is_there = |session_id: &str| hub.session(session_id).is_some_and(|entry| is_open(&entry));
    if is_there(&session_id) {
        let error = ErrorCode::SessionExists.with(format!("Session {session_id} already exists"));
        return finish(hub, &job, failure(error));
    }
    // Those that are being created count, this one included.
    let to_come = under_way.iter().filter(|session_id| !is_there(session_id)).count();
    let max = hub.faces.pi_server.config.sessions_max;
    if running_count(hub) + to_come > max {
        PiCounters::count(&hub.faces.pi_server.counters.session_limit);
        let error = ErrorCode::LimitReached.with(format!("Session limit reached ({max} sessions)"));
        return finish(hub, &job, failure(error));
    }
    match hub.session(&session_id) {
        Some(entry) => check_first(hub, job, Arc::clone(&entry.runner_id)),
        None => create_now(hub, job, None),
    }
}

/// A closed session gives its name to the new one, but only when its runner says that there can be a new one: what
/// is deleted does not come back.
fn check_first(hub: &Arc<Hub>, job: CommandJob, runner_id: Arc<str>) {
    let command = to_create(&job, None, Some(&runner_id)).map(|command| command.with("check_only", true));
    ask_for_success(hub, job, command, move |hub, job, _| delete_first(hub, job, runner_id));
}

/// The agent's own file stays.
fn delete_first(hub: &Arc<Hub>, job: CommandJob, runner_id: Arc<str>) {
    if hub.is_away(&runner_id) {
        // The hub would delete its copy, and then there would be nothing at all.
        let error = ErrorCode::RunnerOffline
            .with(format!("Runner {runner_id} is not connected; start it and try again"));
        return finish(hub, &job, failure(error));
    }
    let command = Command::new(CommandName::SessionDelete).on(job.session().to_owned());
    ask_for(hub, job, Ok(command), move |hub, job, answered| {
        // It may have been deleted meanwhile, which is as good.
        if answered.success || hub.session(job.session()).is_none() {
            create_now(hub, job, Some(&runner_id));
        } else {
            let outcome = failed(&job, answered);
            finish(hub, &job, outcome);
        }
    });
}

/// `session.create`, for the session that the job is about; on `runner_id`, else on the runner that the client has named.
fn to_create(
    job: &CommandJob,
    key: Option<&str>,
    runner_id: Option<&str>,
) -> Result<Command<'static>, CodedError> {
    let runner_id = runner_id.or_else(|| request::named_runner(&job.request)).map(str::to_owned);
    Ok(canonical(job, key)?.on(job.session().to_owned()).at_if(runner_id))
}

/// `runner_id` is the one that was asked before, if one was.
fn create_now(hub: &Arc<Hub>, job: CommandJob, runner_id: Option<&str>) {
    let command = to_create(&job, runner_key(&job), runner_id);
    ask_for_success(hub, job, command, |hub, job, answered| {
        let created = answered.read::<SessionCreatedData>().ok().map(|created| created.attach.state);
        // The agent may have told more of itself by now: its model.
        let command = get_state(job.session().to_owned());
        ask_for(hub, job, Ok(command), move |hub, job, answered| {
            let state = answered.read::<SessionState>().ok().or(created);
            let info = match state {
                Some(state) => answer::session_info(&state),
                None => SessionInfo { session_id: job.session().to_owned(), ..SessionInfo::default() },
            };
            let frames = lifecycle::session_created(job.session(), &info);
            let data = SessionCreated { session_id: job.session().to_owned(), session_info: info };
            let outcome = success(Some(lifecycle::json(&data)), Some(0));
            hub.faces.pi_server.finish(hub, job.token, outcome, AfterResponse::Created(frames));
        });
    });
}

/// `delete_session`: the agent is stopped, the history stays.
pub(crate) fn delete(hub: &Arc<Hub>, job: CommandJob) {
    let command = session_command(hub, &job);
    if command.is_ok() {
        hub.faces.pi_server.pending.lock().begin_session_change(job.token);
    }
    ask_for_success(hub, job, command, |hub, job, _| {
        let outcome = success(Some("{\"deleted\":true}".to_owned()), None);
        hub.faces.pi_server.finish(hub, job.token, outcome, AfterResponse::Deleted);
    });
}

/// `switch_session`: the client follows the session from its answer on.
pub(crate) fn switch(hub: &Arc<Hub>, job: &CommandJob, has_resync: bool) {
    let entry = match open_session(hub, job) {
        Ok(entry) => entry,
        Err(error) => return finish(hub, job, failure(error)),
    };
    // The runner says the session's events from before its answer on.
    let joining = hub.faces.pi_server.followers.join(hub, &entry);
    let command = match has_resync {
        true => resync::attach(&entry),
        false => Command::new(CommandName::GetState).on_session(&entry),
    };
    ask_for_success(hub, job.clone(), Ok(command), move |hub, job, answered| {
        let read = if has_resync {
            answered.read::<AttachData>().map(|attach| {
                let events = vec![resync::event(&attach)];
                (attach.state, events)
            })
        } else {
            answered.read::<SessionState>().map(|state| (state, Vec::new()))
        };
        let Ok((state, mut events)) = read else {
            let error = "The runner's answer cannot be read; it may be of another version";
            return finish(hub, &job, failure(ErrorCode::Internal.with(error)));
        };
        let questions = state.pending_input.iter().map(answer::ui_request);
        events.extend(questions.map(|question| lifecycle::event(job.session(), &question)));
        let data = SessionSwitched { session_info: answer::session_info(&state) };
        let outcome = success(Some(lifecycle::json(&data)), Some(state.session_version));
        let follower = Box::new(NewFollower { joining, events });
        hub.faces.pi_server.finish(hub, job.token, outcome, AfterResponse::Follow(follower));
    });
}

/// A switch was replayed, maybe on another connection than the first time: that one follows the session too.
pub(crate) fn follow_again(hub: &Arc<Hub>, job: &CommandJob) {
    let Some(entry) = hub.session(job.session()).filter(|entry| is_open(entry)) else { return };
    let followers = &hub.faces.pi_server.followers;
    if followers.is_follower(&entry.id, &job.client) {
        return;
    }
    NewFollower { joining: followers.join(hub, &entry), events: Vec::new() }.follow(&job.client);
    if let Some(resync) = followers.catch_up_one(&entry.id, &job.client) {
        hub.faces.pi_server.resync(hub, resync);
    }
}

/// `list_sessions`: what the runners say, and the hub's copies for those that are away.
pub(crate) fn list(hub: &Arc<Hub>, job: CommandJob) {
    let client = Arc::clone(&job.client);
    let on_answers = Box::new(move |hub: &Arc<Hub>, answers: RunnerAnswers| {
        let mut sessions: Vec<(i64, SessionInfo)> = Vec::new();
        let mut heard = Vec::new();
        for (runner_id, answered) in answers {
            let Ok(data) = answered.read::<RunnerSessionsData>() else { continue };
            let open = data.sessions.iter().filter(|state| state.status != SessionStatus::Closed);
            sessions.extend(open.map(|state| (state.created_at.unwrap_or(0), answer::session_info(state))));
            heard.push(runner_id);
        }
        let silent: Vec<_> =
            open_sessions(hub).into_iter().filter(|entry| !heard.contains(&entry.runner_id)).collect();
        if silent.is_empty() {
            return finish_list(hub, &job, sessions);
        }
        hub.spawn(async move |hub| match reads::sessions(&hub).await {
            Ok(rows) => {
                let is_silent =
                    |row: &SessionSummary| silent.iter().any(|entry| *entry.id == *row.session_id);
                sessions.extend(
                    rows.into_iter()
                        .filter(is_silent)
                        .map(|row| (row.created_at, answer::summary_info(&row))),
                );
                finish_list(&hub, &job, sessions);
            }
            Err(error) => {
                finish(&hub, &job, failure(unreadable(&error)));
            }
        });
    });
    let limit = hub.faces.pi_server.config.read_timeout / ALL_RUNNERS_PART;
    ask_runners(hub, &client.asker, CommandName::RunnerSessions, limit, on_answers);
}

fn finish_list(hub: &Arc<Hub>, job: &CommandJob, mut sessions: Vec<(i64, SessionInfo)>) {
    sessions.sort_by(|one, two| (one.0, &one.1.session_id).cmp(&(two.0, &two.1.session_id)));
    let list = SessionList { sessions: sessions.into_iter().map(|(_, info)| info).collect() };
    finish_with(hub, job, &list);
}

/// `list_stored_sessions`.
pub(crate) fn list_stored(hub: &Arc<Hub>, job: CommandJob) {
    let client = Arc::clone(&job.client);
    let on_answers = Box::new(move |hub: &Arc<Hub>, answers: RunnerAnswers| {
        let has_several = answers.len() > 1;
        let mut sessions = Vec::new();
        let mut errors = Vec::new();
        for (runner_id, answered) in answers {
            match answered.read::<StoredSessionsData>() {
                Ok(data) => sessions.extend(data.sessions.into_iter().map(|stored| {
                    let mut info = answer::stored_info(&stored);
                    if has_several {
                        info.info.runner_id = Some(runner_id.to_string());
                    }
                    (stored.modified_at, info)
                })),
                Err(_) => errors.push(answered),
            }
        }
        // What some of the machines know is more than nothing.
        if sessions.is_empty()
            && let Some(answered) = errors.pop()
        {
            let outcome = failed(&job, answered);
            return finish(hub, &job, outcome);
        }
        sessions.sort_by_key(|(modified_at, _)| std::cmp::Reverse(*modified_at));
        let list = StoredSessionList { sessions: sessions.into_iter().map(|(_, info)| info).collect() };
        finish_with(hub, &job, &list);
    });
    // A first listing reads whole files.
    let limit = hub.faces.pi_server.config.read_timeout / STORED_PART;
    ask_runners(hub, &client.asker, CommandName::RunnerStoredSessions, limit, on_answers);
}

/// The canonical question how a session stands.
pub(crate) fn get_state(session_id: String) -> Command<'static> {
    Command::new(CommandName::GetState).on(session_id)
}
