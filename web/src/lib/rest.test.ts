import { afterEach, expect, test, vi } from "vitest";
import { rest, RestError } from "./rest.ts";

afterEach(() => vi.unstubAllGlobals());

async function refusal(answer: () => Promise<Response>): Promise<RestError> {
  vi.stubGlobal("fetch", answer);
  const error: unknown = await rest("GET", "/api/me").catch((error: unknown) => error);
  expect(error).toBeInstanceOf(RestError);
  return error as RestError;
}

test("a refusal has the hub's words and its code", async () => {
  const body = JSON.stringify({ error: "Not logged in.", code: "not_logged_in" });
  const error = await refusal(() => Promise.resolve(new Response(body, { status: 401 })));
  expect([error.status, error.message, error.code]).toEqual([401, "Not logged in.", "not_logged_in"]);
});

test("what is not the hub's answer has no code", async () => {
  for (const body of ["<h1>Bad gateway</h1>", "null", "[]", "", '{"error":7}']) {
    const error = await refusal(() => Promise.resolve(new Response(body, { status: 502 })));
    expect([error.message, error.code], body).toEqual(["The hub answered 502.", undefined]);
  }
  const error = await refusal(() => Promise.reject(new TypeError("no network")));
  expect([error.status, error.code]).toEqual([0, undefined]);
});
