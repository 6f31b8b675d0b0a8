import { expect, test } from "vitest";
import { adviceFor } from "./advice.ts";

test("an agent that is gone is started again", () => {
  expect(adviceFor({ kind: "error", text: "pi died", detail: { recoverable: false } })).toContain("start the agent again");
});

test("nothing goes on by itself after a turn that failed", () => {
  expect(adviceFor({ kind: "error", text: "The model said no", detail: { recoverable: true } })).toBe("Send a message to go on.");
});

test("an error within a turn is not its end, and one that says what to do needs no more", () => {
  expect(adviceFor({ kind: "error", text: "502", detail: { recoverable: true, phase: "generating" } })).toBeUndefined();
  expect(adviceFor({ kind: "error", text: "It was stopped. Send a prompt to go on.", detail: { recoverable: true } })).toBeUndefined();
});

test("what is no error needs no advice", () => {
  expect(adviceFor({ kind: "retry", text: "Retry 1 of 3", detail: undefined })).toBeUndefined();
});
