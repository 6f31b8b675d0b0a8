/**
 * The client library of Quarterdeck: `/ws/mux`, the canonical protocol.
 *
 * The client of the pi-server face is `@quarterdeck/client/pi-server`. Types come from `generated/`, which
 * `cargo xtask codegen` writes from the server's own types.
 */
export * from "./canonical/index.ts";
