import type { CommandParams, SearchHit } from "@quarterdeck/client";
import { app } from "../lib/app.svelte.ts";
import { errorText } from "../lib/format.ts";
import { dayStart, type HistoryQuery } from "./query.ts";

const PAGE = 50;

/** Hits of one session, in the order they were found. */
export interface HitGroup {
  sessionId: string;
  title: string;
  harness: string;
  runnerId: string;
  hits: SearchHit[];
}

/** One search at a time: what was asked last is what is shown. */
export class Search {
  hits = $state.raw<SearchHit[]>([]);
  isLoading = $state(false);
  error = $state<string | undefined>();
  hasMore = $state(false);
  /** What the hits on the screen are for; empty before the first answer. */
  shownFor = $state("");
  #asked = 0;
  #wanted: HistoryQuery | undefined;

  groups: HitGroup[] = $derived(grouped(this.hits));

  async find(wanted: HistoryQuery): Promise<void> {
    this.#wanted = wanted;
    if (wanted.text.trim() === "") {
      this.#asked += 1;
      this.hits = [];
      this.hasMore = false;
      this.isLoading = false;
      this.error = undefined;
      this.shownFor = "";
      return;
    }
    await this.#ask(wanted, 0);
  }

  async more(): Promise<void> {
    if (this.#wanted && this.hasMore && !this.isLoading) await this.#ask(this.#wanted, this.hits.length);
  }

  async again(): Promise<void> {
    if (this.#wanted) await this.find(this.#wanted);
  }

  async #ask(wanted: HistoryQuery, offset: number): Promise<void> {
    const asked = ++this.#asked;
    this.isLoading = true;
    this.error = undefined;
    try {
      const { hits } = await app.client.call("search", paramsOf(wanted, offset));
      if (asked !== this.#asked) return;
      this.hits = offset === 0 ? hits : [...this.hits, ...hits];
      this.hasMore = hits.length === PAGE;
      this.shownFor = wanted.text;
    } catch (error) {
      if (asked === this.#asked) this.error = errorText(error);
    } finally {
      if (asked === this.#asked) this.isLoading = false;
    }
  }
}

function paramsOf(wanted: HistoryQuery, offset: number): CommandParams["search"] {
  const params: CommandParams["search"] = { query: wanted.text.trim(), limit: PAGE, offset };
  if (wanted.role !== "") params.role = wanted.role;
  if (wanted.runnerId !== "") params.runner_id = wanted.runnerId;
  if (wanted.harness !== "") params.harness = wanted.harness;
  if (wanted.sessionId !== "") params.session_id = wanted.sessionId;
  const from = dayStart(wanted.from);
  const to = dayStart(wanted.to, 1);
  if (from !== undefined) params.from = from;
  if (to !== undefined) params.to = to;
  return params;
}

function grouped(hits: readonly SearchHit[]): HitGroup[] {
  const groups = new Map<string, HitGroup>();
  for (const hit of hits) {
    let group = groups.get(hit.session_id);
    if (!group) {
      group = {
        sessionId: hit.session_id,
        title: hit.title ?? "",
        harness: hit.harness ?? "",
        runnerId: hit.runner_id ?? "",
        hits: [],
      };
      groups.set(hit.session_id, group);
    }
    group.hits.push(hit);
  }
  return [...groups.values()];
}
