// Generated from crates/wire by `cargo xtask codegen`. Do not edit.

export type AccessTokenInfo = {
/**
 * Of the owner's tokens also the name of the principal that commands are from; a person's act as that person.
 */
name: string,
/**
 * Unix milliseconds.
 */
created_at: number,
/**
 * Unix milliseconds, to the minute; absent if it was never used.
 */
last_used_at?: number,
/**
 * Whose it is; absent for the owner's own.
 */
owner?: string,
/**
 * What it may do; without it all that its owner may.
 */
scopes?: Array<Permission>,
/**
 * Unix milliseconds.
 */
expires_at?: number, };

export type AccessTokens = {
/**
 * By name.
 */
tokens: Array<AccessTokenInfo>, };

export type AddedAccessToken = { name: string, token: string, };

export type AddedForeignHost = { host_id: string, host_token: string, };

export type AgentBashData = { output: string | null, exit_code: number | null, cancelled: boolean | null, truncated: boolean | null, full_output_path: string | null, };

export type AgentPhase = "generating"
  | "thinking"
  | "tool_running"
  | "compacting"
  | "retrying"
  | "initializing";

export type AttachData = { resume: Resume,
/**
 * Records up to this number are covered by the answer and what is replayed right after it.
 */
seq: number,
/**
 * Of a resync: the last record that follows before what is new.
 */
replay_until?: number, state: SessionState, pending_input: Array<InputRequest>, partial?: PartialTurn,
/**
 * With `gap`: the newest messages of the conversation, oldest first.
 */
messages?: Array<Message>,
/**
 * Of a program in a terminal, with `gap`: what is on its screen.
 */
terminal?: TerminalSnapshot, };

export type AuditData = {
/**
 * Newest first.
 */
entries: Array<AuditEntry>,
/**
 * Give it as `before` to go on.
 */
next?: number, };

export type AuditEntry = {
/**
 * Grows with each entry.
 */
id: number,
/**
 * Unix milliseconds.
 */
ts: number, session_id?: string, runner_id?: string, seq?: number,
/**
 * `command`, `tool.call`, `tool.result`, `run.input`, `permission`, `login`, `person`, `token`, `runner`, `host`…
 */
kind: string,
/**
 * Who: the principal.
 */
principal?: string,
/**
 * How: `web`, `cli`, `local`, `agent`…
 */
actor?: string, tool?: string, request_id?: string, ok?: boolean, duration_ms?: number,
/**
 * Secrets redacted.
 */
summary?: string, };

export type Awaiting = { reason: AwaitingReason, prompt?: string,
/**
 * The question that goes with it.
 */
request_id?: string, };

export type AwaitingReason = "permission"
  | "choice"
  | "prompt"
  | "unknown";

export type BashBreakerState = { state: CircuitState, failures: number, sessions: number, open_sessions: number, total_calls: number, total_timeouts: number, total_rejected: number, };

export type BashData = { stdout: string, stderr: string,
/**
 * Absent when a signal ended it.
 */
exit_code?: number, signal?: number, timed_out: boolean, cancelled: boolean,
/**
 * The beginning of one of the streams is missing.
 */
truncated: boolean,
/**
 * All that the command wrote.
 */
stdout_bytes: number, stderr_bytes: number, duration_ms: number, };

export type BashOutput = {
/**
 * `stdout` or `stderr`.
 */
stream: string, text: string,
/**
 * Where in the stream the text begins, in bytes.
 */
offset?: number,
/**
 * Bytes left out here, because they came faster than they could be told; the answer has them as far as it goes.
 */
skipped?: number, };

export type BashParams = {
/**
 * Run in the session's directory.
 */
command: string,
/**
 * Keep command and output from the agent.
 */
exclude_from_context?: boolean, };

export type BreakerState = { provider: string, state: CircuitState,
/**
 * Failures within the window.
 */
failures: number, last_failure_at?: number, changed_at: number, accessed_at: number, total_calls: number, total_rejected: number, total_successes: number, total_failures: number, average_latency_ms: number,
/**
 * Calls let through to test whether the provider is back.
 */
half_open_calls: number, };

export type CancelParams = {
/**
 * The `id` of a command sent by the same connection that is not answered yet.
 */
target: string, };

export type ChangePerson = {
/**
 * Ends all logins of the person.
 */
password?: string,
/**
 * One's own, where one changes one's own password.
 */
current_password?: string, role?: PersonRole, disabled?: boolean, };

export type ChangePushSubscription = { label?: string, topics?: Array<PushTopic>, content?: boolean, };

export type ChangedHost = { host_id: string,
/**
 * `trusted`, `revoked` or `forgotten`.
 */
state: string, };

export type ChangedRunner = { runner_id: string, };

export type Channel = "agent"
  | "files"
  | "terminal"
  | "hstry"
  | "trx"
  | "system";

export type CircuitState = "closed"
  | "half_open"
  | "open";

export type ClientFrame = { channel: Channel, id?: string, session_id?: string, runner_id?: string,
/**
 * The same key runs at most once, through any reconnect, restart or retry.
 */
idempotency_key?: string,
/**
 * Commands (their `id`s) that must have succeeded before.
 */
depends_on?: Array<string>,
/**
 * Run only when the session's version is this.
 */
if_session_version?: number,
/**
 * When the runner is away: wait for it instead of failing at once.
 */
wait?: boolean,
/**
 * With `wait`: how long at most, in milliseconds.
 */
wait_ms?: number, } & ({ "cmd": "session.create" } & SessionCreateParams | { "cmd": "session.attach" } & SessionAttachParams | { "cmd": "session.detach" } & NoParams | { "cmd": "session.close" } & NoParams | { "cmd": "session.delete" } & NoParams | { "cmd": "session.restart" } & NoParams | { "cmd": "session.new" } & SessionNewParams | { "cmd": "session.switch" } & SessionSwitchParams | { "cmd": "prompt" } & PromptParams | { "cmd": "steer" } & SteerParams | { "cmd": "follow_up" } & SteerParams | { "cmd": "queue.set" } & QueueSetParams | { "cmd": "abort" } & NoParams | { "cmd": "input_response" } & InputResponseParams | { "cmd": "get_state" } & NoParams | { "cmd": "get_messages" } & GetMessagesParams | { "cmd": "get_stats" } & NoParams | { "cmd": "get_models" } & NoParams | { "cmd": "get_commands" } & NoParams | { "cmd": "get_fork_points" } & NoParams | { "cmd": "set_model" } & SetModelParams | { "cmd": "cycle_model" } & CycleModelParams | { "cmd": "set_thinking_level" } & SetThinkingLevelParams | { "cmd": "cycle_thinking_level" } & NoParams | { "cmd": "set_auto_compaction" } & EnabledParams | { "cmd": "set_auto_retry" } & EnabledParams | { "cmd": "compact" } & CompactParams | { "cmd": "abort_retry" } & NoParams | { "cmd": "abort_compaction" } & NoParams | { "cmd": "bash" } & BashParams | { "cmd": "abort_bash" } & NoParams | { "cmd": "export_html" } & ExportHtmlParams | { "cmd": "get_skills" } & NoParams | { "cmd": "get_tools" } & NoParams | { "cmd": "list_session_files" } & NoParams | { "cmd": "get_native_messages" } & NoParams | { "cmd": "get_last_assistant_text" } & NoParams | { "cmd": "get_context_usage" } & NoParams | { "cmd": "get_tree" } & NoParams | { "cmd": "navigate_tree" } & NavigateTreeParams | { "cmd": "set_session_name" } & SetSessionNameParams | { "cmd": "fork" } & ForkParams | { "cmd": "list_sessions" } & NoParams | { "cmd": "get_runners" } & NoParams | { "cmd": "runner.sessions" } & NoParams | { "cmd": "runner.stored_sessions" } & NoParams | { "cmd": "runner.health" } & NoParams | { "cmd": "search" } & SearchParams | { "cmd": "delegate" } & DelegateRequest | { "cmd": "run.input" } & RunInputParams | { "cmd": "run.stdin" } & RunStdinParams | { "cmd": "run.resize" } & RunResizeParams | { "cmd": "run.stop" } & RunStopParams | { "cmd": "run.screen" } & NoParams | { "cmd": "fs.read" } & FsReadParams | { "cmd": "fs.write" } & FsWriteParams | { "cmd": "fs.upload" } & FsUploadParams | { "cmd": "fs.list" } & FsListParams | { "cmd": "fs.tree" } & FsTreeParams | { "cmd": "fs.stat" } & FsStatParams | { "cmd": "fs.search" } & FsSearchParams | { "cmd": "fs.create_directory" } & FsCreateDirectoryParams | { "cmd": "fs.rename" } & FsMoveParams | { "cmd": "fs.move" } & FsMoveParams | { "cmd": "fs.copy" } & FsMoveParams | { "cmd": "fs.delete" } & FsDeleteParams | { "cmd": "fs.watch" } & FsWatchParams | { "cmd": "git.status" } & GitStatusParams | { "cmd": "git.diff" } & GitDiffParams | { "cmd": "git.log" } & GitLogParams | { "cmd": "git.worktrees" } & GitWorktreesParams | { "cmd": "git.worktree_add" } & GitWorktreeAddParams | { "cmd": "git.worktree_remove" } & GitWorktreeRemoveParams | { "cmd": "host.bash" } & HostBashParams | { "cmd": "host.info" } & HostInfoParams | { "cmd": "host.doctor" } & HostDoctorParams | { "cmd": "host.capabilities" } & HostCapabilitiesParams | { "cmd": "host.logs" } & HostLogsParams | { "cmd": "cancel" } & CancelParams | { "cmd": "delegate.cancel" } & DelegateCancelParams);

export type Command = { "cmd": "session.create" } & SessionCreateParams
  | { "cmd": "session.attach" } & SessionAttachParams
  | { "cmd": "session.detach" } & NoParams
  | { "cmd": "session.close" } & NoParams
  | { "cmd": "session.delete" } & NoParams
  | { "cmd": "session.restart" } & NoParams
  | { "cmd": "session.new" } & SessionNewParams
  | { "cmd": "session.switch" } & SessionSwitchParams
  | { "cmd": "prompt" } & PromptParams
  | { "cmd": "steer" } & SteerParams
  | { "cmd": "follow_up" } & SteerParams
  | { "cmd": "queue.set" } & QueueSetParams
  | { "cmd": "abort" } & NoParams
  | { "cmd": "input_response" } & InputResponseParams
  | { "cmd": "get_state" } & NoParams
  | { "cmd": "get_messages" } & GetMessagesParams
  | { "cmd": "get_stats" } & NoParams
  | { "cmd": "get_models" } & NoParams
  | { "cmd": "get_commands" } & NoParams
  | { "cmd": "get_fork_points" } & NoParams
  | { "cmd": "set_model" } & SetModelParams
  | { "cmd": "cycle_model" } & CycleModelParams
  | { "cmd": "set_thinking_level" } & SetThinkingLevelParams
  | { "cmd": "cycle_thinking_level" } & NoParams
  | { "cmd": "set_auto_compaction" } & EnabledParams
  | { "cmd": "set_auto_retry" } & EnabledParams
  | { "cmd": "compact" } & CompactParams
  | { "cmd": "abort_retry" } & NoParams
  | { "cmd": "abort_compaction" } & NoParams
  | { "cmd": "bash" } & BashParams
  | { "cmd": "abort_bash" } & NoParams
  | { "cmd": "export_html" } & ExportHtmlParams
  | { "cmd": "get_skills" } & NoParams
  | { "cmd": "get_tools" } & NoParams
  | { "cmd": "list_session_files" } & NoParams
  | { "cmd": "get_native_messages" } & NoParams
  | { "cmd": "get_last_assistant_text" } & NoParams
  | { "cmd": "get_context_usage" } & NoParams
  | { "cmd": "get_tree" } & NoParams
  | { "cmd": "navigate_tree" } & NavigateTreeParams
  | { "cmd": "set_session_name" } & SetSessionNameParams
  | { "cmd": "fork" } & ForkParams
  | { "cmd": "list_sessions" } & NoParams
  | { "cmd": "get_runners" } & NoParams
  | { "cmd": "runner.sessions" } & NoParams
  | { "cmd": "runner.stored_sessions" } & NoParams
  | { "cmd": "runner.health" } & NoParams
  | { "cmd": "search" } & SearchParams
  | { "cmd": "delegate" } & DelegateRequest
  | { "cmd": "run.input" } & RunInputParams
  | { "cmd": "run.stdin" } & RunStdinParams
  | { "cmd": "run.resize" } & RunResizeParams
  | { "cmd": "run.stop" } & RunStopParams
  | { "cmd": "run.screen" } & NoParams
  | { "cmd": "fs.read" } & FsReadParams
  | { "cmd": "fs.write" } & FsWriteParams
  | { "cmd": "fs.upload" } & FsUploadParams
  | { "cmd": "fs.list" } & FsListParams
  | { "cmd": "fs.tree" } & FsTreeParams
  | { "cmd": "fs.stat" } & FsStatParams
  | { "cmd": "fs.search" } & FsSearchParams
  | { "cmd": "fs.create_directory" } & FsCreateDirectoryParams
  | { "cmd": "fs.rename" } & FsMoveParams
  | { "cmd": "fs.move" } & FsMoveParams
  | { "cmd": "fs.copy" } & FsMoveParams
  | { "cmd": "fs.delete" } & FsDeleteParams
  | { "cmd": "fs.watch" } & FsWatchParams
  | { "cmd": "git.status" } & GitStatusParams
  | { "cmd": "git.diff" } & GitDiffParams
  | { "cmd": "git.log" } & GitLogParams
  | { "cmd": "git.worktrees" } & GitWorktreesParams
  | { "cmd": "git.worktree_add" } & GitWorktreeAddParams
  | { "cmd": "git.worktree_remove" } & GitWorktreeRemoveParams
  | { "cmd": "host.bash" } & HostBashParams
  | { "cmd": "host.info" } & HostInfoParams
  | { "cmd": "host.doctor" } & HostDoctorParams
  | { "cmd": "host.capabilities" } & HostCapabilitiesParams
  | { "cmd": "host.logs" } & HostLogsParams
  | { "cmd": "cancel" } & CancelParams
  | { "cmd": "delegate.cancel" } & DelegateCancelParams;

export type CommandAnswer = { success: boolean,
/**
 * What the command answers; see the command's own documentation.
 */
data?: unknown, error?: string,
/**
 * What programs decide by; beside every `error`.
 */
code?: ErrorCode, session_id?: string, session_version?: number,
/**
 * The outcome is of an earlier submission with the same `idempotency_key`.
 */
replayed?: boolean,
/**
 * Nobody can know whether the command took effect.
 */
indeterminate?: boolean, timed_out?: boolean, };

export type CommandResponse = {
/**
 * The command's own `id`, as it came.
 */
id?: string, cmd: string, success: boolean, data?: unknown, error?: string,
/**
 * What programs decide by; beside every `error`, except from peers older than the codes.
 */
code?: ErrorCode,
/**
 * The limit that was reached: of `too_many_in_flight` how many commands may wait for their answers.
 */
limit?: number, session_version?: number,
/**
 * The outcome is of an earlier submission with the same identity.
 */
replayed?: boolean,
/**
 * Nobody can know whether the command took effect: the process died between write and reply.
 */
indeterminate?: boolean,
/**
 * Its time was over before it was done.
 */
timed_out?: boolean, };

export type CommandsData = { commands: Array<SlashCommand>, };

export type CompactData = { summary: string | null, tokens_before: number | null, tokens_after: number | null, };

export type CompactParams = { instructions?: string, };

export type ConfirmForeignHost = {
/**
 * Of the token that is confirmed, as `GET /api/hosts` shows it.
 */
fingerprint: string, };

export type ContextUsageData = { tokens: number | null, context_window: number | null, percent: number | null, };

export type CycleModelParams = { direction?: Direction, };

export type Decision = "approve"
  | "deny"
  | "approve_for_session"
  | "abort";

export type DelegateCancelParams = { request_id: string, };

export type DelegateErrorCode = "target_not_found"
  | "permission_denied"
  | "timeout"
  | "target_error"
  | "cancelled"
  | "runner_unreachable";

export type DelegateMode = "sync"
  | "async";

export type DelegateRequest = { target_session_id: string, target_runner_id?: string, message: string, mode: DelegateMode, sandbox_profile?: string, timeout_ms?: number, max_tokens?: number, context?: unknown, };

export type DelegationPermission = { source: string, target: string, effect: PermissionEffect, required_sandbox?: string, max_depth: number, allow_async: boolean, description?: string, };

export type DirEntry = { name: string, is_dir: boolean, is_symlink: boolean, size: number,
/**
 * Unix milliseconds.
 */
modified_at: number, };

export type Direction = "forward"
  | "backward";

export type EnabledParams = { enabled: boolean, };

export type Encoding = "text"
  | "base64";

export type EndedLogin = { login_id: string, };

export type ErrorBody = {
/**
 * What went wrong and what to do about it, for a person.
 */
error: string,
/**
 * What programs decide by.
 */
code?: ErrorCode, };

export type ErrorCode = "invalid_request"
  | "unknown_command"
  | "unsupported"
  | "too_large"
  | "not_logged_in"
  | "permission_denied"
  | "runner_revoked"
  | "forbidden_origin"
  | "code_expired"
  | "denied"
  | "not_found"
  | "session_not_found"
  | "runner_not_found"
  | "harness_not_found"
  | "question_not_found"
  | "question_answered"
  | "question_timed_out"
  | "already_exists"
  | "session_exists"
  | "conflict"
  | "wrong_runner"
  | "version_mismatch"
  | "idempotency_conflict"
  | "session_closed"
  | "run_ended"
  | "input_closed"
  | "input_full"
  | "agent_busy"
  | "dependency_failed"
  | "cancelled"
  | "timed_out"
  | "indeterminate"
  | "rate_limited"
  | "too_many_in_flight"
  | "busy"
  | "limit_reached"
  | "storage_full"
  | "disk_full"
  | "provider_paused"
  | "agent_failed"
  | "agent_gone"
  | "agent_hung"
  | "interrupted"
  | "runner_offline"
  | "link_lost"
  | "store_unavailable"
  | "shutting_down"
  | "internal"
  | "failed";

export type EventEnvelope = { session_id: string, runner_id: string,
/**
 * Unix milliseconds.
 */
ts: number,
/**
 * The number of the record in its session, 1, 2, 3… without holes.
 */
seq?: number, } & (KnownEvent | OtherEvent);

export type EventPayload = KnownEvent
  | OtherEvent;

export type ExportData = {
/**
 * On the session's machine.
 */
path: string, };

export type ExportHtmlParams = {
/**
 * Within the session's directory; without it a name is made.
 */
output_path?: string, };

export type FileRange = { start_line?: number, end_line?: number, };

export type FileStat = { exists: boolean, is_file: boolean, is_dir: boolean, is_symlink: boolean, size: number, modified_at: number, created_at?: number, mode: number, };

export type FilesClientFrame = { channel: Channel, id?: string, workspace_path?: string, session_id?: string, runner_id?: string, } & ({ "type": "tree", path: string, depth?: number, include_hidden?: boolean, offset?: number, limit?: number, } | { "type": "read", path: string, offset?: number, length?: number, } | { "type": "write", path: string, content: string, create_parents?: boolean, expected_hash?: string, } | { "type": "list", path: string, include_hidden?: boolean, } | { "type": "stat", path: string, } | { "type": "delete", path: string, recursive?: boolean, } | { "type": "create_directory", path: string, create_parents?: boolean, } | { "type": "rename", from: string, to: string, overwrite?: boolean, } | { "type": "copy", from: string, to: string, overwrite?: boolean, } | { "type": "move", from: string, to: string, overwrite?: boolean, } | { "type": "copy_to_workspace", source_workspace_path: string, source_path: string, target_workspace_path: string, target_path: string, } | { "type": "watch_files", } | { "type": "unwatch_files", });

export type FilesFrame = {
/**
 * That of the command it answers.
 */
id?: string, } & ({ "type": "tree_result", path: string, entries: Array<FsTreeNode>, truncated: boolean, stop_reason?: string, visited_nodes: number, elapsed_ms: number, next_offset?: number, total_entries: number, } | { "type": "read_result", path: string, content: string, size: number, truncated: boolean, next_offset?: number, hash?: string, } | { "type": "write_result", path: string, success: boolean, hash: string, } | { "type": "list_result", path: string, entries: Array<DirEntry>, truncated: boolean, } | { "type": "stat_result", path: string, stat: FileStat, } | { "type": "delete_result", path: string, success: boolean, } | { "type": "create_directory_result", path: string, success: boolean, } | { "type": "rename_result", from: string, to: string, success: boolean, } | { "type": "copy_result", from: string, to: string, success: boolean, } | { "type": "move_result", from: string, to: string, success: boolean, } | { "type": "copy_to_workspace_result", source_workspace_path: string, target_workspace_path: string, files_copied: number, success: boolean, } | { "type": "watch_files_result", workspace_path: string, success: boolean, } | { "type": "unwatch_files_result", workspace_path: string, success: boolean, } | { "type": "file_changed",
/**
 * `file_created`, `file_modified`, `file_deleted`, `dir_created`, `dir_deleted`; `overflow` for more than could
 * be told.
 */
event_type: string, path: string,
/**
 * `file` or `directory`.
 */
entry_type: string, workspace_path: string, } | { "type": "error", error: string, code?: ErrorCode, });

export type ForeignHost = { host_id: string, state: HostTrust, online: boolean,
/**
 * Unix milliseconds.
 */
first_seen_at: number, last_seen_at?: number,
/**
 * Where it first came from.
 */
address?: string,
/**
 * Of the token it came with first: the first 16 hex digits of its SHA-256. Whoever knows the machine can compare
 * it, and name it to confirm this machine and no other of its name.
 */
fingerprint?: string, };

export type ForeignHosts = { hosts: Array<ForeignHost>, };

export type ForkParams = { entry_id: string, };

export type ForkPoint = { entry_id: string, role: Role, preview: string, };

export type ForkPointsData = { fork_points: Array<ForkPoint>, };

export type FsChange = {
/**
 * `created`, `modified` or `deleted`.
 */
change: string, path: string, is_dir: boolean, };

export type FsChanges = { changes: Array<FsChange>,
/**
 * There was more than could be told: look again.
 */
overflow: boolean, };

export type FsCreateDirectoryParams = { path: string, create_parents?: boolean,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsDeleteParams = { path: string, recursive?: boolean,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsDoneData = { path?: string, from?: string, to?: string,
/**
 * Files and directories that were copied or deleted.
 */
count: number, };

export type FsEntry = { name: string, is_dir: boolean, is_symlink: boolean,
/**
 * Of regular files.
 */
size_bytes?: number,
/**
 * Unix milliseconds.
 */
modified_at?: number, };

export type FsListData = { path: string,
/**
 * Directories first, then by name.
 */
entries: Array<FsEntry>, total: number, truncated: boolean, next_offset?: number, };

export type FsListParams = {
/**
 * `.` without it.
 */
path?: string, include_hidden?: boolean,
/**
 * Entries to skip, in the order of the list.
 */
offset?: number,
/**
 * Entries at most; 500 without it, 5000 at most.
 */
limit?: number,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsMatch = { path: string,
/**
 * From 1.
 */
line: number,
/**
 * Of the first hit in the line, in characters from 1.
 */
column: number,
/**
 * The line; a long one is cut around the hit, and `…` shows where.
 */
text: string, };

export type FsMoveParams = { from: string, to: string, overwrite?: boolean, create_parents?: boolean,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsReadData = { path: string, content: string, encoding: Encoding,
/**
 * Bytes of the whole file.
 */
size: number, offset: number,
/**
 * Where the next page begins; absent at the end.
 */
next_offset?: number,
/**
 * There is more than this answer has.
 */
truncated: boolean,
/**
 * Of the whole file; only when this answer has all of it.
 */
hash?: string,
/**
 * Unix milliseconds.
 */
modified_at: number, };

export type FsReadParams = { path: string,
/**
 * The first byte; 0 without it.
 */
offset?: number,
/**
 * Bytes at most; without it as many as one answer carries (1 MiB).
 */
length?: number, encoding?: Encoding,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsSearchData = { matches: Array<FsMatch>, truncated: boolean,
/**
 * Give it as `after` to go on.
 */
next?: SearchPlace, files_searched: number, };

export type FsSearchParams = {
/**
 * What to look for: a regular expression if `regex`, else the text itself.
 */
query: string, path?: string, regex?: boolean,
/**
 * Without it, capitals count only if the query has some.
 */
case_sensitive?: boolean, include_hidden?: boolean,
/**
 * Files whose path matches (`*.rs`); a leading `!` excludes.
 */
globs?: Array<string>,
/**
 * Lines at most; 200 without it, 2000 at most.
 */
limit?: number,
/**
 * Go on after this hit, the `next` of the last page.
 */
after?: SearchPlace,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsStatData = { path: string, exists: boolean, is_file: boolean, is_dir: boolean, is_symlink: boolean, size: number,
/**
 * Unix milliseconds.
 */
modified_at: number, created_at?: number, mode: number, hash?: string, };

export type FsStatParams = { path: string,
/**
 * Also the hash of the content.
 */
hash?: boolean,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsTreeData = { path: string, entries: Array<FsTreeNode>, truncated: boolean,
/**
 * `max_nodes` or `timeout`, where the tree is not whole because of it.
 */
stop_reason?: string, visited_nodes: number, elapsed_ms: number, next_offset?: number, total_entries: number, };

export type FsTreeNode = { name: string,
/**
 * From the root.
 */
path: string,
/**
 * `file`, `directory`, `symlink` or `other`.
 */
type: string, size?: number,
/**
 * Unix seconds.
 */
modified?: number, children?: FsTreeNode[], };

export type FsTreeParams = { path?: string,
/**
 * 2 without it, 1 to 8.
 */
depth?: number, include_hidden?: boolean, offset?: number,
/**
 * Entries of the top level at most; 1000 without it, 5000 at most.
 */
limit?: number,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsUploadData = { upload_id: string,
/**
 * Bytes that have arrived; the next piece begins here.
 */
received: number,
/**
 * With the last piece.
 */
written?: FsWriteData, };

export type FsUploadParams = {
/**
 * Made up by the sender, the same for all pieces.
 */
upload_id: string, path: string,
/**
 * Where this piece begins; must be what has arrived. Repeating a piece that has arrived changes nothing.
 */
offset: number,
/**
 * Base64.
 */
data: string,
/**
 * This is the last piece.
 */
last?: boolean, create_parents?: boolean, expected_hash?: string,
/**
 * Forget what has arrived.
 */
abort?: boolean,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsWatchParams = { path?: string, include_hidden?: boolean,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type FsWriteData = { path: string, bytes_written: number, hash: string,
/**
 * Always false: a file is written whole or not at all.
 */
truncated: boolean, };

export type FsWriteParams = { path: string, content: string, encoding?: Encoding, create_parents?: boolean,
/**
 * Write only if the file has this hash now; an empty text means that there must be none.
 */
expected_hash?: string,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type GatePolicy = "ask"
  | "roles"
  | "open";

export type GetMessagesParams = {
/**
 * Messages with a smaller `idx` only.
 */
before?: number,
/**
 * How many; without it all, as far as one frame may carry them.
 */
limit?: number, };

export type GitCommit = { id: string, parents: Array<string>, author: string, email: string,
/**
 * Unix milliseconds.
 */
time: number, subject: string, };

export type GitDiffData = {
/**
 * A page of the diff, cut at the end of a line.
 */
stdout: string, truncated: boolean, next_offset?: number, total_bytes: number,
/**
 * Of the whole diff.
 */
files: Array<GitDiffFile>, };

export type GitDiffFile = { path: string, from?: string,
/**
 * Absent for binary files.
 */
added?: number, removed?: number, };

export type GitDiffParams = { path?: string,
/**
 * What the index has against the last commit, instead of the directory against the index.
 */
staged?: boolean,
/**
 * Also files that git does not know yet, as added.
 */
untracked?: boolean,
/**
 * Against this commit instead of the index.
 */
base?: string,
/**
 * Bytes of the diff to skip, the `next_offset` of the last page.
 */
offset?: number, limit?: number,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type GitFile = { path: string,
/**
 * Where a renamed file was.
 */
from?: string,
/**
 * One letter of git's: what the index has against the last commit; `.` for nothing.
 */
staged: string,
/**
 * The same for the directory against the index; `?` for a file git does not know.
 */
unstaged: string, conflicted: boolean, };

export type GitLogData = { commits: Array<GitCommit>, truncated: boolean, next_offset?: number, };

export type GitLogParams = { path?: string,
/**
 * Commits to skip.
 */
offset?: number,
/**
 * 50 without it, 1000 at most.
 */
limit?: number,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type GitStatusData = { branch?: string, head?: string, upstream?: string, ahead?: number, behind?: number, files: Array<GitFile>,
/**
 * `git status --porcelain=v1 -b`, as the run document has it.
 */
stdout: string, truncated: boolean, };

export type GitStatusParams = {
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type GitWorktree = {
/**
 * Absolute.
 */
path: string, branch?: string, head?: string, locked: boolean, is_main: boolean, };

export type GitWorktreeAddParams = {
/**
 * Relative to the root, or absolute within the runner's `workspace_roots`.
 */
path: string, branch?: string,
/**
 * Make the branch, from `base` or from where the root stands.
 */
create_branch?: boolean, base?: string,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type GitWorktreeRemoveParams = { path: string, force?: boolean,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type GitWorktreesData = { worktrees: Array<GitWorktree>, };

export type GitWorktreesParams = {
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type Health = {
/**
 * `ok`.
 */
status: string, sessions: number,
/**
 * Those connected now.
 */
runners: number,
/**
 * Of clients of `/ws/mux`.
 */
connections: number,
/**
 * Of apps of the run protocol.
 */
apps: number, };

export type HeartbeatSession = { session_id: string, harness: string, process: ProcessStats, };

export type HelloSession = { session_id: string, last_seq: number, state?: SessionState, };

export type HostBashParams = { command: string,
/**
 * Killed after this many milliseconds; 10 minutes without it, 24 hours at most.
 */
timeout_ms?: number,
/**
 * What the command reads; nothing without it.
 */
stdin?: string,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type HostCapabilitiesParams = {
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type HostDependency = { name: string, ok: boolean, };

export type HostDoctorParams = {
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type HostInfoData = { host_id: string, pid: number, os: string, arch: string, version: string, hostname: string, tools: Array<HostTool>,
/**
 * Of `host.doctor` and `host.capabilities`.
 */
deps?: Array<HostDependency>,
/**
 * Of `host.doctor`.
 */
bin_map?: unknown,
/**
 * Of `host.capabilities`, from here on.
 */
server_base_url?: string, local_unix_socket?: string, spool_db_path?: string, log_path?: string, supported_rpc?: Array<string>, harnesses?: Array<string>, workspace_roots?: Array<string>, };

export type HostInfoParams = {
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type HostLogsData = { path: string, text: string, truncated: boolean, };

export type HostLogsParams = {
/**
 * 200 without it, 2000 at most.
 */
lines?: number,
/**
 * 200,000 without it, 2,000,000 at most.
 */
max_bytes?: number,
/**
 * The directory to work in, absolute, for a command that names no session. It must lie within the runner's
 * `workspace_roots`, or be the directory of a session.
 */
root?: string,
/**
 * Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
 */
request_id?: string,
/**
 * How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
 */
actor?: string,
/**
 * Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
 */
ask?: boolean,
/**
 * With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
 * `ask` so.
 */
ask_unless_allowed?: boolean, };

export type HostTool = { tool: string,
/**
 * Where it is.
 */
bin?: string, ok: boolean, error?: string, };

export type HostTrust = "pending"
  | "trusted"
  | "revoked";

export type ImageAttachment = { data: string, media_type: string, };

export type InputOutcome = "answered"
  | "cancelled"
  | "timed_out"
  | "withdrawn";

export type InputRequest = { "type": "select", request_id: string, title: string, options: Array<string>, timeout?: number, }
  | { "type": "confirm", request_id: string, title: string, message: string, timeout?: number, }
  | { "type": "input", request_id: string, title: string, placeholder?: string, timeout?: number, }
  | { "type": "editor", request_id: string, title: string, prefill?: string, timeout?: number, }
  | { "type": "interview", request_id: string, title: string, questions: Array<InterviewQuestion>, timeout?: number, }
  | { "type": "permission", request_id: string, title: string, description?: string,
/**
 * [`crate::run::PermissionDetails`] where a gate or a screen asks.
 */
metadata?: unknown, timeout?: number, };

export type InputResponseParams = { request_id: string, value?: string, confirmed?: boolean,
/**
 * Of an interview: the answers by the questions' ids.
 */
responses?: Record<string, unknown>, cancelled?: boolean,
/**
 * Of a permission; goes before `confirmed`.
 */
decision?: Decision,
/**
 * Why not, for the asker and the record.
 */
reason?: string,
/**
 * How it came: `web`, `cli` or `system`; for the record.
 */
actor?: string, };

export type InterviewQuestion = {
/**
 * The key of the answer.
 */
id: string,
/**
 * `text`, `multiline`, `select`, `multiselect`, `confirm`, `number`.
 */
type: string, question: string, options?: Array<string>, required?: boolean, placeholder?: string, default?: unknown, };

export type Invite = {
/**
 * What the joining machine is given; with TLS it carries the fingerprint of the hub's certificate.
 */
code: string,
/**
 * Where the hub is, as the asker reached it.
 */
url: string,
/**
 * SHA-256 of the hub's certificate, in hex; absent without TLS.
 */
fingerprint?: string,
/**
 * Unix milliseconds.
 */
expires_at: number,
/**
 * What to type on the other machine.
 */
command: string, };

export type JoinRequest = {
/**
 * The secret part of the invite's code.
 */
code: string, runner_id: string,
/**
 * SHA-256 of the key the runner has made for itself, in hex; the key never leaves the runner until it connects.
 */
key_hash: string, hostname: string, os: string, version: string,
/**
 * Only if this hub knows the runner by this key already (its address has changed); otherwise 404, and the code
 * stays good. So a key is never shown to a hub it was not made for.
 */
known_only?: boolean, };

export type Joined = { runner_id: string, };

export type KnownEvent = { "event": "session.created", resumed: boolean, harness: string, cwd?: string,
/**
 * The commands this harness can serve beyond the core ones.
 */
capabilities?: Array<string>, }
  | { "event": "session.closed", reason?: string, }
  | { "event": "session.heartbeat", process: ProcessStats, }
  | { "event": "session.title_changed", title: string, }
  | { "event": "session.branch_changed", branch?: string, }
  | { "event": "session.native_changed", native_session_id: string, native_session_file?: string, }
  | { "event": "session.resync", resume: Resume,
/**
 * Records up to this number are covered by the answer and what is replayed right after it.
 */
seq: number,
/**
 * Of a resync: the last record that follows before what is new.
 */
replay_until?: number, state: SessionState, pending_input: Array<InputRequest>, partial?: PartialTurn,
/**
 * With `gap`: the newest messages of the conversation, oldest first.
 */
messages?: Array<Message>,
/**
 * Of a program in a terminal, with `gap`: what is on its screen.
 */
terminal?: TerminalSnapshot, }
  | { "event": "agent.idle",
/**
 * How the turn ended; absent when there was none.
 */
reason?: StopReason, message_version?: MessageVersion, }
  | { "event": "agent.working", phase: AgentPhase, detail?: string, }
  | { "event": "agent.error", error: string, recoverable: boolean, phase?: AgentPhase, code?: ErrorCode, }
  | { "event": "agent.input_needed", request: InputRequest, }
  | { "event": "agent.input_resolved", request_id: string, outcome?: InputOutcome,
/**
 * Who answered.
 */
user_id?: string,
/**
 * Of a permission.
 */
decision?: Decision,
/**
 * How the answer came: `web`, `cli` or `system`.
 */
actor?: string,
/**
 * The record of the question. From here on that record is kept without the secrets in it: who had to decide
 * has seen them.
 */
asked_seq?: number,
/**
 * What was answered: the text typed, the option chosen, `yes` or `no`, the reason given with a decision.
 * Recognised secrets are redacted. Absent where the question asks for a password or another secret.
 */
answer?: string, }
  | { "event": "stream.message_start", message_id: string, role: string, }
  | { "event": "stream.text_delta", message_id: string, delta: string, content_index: number,
/**
 * Characters of this block before the delta.
 */
offset?: number, }
  | { "event": "stream.thinking_delta", message_id: string, delta: string, content_index: number, offset?: number, }
  | { "event": "stream.tool_call_start", message_id: string, tool_call_id: string, name: string, content_index: number, }
  | { "event": "stream.tool_call_delta", message_id: string, tool_call_id: string, delta: string, content_index: number, offset?: number, }
  | { "event": "stream.tool_call_end", message_id: string, tool_call_id: string, tool_call: ToolCall, content_index: number, }
  | { "event": "stream.message_end", message: Message, }
  | { "event": "stream.done", reason: StopReason, }
  | { "event": "tool.start", tool_call_id: string, name: string, input?: unknown, }
  | { "event": "tool.progress", tool_call_id: string, name: string, partial_output: unknown, }
  | { "event": "tool.end", tool_call_id: string, name: string, output: unknown, is_error: boolean, duration_ms?: number, }
  | { "event": "retry.start", attempt: number, max_attempts: number, delay_ms: number, error: string, }
  | { "event": "retry.end", success: boolean, attempt: number, final_error?: string, }
  | { "event": "compact.start",
/**
 * `threshold`, `overflow`, or `manual` when a person asked for it.
 */
reason: string, }
  | { "event": "compact.end", success: boolean, will_retry: boolean, error?: string, summary?: string, tokens_before?: number, }
  | { "event": "config.model_changed", provider: string, model_id: string, }
  | { "event": "config.thinking_level_changed", level: string, }
  | { "event": "queue.changed", queue: QueueState, }
  | { "event": "notify", level: NotifyLevel, message: string, }
  | { "event": "status", key: string, text: string | null, }
  | { "event": "run.started", tool: string, cwd: string, command: string, pid?: number, cols: number, rows: number, }
  | { "event": "run.output",
/**
 * `stdout`; a terminal has no other.
 */
stream: string, text: string, }
  | { "event": "run.resized", cols: number, rows: number, }
  | { "event": "run.awaiting_input", reason: AwaitingReason, prompt?: string, request_id?: string, }
  | { "event": "run.input", actor: string, input_id: string, text_redacted: string,
/**
 * SHA-256 in hex; of a text that could be guessed, keyed with a secret of the runner.
 */
text_sha256: string, user_id?: string, }
  | { "event": "run.exited",
/**
 * -1 where there is none.
 */
exit_code: number, signal?: number, error?: string, }
  | { "event": "tool.call", request_id: string, tool: string, actor: string,
/**
 * Secrets redacted, long texts cut.
 */
args: unknown, user_id?: string, }
  | { "event": "tool.result", request_id: string, tool: string, actor: string, ok: boolean, duration_ms: number,
/**
 * A summary: what was read or written is not repeated here.
 */
result?: unknown, error?: string, user_id?: string, }
  | { "event": "messages", messages: Array<Message>, }
  | { "event": "persisted", message_count: number, }
  | { "event": "delegate.start", request_id: string, target_session_id: string, target_runner_id: string, mode: DelegateMode, }
  | { "event": "delegate.delta", request_id: string, delta: string, }
  | { "event": "delegate.end", request_id: string, response: Message, responder: Sender, duration_ms?: number, }
  | { "event": "delegate.error", request_id: string, error: string, code: DelegateErrorCode, }
  | { "event": "progress",
/**
 * The command's own `id`, as it came.
 */
id?: string, cmd: string, data: unknown, }
  | { "event": "response" } & CommandResponse;

export type KnownPart = { "type": "text", id: string, text: string, format?: TextFormat, meta?: Record<string, unknown>, }
  | { "type": "thinking", id: string, text: string, meta?: Record<string, unknown>, }
  | { "type": "tool_call", id: string, tool_call_id: string, name: string, input?: unknown, status: ToolStatus, meta?: Record<string, unknown>, }
  | { "type": "tool_result", id: string, tool_call_id: string, name?: string, output?: unknown, is_error: boolean, duration_ms?: number, meta?: Record<string, unknown>, }
  | { "type": "image", id: string, source: MediaSource, alt?: string, meta?: Record<string, unknown>, }
  | { "type": "audio", id: string, source: MediaSource, duration_sec?: number, transcript?: string, meta?: Record<string, unknown>, }
  | { "type": "video", id: string, source: MediaSource, duration_sec?: number, meta?: Record<string, unknown>, }
  | { "type": "file_ref", id: string, uri: string, label?: string, range?: FileRange, meta?: Record<string, unknown>, }
  | { "type": "attachment", id: string, source: MediaSource, filename?: string, size_bytes?: number, meta?: Record<string, unknown>, };

export type LinkCommand = { id: string, session_id: string, user_id?: string, cmd: string, [key: string]: unknown };

export type LinkEvent = { session_id: string, runner_id?: string,
/**
 * Unix milliseconds; 0 when the line has none.
 */
ts?: number, seq?: number, } & (KnownEvent | OtherEvent);

export type LinkLine = { "type": "runner.hello" } & RunnerHello
  | { "type": "runner.welcome" } & RunnerWelcome
  | { "type": "runner.heartbeat" } & RunnerHeartbeat
  | { "type": "command" } & LinkCommand
  | { "type": "event" } & LinkEvent
  | { "type": "response" } & LinkResponse
  | { "type": "progress" } & LinkProgress
  | { "type": "ack", session_id: string, seq: number, }
  | { "type": "session.watch", session_id: string, on: boolean, }
  | { "type": "runner.refused", reason: string, code?: ErrorCode, }
  | { "type": "session.refused" } & RefusedSession
  | { "type": "runner.rotate", }
  | { "type": "runner.rekey", key_hash: string, }
  | { "type": "runner.rekeyed", key_hash: string, }
  | { "type": "delegate.escalate", session_id: string, request: DelegateRequest, correlation_id?: string, };

export type LinkProgress = {
/**
 * The command's.
 */
id: string, data: unknown, };

export type LinkResponse = { session_id?: string, runner_id?: string,
/**
 * Unix milliseconds.
 */
ts?: number,
/**
 * The command's own `id`, as it came.
 */
id?: string, cmd: string, success: boolean, data?: unknown, error?: string,
/**
 * What programs decide by; beside every `error`, except from peers older than the codes.
 */
code?: ErrorCode,
/**
 * The limit that was reached: of `too_many_in_flight` how many commands may wait for their answers.
 */
limit?: number, session_version?: number,
/**
 * The outcome is of an earlier submission with the same identity.
 */
replayed?: boolean,
/**
 * Nobody can know whether the command took effect: the process died between write and reply.
 */
indeterminate?: boolean,
/**
 * Its time was over before it was done.
 */
timed_out?: boolean, };

export type LoginAnswer = { access_token: string, };

export type LoginInfo = {
/**
 * For `DELETE /api/logins/{login_id}`; it opens nothing.
 */
login_id: string,
/**
 * What the browser or program said of itself.
 */
label: string,
/**
 * Unix milliseconds.
 */
created_at: number,
/**
 * Unix milliseconds, to the minute.
 */
last_used_at: number,
/**
 * Whether it is the one that asks.
 */
current: boolean, };

export type LoginLink = {
/**
 * What to open there; as the asker reached the hub.
 */
url: string,
/**
 * The secret in it.
 */
code: string,
/**
 * Unix milliseconds.
 */
expires_at: number, };

export type LoginRequest = { username: string, password: string, };

export type Logins = {
/**
 * Most recently used first.
 */
logins: Array<LoginInfo>, };

export type Me = {
/**
 * The principal that commands of this access are from.
 */
name: string, role: PersonRole,
/**
 * What this access may do: of its role, as far as its scopes go.
 */
permissions: Array<Permission>,
/**
 * `token`, `login` or `owner_token`.
 */
access: string, };

export type MediaSource = { "source": "url", url: string, mime_type?: string, }
  | { "source": "attachment_ref", attachment_id: string, mime_type?: string, }
  | { "source": "base64", data: string, mime_type: string, };

export type Message = {
/**
 * Unique within the conversation.
 */
id: string,
/**
 * Zero-based position in the conversation.
 */
idx: number, role: Role, parts: Array<Part>,
/**
 * Unix milliseconds.
 */
created_at: number, model?: string, provider?: string, stop_reason?: StopReason, usage?: Usage,
/**
 * Of a tool result: the call it answers.
 */
tool_call_id?: string, tool_name?: string, is_error?: boolean,
/**
 * The client's own name for the prompt that became this message.
 */
client_id?: string,
/**
 * Who wrote it, where that is known.
 */
sender?: Sender,
/**
 * Of a prompt that was accepted, and whose agent stopped before it showed that it had read it: it may or may not
 * have. It can be sent again.
 */
interrupted?: boolean, metadata?: Record<string, unknown>, };

export type MessageVersion = {
/**
 * The last record's number.
 */
version: number, message_count?: number, };

export type MessagesData = { messages: Array<Message>,
/**
 * All messages of the conversation.
 */
total: number,
/**
 * Pass as `before` to get the page before this one; absent on the first page.
 */
before?: number, };

export type ModelInfo = { provider: string, model_id: string, name?: string, reasoning?: boolean, context_window?: number, max_tokens?: number,
/**
 * What `set_thinking_level` takes with this model; absent where the harness does not say.
 */
thinking_levels?: Array<string>, };

export type ModelRef = { provider: string, model_id: string, };

export type ModelsData = { models: Array<ModelInfo>, };

export type MovedData = {
/**
 * An extension said no.
 */
cancelled: boolean, native_session_id?: string, native_session_file?: string,
/**
 * Of a fork: the message it went back before, to be edited.
 */
text?: string, };

export type NavigateTreeParams = { target_id: string, summarize?: boolean, custom_instructions?: string, replace_instructions?: boolean, label?: string, };

export type NavigatedData = { cancelled: boolean, aborted?: boolean,
/**
 * What to put into the editor.
 */
editor_text?: string, };

export type NewAccessToken = {
/**
 * 1 to 64 letters, digits, `.`, `_` or `-`.
 */
name: string,
/**
 * What it may do; without it all that the asker may.
 */
scopes?: Array<Permission>,
/**
 * How long it is good; for ever without it.
 */
days?: number, };

export type NewForeignHost = {
/**
 * Made up where it is absent.
 */
host_id?: string, };

export type NewPerson = {
/**
 * 1 to 64 letters, digits, `.`, `_` or `-`.
 */
username: string,
/**
 * At least 8 characters.
 */
password: string, role: PersonRole, };

export type NewPushSubscription = { endpoint: string, keys: PushKeys,
/**
 * What the person calls the device; without it what the browser says of itself.
 */
label?: string, topics: Array<PushTopic>, content: boolean, };

export type NoParams = Record<symbol, never>;

export type NotifyLevel = "info"
  | "warning"
  | "error";

export type OtherEvent = { event: `x-${string}`, [key: string]: unknown };

export type OtherPart = { type: `x-${string}`, id: string, payload?: unknown, meta?: Record<string, unknown>, [key: string]: unknown };

export type Part = KnownPart
  | OtherPart;

export type PartialBlock = { content_index: number, kind: PartialKind, text: string, offset: number, tool_call_id?: string, name?: string, };

export type PartialKind = "text"
  | "thinking"
  | "tool_call";

export type PartialMessage = { message_id: string, role: Role, blocks: Array<PartialBlock>, };

export type PartialTurn = { message?: PartialMessage, tools?: Array<RunningTool>, };

export type People = {
/**
 * By name.
 */
people: Array<Person>, };

export type Permission = "view"
  | "operate"
  | "approve"
  | "files"
  | "shell"
  | "manage";

export type PermissionDetails = { source: PermissionSource, reason: AwaitingReason,
/**
 * `rpc.fs.write`, `bash`… A permission for the session is for this one.
 */
op_tool?: string,
/**
 * All of it, for the person who decides.
 */
op_args?: unknown,
/**
 * At most 80 characters.
 */
op_args_summary?: string,
/**
 * What is typed for the person.
 */
approve_text?: string, deny_text?: string,
/**
 * Of a menu: what each choice is called and what is typed for it.
 */
choices?: Array<ScreenChoice>,
/**
 * Of a gate: the canonical command that waits, to be done when the answer comes, whatever happened meanwhile.
 */
command?: string,
/**
 * Who asked for it.
 */
principal?: string, actor?: string, };

export type PermissionEffect = "allow"
  | "deny";

export type PermissionSource = "agent"
  | "gate"
  | "screen";

export type Person = { username: string, role: PersonRole,
/**
 * Unix milliseconds.
 */
created_at: number, last_login_at?: number, disabled: boolean, };

export type PersonRole = "viewer"
  | "operator"
  | "owner";

export type ProcessStats = { alive: boolean, pid?: number, rss_bytes?: number, cpu_pct?: number, uptime_s?: number, };

export type PromptData = {
/**
 * `started` a turn, `queued`, or `handled`: no turn follows.
 */
disposition: "started" | "queued" | "handled", };

export type PromptParams = { message: string, images?: Array<ImageAttachment>,
/**
 * What to do while the agent works; without it such a prompt is refused.
 */
streaming_behavior?: StreamingBehavior,
/**
 * The client's own name for this prompt; comes back on the message.
 */
client_id?: string, };

export type PushAnswer = {
/**
 * Good for the one question the push was about, once.
 */
token: string, decision: PushDecision, };

export type PushAnswered = { session_id: string, request_id: string, };

export type PushDecision = "approve"
  | "deny";

export type PushKeys = { p256dh: string, auth: string, };

export type PushKind = "approval"
  | "question"
  | "done"
  | "failed"
  | "resolved"
  | "test";

export type PushMessage = { kind: PushKind, session_id?: string,
/**
 * A later push with the same tag takes the place of an earlier one.
 */
tag: string,
/**
 * Only where the person has allowed content.
 */
title?: string, body?: string, request_id?: string,
/**
 * For `POST /api/push/answer`; only for those who may answer, and only where yes or no is an answer.
 */
answer_token?: string,
/**
 * How many sessions wait for somebody.
 */
badge: number, };

export type PushState = {
/**
 * The hub's key, base64url, for `applicationServerKey`.
 */
public_key: string,
/**
 * Oldest first.
 */
subscriptions: Array<PushSubscriptionInfo>, };

export type PushSubscriptionInfo = {
/**
 * For `PATCH` and `DELETE /api/push/subscriptions/{id}`.
 */
id: string,
/**
 * As the browser gave it: by this a browser knows its own.
 */
endpoint: string, label: string, topics: Array<PushTopic>,
/**
 * Whether pushes may say what they are about.
 */
content: boolean,
/**
 * Unix milliseconds.
 */
created_at: number, last_success_at?: number, last_failure_at?: number,
/**
 * Why, for the person.
 */
last_failure?: string, };

export type PushTest = { id?: string, };

export type PushTestResult = { id: string,
/**
 * Whether the browser's push service has taken it.
 */
ok: boolean, error?: string,
/**
 * Of `error`, for programs.
 */
code?: ErrorCode, };

export type PushTested = { results: Array<PushTestResult>, };

export type PushTopic = "approval"
  | "question"
  | "done"
  | "failed";

export type QueueSetData = { steering: Array<string>, follow_up: Array<string>,
/**
 * Texts asked for that were not put there, because the agent has read them, or what they were to replace, meanwhile.
 */
taken?: Array<string>, };

export type QueueSetParams = {
/**
 * Read by the agent before its next step, in this order.
 */
steering: Array<string>,
/**
 * Read by the agent when its turn is done, in this order.
 */
follow_up: Array<string>, };

export type QueueState = { steering: Array<string>, follow_up: Array<string>, };

export type RefusedSession = { session_id: string, reason: string,
/**
 * Absent from hubs older than the codes.
 */
code?: ErrorCode, };

export type RemovedPerson = { username: string, };

export type RemovedPushSubscription = { id: string, };

export type Resume = "ok"
  | "gap";

export type RevokedToken = { name: string,
/**
 * Whose it was; absent for the hub's owner.
 */
owner?: string, };

export type Role = "user"
  | "assistant"
  | "system"
  | "tool";

export type RunConfig = {
/**
 * A word for people and for the rules that recognise questions: `codex`, `claude`… Without it the name of the
 * program.
 */
tool?: string,
/**
 * The program and its arguments.
 */
argv?: Array<string>,
/**
 * A command line for `bash -lc`, where `argv` is empty. Without both: the person's shell.
 */
cmd?: string,
/**
 * 80 and 24 without it.
 */
cols?: number, rows?: number,
/**
 * Variables beside those the runner gives.
 */
env?: { [key in string]: string }, };

export type RunInputData = { input_id: string,
/**
 * It had been written before; nothing was done.
 */
duplicate: boolean, };

export type RunInputParams = { input_id: string, text: string,
/**
 * `web`, `cli` or `system`.
 */
actor?: string, };

export type RunResizeParams = {
/**
 * 2 to 500.
 */
cols: number,
/**
 * 1 to 200.
 */
rows: number, };

export type RunSignal = "int"
  | "term"
  | "kill";

export type RunState = { tool: string,
/**
 * The command line, for people.
 */
command: string, pid?: number, cols: number, rows: number,
/**
 * Unix milliseconds.
 */
started_at?: number, exited_at?: number,
/**
 * When it has ended; -1 where a signal ended it or nobody knows.
 */
exit_code?: number, signal?: number,
/**
 * The program seems to wait for a person.
 */
awaiting?: Awaiting, };

export type RunStdinParams = { text: string, actor?: string, };

export type RunStopData = { signal: RunSignal, };

export type RunStopParams = { signal?: RunSignal, actor?: string, };

export type RunnerHealthData = {
/**
 * One for each provider that was asked something.
 */
breakers: Array<BreakerState>, bash: BashBreakerState, max_sessions: number,
/**
 * Agents running or starting.
 */
agents: number, };

export type RunnerHeartbeat = { runner_id: string, uptime_s: number, sessions: Array<HeartbeatSession>, load?: RunnerLoad, };

export type RunnerHello = { runner_id: string, hostname: string, harnesses: Array<string>, max_sessions: number, version: string, os: string,
/**
 * The runner's sessions and how far their records go.
 */
sessions?: Array<HelloSession>,
/**
 * Ways of packing blocks of lines that the runner understands.
 */
compression?: Array<string>, };

export type RunnerInfo = { runner_id: string, hostname: string, os: string, version: string, status: RunnerStatus, harnesses: Array<string>, max_sessions: number, session_count: number,
/**
 * Unix milliseconds of its last sign of life; absent when there was none since the hub started.
 */
last_seen?: number,
/**
 * When it joined with a code; absent for the runner inside the hub's own process.
 */
joined_at?: number,
/**
 * When its key last changed.
 */
rotated_at?: number,
/**
 * When it was cut off for good.
 */
revoked_at?: number,
/**
 * From its last heartbeat.
 */
load?: RunnerLoad,
/**
 * Its agents, from its last heartbeat.
 */
sessions?: Array<HeartbeatSession>, };

export type RunnerLoad = {
/**
 * Agents running or starting.
 */
agents: number, cpu_count: number,
/**
 * Processes that wanted a core, averaged over a minute.
 */
load_1m?: number, memory_total_bytes?: number, memory_available_bytes?: number,
/**
 * Records the hub has not acknowledged yet.
 */
spool_bytes: number, };

export type RunnerSessionsData = { sessions: Array<SessionState>, };

export type RunnerStatus = "online"
  | "unhealthy"
  | "offline";

export type RunnerWelcome = { runner_id: string,
/**
 * What the hub has committed, so that the runner sends only what is missing.
 */
sessions: Array<WelcomeSession>,
/**
 * Sessions of the hello that are another runner's.
 */
refused: Array<RefusedSession>,
/**
 * The packing both understand, one of the hello's; absent for none.
 */
compression?: string, };

export type RunnersData = { runners: Array<RunnerInfo>, };

export type RunningTool = { tool_call_id: string, name: string, input?: unknown, partial_output?: unknown,
/**
 * Unix milliseconds.
 */
started_at: number, };

export type ScreenChoice = { label: string, text: string, };

export type SearchData = { hits: Array<SearchHit>, };

export type SearchHit = { session_id: string, message_id: string, idx: number, role: string, created_at: number,
/**
 * The place, with the words found in `[` and `]`.
 */
snippet: string,
/**
 * Lower is better.
 */
score: number,
/**
 * Of the session.
 */
title?: string, harness: string, runner_id: string, cwd?: string, };

export type SearchParams = { query: string, role?: string, limit?: number, offset?: number,
/**
 * Only in this session.
 */
session_id?: string,
/**
 * Only in sessions of this runner.
 */
runner_id?: string,
/**
 * Only in sessions of this harness.
 */
harness?: string,
/**
 * Only messages made at or after this time, in Unix milliseconds.
 */
from?: number,
/**
 * Only messages made before this time, in Unix milliseconds.
 */
to?: number, };

export type SearchPlace = { path: string, line: number, };

export type Sender = { type: SenderKind, id: string, name?: string, runner_id?: string, session_id?: string, };

export type SenderKind = "user"
  | "agent"
  | "system";

export type ServerFrame = { "channel": "agent" } & EventEnvelope
  | { "channel": "files" } & FilesFrame
  | { "channel": "terminal" } & TerminalFrame
  | { "channel": "system" } & SystemEvent;

export type SessionAttachParams = {
/**
 * The last record the client has; absent for a client that has nothing.
 */
after?: number, };

export type SessionChange = "created"
  | "updated"
  | "closed"
  | "deleted";

export type SessionConfig = { harness: string, cwd?: string, provider?: string, model?: string,
/**
 * Resume from this session file (or the harness's own session id).
 */
continue_session?: string, thinking_level?: string,
/**
 * The only extensions of the harness that are loaded, as paths on the runner.
 */
extensions?: Array<string>, title?: string,
/**
 * Of a program in a terminal.
 */
run?: RunConfig,
/**
 * Who skips the gate before writes and shell commands; `roles` without it.
 */
gate?: GatePolicy,
/**
 * Work in a new git worktree of the repository at `cwd`, and not in `cwd` itself.
 */
worktree?: WorktreeConfig, };

export type SessionCreateParams = { config: SessionConfig,
/**
 * Only tells whether such a session could be created; nothing is.
 */
check_only?: boolean, };

export type SessionCreatedData = { session_id: string, resume: Resume,
/**
 * Records up to this number are covered by the answer and what is replayed right after it.
 */
seq: number,
/**
 * Of a resync: the last record that follows before what is new.
 */
replay_until?: number, state: SessionState, pending_input: Array<InputRequest>, partial?: PartialTurn,
/**
 * With `gap`: the newest messages of the conversation, oldest first.
 */
messages?: Array<Message>,
/**
 * Of a program in a terminal, with `gap`: what is on its screen.
 */
terminal?: TerminalSnapshot, };

export type SessionFile = { path: string, name: string | null,
/**
 * Unix milliseconds.
 */
modified_at: number, };

export type SessionFilesData = { files: Array<SessionFile>, };

export type SessionNewParams = { parent_session?: string, };

export type SessionState = { session_id: string, runner_id: string, harness: string, status: SessionStatus, phase?: AgentPhase, detail?: string, cwd?: string, title?: string, model?: ModelRef, thinking_level?: string, auto_compaction?: boolean, auto_retry?: boolean, session_version: number,
/**
 * The last record's number.
 */
seq: number, message_count: number, queue: QueueState, pending_input: Array<InputRequest>,
/**
 * What extensions want shown, by key.
 */
status_texts?: { [key in string]: string },
/**
 * The harness's own name of the conversation.
 */
native_session_id?: string, native_session_file?: string,
/**
 * The last fatal error, while the agent is down because of it.
 */
error?: string, capabilities?: Array<string>,
/**
 * Native events of the agent that nobody knew, since it was started; absent when there were none.
 */
unknown_events?: number, process?: ProcessStats,
/**
 * Unix milliseconds.
 */
created_at?: number,
/**
 * The model in the harness's own words.
 */
native_model?: unknown,
/**
 * Of a program in a terminal.
 */
run?: RunState,
/**
 * What is checked out where the session works; the beginning of a commit's id where that is no branch.
 */
branch?: string,
/**
 * The session works in a worktree that was made for it.
 */
worktree?: WorktreeState, };

export type SessionStatus = "starting"
  | "idle"
  | "working"
  | "dormant"
  | "failed"
  | "closed"
  | "offline";

export type SessionSummary = { session_id: string, runner_id: string, harness: string,
/**
 * A word of [`SessionStatus`], or `offline` when its runner is away.
 */
state: string, cwd?: string, title?: string, provider?: string, model?: string, created_at: number, last_activity: number, seq: number, message_count: number, subscriber_count: number,
/**
 * Questions waiting for a person.
 */
pending_input_count: number,
/**
 * What is checked out where the session works.
 */
branch?: string,
/**
 * The beginning of the last message of a person or the agent, on one line.
 */
last_text?: string,
/**
 * What the agent is doing; while it works.
 */
phase?: AgentPhase,
/**
 * Unix milliseconds; while it works.
 */
working_since?: number,
/**
 * Input and output of all messages, also of those that a fork has left behind.
 */
tokens?: number, cost_usd?: number,
/**
 * The last fatal error, until the agent runs again.
 */
error?: string,
/**
 * Of a program in a terminal: what runs in it.
 */
run_tool?: string,
/**
 * The title of the oldest question that waits.
 */
pending_title?: string, };

export type SessionSwitchParams = { session_path: string, };

export type SessionsData = { sessions: Array<SessionSummary>, };

export type SetModelParams = { provider: string, model_id: string, };

export type SetSessionNameParams = { name: string, };

export type SetThinkingLevelParams = { level: string, };

export type Skill = { name: string, description: string, file_path: string, source: string, };

export type SkillsData = { skills: Array<Skill>, };

export type SlashCommand = { name: string, description?: string, source?: string, };

export type StatsData = { user_messages: number, assistant_messages: number, tool_calls: number, tool_results: number, total_messages: number, tokens: TokenStats, cost_usd: number, context_tokens?: number, context_window?: number, };

export type SteerParams = { message: string, images?: Array<ImageAttachment>, client_id?: string, };

export type StopReason = "stop"
  | "length"
  | "tool_use"
  | "error"
  | "aborted";

export type StoredSession = {
/**
 * The session of this runner that has the file, else the harness's own name.
 */
session_id: string, path: string, cwd: string, title?: string,
/**
 * Unix milliseconds.
 */
created_at: number, modified_at: number, message_count: number, provider?: string, model?: string, thinking_level?: string,
/**
 * Whether the file is there; pi writes it with the first answer.
 */
exists: boolean,
/**
 * Whether a session of this runner has it open.
 */
loaded: boolean, };

export type StoredSessionsData = { sessions: Array<StoredSession>, };

export type StreamingBehavior = "steer"
  | "follow_up";

export type SystemClientFrame = { channel: Channel, } & ({ "type": "presence", visible: boolean, session_id?: string, });

export type SystemEvent = { "type": "connected", protocol_version: string, server_version: string, connection_id: string, }
  | { "type": "error", id?: string, error: string, code?: ErrorCode, }
  | { "type": "notice", message: string, }
  | { "type": "session.changed", session_id: string, runner_id: string, change: SessionChange,
/**
 * Its line in `list_sessions` as it is now; absent when it is deleted.
 */
session?: SessionSummary, }
  | { "type": "runner.changed", runner_id: string, status: RunnerStatus, runner?: RunnerInfo, }
  | { "type": "shutdown", reason: string, };

export type TerminalClientFrame = { channel: Channel, id?: string, workspace_path?: string, session_id?: string, runner_id?: string, } & ({ "type": "open", terminal_id?: string, cols: number, rows: number, } | { "type": "input", terminal_id: string, data: string, } | { "type": "resize", terminal_id: string, cols: number, rows: number, } | { "type": "close", terminal_id: string, } | { "type": "leave", terminal_id: string, });

export type TerminalFrame = { id?: string, } & ({ "type": "opened", terminal_id: string, cols: number, rows: number,
/**
 * It was there before.
 */
joined: boolean, } | { "type": "output", terminal_id: string, data_base64: string,
/**
 * Clear everything first: what follows is the whole screen.
 */
reset?: boolean, } | { "type": "resized", terminal_id: string, cols: number, rows: number, } | { "type": "exit", terminal_id: string, exit_code: number, signal?: number, } | { "type": "error", terminal_id?: string, error: string, code?: ErrorCode, });

export type TerminalSnapshot = { cols: number, rows: number,
/**
 * The record up to which output is in it.
 */
seq: number,
/**
 * Lines that have left the screen, oldest first, with their colours.
 */
scrollback: string,
/**
 * Control sequences that draw the screen, cursor and modes.
 */
screen: string, title?: string,
/**
 * A full-screen program has the screen.
 */
alternate: boolean, };

export type TextData = { text: string | null, };

export type TextFormat = "markdown"
  | "plain";

export type ThinkingLevelData = { level: string, };

export type TokenStats = { input: number, output: number, cache_read: number, cache_write: number, total: number, };

export type ToolCall = { id: string, name: string, input: unknown, };

export type ToolInfo = { name: string, description: string | null, };

export type ToolStatus = "pending"
  | "running"
  | "success"
  | "error";

export type ToolsData = { tools: Array<ToolInfo>, };

export type TreeData = { current_leaf_id: string | null, nodes: Array<TreeNode>, };

export type TreeNode = { entry_id: string, parent_id: string | null, entry_type: string, role: string | null, text: string | null, timestamp?: unknown, label?: string, };

export type Usage = { input_tokens: number, output_tokens: number, cache_read_tokens?: number, cache_write_tokens?: number, cost_usd?: number, };

export type UsageData = {
/**
 * The newest days first, else the dearest first.
 */
rows: Array<UsageRow>,
/**
 * Of everything in the range, also what is in no row.
 */
total: UsageSum,
/**
 * There are more rows than these.
 */
truncated?: boolean, };

export type UsageRow = {
/**
 * `2026-01-31`, by the clock that was asked for.
 */
day?: string,
/**
 * Absent also where the agent does not say which.
 */
model?: string, provider?: string, session_id?: string, title?: string, input_tokens: number, output_tokens: number, cache_read_tokens: number, cache_write_tokens: number,
/**
 * As far as agents say what it cost.
 */
cost_usd: number,
/**
 * Messages that say what they have used.
 */
messages: number, };

export type UsageSum = { input_tokens: number, output_tokens: number, cache_read_tokens: number, cache_write_tokens: number,
/**
 * As far as agents say what it cost.
 */
cost_usd: number,
/**
 * Messages that say what they have used.
 */
messages: number, };

export type WelcomeSession = { session_id: string, last_seq: number, };

export type WorktreeConfig = {
/**
 * The branch to make; without it `qd/` and the session's id.
 */
branch?: string,
/**
 * Where the branch begins; without it at what is checked out.
 */
base?: string, };

export type WorktreeState = {
/**
 * The directory of the session's configuration, in the repository it was made of.
 */
repository: string,
/**
 * The branch that was made with it.
 */
branch: string, };

/** The parameters of every command. */
export interface CommandParams {
  "session.create": SessionCreateParams;
  "session.attach": SessionAttachParams;
  "session.detach": NoParams;
  "session.close": NoParams;
  "session.delete": NoParams;
  "session.restart": NoParams;
  "session.new": SessionNewParams;
  "session.switch": SessionSwitchParams;
  "prompt": PromptParams;
  "steer": SteerParams;
  "follow_up": SteerParams;
  "queue.set": QueueSetParams;
  "abort": NoParams;
  "input_response": InputResponseParams;
  "get_state": NoParams;
  "get_messages": GetMessagesParams;
  "get_stats": NoParams;
  "get_models": NoParams;
  "get_commands": NoParams;
  "get_fork_points": NoParams;
  "set_model": SetModelParams;
  "cycle_model": CycleModelParams;
  "set_thinking_level": SetThinkingLevelParams;
  "cycle_thinking_level": NoParams;
  "set_auto_compaction": EnabledParams;
  "set_auto_retry": EnabledParams;
  "compact": CompactParams;
  "abort_retry": NoParams;
  "abort_compaction": NoParams;
  "bash": BashParams;
  "abort_bash": NoParams;
  "export_html": ExportHtmlParams;
  "get_skills": NoParams;
  "get_tools": NoParams;
  "list_session_files": NoParams;
  "get_native_messages": NoParams;
  "get_last_assistant_text": NoParams;
  "get_context_usage": NoParams;
  "get_tree": NoParams;
  "navigate_tree": NavigateTreeParams;
  "set_session_name": SetSessionNameParams;
  "fork": ForkParams;
  "list_sessions": NoParams;
  "get_runners": NoParams;
  "runner.sessions": NoParams;
  "runner.stored_sessions": NoParams;
  "runner.health": NoParams;
  "search": SearchParams;
  "delegate": DelegateRequest;
  "run.input": RunInputParams;
  "run.stdin": RunStdinParams;
  "run.resize": RunResizeParams;
  "run.stop": RunStopParams;
  "run.screen": NoParams;
  "fs.read": FsReadParams;
  "fs.write": FsWriteParams;
  "fs.upload": FsUploadParams;
  "fs.list": FsListParams;
  "fs.tree": FsTreeParams;
  "fs.stat": FsStatParams;
  "fs.search": FsSearchParams;
  "fs.create_directory": FsCreateDirectoryParams;
  "fs.rename": FsMoveParams;
  "fs.move": FsMoveParams;
  "fs.copy": FsMoveParams;
  "fs.delete": FsDeleteParams;
  "fs.watch": FsWatchParams;
  "git.status": GitStatusParams;
  "git.diff": GitDiffParams;
  "git.log": GitLogParams;
  "git.worktrees": GitWorktreesParams;
  "git.worktree_add": GitWorktreeAddParams;
  "git.worktree_remove": GitWorktreeRemoveParams;
  "host.bash": HostBashParams;
  "host.info": HostInfoParams;
  "host.doctor": HostDoctorParams;
  "host.capabilities": HostCapabilitiesParams;
  "host.logs": HostLogsParams;
  "cancel": CancelParams;
  "delegate.cancel": DelegateCancelParams;
}

/** The `data` of every command's answer. */
export interface CommandData {
  "session.create": SessionCreatedData;
  "session.attach": AttachData;
  "session.detach": unknown;
  "session.close": unknown;
  "session.delete": unknown;
  "session.restart": SessionCreatedData;
  "session.new": MovedData;
  "session.switch": MovedData;
  "prompt": PromptData;
  "steer": PromptData;
  "follow_up": PromptData;
  "queue.set": QueueSetData;
  "abort": unknown;
  "input_response": unknown;
  "get_state": SessionState;
  "get_messages": MessagesData;
  "get_stats": StatsData;
  "get_models": ModelsData;
  "get_commands": CommandsData;
  "get_fork_points": ForkPointsData;
  "set_model": ModelRef | null;
  "cycle_model": ModelRef | null;
  "set_thinking_level": ThinkingLevelData | null;
  "cycle_thinking_level": ThinkingLevelData | null;
  "set_auto_compaction": unknown;
  "set_auto_retry": unknown;
  "compact": CompactData;
  "abort_retry": unknown;
  "abort_compaction": unknown;
  "bash": AgentBashData;
  "abort_bash": unknown;
  "export_html": ExportData;
  "get_skills": SkillsData;
  "get_tools": ToolsData;
  "list_session_files": SessionFilesData;
  "get_native_messages": unknown;
  "get_last_assistant_text": TextData;
  "get_context_usage": ContextUsageData | null;
  "get_tree": TreeData;
  "navigate_tree": NavigatedData;
  "set_session_name": unknown;
  "fork": MovedData;
  "list_sessions": SessionsData;
  "get_runners": RunnersData;
  "runner.sessions": RunnerSessionsData;
  "runner.stored_sessions": StoredSessionsData;
  "runner.health": RunnerHealthData;
  "search": SearchData;
  "delegate": unknown;
  "run.input": RunInputData;
  "run.stdin": unknown;
  "run.resize": unknown;
  "run.stop": RunStopData;
  "run.screen": TerminalSnapshot;
  "fs.read": FsReadData;
  "fs.write": FsWriteData;
  "fs.upload": FsUploadData;
  "fs.list": FsListData;
  "fs.tree": FsTreeData;
  "fs.stat": FsStatData;
  "fs.search": FsSearchData;
  "fs.create_directory": FsDoneData;
  "fs.rename": FsDoneData;
  "fs.move": FsDoneData;
  "fs.copy": FsDoneData;
  "fs.delete": FsDoneData;
  "fs.watch": unknown;
  "git.status": GitStatusData;
  "git.diff": GitDiffData;
  "git.log": GitLogData;
  "git.worktrees": GitWorktreesData;
  "git.worktree_add": GitWorktreesData;
  "git.worktree_remove": GitWorktreesData;
  "host.bash": BashData;
  "host.info": HostInfoData;
  "host.doctor": HostInfoData;
  "host.capabilities": HostInfoData;
  "host.logs": HostLogsData;
  "cancel": unknown;
  "delegate.cancel": unknown;
}

/** What the table says of every command. */
export const COMMANDS = {
  "session.create": { lane: "session", mutating: true, permission: "operate" },
  "session.attach": { lane: "read", mutating: false, permission: "view" },
  "session.detach": { lane: "read", mutating: false, permission: "view" },
  "session.close": { lane: "control", mutating: true, permission: "operate" },
  "session.delete": { lane: "control", mutating: true, permission: "operate" },
  "session.restart": { lane: "session", mutating: true, permission: "operate" },
  "session.new": { lane: "session", mutating: true, permission: "operate" },
  "session.switch": { lane: "session", mutating: true, permission: "operate" },
  "prompt": { lane: "session", mutating: true, permission: "operate" },
  "steer": { lane: "control", mutating: true, permission: "operate" },
  "follow_up": { lane: "control", mutating: true, permission: "operate" },
  "queue.set": { lane: "control", mutating: true, permission: "operate" },
  "abort": { lane: "control", mutating: true, permission: "operate" },
  "input_response": { lane: "control", mutating: false, permission: "approve" },
  "get_state": { lane: "read", mutating: false, permission: "view" },
  "get_messages": { lane: "read", mutating: false, permission: "view" },
  "get_stats": { lane: "read", mutating: false, permission: "view" },
  "get_models": { lane: "read", mutating: false, permission: "view" },
  "get_commands": { lane: "read", mutating: false, permission: "view" },
  "get_fork_points": { lane: "read", mutating: false, permission: "view" },
  "set_model": { lane: "session", mutating: true, permission: "operate" },
  "cycle_model": { lane: "session", mutating: true, permission: "operate" },
  "set_thinking_level": { lane: "session", mutating: true, permission: "operate" },
  "cycle_thinking_level": { lane: "session", mutating: true, permission: "operate" },
  "set_auto_compaction": { lane: "session", mutating: true, permission: "operate" },
  "set_auto_retry": { lane: "session", mutating: true, permission: "operate" },
  "compact": { lane: "session", mutating: true, permission: "operate" },
  "abort_retry": { lane: "control", mutating: true, permission: "operate" },
  "abort_compaction": { lane: "control", mutating: true, permission: "operate" },
  "bash": { lane: "shell", mutating: true, permission: "shell" },
  "abort_bash": { lane: "control", mutating: true, permission: "operate" },
  "export_html": { lane: "session", mutating: true, permission: "operate" },
  "get_skills": { lane: "read", mutating: false, permission: "view" },
  "get_tools": { lane: "read", mutating: false, permission: "view" },
  "list_session_files": { lane: "read", mutating: false, permission: "view" },
  "get_native_messages": { lane: "read", mutating: false, permission: "view" },
  "get_last_assistant_text": { lane: "read", mutating: false, permission: "view" },
  "get_context_usage": { lane: "read", mutating: false, permission: "view" },
  "get_tree": { lane: "read", mutating: false, permission: "view" },
  "navigate_tree": { lane: "session", mutating: true, permission: "operate" },
  "set_session_name": { lane: "session", mutating: true, permission: "operate" },
  "fork": { lane: "session", mutating: true, permission: "operate" },
  "list_sessions": { lane: "read", mutating: false, permission: "view" },
  "get_runners": { lane: "read", mutating: false, permission: "view" },
  "runner.sessions": { lane: "read", mutating: false, permission: "view" },
  "runner.stored_sessions": { lane: "read", mutating: false, permission: "view" },
  "runner.health": { lane: "read", mutating: false, permission: "view" },
  "search": { lane: "read", mutating: false, permission: "view" },
  "delegate": { lane: "control", mutating: true, permission: "operate" },
  "run.input": { lane: "control", mutating: false, permission: "operate" },
  "run.stdin": { lane: "control", mutating: false, permission: "operate" },
  "run.resize": { lane: "control", mutating: false, permission: "operate" },
  "run.stop": { lane: "control", mutating: false, permission: "operate" },
  "run.screen": { lane: "read", mutating: false, permission: "view" },
  "fs.read": { lane: "service", mutating: false, permission: "view" },
  "fs.write": { lane: "service", mutating: false, permission: "files" },
  "fs.upload": { lane: "service", mutating: false, permission: "files" },
  "fs.list": { lane: "service", mutating: false, permission: "view" },
  "fs.tree": { lane: "service", mutating: false, permission: "view" },
  "fs.stat": { lane: "service", mutating: false, permission: "view" },
  "fs.search": { lane: "service", mutating: false, permission: "view" },
  "fs.create_directory": { lane: "service", mutating: false, permission: "files" },
  "fs.rename": { lane: "service", mutating: false, permission: "files" },
  "fs.move": { lane: "service", mutating: false, permission: "files" },
  "fs.copy": { lane: "service", mutating: false, permission: "files" },
  "fs.delete": { lane: "service", mutating: false, permission: "files" },
  "fs.watch": { lane: "service", mutating: false, permission: "view" },
  "git.status": { lane: "service", mutating: false, permission: "view" },
  "git.diff": { lane: "service", mutating: false, permission: "view" },
  "git.log": { lane: "service", mutating: false, permission: "view" },
  "git.worktrees": { lane: "service", mutating: false, permission: "view" },
  "git.worktree_add": { lane: "service", mutating: false, permission: "files" },
  "git.worktree_remove": { lane: "service", mutating: false, permission: "files" },
  "host.bash": { lane: "service", mutating: false, permission: "shell" },
  "host.info": { lane: "service", mutating: false, permission: "view" },
  "host.doctor": { lane: "service", mutating: false, permission: "view" },
  "host.capabilities": { lane: "service", mutating: false, permission: "view" },
  "host.logs": { lane: "service", mutating: false, permission: "manage" },
  "cancel": { lane: "control", mutating: false, permission: "view" },
  "delegate.cancel": { lane: "control", mutating: true, permission: "operate" },
} as const;

/** What the table says of every error code. */
export const ERRORS: Record<ErrorCode, { httpStatus: number; exitCode: number; retry: boolean }> = {
  "invalid_request": { httpStatus: 400, exitCode: 1, retry: false },
  "unknown_command": { httpStatus: 400, exitCode: 1, retry: false },
  "unsupported": { httpStatus: 400, exitCode: 1, retry: false },
  "too_large": { httpStatus: 413, exitCode: 1, retry: false },
  "not_logged_in": { httpStatus: 401, exitCode: 1, retry: false },
  "permission_denied": { httpStatus: 403, exitCode: 1, retry: false },
  "runner_revoked": { httpStatus: 401, exitCode: 1, retry: false },
  "forbidden_origin": { httpStatus: 403, exitCode: 1, retry: false },
  "code_expired": { httpStatus: 410, exitCode: 1, retry: false },
  "denied": { httpStatus: 403, exitCode: 1, retry: false },
  "not_found": { httpStatus: 404, exitCode: 1, retry: false },
  "session_not_found": { httpStatus: 404, exitCode: 1, retry: false },
  "runner_not_found": { httpStatus: 404, exitCode: 1, retry: false },
  "harness_not_found": { httpStatus: 404, exitCode: 1, retry: false },
  "question_not_found": { httpStatus: 404, exitCode: 1, retry: false },
  "question_answered": { httpStatus: 409, exitCode: 1, retry: false },
  "question_timed_out": { httpStatus: 409, exitCode: 1, retry: false },
  "already_exists": { httpStatus: 409, exitCode: 1, retry: false },
  "session_exists": { httpStatus: 409, exitCode: 1, retry: false },
  "conflict": { httpStatus: 409, exitCode: 1, retry: false },
  "wrong_runner": { httpStatus: 409, exitCode: 1, retry: false },
  "version_mismatch": { httpStatus: 409, exitCode: 1, retry: false },
  "idempotency_conflict": { httpStatus: 409, exitCode: 1, retry: false },
  "session_closed": { httpStatus: 409, exitCode: 1, retry: false },
  "run_ended": { httpStatus: 409, exitCode: 1, retry: false },
  "input_closed": { httpStatus: 409, exitCode: 1, retry: false },
  "input_full": { httpStatus: 503, exitCode: 1, retry: true },
  "agent_busy": { httpStatus: 409, exitCode: 1, retry: false },
  "dependency_failed": { httpStatus: 424, exitCode: 1, retry: false },
  "cancelled": { httpStatus: 409, exitCode: 1, retry: false },
  "timed_out": { httpStatus: 504, exitCode: 1, retry: true },
  "indeterminate": { httpStatus: 504, exitCode: 1, retry: false },
  "rate_limited": { httpStatus: 429, exitCode: 1, retry: true },
  "too_many_in_flight": { httpStatus: 429, exitCode: 1, retry: true },
  "busy": { httpStatus: 503, exitCode: 1, retry: true },
  "limit_reached": { httpStatus: 409, exitCode: 1, retry: false },
  "storage_full": { httpStatus: 507, exitCode: 1, retry: true },
  "disk_full": { httpStatus: 507, exitCode: 1, retry: false },
  "provider_paused": { httpStatus: 503, exitCode: 1, retry: true },
  "agent_failed": { httpStatus: 502, exitCode: 1, retry: false },
  "agent_gone": { httpStatus: 502, exitCode: 1, retry: true },
  "agent_hung": { httpStatus: 502, exitCode: 1, retry: true },
  "interrupted": { httpStatus: 409, exitCode: 1, retry: true },
  "runner_offline": { httpStatus: 503, exitCode: 3, retry: true },
  "link_lost": { httpStatus: 503, exitCode: 3, retry: true },
  "store_unavailable": { httpStatus: 503, exitCode: 3, retry: true },
  "shutting_down": { httpStatus: 503, exitCode: 3, retry: true },
  "internal": { httpStatus: 500, exitCode: 1, retry: false },
  "failed": { httpStatus: 422, exitCode: 1, retry: false },
};
