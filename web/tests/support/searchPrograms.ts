/** What pi's search tools run: ripgrep and fd, or stand-ins that speak like them on a machine that has none. */
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { join } from "node:path";

/** Lines with a pattern, as `rg --json … -- PATTERN PLACE` tells them. */
const RG = `#!${process.execPath}
const [pattern, place] = process.argv.slice(process.argv.indexOf("--") + 1);
const { spawnSync } = require("node:child_process");
const found = spawnSync("grep", ["-rnZ", "-e", pattern, place], { encoding: "utf8" });
for (const line of found.stdout.split("\\n").filter(Boolean)) {
  const [path, rest] = line.split("\\0");
  const at = rest.indexOf(":");
  const data = { path: { text: path }, line_number: Number(rest.slice(0, at)), lines: { text: rest.slice(at + 1) + "\\n" } };
  console.log(JSON.stringify({ type: "match", data }));
}
`;

/** Files by their name, as `fd --glob … -- PATTERN PLACE` lists them. */
const FD = `#!/bin/sh
while [ "$1" != "--" ]; do shift; done
exec find "$3" -mindepth 1 -name "$2"
`;

/** Puts those that are missing where pi looks first, below its directory. */
export function putSearchPrograms(directory: string): void {
  const bin = join(directory, "agent/bin");
  mkdirSync(bin, { recursive: true });
  for (const [name, text] of [["rg", RG], ["fd", FD]] as const) {
    if (spawnSync(name, ["--version"]).status === 0) continue;
    writeFileSync(join(bin, name), text);
    chmodSync(join(bin, name), 0o755);
  }
}
