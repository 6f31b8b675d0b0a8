/** Why a command has no result. */
import type { CommandResponse } from "../generated/canonical.ts";
import { FailedCommandError } from "../shared/errors.ts";

/** The hub or the machine refused the command; final for this command. */
export class CommandError extends FailedCommandError<CommandResponse> {}

/** The command's time was over. Final for this command; send a new one to try again. */
export class TimedOutError extends CommandError {}

/** A process died in the middle of the command: look before you send it again. */
export class IndeterminateError extends CommandError {}

/** The error of a failed response. */
export function errorOf(response: CommandResponse): CommandError {
  if (response.indeterminate) return new IndeterminateError(response);
  if (response.timed_out) return new TimedOutError(response);
  return new CommandError(response);
}
