import type { Message } from "@quarterdeck/client";
import { expect, it } from "vitest";
import { partsOf, partsOfPartial } from "./parts.ts";

const HEAD = { id: "m1", idx: 0, created_at: 1 };

it("shows a command of a person as a command", () => {
  const message: Message = {
    ...HEAD,
    role: "user",
    parts: [{ type: "text", id: "p0", text: "$ ls -l\na\nb" }],
    metadata: { native_role: "bashExecution", exit_code: 2 },
  };
  expect(partsOf(message)).toEqual([{ kind: "result", toolCallId: "", name: "bash", input: { command: "ls -l" }, output: "a\nb", isError: true }]);
});

it("keeps what it does not know", () => {
  const message: Message = { ...HEAD, role: "assistant", parts: [{ type: "x-pi.widget", id: "p0", payload: { a: 1 } }] };
  expect(partsOf(message)).toEqual([{ kind: "other", name: "x-pi.widget", value: { a: 1 } }]);
});

it("gives a message being written the same shape", () => {
  const blocks = [
    { content_index: 0, kind: "thinking" as const, text: "hm", offset: 2 },
    { content_index: 1, kind: "tool_call" as const, text: '{"path":"a"', offset: 11, tool_call_id: "c1", name: "read" },
  ];
  expect(partsOfPartial({ message_id: "m", role: "assistant", blocks })).toEqual([
    { kind: "thinking", text: "hm" },
    { kind: "tool", toolCallId: "c1", name: "read", input: { path: "a" }, isPreparing: true, size: 11 },
  ]);
  expect(partsOfPartial(undefined)).toEqual([]);
});
