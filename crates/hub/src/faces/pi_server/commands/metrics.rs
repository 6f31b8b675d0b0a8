//! `get_metrics` and `health_check`.
//!
//! Some figures are the hub's and some the runners', so all runners are asked. One that does not answer in time is an
//! issue of `health_check`; the others' figures are told all the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use qd_core::view::pi_server::answer;
use qd_link::clock::now_ms;
use qd_wire::command_table::CommandName;
use qd_wire::data::RunnerHealthData;
use qd_wire::pi_server::{
    CommandsRejected, ExecutionMetrics, ExtensionUiMetrics, JournalMetrics, LockMetrics, Metrics,
    RateLimitUsage, SessionStoreMetrics, StoreMetrics, VersionMetrics,
};
use serde_json::{Value, json};

use crate::command::ask::{RunnerAnswers, ask_runners};
use crate::faces::pi_server::commands::execute::finish_with;
use crate::faces::pi_server::commands::pending_commands::CommandJob;
use crate::faces::pi_server::commands::sessions::ALL_RUNNERS_PART;
use crate::faces::pi_server::counters::PiCounters;
use crate::faces::pi_server::{open_sessions, running_count};
use crate::hub::Hub;

/// How full a count may be before it is an issue, in percent.
const FULL_PERCENT: usize = 90;
/// Questions of one session that may wait for a person; the runner's bound, told to clients.
const QUESTIONS_MAX: u64 = 256;

/// `health_check`.
pub(crate) fn health(hub: &Arc<Hub>, job: CommandJob) {
    ask_health(hub, job, |hub, job, runners, mut issues| {
        let config = &hub.faces.pi_server.config;
        let connections = hub.faces.pi_server.pending.lock().clients().len();
        for (what, count, max) in [
            ("Session", running_count(hub), config.sessions_max),
            ("Connection", connections, config.connections_max),
        ] {
            if max > 0 && count * 100 >= max * FULL_PERCENT {
                issues.push(format!("{what} count at {count}/{max} (90%+)"));
            }
        }
        let machines: Vec<_> = runners.iter().map(|(_, health)| health.clone()).collect();
        finish_with(hub, job, &answer::health(issues, &machines));
    });
}

/// `get_metrics`.
pub(crate) fn metrics(hub: &Arc<Hub>, job: CommandJob) {
    ask_health(hub, job, |hub, job, runners, _| {
        finish_with(hub, job, &collect(hub, job.client.identity(), runners));
    });
}

fn ask_health(
    hub: &Arc<Hub>,
    job: CommandJob,
    then: impl FnOnce(&Arc<Hub>, &CommandJob, &[(Arc<str>, RunnerHealthData)], Vec<String>) + Send + 'static,
) {
    let client = Arc::clone(&job.client);
    let on_answers = Box::new(move |hub: &Arc<Hub>, answers: RunnerAnswers| {
        let (mut runners, mut issues) = (Vec::new(), Vec::new());
        for (runner_id, answered) in answers {
            match answered.read::<RunnerHealthData>() {
                Ok(health) => runners.push((runner_id, health)),
                // One that went away just now has nothing to do with this.
                Err(_) if answered.link_lost => {}
                Err(_) if answered.timed_out => issues.push(format!("Runner {runner_id} does not answer")),
                Err(_) => {
                    let error = answered.error.unwrap_or_else(|| "its answer cannot be read".to_owned());
                    issues.push(format!("Runner {runner_id} cannot tell how it is: {error}"));
                }
            }
        }
        then(hub, &job, &runners, issues);
    });
    let limit = hub.faces.pi_server.config.read_timeout / ALL_RUNNERS_PART;
    ask_runners(hub, &client.asker, CommandName::RunnerHealth, limit, on_answers);
}

fn collect(hub: &Hub, principal: &str, runners: &[(Arc<str>, RunnerHealthData)]) -> Metrics {
    let server = &hub.faces.pi_server;
    let sessions = open_sessions(hub);
    let (connection_count, admission) = {
        let pending = server.pending.lock();
        (pending.clients().len() as u64, pending.admission.metrics(principal, now_ms()))
    };
    let counters = &server.counters;
    let session_count = sessions.len() as u64;
    Metrics {
        session_count,
        connection_count,
        // Who may connect is decided before the upgrade.
        pending_connection_count: 0,
        total_commands_executed: admission.executed,
        commands_rejected: CommandsRejected {
            session_limit: PiCounters::get(&counters.session_limit),
            message_size: PiCounters::get(&counters.message_size),
            rate_limit: admission.rate_limit_rejections,
            global_rate_limit: admission.global_rate_limit_rejections,
            connection_limit: hub.faces.pi_server.connections.turned_away(),
            extension_ui_response_rate_limit: admission.ui_rate_limit_rejections,
        },
        rate_limit_usage: RateLimitUsage {
            global_count: admission.global_count,
            global_limit: admission.global_limit,
        },
        stores: StoreMetrics {
            replay: admission.replay,
            version: VersionMetrics { session_count },
            execution: ExecutionMetrics { lane_count: admission.lane_count },
            // There are no locks to wait for here: what the original locks, lanes keep apart.
            lock: LockMetrics::default(),
            extension_ui: ExtensionUiMetrics {
                pending_count: sessions.iter().map(|entry| entry.projection().question_count() as u64).sum(),
                max_pending_requests: QUESTIONS_MAX,
                // A runner settles the oldest question instead of refusing one more.
                rejected_count: 0,
            },
            // What is known of sessions is in the store and never reset.
            session_store: SessionStoreMetrics::default(),
            journal: JournalMetrics {
                enabled: true,
                entries_written: PiCounters::get(&server.journal.entries_written),
                write_errors: PiCounters::get(&server.journal.write_errors),
            },
        },
        circuit_breakers: runners.iter().flat_map(|(id, health)| answer::breakers(id, health)).collect(),
        bash_circuit_breaker: answer::bash_breaker(runners.iter().map(|(_, health)| health)),
        metrics: own_metrics(hub),
        ..Metrics::default()
    }
}

/// Counters that the document does not name.
fn own_metrics(hub: &Hub) -> BTreeMap<String, Value> {
    let server = &hub.faces.pi_server;
    let counters = json!({
        "commandsCancelled": PiCounters::get(&server.counters.cancelled),
        "pendingLimitRejections": PiCounters::get(&server.counters.pending_limit),
        "resyncs": PiCounters::get(&server.counters.resyncs),
        "readOutcomesNotStored": PiCounters::get(&server.journal.dropped),
    });
    let gauges = json!({ "uptimeMs": now_ms().saturating_sub(server.started_at) });
    [("counters", counters), ("gauges", gauges), ("histograms", json!({})), ("recentEvents", json!([]))]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
