/** The programs that pi's search tools run; tests/programs/install.sh installs them. */
import { accessSync, constants, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";

/** Under which names the systems install them. */
const PROGRAMS = { rg: ["rg"], fd: ["fd", "fdfind"] };

/** Debian's fd is older than an option that pi gives it, which makes no difference here. */
const FD = `#!/bin/sh
for word in "$@"; do
  shift
  [ "$word" = --no-require-git ] || set -- "$@" "$word"
done
exec FD "$@"
`;

/** Puts them where pi looks first, below its directory, under the names that it knows. */
export function putSearchPrograms(directory: string): void {
  const bin = join(directory, "agent/bin");
  mkdirSync(bin, { recursive: true });
  for (const [name, names] of Object.entries(PROGRAMS)) {
    const found = names.map(onPath).find((path) => path !== undefined);
    if (!found) throw new Error(`${name} is missing; run tests/programs/install.sh (\`make test\` does)`);
    if (name === "fd") writeFileSync(join(bin, name), FD.replace("FD", found), { mode: 0o755 });
    else symlinkSync(found, join(bin, name));
  }
}

function onPath(name: string): string | undefined {
  const places = (process.env["PATH"] ?? "").split(delimiter).map((place) => join(place, name));
  return places.find((place) => {
    try {
      accessSync(place, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
