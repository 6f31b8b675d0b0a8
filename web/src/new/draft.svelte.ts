import type { ImageAttachment, ModelInfo, SessionConfig } from "@quarterdeck/client";
import { app } from "../lib/app.svelte.ts";
import { thinkingLevels } from "../lib/session/thinking.ts";
import { createSession } from "./create.ts";
import { branchOf, placesOf, type RunnerPlaces } from "./directories.ts";
import { offeredModels, splitModel, usedModels } from "./models.ts";
import { cleanPath, expandHome } from "./paths.ts";
import { keepPrompt, recentChoices, rememberChoice, writtenPrompt } from "./recent.ts";

/** The session that is being put together. What the last ones were like is where it starts. */
export class Draft {
  readonly recent = recentChoices();
  runnerId = $state("");
  harness = $state("");
  model = $state("");
  thinking = $state("");
  directory = $state("");
  command = $state("");
  title = $state("");
  prompt = $state(writtenPrompt());
  images = $state.raw<ImageAttachment[]>([]);
  wantsWorktree = $state(this.recent.worktree ?? false);
  worktreeBranch = $state("");
  /** Of the directory; nothing when it is no git repository. */
  branch = $state<string | undefined>();
  places = $state.raw<RunnerPlaces>({ roots: [], tools: [] });
  offered = $state.raw<ModelInfo[]>([]);

  readonly runners = $derived(app.runners.filter((runner) => runner.status !== "offline" && runner.revoked_at === undefined));
  readonly runner = $derived(this.runners.find((runner) => runner.runner_id === this.runnerId));
  /** `terminal` is a shell beside other sessions, which has a page of its own there. */
  readonly harnesses = $derived(this.runner ? this.runner.harnesses.filter((name) => name !== "terminal").sort(byUse) : []);
  readonly isRun = $derived(this.harness === "pty");
  readonly home = $derived(this.places.roots[0]);
  readonly path = $derived(cleanPath(expandHome(this.directory.trim(), this.home)));
  readonly models = $derived([...new Set([...usedModels(this.harness), ...this.offered.map((model) => `${model.provider}/${model.model_id}`)])]);
  readonly thinkingLevels = $derived.by(() => {
    const { provider = "", model = "" } = splitModel(this.model);
    return thinkingLevels(this.offered, { provider, model_id: model });
  });
  /** What an empty field offers: what was used on this machine before. */
  readonly suggestions = $derived.by(() => {
    const inUse = app.sessions
      .filter((session) => session.runner_id === this.runnerId && session.cwd)
      .sort((one, other) => other.last_activity - one.last_activity)
      .map((session) => String(session.cwd));
    return [...new Set([...(this.recent.directories[this.runnerId] ?? []), ...inUse, ...this.places.roots])];
  });

  /** Chooses a runner that is there, the last one if it is. */
  settleRunner(wanted: string | null): void {
    if (this.runner) return;
    const known = [wanted, this.recent.runner].find((id) => this.runners.some((runner) => runner.runner_id === id));
    this.runnerId = known ?? this.runners[0]?.runner_id ?? "";
  }

  /** Chooses a harness that the runner has. */
  settleHarness(wanted: string | null): void {
    if (this.harnesses.includes(this.harness)) return;
    const known = [wanted, this.recent.harness].find((name) => name && this.harnesses.includes(name));
    this.harness = known ?? this.harnesses[0] ?? "";
  }

  /** Asks the runner where work is done there. */
  readPlaces(): () => void {
    return abortable((signal) =>
      placesOf(this.runnerId, signal).then((places) => {
        if (!signal.aborted) this.places = places;
      }),
    );
  }

  readModels(): () => void {
    this.offered = [];
    return abortable((signal) =>
      offeredModels(this.harness, this.runnerId, signal).then((models) => {
        if (!signal.aborted) this.offered = models;
      }),
    );
  }

  readBranch(): () => void {
    const { runnerId, path } = this;
    this.branch = undefined;
    if (runnerId === "" || !path.startsWith("/")) return () => undefined;
    let stop = (): void => undefined;
    const timer = setTimeout(() => {
      stop = abortable((signal) =>
        branchOf(runnerId, path, signal).then((branch) => {
          if (!signal.aborted) this.branch = branch;
        }),
      );
    }, 250);
    return () => {
      clearTimeout(timer);
      stop();
    };
  }

  config(): SessionConfig {
    const config: SessionConfig = { harness: this.harness };
    if (this.path) config.cwd = this.path;
    if (this.title.trim()) config.title = this.title.trim();
    if (this.wantsWorktree && this.branch !== undefined) {
      const branch = this.worktreeBranch.trim();
      config.worktree = branch ? { branch } : {};
    }
    if (this.isRun) {
      config.run = this.command.trim() ? { cmd: this.command.trim() } : {};
      return config;
    }
    Object.assign(config, splitModel(this.model));
    if (this.thinkingLevels.includes(this.thinking)) config.thinking_level = this.thinking;
    return config;
  }

  async start(): Promise<void> {
    const first = this.isRun ? undefined : { text: this.prompt.trim(), images: this.images };
    await createSession(this.config(), this.runnerId, first);
    if (first) keepPrompt("");
    rememberChoice({
      runner: this.runnerId,
      harness: this.harness,
      model: this.isRun ? "" : this.model.trim(),
      directory: this.path,
      command: this.isRun ? this.command.trim() : "",
      worktree: this.wantsWorktree,
    });
  }
}

/** Real agents first, then programs, the demo last. */
function byUse(one: string, other: string): number {
  const rank = (name: string): number => (name === "demo" ? 2 : name === "pty" ? 1 : 0);
  return rank(one) - rank(other) || one.localeCompare(other);
}

/** These only offer choices: what fails offers none, and the person types. */
function abortable(work: (signal: AbortSignal) => Promise<void>): () => void {
  const stop = new AbortController();
  work(stop.signal).catch(() => undefined);
  return () => stop.abort();
}
