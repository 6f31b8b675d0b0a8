// Generated from crates/wire by `cargo xtask codegen`. Do not edit.

export type Bash = { sessionId: string, command: string, excludeFromContext?: boolean, };

export type BashCircuitBreaker = { enabled: boolean,
/**
 * `closed`, `open`, `half_open`; the worst of all machines.
 */
globalState: string, globalFailureCount: number, sessionCount: number, openSessionCount: number, totalCalls: number, totalTimeouts: number, totalRejected: number, };

export type BashResult = { exitCode?: number, output: string, cancelled: boolean, truncated?: boolean, fullOutputPath?: string, };

export type CircuitBreaker = { providerName: string,
/**
 * `closed`, `open`, `half_open`.
 */
state: string, failureCount: number,
/**
 * Unix milliseconds.
 */
lastFailureTime?: number, lastStateChange: number, lastAccessTime: number, totalCalls: number, totalRejected: number,
/**
 * Always 0: a long turn is no failure.
 */
totalSlowCalls: number, totalSuccesses: number, totalFailures: number, avgLatencyMs: number, halfOpenCalls: number, runnerId?: string, };

export type Command = { "type": "list_sessions" } & NoFields
  | { "type": "create_session" } & CreateSession
  | { "type": "delete_session" } & SessionOnly
  | { "type": "switch_session" } & SwitchSession
  | { "type": "get_metrics" } & NoFields
  | { "type": "health_check" } & NoFields
  | { "type": "list_stored_sessions" } & NoFields
  | { "type": "load_session" } & LoadSession
  | { "type": "get_startup_recovery" } & NoFields
  | { "type": "get_command_history" } & GetCommandHistory
  | { "type": "get_available_models" } & SessionOnly
  | { "type": "get_commands" } & SessionOnly
  | { "type": "get_skills" } & SessionOnly
  | { "type": "get_tools" } & SessionOnly
  | { "type": "list_session_files" } & SessionOnly
  | { "type": "prompt" } & Prompt
  | { "type": "steer" } & Steer
  | { "type": "follow_up" } & Steer
  | { "type": "abort" } & SessionOnly
  | { "type": "get_state" } & SessionOnly
  | { "type": "get_messages" } & SessionOnly
  | { "type": "set_model" } & SetModel
  | { "type": "cycle_model" } & CycleModel
  | { "type": "set_thinking_level" } & SetThinkingLevel
  | { "type": "cycle_thinking_level" } & SessionOnly
  | { "type": "set_session_name" } & SetSessionName
  | { "type": "compact" } & Compact
  | { "type": "abort_compaction" } & SessionOnly
  | { "type": "set_auto_compaction" } & SetEnabled
  | { "type": "set_auto_retry" } & SetEnabled
  | { "type": "abort_retry" } & SessionOnly
  | { "type": "bash" } & Bash
  | { "type": "abort_bash" } & SessionOnly
  | { "type": "get_session_stats" } & SessionOnly
  | { "type": "export_html" } & ExportHtml
  | { "type": "new_session" } & NewSession
  | { "type": "switch_session_file" } & SwitchSessionFile
  | { "type": "fork" } & Fork
  | { "type": "get_fork_messages" } & SessionOnly
  | { "type": "get_tree" } & SessionOnly
  | { "type": "navigate_tree" } & NavigateTree
  | { "type": "get_last_assistant_text" } & SessionOnly
  | { "type": "get_context_usage" } & SessionOnly
  | { "type": "extension_ui_response" } & ExtensionUiResponse;

export type CommandAccepted = {
/**
 * The command's `id`, or `anon:…` for one that has none.
 */
commandId: string, commandType: string, sessionId?: string, dependsOn: Array<string>, ifSessionVersion?: number,
/**
 * Shown to the command's own principal only.
 */
idempotencyKey?: string, };

export type CommandFinished = { success: boolean, error?: string,
/**
 * Ours: what programs decide by.
 */
code?: ErrorCode, sessionVersion?: number, replayed?: boolean,
/**
 * The command's `id`, or `anon:…` for one that has none.
 */
commandId: string, commandType: string, sessionId?: string, dependsOn: Array<string>, ifSessionVersion?: number,
/**
 * Shown to the command's own principal only.
 */
idempotencyKey?: string, };

export type CommandHistory = { enabled: boolean, filters: Record<string, unknown>,
/**
 * Newest first.
 */
entries: Array<HistoryEntry>, returned: number, truncated: boolean, maxItemsReturned: number, maxItemsAllowed: number, };

export type CommandsRejected = { sessionLimit: number, messageSize: number, rateLimit: number, globalRateLimit: number, connectionLimit: number, extensionUIResponseRateLimit: number, };

export type Compact = { sessionId: string, customInstructions?: string, };

export type Compacted = { summary: string, firstKeptEntryId: string, tokensBefore: number, details?: unknown, };

export type ContextUsage = { tokens: number | null, contextWindow: number, percent: number | null, };

export type CreateSession = { sessionId?: string, cwd?: string,
/**
 * The machine; without it the one with the most room.
 */
runnerId?: string,
/**
 * `pi` unless said otherwise.
 */
harness?: string, provider?: string, model?: string, thinkingLevel?: string,
/**
 * Extensions of the harness to load, as paths on the machine.
 */
extensions?: Array<string>, };

export type CycleModel = { sessionId: string, direction?: Direction, };

export type Direction = "forward"
  | "backward";

export type Envelope = {
/**
 * Names the intent: the same id with the same fields is answered with the first outcome.
 */
id?: string,
/**
 * Commands that must have succeeded before this one runs.
 */
dependsOn?: Array<string>,
/**
 * Run only at this version of the session.
 */
ifSessionVersion?: number,
/**
 * Names the intent across ids, for a while.
 */
idempotencyKey?: string, };

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

export type ExecutionMetrics = { laneCount: number, };

export type ExportHtml = { sessionId: string,
/**
 * Within the session's directory.
 */
outputPath?: string, };

export type Exported = { path: string, };

export type ExtensionUiMetrics = { pendingCount: number, maxPendingRequests: number, rejectedCount: number, };

export type ExtensionUiResponse = { sessionId: string, requestId: string, response: UiResponse, };

export type FaceEvent = { "type": "extension_ui_request", requestId: string,
/**
 * `select`, `confirm`, `input`, `editor`, `interview`.
 */
method: string, title: string, options?: Array<string>, message?: string, placeholder?: string, prefill?: string, questions?: Array<InterviewQuestion>,
/**
 * Milliseconds.
 */
timeout?: number, }
  | { "type": "extension_ui_resolved", requestId: string, outcome: InputOutcome, }
  | { "type": "conversation_changed",
/**
 * `replaced` (fork, new, switch, navigation), `added` (messages that came without events of their own),
 * `compacted`.
 */
reason: string, }
  | { "type": "event_gap", missed: number, }
  | { "type": "session_resync", sessionInfo: SessionInfo,
/**
 * The answer being generated so far, in pi's form; null when there is none.
 */
message: unknown,
/**
 * Open questions; each is an `extension_ui_request`.
 */
pendingRequests: FaceEvent[], };

export type Fork = { sessionId: string, entryId: string, };

export type ForkMessage = { entryId: string, text: string, };

export type ForkMessageList = { messages: Array<ForkMessage>, };

export type Forked = { text: string, cancelled: boolean,
/**
 * The harness's own name of the new conversation.
 */
sessionId?: string, };

export type GetCommandHistory = { sessionIdFilter?: string, commandId?: string,
/**
 * Unix milliseconds.
 */
fromTimestamp?: number, toTimestamp?: number, limit?: number, };

export type Health = { healthy: boolean, issues: Array<string>, hasOpenCircuit: boolean, hasOpenBashCircuit: boolean, };

export type HistoryEntry = { commandId?: string, commandType: string, sessionId?: string, idempotencyKey?: string,
/**
 * `v2:sha256:<hex>`.
 */
fingerprint: string,
/**
 * `in_flight`, `finished`, `indeterminate`.
 */
state: string, success?: boolean, error?: string,
/**
 * Ours: what programs decide by.
 */
code?: ErrorCode, sessionVersion?: number, timedOut?: boolean,
/**
 * Unix milliseconds.
 */
acceptedAt: number, finishedAt?: number, };

export type ImageContent = {
/**
 * `image`.
 */
type: string,
/**
 * Base64.
 */
data: string, mimeType: string, };

export type InputOutcome = "answered"
  | "cancelled"
  | "timed_out"
  | "withdrawn";

export type InterviewQuestion = {
/**
 * The key of the answer.
 */
id: string,
/**
 * `text`, `multiline`, `select`, `multiselect`, `confirm`, `number`.
 */
type: string, question: string, options?: Array<string>, required?: boolean, placeholder?: string, default?: unknown, };

export type JournalMetrics = { enabled: boolean, entriesWritten: number, writeErrors: number, };

export type LastAssistantText = { text: string | null, };

export type LifecycleGap = { missed: number, };

export type LoadSession = { sessionPath: string, sessionId?: string,
/**
 * Ours: the machine that has the file.
 */
runnerId?: string,
/**
 * Ours: extensions of the harness to load, as paths on the machine.
 */
extensions?: Array<string>, };

export type LockMetrics = { activeLocks: number, timeoutCount: number, waitingCount: number, queueFullRejections: number, };

export type MessageList = {
/**
 * In pi's own form.
 */
messages: unknown[], };

export type Metrics = { sessionCount: number, connectionCount: number, pendingConnectionCount: number, totalCommandsExecuted: number, commandsRejected: CommandsRejected, zombieSessionsDetected: number, zombieSessionsCleaned: number, doubleUnregisterErrors: number, rateLimitUsage: RateLimitUsage, stores: StoreMetrics, circuitBreakers: Array<CircuitBreaker>, bashCircuitBreaker: BashCircuitBreaker,
/**
 * `counters`, `gauges`, `histograms`, `recentEvents`.
 */
metrics: Record<string, unknown>, };

export type Model = { id: string, provider: string, name?: string, api?: string, baseUrl?: string, reasoning?: boolean, input?: Array<string>, cost?: Record<string, number>, contextWindow?: number, maxTokens?: number, };

export type ModelCycled = { model: Model, thinkingLevel: string, isScoped: boolean, };

export type ModelList = { models: Array<Model>, };

export type ModelSet = { model: Model, };

export type Moved = { cancelled: boolean, };

export type NavigateOptions = { summarize?: boolean, customInstructions?: string, replaceInstructions?: boolean, label?: string, };

export type NavigateTree = { sessionId: string, targetId: string, options?: NavigateOptions, };

export type Navigated = { editorText?: string, cancelled: boolean, aborted?: boolean, };

export type NewSession = { sessionId: string, parentSession?: string, };

export type NoData = undefined;

export type NoFields = Record<symbol, never>;

export type Prompt = { sessionId: string, message: string, images?: Array<ImageContent>,
/**
 * What to do while the agent works; without it the message is read after the turn.
 */
streamingBehavior?: StreamingBehavior, };

export type RateLimitUsage = { globalCount: number, globalLimit: number, };

export type ReplayMetrics = { inFlightCount: number, outcomeCount: number, idempotencyCacheSize: number, maxInFlightCommands: number, maxCommandOutcomes: number, inFlightRejections: number, };

export type Response = { id?: string, command: string, success: boolean, data?: unknown, error?: string,
/**
 * Ours: what programs decide by.
 */
code?: ErrorCode,
/**
 * Ours: the limit that was reached, of `too_many_in_flight` in commands and of `too_large` in bytes.
 */
limit?: number, sessionVersion?: number, replayed?: boolean, timedOut?: boolean,
/**
 * Ours: nobody can know whether the command took effect, because a process died in the middle of it.
 */
indeterminate?: boolean, };

export type ServerMessage = { "type": "response" } & Response
  | { "type": "server_ready", data: ServerReady, }
  | { "type": "server_shutdown", data: ServerShutdown, }
  | { "type": "session_created", data: SessionAnnounced, }
  | { "type": "session_deleted", data: SessionRemoved, }
  | { "type": "command_accepted", data: CommandAccepted, }
  | { "type": "command_started", data: CommandAccepted, }
  | { "type": "command_finished", data: CommandFinished, }
  | { "type": "lifecycle_gap", data: LifecycleGap, }
  | { "type": "event" } & SessionEvent;

export type ServerReady = { serverVersion: string, protocolVersion: string, transports: Array<string>, };

export type ServerShutdown = { reason: string, timeoutMs: number, };

export type SessionAnnounced = { sessionId: string, sessionInfo: SessionInfo, };

export type SessionCreated = { sessionId: string, sessionInfo: SessionInfo, };

export type SessionDeleted = { deleted: boolean, };

export type SessionEvent = { sessionId: string,
/**
 * In pi's own form; [`FaceEvent`] for those that are the server's.
 */
event: { type: string, [key: string]: unknown }, };

export type SessionFile = { path: string, name: string,
/**
 * ISO 8601.
 */
modifiedAt: string, };

export type SessionFileList = { files: Array<SessionFile>, };

export type SessionInfo = { sessionId: string, sessionName?: string, sessionFile?: string,
/**
 * pi's own description of the model.
 */
model?: Model, thinkingLevel: string, isStreaming: boolean, messageCount: number,
/**
 * ISO 8601.
 */
createdAt: string,
/**
 * Ours: the machine and the kind of agent.
 */
runnerId?: string, harness?: string,
/**
 * Ours: `idle`, `working`, `dormant`, `failed`, …
 */
status?: string, cwd?: string, };

export type SessionList = { sessions: Array<SessionInfo>, };

export type SessionOnly = { sessionId: string, };

export type SessionRemoved = { sessionId: string, };

export type SessionStats = { sessionFile?: string, sessionId: string, userMessages: number, assistantMessages: number, toolCalls: number, toolResults: number, totalMessages: number, tokens: TokenStats, cost: number, };

export type SessionStoreMetrics = { metadataResetCount: number, };

export type SessionSwitched = { sessionInfo: SessionInfo, };

export type SessionTree = { currentLeafId: string | null, nodes: Array<TreeNode>, };

export type SetEnabled = { sessionId: string, enabled: boolean, };

export type SetModel = { sessionId: string, provider: string, modelId: string, };

export type SetSessionName = { sessionId: string, name: string, };

export type SetThinkingLevel = { sessionId: string,
/**
 * `off` (or `none`), `minimal`, `low`, `medium`, `high`, `xhigh`.
 */
level: string, };

export type Skill = { name: string, description: string, filePath: string, source: string, };

export type SkillList = { skills: Array<Skill>, };

export type SlashCommand = { name: string, description?: string,
/**
 * `extension`, `skill`, `prompt`.
 */
source: string, path?: string, };

export type SlashCommandList = { commands: Array<SlashCommand>, };

export type StartupRecovery = { enabled: boolean, initialized: boolean, initState: string, initializationError?: string, journalPath: string, schemaVersion: number, entriesScanned: number, recoveredOutcomes: number,
/**
 * Commands that were cut off.
 */
indeterminateCommands: number, };

export type Steer = { sessionId: string, message: string, images?: Array<ImageContent>, };

export type StoreMetrics = { replay: ReplayMetrics, version: VersionMetrics, execution: ExecutionMetrics, lock: LockMetrics, extensionUI: ExtensionUiMetrics, sessionStore: SessionStoreMetrics, journal: JournalMetrics, };

export type StoredSessionInfo = {
/**
 * The same as `sessionFile`.
 */
sessionPath: string, fileExists: boolean, sessionId: string, sessionName?: string, sessionFile?: string,
/**
 * pi's own description of the model.
 */
model?: Model, thinkingLevel: string, isStreaming: boolean, messageCount: number,
/**
 * ISO 8601.
 */
createdAt: string,
/**
 * Ours: the machine and the kind of agent.
 */
runnerId?: string, harness?: string,
/**
 * Ours: `idle`, `working`, `dormant`, `failed`, …
 */
status?: string, cwd?: string, };

export type StoredSessionList = { sessions: Array<StoredSessionInfo>, };

export type StreamingBehavior = "steer"
  | "followUp";

export type SwitchSession = { sessionId: string,
/**
 * Ours: send a `session_resync` event after the answer, for a client that was away.
 */
resync?: boolean, };

export type SwitchSessionFile = { sessionId: string, sessionPath: string, };

export type ThinkingLevelCycled = { level: string, };

export type TokenStats = { input: number, output: number, cacheRead: number, cacheWrite: number, total: number, };

export type Tool = { name: string, description: string, };

export type ToolList = { tools: Array<Tool>, };

export type TreeNode = { entryId: string, parentId?: string, entryType: string, role?: string,
/**
 * A preview.
 */
text?: string, timestamp?: string, label?: string, };

export type UiResponse = { "method": "select", value: string, }
  | { "method": "confirm", confirmed: boolean, }
  | { "method": "input", value: string, }
  | { "method": "editor", value: string, }
  | { "method": "interview", responses: Record<string, unknown>, }
  | { "method": "cancelled", };

export type VersionMetrics = { sessionCount: number, };

/** The fields of every command, beside those of the envelope. */
export interface CommandFields {
  list_sessions: NoFields;
  create_session: CreateSession;
  delete_session: SessionOnly;
  switch_session: SwitchSession;
  get_metrics: NoFields;
  health_check: NoFields;
  list_stored_sessions: NoFields;
  load_session: LoadSession;
  get_startup_recovery: NoFields;
  get_command_history: GetCommandHistory;
  get_available_models: SessionOnly;
  get_commands: SessionOnly;
  get_skills: SessionOnly;
  get_tools: SessionOnly;
  list_session_files: SessionOnly;
  prompt: Prompt;
  steer: Steer;
  follow_up: Steer;
  abort: SessionOnly;
  get_state: SessionOnly;
  get_messages: SessionOnly;
  set_model: SetModel;
  cycle_model: CycleModel;
  set_thinking_level: SetThinkingLevel;
  cycle_thinking_level: SessionOnly;
  set_session_name: SetSessionName;
  compact: Compact;
  abort_compaction: SessionOnly;
  set_auto_compaction: SetEnabled;
  set_auto_retry: SetEnabled;
  abort_retry: SessionOnly;
  bash: Bash;
  abort_bash: SessionOnly;
  get_session_stats: SessionOnly;
  export_html: ExportHtml;
  new_session: NewSession;
  switch_session_file: SwitchSessionFile;
  fork: Fork;
  get_fork_messages: SessionOnly;
  get_tree: SessionOnly;
  navigate_tree: NavigateTree;
  get_last_assistant_text: SessionOnly;
  get_context_usage: SessionOnly;
  extension_ui_response: ExtensionUiResponse;
}

/** The `data` of every command's answer. */
export interface CommandData {
  list_sessions: SessionList;
  create_session: SessionCreated;
  delete_session: SessionDeleted;
  switch_session: SessionSwitched;
  get_metrics: Metrics;
  health_check: Health;
  list_stored_sessions: StoredSessionList;
  load_session: SessionCreated;
  get_startup_recovery: StartupRecovery;
  get_command_history: CommandHistory;
  get_available_models: ModelList;
  get_commands: SlashCommandList;
  get_skills: SkillList;
  get_tools: ToolList;
  list_session_files: SessionFileList;
  prompt: NoData;
  steer: NoData;
  follow_up: NoData;
  abort: NoData;
  get_state: SessionInfo;
  get_messages: MessageList;
  set_model: ModelSet;
  cycle_model: ModelCycled;
  set_thinking_level: NoData;
  cycle_thinking_level: ThinkingLevelCycled;
  set_session_name: NoData;
  compact: Compacted;
  abort_compaction: NoData;
  set_auto_compaction: NoData;
  set_auto_retry: NoData;
  abort_retry: NoData;
  bash: BashResult;
  abort_bash: NoData;
  get_session_stats: SessionStats;
  export_html: Exported;
  new_session: Moved;
  switch_session_file: Moved;
  fork: Forked;
  get_fork_messages: ForkMessageList;
  get_tree: SessionTree;
  navigate_tree: Navigated;
  get_last_assistant_text: LastAssistantText;
  get_context_usage: ContextUsage;
  extension_ui_response: NoData;
}

/** What the table says of every command. */
export const COMMANDS = {
  list_sessions: { mutating: false, timeoutMs: 30000 },
  create_session: { mutating: true, timeoutMs: null },
  delete_session: { mutating: true, timeoutMs: null },
  switch_session: { mutating: false, timeoutMs: 30000 },
  get_metrics: { mutating: false, timeoutMs: 30000 },
  health_check: { mutating: false, timeoutMs: 30000 },
  list_stored_sessions: { mutating: false, timeoutMs: 30000 },
  load_session: { mutating: true, timeoutMs: null },
  get_startup_recovery: { mutating: false, timeoutMs: 30000 },
  get_command_history: { mutating: false, timeoutMs: 30000 },
  get_available_models: { mutating: false, timeoutMs: 30000 },
  get_commands: { mutating: false, timeoutMs: 30000 },
  get_skills: { mutating: false, timeoutMs: 30000 },
  get_tools: { mutating: false, timeoutMs: 30000 },
  list_session_files: { mutating: false, timeoutMs: 30000 },
  prompt: { mutating: true, timeoutMs: null },
  steer: { mutating: true, timeoutMs: null },
  follow_up: { mutating: true, timeoutMs: null },
  abort: { mutating: true, timeoutMs: 30000 },
  get_state: { mutating: false, timeoutMs: 30000 },
  get_messages: { mutating: false, timeoutMs: 30000 },
  set_model: { mutating: true, timeoutMs: null },
  cycle_model: { mutating: true, timeoutMs: null },
  set_thinking_level: { mutating: true, timeoutMs: null },
  cycle_thinking_level: { mutating: true, timeoutMs: null },
  set_session_name: { mutating: true, timeoutMs: null },
  compact: { mutating: true, timeoutMs: 300000 },
  abort_compaction: { mutating: true, timeoutMs: 30000 },
  set_auto_compaction: { mutating: true, timeoutMs: null },
  set_auto_retry: { mutating: true, timeoutMs: null },
  abort_retry: { mutating: true, timeoutMs: 30000 },
  bash: { mutating: true, timeoutMs: 300000 },
  abort_bash: { mutating: true, timeoutMs: 30000 },
  get_session_stats: { mutating: false, timeoutMs: 30000 },
  export_html: { mutating: true, timeoutMs: null },
  new_session: { mutating: true, timeoutMs: null },
  switch_session_file: { mutating: true, timeoutMs: null },
  fork: { mutating: true, timeoutMs: null },
  get_fork_messages: { mutating: false, timeoutMs: 30000 },
  get_tree: { mutating: false, timeoutMs: 30000 },
  navigate_tree: { mutating: true, timeoutMs: null },
  get_last_assistant_text: { mutating: false, timeoutMs: 30000 },
  get_context_usage: { mutating: false, timeoutMs: 30000 },
  extension_ui_response: { mutating: false, timeoutMs: 30000 },
} as const;
