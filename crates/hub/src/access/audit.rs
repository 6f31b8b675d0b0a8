//! Who did what: rows that go into the store together with the records they are about, rows of the commands that change
//! something, and rows of what was done to the hub itself.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use qd_core::projection::ResolvedQuestion;
use qd_core::redact::redact;
use qd_link::clock::now_ms;
use qd_store::{AUDIT_ROWS_MAX, AuditEntry};
use qd_wire::SYSTEM_SESSION;
use qd_wire::command_table::{CommandClass, CommandSpec};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::access::principals::Principal;
use crate::hub::Hub;

/// A summary is to be read in a list; the record has the rest.
const SUMMARY_CHARS_MAX: usize = 300;
/// Names come from runners and hosts, which may send anything.
const NAME_CHARS_MAX: usize = 128;
/// The kind of a row that tells of a command.
const COMMAND: &str = "command";
/// How often old rows are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// Rows that go with one commit, so that records do not wait for it.
const PRUNE_ROWS: usize = 2000;

/// The fields of all records that are of interest here.
#[derive(Deserialize)]
struct AuditedFields<'a> {
    #[serde(borrow)]
    request_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool: Option<Cow<'a, str>>,
    #[serde(borrow)]
    actor: Option<Cow<'a, str>>,
    #[serde(borrow)]
    user_id: Option<Cow<'a, str>>,
    ok: Option<bool>,
    duration_ms: Option<u64>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    text_redacted: Option<Cow<'a, str>>,
}

/// What a record says of who did what; most say nothing.
pub(crate) fn of_record(event: &str, ts: i64, body: &[u8]) -> Option<Box<AuditEntry>> {
    let kind = match event {
        "tool.call" | "tool.result" | "run.input" => event,
        "agent.input_resolved" => {
            let answered = serde_json::from_slice::<ResolvedQuestion>(body)
                .inspect_err(|error| tracing::warn!(%error, event, "a record for the audit is odd"));
            return answered.ok().map(|answered| of_answer(ts, &answered));
        }
        _ => return None,
    };
    let done: AuditedFields<'_> = serde_json::from_slice(body)
        .inspect_err(|error| tracing::warn!(%error, event, "a record for the audit is odd"))
        .ok()?;
    let summary = match event {
        "tool.call" => done.args.map(|args| Cow::Borrowed(args.get())),
        "tool.result" => done.error.or_else(|| done.result.map(|result| Cow::Borrowed(result.get()))),
        _ => done.text_redacted,
    };
    let ok = done.ok;
    let name = |text: Option<Cow<'_, str>>| text.map(|text| cut(&text, NAME_CHARS_MAX));
    Some(Box::new(AuditEntry {
        ts,
        kind: kind.to_owned(),
        principal: name(done.user_id),
        actor: name(done.actor),
        tool: name(done.tool),
        request_id: name(done.request_id.or(done.input_id)),
        ok,
        // The column is signed, and the number comes from a runner that may send any.
        duration_ms: done.duration_ms.filter(|duration| i64::try_from(*duration).is_ok()),
        // Redacted before it is cut: half a secret would not be recognised as one.
        summary: summary.filter(|text| *text != "null").map(|text| cut(&redact(&text), SUMMARY_CHARS_MAX)),
        ..AuditEntry::default()
    }))
}

/// What the end of a question says of who decided it.
pub(crate) fn of_answer(ts: i64, answered: &ResolvedQuestion) -> Box<AuditEntry> {
    let name = |text: &Option<String>| text.as_ref().map(|text| cut(text, NAME_CHARS_MAX));
    let summary = answered.decision.as_ref().or(answered.outcome.as_ref());
    Box::new(AuditEntry {
        ts,
        kind: "permission".to_owned(),
        principal: name(&answered.user_id),
        actor: name(&answered.actor),
        request_id: Some(cut(&answered.request_id, NAME_CHARS_MAX)),
        ok: answered.decision.as_deref().map(is_approval),
        summary: summary.map(|text| cut(&redact(text), SUMMARY_CHARS_MAX)),
        ..AuditEntry::default()
    })
}

fn is_approval(decision: &str) -> bool {
    matches!(decision, "approve" | "approve_for_session")
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A command that changes something, on its way: its row, which lacks how it ended.
pub(crate) struct CommandNote(AuditEntry);

impl CommandNote {
    /// `None` for a command that changes nothing, and for one of which a record tells. That is a service in a session,
    /// and what is typed into a program or answered to a question.
    pub(crate) fn of(spec: &CommandSpec, principal: &str, session_id: Option<&str>) -> Option<Box<Self>> {
        let is_recorded =
            spec.is_gated() && session_id.is_some_and(|session_id| session_id != SYSTEM_SESSION);
        let is_change = spec.mutating || spec.is_gated() || spec.class == CommandClass::Stop;
        if !is_change || is_recorded {
            return None;
        }
        Some(Box::new(Self(AuditEntry {
            ts: now_ms(),
            kind: COMMAND.to_owned(),
            session_id: session_id.map(|session_id| cut(session_id, NAME_CHARS_MAX)),
            principal: Some(cut(principal, NAME_CHARS_MAX)),
            tool: Some(spec.name.to_owned()),
            ..AuditEntry::default()
        })))
    }

    /// The runner that is asked.
    pub(crate) fn at(&mut self, runner_id: &str) {
        self.0.runner_id = Some(cut(runner_id, NAME_CHARS_MAX));
    }

    /// Puts it into the audit: whether the command succeeded, as far as that is known. A session that was created without
    /// a name has one now.
    pub(crate) fn put(self, hub: &Arc<Hub>, session_id: Option<&str>, ok: Option<bool>) {
        let Self(mut row) = self;
        row.session_id = row.session_id.or_else(|| session_id.map(|id| cut(id, NAME_CHARS_MAX)));
        row.ok = ok;
        row.duration_ms = u64::try_from(now_ms().saturating_sub(row.ts)).ok();
        hub.spawn(async move |hub| hub.put_audit(row).await);
    }
}

impl Hub {
    /// Notes what somebody did to the hub itself, as a `kind` such as `login` or `person`. It is done whether that can be
    /// stored or not.
    pub(crate) async fn note_action(
        &self,
        kind: &str,
        principal: Option<&str>,
        ok: Option<bool>,
        summary: String,
    ) {
        let row = AuditEntry {
            ts: now_ms(),
            kind: kind.to_owned(),
            principal: principal.map(|name| cut(name, NAME_CHARS_MAX)),
            ok,
            summary: Some(cut(&summary, SUMMARY_CHARS_MAX)),
            ..AuditEntry::default()
        };
        self.put_audit(row).await;
    }

    /// The same for what somebody has changed.
    pub(crate) async fn note_change(&self, kind: &str, principal: &Principal, summary: String) {
        self.note_action(kind, Some(&principal.name), Some(true), summary).await;
    }

    /// Notes a row that goes with no record.
    pub(crate) async fn put_audit(&self, row: AuditEntry) {
        let (kind, summary) = (row.kind.clone(), row.summary.clone().unwrap_or_default());
        if let Err(error) = self.store.put_audit(row).await {
            tracing::error!(%error, kind, what = summary, "the audit cannot be written");
        }
    }
}

/// Keeps the audit within its bounds, for ever.
pub(crate) async fn prune_old(hub: &Hub) {
    loop {
        tokio::time::sleep(PRUNE_EVERY).await;
        prune(hub, now_ms()).await;
    }
}

async fn prune(hub: &Hub, now: i64) {
    let life_ms = |life: Duration| i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
    let before = hub.config.audit_life.map(|life| now.saturating_sub(life_ms(life)));
    loop {
        match hub.store.prune_audit(before, AUDIT_ROWS_MAX, PRUNE_ROWS).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return tracing::warn!(%error, "old rows of the audit cannot be removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(event: &str, body: &str) -> AuditEntry {
        *of_record(event, 7, body.as_bytes()).unwrap()
    }

    #[test]
    fn records_become_rows() {
        let call = row(
            "tool.call",
            r#"{"seq":3,"event":"tool.call","request_id":"r1","tool":"rpc.bash","actor":"web","args":{"cmd":"ls"},"user_id":"alice"}"#,
        );
        let expected = AuditEntry {
            ts: 7,
            kind: "tool.call".to_owned(),
            principal: Some("alice".to_owned()),
            actor: Some("web".to_owned()),
            tool: Some("rpc.bash".to_owned()),
            request_id: Some("r1".to_owned()),
            summary: Some(r#"{"cmd":"ls"}"#.to_owned()),
            ..AuditEntry::default()
        };
        assert_eq!(call, expected);
        let result = row(
            "tool.result",
            r#"{"request_id":"r1","tool":"rpc.bash","actor":"web","ok":false,"duration_ms":12,"result":null,"error":"denied"}"#,
        );
        assert_eq!((result.ok, result.duration_ms), (Some(false), Some(12)));
        assert_eq!(result.summary.as_deref(), Some("denied"));
        let input =
            row("run.input", r#"{"actor":"cli","input_id":"i1","text_redacted":"ls","text_sha256":"0"}"#);
        assert_eq!((input.request_id.as_deref(), input.summary.as_deref()), (Some("i1"), Some("ls")));
        let decided = row("agent.input_resolved", r#"{"request_id":"q","decision":"deny","user_id":"bob"}"#);
        assert_eq!(
            (&*decided.kind, decided.ok, decided.summary.as_deref()),
            ("permission", Some(false), Some("deny"))
        );
        assert!(of_record("run.output", 7, b"{}").is_none());
        assert!(of_record("tool.call", 7, b"nonsense").is_none());
    }

    #[test]
    fn hole_05_no_secret_gets_into_the_audit() {
        let input = row(
            "run.input",
            r#"{"actor":"web","input_id":"i","text_redacted":"export GH=ghp_0123456789abcdefghijABCDEFGHIJ012345","text_sha256":"0"}"#,
        );
        assert!(!input.summary.unwrap().contains("ghp_0123456789"), "a host that redacts nothing");
        let long = format!(
            r#"{{"actor":"web","input_id":"i","text_redacted":"{}","text_sha256":"0"}}"#,
            "я".repeat(999)
        );
        assert_eq!(row("run.input", &long).summary.unwrap().chars().count(), SUMMARY_CHARS_MAX + 1);
    }

    /// Rows of the audit have an age at which they go; records have none, however old they are.
    #[tokio::test]
    async fn hole_25_nothing_of_a_living_run_is_purged() {
        let world = crate::command::ask::tests::World::start(None);
        let runner = world.runner("r").await;
        let record = |seq: u64, rest: &str| {
            format!(r#"{{"type":"event","session_id":"run","runner_id":"r","ts":1,"seq":{seq},{rest}}}"#)
        };
        let lines = [
            record(1, r#""event":"session.created","resumed":false,"harness":"pty""#),
            record(2, r#""event":"run.started","tool":"t","cwd":"/w","command":"c","cols":80,"rows":24"#),
            record(
                3,
                r#""event":"run.input","actor":"web","input_id":"i","text_redacted":"y","text_sha256":"0""#,
            ),
            record(4, r#""event":"run.output","stream":"stdout","text":"old""#),
        ];
        runner.say(&lines.join("\n")).await;
        let store = &world.hub.store;
        while store.session("run").await.unwrap().is_none_or(|row| row.last_seq < 4) {
            tokio::task::yield_now().await;
        }
        let all = || qd_store::AuditQuery { limit: 10, ..qd_store::AuditQuery::default() };
        let before = store.records_after("run", 0, 100, 1 << 20).await.unwrap();
        assert_eq!((before.len(), store.audit(all()).await.unwrap().len()), (4, 1));
        prune(&world.hub, i64::MAX).await;
        assert_eq!(store.audit(all()).await.unwrap().len(), 0, "the row was older than any row may be");
        assert_eq!(store.records_after("run", 0, 100, 1 << 20).await.unwrap(), before);
        assert!(!store.session("run").await.unwrap().unwrap().closed);
        assert!(world.hub.session("run").is_some());
        store.close().await;
    }
}
