/** Why a command of the pi-server face has no result. */
import type { ErrorCode, Response } from "../generated/pi-server.ts";
import { codeOf, FailedCommandError } from "../shared/errors.ts";

/** The server refused the command; nothing is known to have changed. */
export class CommandError extends FailedCommandError<Response> {}

/** The command's time was over. Final for this command; send a new one to try again. */
export class TimedOutError extends CommandError {}

/** The server died in the middle of the command: look at the session before you send it again. */
export class IndeterminateError extends CommandError {}

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
