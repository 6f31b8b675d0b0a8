import type { ErrorCode } from "@quarterdeck/client";

/** What the hub refused, in its own words. Without a code when the hub did not answer, or somebody else did. */
export class RestError extends Error {
  readonly status: number;
  readonly code: ErrorCode | undefined;

  constructor(status: number, message: string, code?: ErrorCode) {
    super(message);
    this.name = "RestError";
    this.status = status;
    this.code = code;
  }
}

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** Calls the hub's REST interface with the cookie of this browser. Throws a RestError that says what to do. */
export async function rest<T>(method: Method, path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method, credentials: "same-origin", headers: { accept: "application/json" } };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { accept: "application/json", "content-type": "application/json" };
  }
  let answer: Response;
  try {
    answer = await fetch(path, init);
  } catch {
    throw new RestError(0, "The hub cannot be reached. Check the connection and try again.");
  }
  const text = await answer.text();
  if (!answer.ok) throw refusal(answer.status, text);
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

function refusal(status: number, text: string): RestError {
  try {
    const { error, code } = JSON.parse(text) as { error?: unknown; code?: unknown };
    if (typeof error === "string") {
      return new RestError(status, error, typeof code === "string" ? (code as ErrorCode) : undefined);
    }
  } catch {
    // Not JSON: a proxy's page, of no use to a person.
  }
  return new RestError(status, `The hub answered ${status}.`);
}
