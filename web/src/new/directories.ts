import { app } from "../lib/app.svelte.ts";

/** The directories in a directory of a runner, by name. Hidden ones only for who types a dot. */
export async function directoriesIn(runnerId: string, parent: string, hidden: boolean, signal: AbortSignal): Promise<string[]> {
  const list = await app.client.call("fs.list", { root: parent, path: ".", include_hidden: hidden, limit: 2000 }, { runnerId, signal });
  return list.entries.filter((entry) => entry.is_dir).map((entry) => entry.name);
}

export interface RunnerPlaces {
  roots: string[];
  /** Programs for a terminal that the machine has. */
  tools: string[];
}

export async function placesOf(runnerId: string, signal: AbortSignal): Promise<RunnerPlaces> {
  const info = await app.client.call("host.capabilities", {}, { runnerId, signal });
  return {
    roots: info.workspace_roots ?? [],
    tools: info.tools.filter((tool) => tool.ok).map((tool) => tool.tool),
  };
}

/** The branch of a directory, or nothing when it is no git repository. */
export async function branchOf(runnerId: string, directory: string, signal: AbortSignal): Promise<string | undefined> {
  try {
    const status = await app.client.call("git.status", { root: directory }, { runnerId, signal });
    return status.branch ?? status.head ?? "HEAD";
  } catch {
    // No repository, no git, no such directory: all mean that there is no worktree to offer.
    return undefined;
  }
}
