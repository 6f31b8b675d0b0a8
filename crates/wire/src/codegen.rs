//! The generated artefacts: what `cargo xtask codegen` writes and a test compares.
//!
//! The output must depend on nothing but the types and the tables, and nothing of the machine or the time may be in
//! it. Otherwise the check in CI would fail for changes that nobody made.

mod answers;
mod protocol_tables;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use ts_rs::{Config, TS};

pub use protocol_tables::{PageTable, page_tables};

use crate::{
    access, command_table, data, delegation, error, fleet, link, mux, people, pi_server, push, rest, run,
    run_protocol, service,
};

/// One generated file: path below the repository, and text.
pub struct Artefact {
    pub path: &'static str,
    pub text: String,
}

/// All generated files.
pub fn artefacts() -> Result<Vec<Artefact>, String> {
    Ok(vec![
        Artefact { path: "docs/generated/canonical.schema.json", text: schema::<Canonical>()? },
        Artefact { path: "docs/generated/commands.json", text: pretty(&command_table::COMMANDS)? },
        Artefact { path: "docs/generated/errors.json", text: pretty(&error::ERRORS)? },
        Artefact { path: "docs/generated/pi-server.schema.json", text: schema::<PiServer>()? },
        Artefact { path: "docs/generated/pi-server-commands.json", text: pretty(&pi_server::COMMANDS)? },
        Artefact { path: "docs/generated/run-types.json", text: pretty(&run_protocol::TYPES)? },
        Artefact { path: "docs/generated/run.schema.json", text: schema::<RunDocument>()? },
        Artefact { path: "docs/generated/openapi.json", text: pretty(&rest::openapi::document())? },
        Artefact { path: "clients/typescript/src/generated/pi-server.ts", text: pi_server_typescript() },
        Artefact { path: "clients/typescript/src/generated/canonical.ts", text: canonical_client()? },
    ])
}

/// JSON has one kind of number; a bigint would make every client convert.
fn config() -> Config {
    Config::default().with_large_int("number")
}

/// A list of declarations, sorted by name so that the file does not depend on the order of discovery.
fn typescript(config: &Config, collect_roots: fn(&mut TypeCollector<'_>)) -> String {
    let mut declarations = std::collections::BTreeMap::new();
    collect_roots(&mut TypeCollector { config, declarations: &mut declarations });
    let mut text = String::from("// Generated from crates/wire by `cargo xtask codegen`. Do not edit.\n");
    for declaration in declarations.values() {
        text.push_str("\nexport ");
        text.push_str(&one_member_per_line(declaration));
        text.push('\n');
    }
    text
}

/// The types of the canonical protocol for TypeScript, with the table of commands and the types that go with each.
fn canonical_client() -> Result<String, String> {
    let config = config();
    let mut text = typescript(&config, collect_roots);
    text.push_str("\n/** The parameters of every command. */\nexport interface CommandParams {\n");
    for (name, parameters) in command_table::PARAMETERS {
        text.push_str(&format!("  \"{name}\": {parameters};\n"));
    }
    text.push_str("}\n\n/** The `data` of every command's answer. */\nexport interface CommandData {\n");
    for spec in command_table::COMMANDS {
        text.push_str(&format!("  \"{}\": {};\n", spec.name, answers::data_type(&config, spec.name)));
    }
    text.push_str("}\n\n/** What the table says of every command. */\nexport const COMMANDS = {\n");
    for spec in command_table::COMMANDS {
        let (lane, permission) = (word(&spec.lane)?, word(&spec.permission)?);
        text.push_str(&format!(
            "  \"{}\": {{ lane: {lane}, mutating: {}, permission: {permission} }},\n",
            spec.name, spec.mutating
        ));
    }
    text.push_str("} as const;\n\n/** What the table says of every error code. */\nexport const ERRORS: Record<ErrorCode, { httpStatus: number; exitCode: number; retry: boolean }> = {\n");
    for spec in error::ERRORS {
        let (code, status, exit, retry) = (spec.code, spec.http_status, spec.exit_code, spec.retry);
        text.push_str(&format!(
            "  \"{code}\": {{ httpStatus: {status}, exitCode: {exit}, retry: {retry} }},\n"
        ));
    }
    text.push_str("};\n");
    Ok(text)
}

/// A value as the JSON text that clients compare with.
fn word<T: serde::Serialize>(value: &T) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// Puts each member of a union on a line of its own, so that a change to one is a change of one line.
fn one_member_per_line(declaration: &str) -> String {
    let mut text = String::new();
    let mut depth = 0_i32;
    let mut comment = false;
    for word in declaration.split_inclusive([' ', '\n']) {
        match word.trim() {
            "/**" => comment = true,
            "*/" => comment = false,
            // Only the bars of the outermost union: those of nested types stay on their line, and those in comments are
            // text.
            "|" if depth == 0 && !comment => {
                text.truncate(text.trim_end().len());
                text.push_str("\n  | ");
                continue;
            }
            _ if comment => {}
            code => {
                depth += code.chars().map(nesting).sum::<i32>();
            }
        }
        if word.ends_with('\n') {
            text.push_str(word.trim_end());
            text.truncate(text.trim_end().len());
            text.push('\n');
        } else {
            text.push_str(word);
        }
    }
    text
}

const fn nesting(character: char) -> i32 {
    match character {
        '{' | '(' | '<' => 1,
        '}' | ')' | '>' => -1,
        _ => 0,
    }
}

/// Walks from the root types to every type they use, so that a new type needs no line here.
struct TypeCollector<'a> {
    config: &'a Config,
    declarations: &'a mut std::collections::BTreeMap<String, String>,
}

impl ts_rs::TypeVisitor for TypeCollector<'_> {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // Types without an output path are the language's own (string, number, arrays).
        if T::output_path().is_none() {
            T::visit_dependencies(self);
            T::visit_generics(self);
            return;
        }
        let name = T::ident(self.config);
        if self.declarations.contains_key(&name) {
            return;
        }
        // Inserted before its parts are visited: types that contain themselves would be visited for ever.
        let declaration = T::decl(self.config);
        self.declarations.insert(name, declaration);
        T::visit_dependencies(self);
        T::visit_generics(self);
    }
}

/// Types that no frame or answer contains must be named; the rest is found from them.
fn collect_roots(collector: &mut TypeCollector<'_>) {
    use ts_rs::TypeVisitor;
    answers::visit(collector);
    collector.visit::<crate::Command>();
    collector.visit::<crate::EventPayload>();
    collector.visit::<mux::ClientFrame>();
    collector.visit::<mux::ServerFrame>();
    collector.visit::<mux::Channel>();
    collector.visit::<link::LinkLine>();
    collector.visit::<delegation::DelegationPermission>();
    collector.visit::<fleet::Invite>();
    collector.visit::<fleet::JoinRequest>();
    collector.visit::<fleet::Joined>();
    collector.visit::<access::AccessTokens>();
    collector.visit::<access::NewAccessToken>();
    collector.visit::<access::AddedAccessToken>();
    collector.visit::<mux::FilesClientFrame>();
    collector.visit::<mux::TerminalClientFrame>();
    collector.visit::<run::PermissionDetails>();
    collector.visit::<service::FsChanges>();
    collector.visit::<service::BashOutput>();
    collector.visit::<people::LoginRequest>();
    collector.visit::<people::LoginAnswer>();
    collector.visit::<people::Me>();
    collector.visit::<people::People>();
    collector.visit::<people::NewPerson>();
    collector.visit::<people::ChangePerson>();
    collector.visit::<people::ForeignHosts>();
    collector.visit::<people::NewForeignHost>();
    collector.visit::<people::ConfirmForeignHost>();
    collector.visit::<people::AddedForeignHost>();
    collector.visit::<people::AuditData>();
    rest::visit_types(collector);
    push::visit_types(collector);
}

/// The pi-server document's types, the table of its commands and the types that go with each.
fn pi_server_typescript() -> String {
    let config = config();
    let mut text = typescript(&config, |collector| {
        use ts_rs::TypeVisitor;
        collector.visit::<pi_server::Command>();
        collector.visit::<pi_server::Envelope>();
        collector.visit::<pi_server::ServerMessage>();
        collector.visit::<pi_server::FaceEvent>();
        pi_server::visit_data(collector);
    });
    let rows = pi_server::type_rows(&config);
    text.push_str("\n/** The fields of every command, beside those of the envelope. */\nexport interface CommandFields {\n");
    for row in &rows {
        text.push_str(&format!("  {}: {};\n", row.name, row.fields));
    }
    text.push_str("}\n\n/** The `data` of every command's answer. */\nexport interface CommandData {\n");
    for row in &rows {
        text.push_str(&format!("  {}: {};\n", row.name, row.data));
    }
    text.push_str("}\n\n/** What the table says of every command. */\nexport const COMMANDS = {\n");
    for spec in pi_server::COMMANDS {
        let timeout = spec.timeout_ms.map_or_else(|| "null".to_owned(), |timeout| timeout.to_string());
        text.push_str(&format!(
            "  {}: {{ mutating: {}, timeoutMs: {timeout} }},\n",
            spec.name, spec.mutating
        ));
    }
    text.push_str("} as const;\n");
    text
}

/// Everything the pi-server face says and hears, as one document.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "the fields exist to be walked by the schema generator")]
struct PiServer {
    command: pi_server::Command,
    envelope: pi_server::Envelope,
    server_message: pi_server::ServerMessage,
    event: pi_server::FaceEvent,
}

/// Everything a schema is published for, as one document.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "the fields exist to be walked by the schema generator")]
struct Canonical {
    client_frame: mux::ClientFrame,
    server_frame: mux::ServerFrame,
    link_line: link::LinkLine,
    delegation_permission: delegation::DelegationPermission,
    session_created: data::SessionCreatedData,
    messages: data::MessagesData,
    sessions: data::SessionsData,
    runners: data::RunnersData,
    models: data::ModelsData,
    commands: data::CommandsData,
    fork_points: data::ForkPointsData,
    stats: data::StatsData,
    search: data::SearchData,
    queue_set: data::QueueSetData,
    runner_sessions: data::RunnerSessionsData,
    stored_sessions: data::StoredSessionsData,
    runner_health: data::RunnerHealthData,
    invite: fleet::Invite,
    join_request: fleet::JoinRequest,
    joined: fleet::Joined,
    access_tokens: access::AccessTokens,
    new_access_token: access::NewAccessToken,
    added_access_token: access::AddedAccessToken,
    files_client_frame: mux::FilesClientFrame,
    terminal_client_frame: mux::TerminalClientFrame,
    terminal_snapshot: run::TerminalSnapshot,
    permission_details: run::PermissionDetails,
    run_input: run::RunInputData,
    run_stop: run::RunStopData,
    fs_read: service::FsReadData,
    fs_write: service::FsWriteData,
    fs_upload: service::FsUploadData,
    fs_list: service::FsListData,
    fs_tree: service::FsTreeData,
    fs_stat: service::FsStatData,
    fs_search: service::FsSearchData,
    fs_done: service::FsDoneData,
    fs_changes: service::FsChanges,
    git_status: service::GitStatusData,
    git_diff: service::GitDiffData,
    git_log: service::GitLogData,
    git_worktrees: service::GitWorktreesData,
    bash_output: service::BashOutput,
    bash: service::BashData,
    host_info: service::HostInfoData,
    host_logs: service::HostLogsData,
    login_request: people::LoginRequest,
    login_answer: people::LoginAnswer,
    me: people::Me,
    people: people::People,
    new_person: people::NewPerson,
    change_person: people::ChangePerson,
    foreign_hosts: people::ForeignHosts,
    new_foreign_host: people::NewForeignHost,
    confirm_foreign_host: people::ConfirmForeignHost,
    added_foreign_host: people::AddedForeignHost,
    audit: people::AuditData,
    push_state: push::PushState,
    new_push_subscription: push::NewPushSubscription,
    change_push_subscription: push::ChangePushSubscription,
    push_test: push::PushTest,
    push_tested: push::PushTested,
    push_answer: push::PushAnswer,
    push_message: push::PushMessage,
    system_client_frame: mux::SystemClientFrame,
}

/// Everything the run document says, as one document.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "the fields exist to be walked by the schema generator")]
struct RunDocument {
    envelope: run_protocol::Envelope,
    started: run_protocol::StartedData,
    output: run_protocol::OutputData,
    awaiting_input: run_protocol::AwaitingInputData,
    exited: run_protocol::ExitedData,
    input: run_protocol::InputData,
    send_input: run_protocol::SendInputData,
    send_stdin: run_protocol::SendStdinData,
    resize: run_protocol::ResizeData,
    stop: run_protocol::StopData,
    ack: run_protocol::AckData,
    permission_requested: run_protocol::PermissionRequestedData,
    permission_decision: run_protocol::PermissionDecisionData,
    permission_decided: run_protocol::PermissionDecidedData,
    subscribe: run_protocol::SubscribeData,
    response: run_protocol::ResponseData,
    error: run_protocol::ErrorData,
}

fn schema<T: JsonSchema>() -> Result<String, String> {
    pretty(&SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>())
}

fn pretty<T: serde::Serialize>(value: &T) -> Result<String, String> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    text.push('\n');
    Ok(text)
}
