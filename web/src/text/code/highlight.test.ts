import { expect, it, vi } from "vitest";
import { highlight, languageOf, languageOfPath } from "./highlight.ts";

// Grammars are read from disk, which a busy machine does slowly.
vi.setConfig({ testTimeout: 30_000 });

it("knows languages by many names", () => {
  expect(["rs", "TypeScript", "c++", "sh", "klingon"].map(languageOf)).toEqual(["rust", "typescript", "cpp", "shellscript", undefined]);
  expect(["src/a.tsx", "Makefile", "Dockerfile.dev", "x.unknown", "README", ".bashrc"].map(languageOfPath)).toEqual([
    "tsx", "make", "docker", undefined, undefined, "shellscript",
  ]);
});

it("colours words and loses none", async () => {
  const code = "// hello\nconst a = \"b\";\n";
  const lines = await highlight(code, "ts");
  expect(lines?.map((line) => line.map((token) => token.text).join("")).join("\n")).toBe(code);
  expect(lines?.[0]?.[0]?.className).toBe("tok-comment");
  expect(lines?.[1]?.some((token) => token.className === "tok-keyword" && token.text === "const")).toBe(true);
});

it("keeps the state of the grammar over its pieces", async () => {
  const code = `/*\n${"inside\n".repeat(450)}*/\nlet a;`;
  const lines = await highlight(code, "js");
  expect(lines?.[430]?.[0]?.className).toBe("tok-comment");
});

it("leaves very long and unknown texts alone", async () => {
  expect(await highlight("x", "klingon")).toBeUndefined();
  expect(await highlight("x".repeat(200_000), "ts")).toBeUndefined();
});
