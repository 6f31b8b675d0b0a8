import { expect, test } from "vitest";
import { Typing } from "./typing.ts";

interface SentKeys {
  text: string;
  key: string;
  done: () => void;
  fail: (error: Error) => void;
}

function desk() {
  const sent: SentKeys[] = [];
  const lost: string[] = [];
  const typing = new Typing(
    (text, key) => new Promise<void>((done, fail) => sent.push({ text, key, done, fail })),
    (_error, text) => lost.push(text),
  );
  return { sent, lost, typing };
}

const turn = (): Promise<void> => new Promise((done) => setTimeout(done));

test("keys of one task go together, later ones in order, each under its own key", async () => {
  const { sent, typing } = desk();
  typing.type("a");
  typing.type("b");
  await turn();
  typing.type("c");
  await turn();
  expect(sent.map(({ text }) => text)).toEqual(["ab", "c"]);
  expect(new Set(sent.map(({ key }) => key)).size).toBe(2);
});

test("what comes while enough is under way goes together afterwards", async () => {
  const { sent, typing } = desk();
  for (const key of "abcdefg") {
    typing.type(key);
    await turn();
  }
  expect(sent.map(({ text }) => text)).toEqual(["a", "b", "c", "d"]);
  expect(typing.waiting).toBe(3);
  sent[0]?.done();
  await turn();
  expect(sent.at(-1)?.text).toBe("efg");
});

test("a long paste goes piece by piece, and no character is cut", async () => {
  const { sent, typing } = desk();
  const paste = `${"x".repeat(8 * 1024 - 1)}😀${"y".repeat(10_000)}`;
  typing.type(paste);
  for (let at = 0; at < 5; at += 1) {
    await turn();
    sent.at(-1)?.done();
  }
  await turn();
  expect(sent.map(({ text }) => text).join("")).toBe(paste);
  expect(sent[0]?.text.endsWith("x")).toBe(true);
});

test("after a piece that was lost nothing of the rest is sent", async () => {
  const { sent, lost, typing } = desk();
  for (const key of "abcdef") {
    typing.type(key);
    await turn();
  }
  sent[0]?.fail(new Error("gone"));
  await turn();
  expect(lost).toEqual(["aef"]);
  expect(typing.waiting).toBe(0);
  typing.type("g");
  await turn();
  expect(sent.at(-1)?.text).toBe("g");
});
