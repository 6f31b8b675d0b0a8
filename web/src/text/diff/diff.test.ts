import { describe, expect, it } from "vitest";
import { diffTexts, parseUnified } from "./diff.ts";

const PATCH = `diff --git a/src/main.rs b/src/main.rs
index 1111111..2222222 100644
--- a/src/main.rs
+++ b/src/main.rs
@@ -1,4 +1,4 @@ fn main
 fn main() {
-    let port = 80;
+    let port = 8080;
     run(port);
 }
\\ No newline at end of file
diff --git a/new.txt b/new.txt
new file mode 100644
--- /dev/null
+++ b/new.txt
@@ -0,0 +1,2 @@
+one
+two
diff --git a/old.txt b/sub/renamed.txt
similarity index 100%
rename from old.txt
rename to sub/renamed.txt
diff --git a/logo.png b/logo.png
index 1..2 100644
Binary files a/logo.png and b/logo.png differ
diff --git "a/gr\\303\\274n.txt" "b/gr\\303\\274n.txt"
deleted file mode 100644
--- "a/gr\\303\\274n.txt"
+++ /dev/null
@@ -1 +0,0 @@
--- a line that looks like a head
`;

describe("parseUnified", () => {
  const files = parseUnified(PATCH);

  it("finds every file and what happened to it", () => {
    expect(files.map((file) => [file.path, file.change, file.added, file.removed])).toEqual([
      ["src/main.rs", "modified", 1, 1],
      ["new.txt", "added", 2, 0],
      ["sub/renamed.txt", "renamed", 0, 0],
      ["logo.png", "modified", 0, 0],
      ["grün.txt", "deleted", 0, 1],
    ]);
    expect(files[2]?.from).toBe("old.txt");
    expect(files[3]?.isBinary).toBe(true);
  });

  it("numbers the lines of both sides", () => {
    expect(files[0]?.rows.map((row) => [row.kind, row.oldLine, row.newLine])).toEqual([
      ["hunk", undefined, undefined],
      ["context", 1, 1],
      ["del", 2, undefined],
      ["add", undefined, 2],
      ["context", 3, 3],
      ["context", 4, 4],
      ["note", undefined, undefined],
    ]);
    expect(files[4]?.rows[1]).toMatchObject({ kind: "del", text: "-- a line that looks like a head" });
  });

  it("marks the words that changed", () => {
    expect(files[0]?.rows[3]?.pieces).toEqual([
      { text: "    let port = ", isChanged: false },
      { text: "8080", isChanged: true },
      { text: ";", isChanged: false },
    ]);
  });

  it("reads a merge, which is compared with both its parents", () => {
    const lines = ["++<<<<<<< HEAD", " +const mine = 1;", "++=======", "+ const other = 1;", "++>>>>>>> other", "  same", "- was mine", " -was other"];
    const [file] = parseUnified(["diff --cc code.ts", "index 1,2..0", "--- a/code.ts", "+++ b/code.ts", "@@@ -1,3 -1,2 +1,6 @@@", ...lines, ""].join("\n"));
    expect(file?.path).toBe("code.ts");
    expect(file?.rows.map((row) => [row.kind, row.text, row.oldLine, row.newLine])).toEqual([
      ["hunk", "@@@ -1,3 -1,2 +1,6 @@@", undefined, undefined],
      ["add", "<<<<<<< HEAD", undefined, 1],
      ["add", "const mine = 1;", undefined, 2],
      ["add", "=======", undefined, 3],
      ["add", "const other = 1;", undefined, 4],
      ["add", ">>>>>>> other", undefined, 5],
      ["context", "same", 2, 6],
      ["del", "was mine", 3, undefined],
      ["del", "was other", undefined, undefined],
    ]);
  });

  it("shows controls", () => {
    expect(parseUnified("--- a/x\n+++ b/x\n@@ -1 +1 @@\n+a\u202eb\u001b[31m\n")[0]?.rows[1]?.text).toBe("a‹U+202E›b‹ESC›[31m");
  });
});

describe("diffTexts", () => {
  it("tells what was added and removed, with lines around", async () => {
    const before = Array.from({ length: 20 }, (_, index) => `line ${index}`).join("\n");
    const file = await diffTexts(before, before.replace("line 10", "line ten"));
    expect(file.rows.filter((row) => row.kind !== "context").map((row) => [row.kind, row.text])).toEqual([
      ["hunk", "@@ -8,7 +8,7 @@"],
      ["del", "line 10"],
      ["add", "line ten"],
    ]);
    expect([file.added, file.removed, file.change]).toEqual([1, 1, "modified"]);
  });

  it("takes an empty text for a new file", async () => {
    const file = await diffTexts("", "a\nb\n");
    expect([file.change, file.added, file.removed]).toEqual(["added", 2, 0]);
    expect(file.rows.at(-1)?.newLine).toBe(2);
  });

  it("gives up comparing what is altogether different, and still shows all of it", async () => {
    const before = Array.from({ length: 6000 }, (_, index) => `a${index}`).join("\n");
    const after = Array.from({ length: 6000 }, (_, index) => `b${index}`).join("\n");
    const file = await diffTexts(before, after);
    expect([file.added, file.removed]).toEqual([6000, 6000]);
  }, 30_000);
});
