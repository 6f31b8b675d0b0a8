/**
 * The client of Quarterdeck's pi-server face.
 *
 * Types come from `generated/`, which `cargo xtask codegen` writes from the server's own types.
 */
export { PiServerClient } from "./client.ts";
export type { Answer, ClientOptions, SendOptions } from "./options.ts";
export {
  CommandError,
  ConnectionError,
  IncompatibleError,
  IndeterminateError,
  TimedOutError,
  TooLargeError,
} from "./errors.ts";
export { SessionFollower, type FollowerUpdate, type UiRequest } from "./follower.ts";
export type { AgentMessage } from "./streaming.ts";
export { webSocketTransport, type Transport, type TransportFactory, type TransportHandlers } from "./transport.ts";
export * from "./generated/pi-server.ts";
