/** Sessions that are longer than anybody would wait for an agent to make them. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** A session file of pi in the directory it works in, with so many messages, questions and answers in turn; gives its path. */
export function longSession(cwd: string, messages: number): string {
  const start = Date.UTC(2026, 0, 1);
  const lines: object[] = [{ type: "session", version: 3, id: "long", timestamp: new Date(start).toISOString(), cwd }];
  for (let number = 0; number < messages; number += 1) {
    const at = start + number * 1000;
    const head = { type: "message", id: idOf(number), parentId: number === 0 ? null : idOf(number - 1), timestamp: new Date(at).toISOString() };
    lines.push({ ...head, message: number % 2 === 0 ? question(number / 2 + 1, at) : answer((number + 1) / 2, at) });
  }
  const directory = join(cwd, ".pi/sessions");
  mkdirSync(directory, { recursive: true });
  const file = join(directory, "long.jsonl");
  writeFileSync(file, `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`);
  return file;
}

function idOf(number: number): string {
  return (number + 1).toString(16).padStart(8, "0");
}

function question(number: number, timestamp: number): object {
  return { role: "user", content: [{ type: "text", text: `question number ${number}` }], timestamp };
}

function answer(number: number, timestamp: number): object {
  const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 };
  return {
    role: "assistant",
    content: [{ type: "text", text: `This is answer number ${number}, with **some** words${" and more".repeat(number % 40)}.` }],
    api: "openai-completions",
    provider: "scripted",
    model: "scripted",
    usage: { input: 10, output: 5, cacheRead: 0, cacheWrite: 0, totalTokens: 15, cost },
    stopReason: "stop",
    timestamp,
  };
}
