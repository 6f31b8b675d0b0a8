/**
 * The client library of Quarterdeck's pi-server face.
 *
 * Types come from `generated/`, which `cargo xtask codegen` writes from the server's own types.
 */
export { PiServerClient, type Answer, type ClientOptions, type SendOptions } from "./client.ts";
export { CommandError, ConnectionError, IncompatibleError, IndeterminateError, TimedOutError } from "./errors.ts";
export { SessionFollower, type FollowerUpdate } from "./follower.ts";
export { webSocketTransport, type Transport, type TransportFactory, type TransportHandlers } from "./transport.ts";
export * from "./generated/pi-server.ts";
