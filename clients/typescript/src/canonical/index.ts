/** The client of `/ws/mux`: one connection, every command once, sessions and fleet folded into models. */
export { Quarterdeck } from "./client.ts";
export type { Gap } from "./conversation.ts";
export { FleetModel } from "./fleet.ts";
export { SessionModel } from "./session.ts";
export { TerminalModel } from "./terminal.ts";
export { CommandError, ConnectionError, IncompatibleError, IndeterminateError, TimedOutError, TooLargeError } from "./errors.ts";
export type {
  Answered,
  CallOptions,
  CommandName,
  ConnectionInfo,
  ConnectionState,
  Notice,
  Pending,
  Presence,
  QuarterdeckOptions,
  SendKind,
  SendOptions,
  SessionChanged,
  SystemFrame,
  TerminalOptions,
  ToolRun,
  Writing,
} from "./types.ts";
export * from "../generated/canonical.ts";
