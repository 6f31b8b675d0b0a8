/**
 * The client library of Quarterdeck: `/ws/mux`, the canonical protocol. One connection, every command once, sessions and
 * fleet folded into models.
 *
 * The client of the pi-server face is `@quarterdeck/client/pi-server`. Types come from `generated/`, which
 * `cargo xtask codegen` writes from the server's own types.
 */
export { Quarterdeck } from "./canonical/client.ts";
export type { Gap } from "./canonical/fold/conversation.ts";
export { FleetModel } from "./canonical/fleet.ts";
export { SessionModel } from "./canonical/session.ts";
export { TerminalModel } from "./canonical/terminal.ts";
export { CommandError, IndeterminateError, TimedOutError } from "./canonical/errors.ts";
export { ConnectionError, IncompatibleError, TooLargeError } from "./shared/errors.ts";
export type {
  Answered,
  CallOptions,
  CommandName,
  ConnectionInfo,
  ConnectionState,
  Notice,
  PendingSend,
  Presence,
  QuarterdeckOptions,
  SendKind,
  SendOptions,
  SessionChanged,
  SystemFrame,
  TerminalOptions,
  ToolRun,
  Writing,
} from "./canonical/types.ts";
export * from "./generated/canonical.ts";
