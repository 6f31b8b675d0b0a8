import { describe, expect, it } from "vitest";
import { changesOf, commandOf, hitsOf, kindOf, outputOf, partialInput, patchOf, placeOf, summaryOf } from "./tools.ts";

describe("tool calls of different harnesses", () => {
  it("are known by what they do", () => {
    expect(["bash", "Bash", "shell", "functions.exec_command"].map(kindOf)).toEqual(["shell", "shell", "shell", "shell"]);
    expect(["read", "Edit", "write_file", "Grep", "Glob", "TodoWrite"].map(kindOf)).toEqual([
      "read", "edit", "write", "search", "list", "other",
    ]);
  });

  it("have a line that says what they are about", () => {
    expect(summaryOf("bash", { command: "cargo test\n  --all" })).toBe("cargo test --all");
    expect(summaryOf("Read", { file_path: "/a/b.rs" })).toBe("/a/b.rs");
    expect(summaryOf("grep", { pattern: "TODO", path: "src" })).toBe("TODO in src");
    expect(summaryOf("weather", { city: "Oslo" })).toBe("Oslo");
    expect(summaryOf("none", undefined)).toBe("");
    expect(commandOf({ command: ["bash", "-lc", "ls -l"] })).toBe("ls -l");
  });

  it("have their changes found", () => {
    expect(changesOf({ path: "a", edits: [{ oldText: "x", newText: "y" }] })).toEqual([{ before: "x", after: "y" }]);
    expect(changesOf({ file_path: "a", old_string: "x", new_string: "" })).toEqual([{ before: "x", after: "" }]);
    expect(changesOf({ path: "a" })).toEqual([]);
    expect(patchOf({}, { details: { patch: "@@ -1 +1 @@\n-a\n+b" } })).toContain("@@");
    expect(patchOf({}, { details: { diff: "-1 a" } })).toBeUndefined();
  });

  it("name what they found from where they looked, or from where they work", () => {
    const places = [placeOf("rudder.ts", "src"), placeOf("deep/keel.ts", "./src/"), placeOf("src/rudder.ts", "src"), placeOf("rudder.ts", "src/rudder.ts")];
    expect(places).toEqual(["src/rudder.ts", "src/deep/keel.ts", "src/rudder.ts", "src/rudder.ts"]);
    expect([placeOf("a.ts", undefined), placeOf("a.ts", "."), placeOf("/x/a.ts", "src")]).toEqual(["a.ts", "a.ts", "/x/a.ts"]);
  });

  it("give back text and images in any shape", () => {
    expect(outputOf("plain")).toEqual({ text: "plain", images: [] });
    expect(outputOf({ content: [{ type: "text", text: "a" }, { type: "image", data: "AA", mimeType: "image/png" }] })).toEqual({
      text: "a",
      images: [{ data: "AA", media_type: "image/png" }],
    });
    expect(outputOf({ stdout: "out", stderr: "err" }).text).toBe("out\nerr");
    expect(outputOf({ answer: 42 }).rest).toEqual({ answer: 42 });
    expect(outputOf(undefined)).toEqual({ text: "", images: [] });
  });

  it("can be told while their arguments still come", () => {
    expect(partialInput('{"path":"src/a.rs","content":"fn ma')).toEqual({ path: "src/a.rs" });
    expect(partialInput('{"command":"ec')).toEqual({});
    expect(partialInput('{"command":"echo \\"hi\\""}')).toEqual({ command: 'echo "hi"' });
  });
});

describe("hitsOf", () => {
  it("reads places with and without lines", () => {
    expect(hitsOf("src/a.rs:12: let x\nsrc/b.rs\n")).toEqual([
      { path: "src/a.rs", line: 12, text: "let x" },
      { path: "", text: "src/b.rs" },
    ]);
  });
});
