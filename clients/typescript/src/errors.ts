/** Why a command has no result. */
import type { ErrorCode, Response } from "./generated/pi-server.ts";
import { codeOfWords } from "./older.ts";

/** The server said no; nothing is known to have changed. */
export class CommandError extends Error {
  readonly response: Response;
  /** What programs decide by; `message` is for people. */
  readonly code: ErrorCode;

  constructor(response: Response) {
    super(response.error ?? "The command failed without saying why");
    this.name = new.target.name;
    this.response = response;
    this.code = codeOf(response);
  }
}

/** The command's time was over. Final for this command; send a new one to try again. */
export class TimedOutError extends CommandError {}

/** The server died in the middle of the command: look at the session before you send it again. */
export class IndeterminateError extends CommandError {}

/** There is no connection, or it was lost for good; a command that was sent may have run. */
export class ConnectionError extends Error {
  /** Because this client was closed. */
  readonly isClosed: boolean;

  constructor(message: string, isClosed: boolean = false) {
    super(message);
    this.name = "ConnectionError";
    this.isClosed = isClosed;
  }
}

/** The server speaks another major version of the protocol. */
export class IncompatibleError extends ConnectionError {
  constructor(version: string) {
    super(`The server speaks version ${version} of the protocol; this client speaks 1.x`);
    this.name = "IncompatibleError";
  }
}

/** The command is larger than the server takes; it was not run. */
export class TooLargeError extends Error {
  /** `setting` is what raises the limit, where something does. */
  constructor(bytes: number, bytesMax: number, setting?: string) {
    const where = setting === undefined ? "" : ` (${setting})`;
    super(`The command has ${bytes} bytes and the server takes ${bytesMax}${where}: send less`);
    this.name = "TooLargeError";
  }
}

/** The code of a failed response. */
export function codeOf(response: Response): ErrorCode {
  return response.code ?? codeOfWords(response.error ?? "");
}

/** Whether an error says that the session is not there (any more). */
export function isSessionGone(error: unknown): boolean {
  return error instanceof CommandError && error.code === "session_not_found";
}

/** The error of a failed response. */
export function errorOf(response: Response): CommandError {
  if (response.timedOut) return new TimedOutError(response);
  if (response.indeterminate) return new IndeterminateError(response);
  return new CommandError(response);
}

/**
 * Refusals that leave no trace at the server: the command was not admitted to run, so it may be sent again under the
 * same identity after a pause. One that is replayed was admitted: it stays as it is.
 */
const PASSING: ReadonlySet<ErrorCode> = new Set(["rate_limited", "busy", "too_many_in_flight", "shutting_down"]);

export function isPassing(response: Response): boolean {
  return !response.success && response.replayed !== true && PASSING.has(codeOf(response));
}
