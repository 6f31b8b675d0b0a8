/** What the hub refused, in its own words. */
export class RestError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = "RestError";
    this.status = status;
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
  if (!answer.ok) throw new RestError(answer.status, errorIn(text) ?? `The hub answered ${answer.status}.`);
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

function errorIn(text: string): string | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null && "error" in parsed && typeof parsed.error === "string") {
      return parsed.error;
    }
  } catch {
    // Not JSON: a proxy's page, of no use to a person.
  }
  return undefined;
}
