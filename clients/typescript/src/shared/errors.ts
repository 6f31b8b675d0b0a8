/** Why a command has no result, in the words that both clients share. */
import type { ErrorCode } from "../generated/canonical.ts";
import { codeOfWords } from "./older.ts";

interface FailedResponse {
  error?: string | null;
  code?: ErrorCode | null;
}

/** The code of a failed response. */
export function codeOf(response: FailedResponse): ErrorCode {
  return response.code ?? codeOfWords(response.error ?? "");
}

/** The server answered that a command failed. */
export class FailedCommandError<R extends FailedResponse> extends Error {
  readonly response: R;
  /** What programs decide by; `message` is for people. */
  readonly code: ErrorCode;

  constructor(response: R) {
    super(response.error ?? "The command failed without saying why");
    this.name = new.target.name;
    this.response = response;
    this.code = codeOf(response);
  }
}

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
