/** The directory that is complete, and the beginning of the name that is being typed: "/home/ann/wo" → "/home/ann", "wo". */
export function splitTyped(typed: string): { parent: string; prefix: string } {
  const at = typed.lastIndexOf("/");
  if (at < 0) return { parent: "", prefix: typed };
  return { parent: at === 0 ? "/" : typed.slice(0, at), prefix: typed.slice(at + 1) };
}

/** "~" is the runner's first root, which is its home unless it was configured otherwise. */
export function expandHome(typed: string, home: string | undefined): string {
  if (!home || !(typed === "~" || typed.startsWith("~/"))) return typed;
  return home + typed.slice(1);
}

/** A path without the slash at its end. */
export function cleanPath(path: string): string {
  return path.length > 1 ? path.replace(/\/+$/, "") : path;
}
