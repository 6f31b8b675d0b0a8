import { describe, expect, it } from "vitest";
import { completeCommand, completeFile, pathsOf, triggerAt } from "./completion.ts";

describe("triggerAt", () => {
  it("finds commands at the beginning only", () => {
    expect(triggerAt("/qu", 3)).toEqual({ kind: "command", query: "qu", start: 0, end: 3 });
    expect(triggerAt("see /qu", 7)).toBeUndefined();
    expect(triggerAt("/question now", 13)).toBeUndefined();
  });

  it("finds files anywhere, but not in addresses", () => {
    expect(triggerAt("look at @src/ma please", 15)).toEqual({ kind: "file", query: "src/ma", start: 8, end: 15 });
    expect(triggerAt("@", 1)).toEqual({ kind: "file", query: "", start: 0, end: 1 });
    expect(triggerAt("ann@example", 11)).toBeUndefined();
    expect(triggerAt("@a b", 4)).toBeUndefined();
  });
});

describe("completions", () => {
  it("prefer the beginning of a name", () => {
    const paths = ["docs/main-page.md", "src/main.rs", "src/domain.rs", "README.md"];
    expect(completeFile(paths, "main").map((entry) => entry.label)).toEqual(["src/main.rs", "docs/main-page.md", "src/domain.rs"]);
    expect(completeFile(paths, "smr")[0]?.insert).toBe("@src/main.rs ");
    expect(completeFile(["src/"], "src")[0]?.insert).toBe("@src/");
  });

  it("show what a command does", () => {
    expect(completeCommand([{ name: "tools", description: "two tools" }, { name: "text" }], "to")).toEqual([
      { insert: "/tools ", label: "/tools", detail: "two tools" },
    ]);
  });

  it("know every path of a tree", () => {
    expect(pathsOf([{ name: "src", path: "src", type: "directory", children: [{ name: "a", path: "src/a", type: "file" }] }])).toEqual(["src/", "src/a"]);
  });
});
