/**
 * The client of Quarterdeck's pi-server face.
 *
 * Types come from `generated/`, which `cargo xtask codegen` writes from the server's own types.
 */
export { PiServerClient } from "./pi-server/client.ts";
export type { Answer, ClientOptions, SendOptions } from "./pi-server/options.ts";
export { CommandError, IndeterminateError, TimedOutError } from "./pi-server/errors.ts";
export { ConnectionError, IncompatibleError, TooLargeError } from "./shared/errors.ts";
export { SessionFollower, type FollowerUpdate, type UiRequest } from "./pi-server/follower.ts";
export type { AgentMessage } from "./pi-server/streaming.ts";
export { webSocketTransport, type Transport, type TransportFactory, type TransportHandlers } from "./shared/transport.ts";
export * from "./generated/pi-server.ts";
