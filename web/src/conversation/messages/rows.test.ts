import type { Message, Notice, PendingSend } from "@quarterdeck/client";
import { describe, expect, it } from "vitest";
import { RowBuilder, rowOfIdx, type RowSource } from "./rows.ts";

function message(idx: number, role: Message["role"], extra: Partial<Message> = {}): Message {
  return { id: `id${idx}`, idx, role, parts: [{ type: "text", id: "p0", text: `text ${idx}` }], created_at: idx, ...extra };
}

function notice(afterIdx: number): Notice {
  return { seq: afterIdx + 100, ts: 1, kind: "retry", text: "again", afterIdx };
}

function pending(clientId: string, status: PendingSend["status"], text = clientId): PendingSend {
  return { clientId, status, text, images: [], kind: "prompt", at: 1 };
}

function source(extra: Partial<RowSource> = {}): RowSource {
  return { messages: [], notices: [], questions: [], pending: [], queued: [], hasOlder: false, ...extra };
}

const keys = (input: RowSource): string[] => new RowBuilder().build(input).map((row) => row.key);

describe("RowBuilder", () => {
  it("puts notices after their message and results into their call", () => {
    const call = message(1, "assistant", { parts: [{ type: "tool_call", id: "p0", tool_call_id: "c1", name: "bash", status: "success" }] });
    const result = message(2, "tool", { tool_call_id: "c1" });
    const orphan = message(3, "tool", { tool_call_id: "other" });
    const rows = keys(source({ messages: [message(0, "user"), call, result, orphan], notices: [notice(-1), notice(1)] }));
    expect(rows).toEqual(["n:99:retry:1", "m:id0", "m:id1", "n:101:retry:1", "m:id3"]);
  });

  it("leaves out notices whose place is not loaded", () => {
    const rows = keys(source({ messages: [message(50, "user")], notices: [notice(3), notice(50)], hasOlder: true }));
    expect(rows).toEqual(["m:id50", "n:150:retry:1"]);
  });

  it("tells where messages are not loaded", () => {
    expect(keys(source({ messages: [message(3, "user"), message(9, "user"), message(10, "user")] }))).toEqual(["m:id3", "g:4", "m:id9", "m:id10"]);
  });

  it("keeps the key of a message from its first word to its last", () => {
    const builder = new RowBuilder();
    const before = builder.build(source({ messages: [message(0, "user")], writingId: "id1" }));
    const after = builder.build(source({ messages: [message(0, "user"), message(1, "assistant")], writingId: "id1" }));
    expect(before.map((row) => row.key)).toEqual(after.map((row) => row.key));
    expect(after[1]?.kind).toBe("message");
  });

  it("keeps rows that have not changed", () => {
    const builder = new RowBuilder();
    const messages = [message(0, "user"), message(1, "assistant")];
    const before = builder.build(source({ messages }));
    const after = builder.build(source({ messages: [...messages, message(2, "user")] }));
    expect(after[0]).toBe(before[0]);
    expect(after[1]).toBe(before[1]);
  });

  it("shows each thing this person sent once", () => {
    const messages = [message(0, "user", { client_id: "a" })];
    const list = [pending("a", "sent"), pending("b", "sent", "queued text"), pending("c", "waiting")];
    expect(keys(source({ messages, pending: list, queued: ["queued text"] }))).toEqual(["m:id0", "p:c"]);
  });

  it("finds the row of a message, or of the call its result is in", () => {
    const rows = new RowBuilder().build(source({ messages: [message(4, "user"), message(7, "assistant")] }));
    expect(rowOfIdx(rows, 7)).toBe(2);
    expect(rowOfIdx(rows, 6)).toBe(0);
    expect(rowOfIdx(rows, 9)).toBe(2);
  });
});
