/** Why a command has no result. */
import type { CommandResponse, ErrorCode } from "../generated/canonical.ts";
import { codeOfWords } from "../older.ts";

export { ConnectionError, IncompatibleError, TooLargeError } from "../errors.ts";

/** The hub or the machine said no; final for this command. */
export class CommandError extends Error {
  readonly response: CommandResponse;
  /** What programs decide by; `message` is for people. */
  readonly code: ErrorCode;

  constructor(response: CommandResponse) {
    super(response.error ?? "The command failed without saying why");
    this.name = new.target.name;
    this.response = response;
    this.code = codeOf(response);
  }
}

/** The command's time was over. Final for this command; send a new one to try again. */
export class TimedOutError extends CommandError {}

/** A process died in the middle of the command: look before you send it again. */
export class IndeterminateError extends CommandError {}

/** The code of a failed response. */
export function codeOf(response: CommandResponse): ErrorCode {
  return response.code ?? codeOfWords(response.error ?? "");
}

/** The error of a failed response. */
export function errorOf(response: CommandResponse): CommandError {
  if (response.indeterminate) return new IndeterminateError(response);
  if (response.timed_out) return new TimedOutError(response);
  return new CommandError(response);
}
