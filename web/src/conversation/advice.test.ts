import { expect, test } from "vitest";
import { adviceFor } from "./advice.ts";

test("an agent that is gone is started again", () => {
  expect(adviceFor({ kind: "error", detail: { recoverable: false } })).toContain("start the agent again");
});

test("nothing goes on by itself after a turn that failed", () => {
  expect(adviceFor({ kind: "error", detail: { recoverable: true } })).toBe("Send a message to go on.");
});

test("an error within a turn is not its end, and one that says what to do needs no more", () => {
  expect(adviceFor({ kind: "error", detail: { recoverable: true, phase: "generating" } })).toBeUndefined();
  expect(adviceFor({ kind: "error", detail: { recoverable: true, code: "interrupted" } })).toBeUndefined();
});

test("what is no error needs no advice", () => {
  expect(adviceFor({ kind: "retry", detail: undefined })).toBeUndefined();
});
