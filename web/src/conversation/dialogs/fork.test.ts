import type { ForkPoint, Message } from "@quarterdeck/client";
import { expect, it } from "vitest";
import { forkPointOf } from "./fork.ts";

function message(idx: number, text: string): Message {
  return { id: `id${idx}`, idx, role: "user", parts: [{ type: "text", id: "p0", text }], created_at: idx };
}

function point(entry_id: string, preview: string): ForkPoint {
  return { entry_id, role: "user", preview };
}

it("finds the point of a message by its text", () => {
  const messages = [message(0, "first"), message(2, "second one\nwith lines")];
  const points = [point("a", "first"), point("b", "second one with…")];
  expect(messages.map((each) => forkPointOf(points, messages, each)?.entry_id)).toEqual(["a", "b"]);
  expect(forkPointOf(points, messages, message(9, "other"))).toBeUndefined();
});

it("counts from the end where several say the same", () => {
  const points = [point("a", "go on"), point("b", "go on"), point("c", "go on")];
  const loaded = [message(4, "go on"), message(6, "go on")];
  expect(loaded.map((each) => forkPointOf(points, loaded, each)?.entry_id)).toEqual(["b", "c"]);
});
