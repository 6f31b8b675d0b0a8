import type { CommandParams, SearchHit } from "@quarterdeck/client";
import { app } from "../lib/app.svelte.ts";
import { LatestCall } from "../lib/latestCall.svelte.ts";
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
export class Search extends LatestCall {
  hits = $state.raw<SearchHit[]>([]);
  hasMore = $state(false);
  /** What the hits on the screen are for; empty before the first answer. */
  shownFor = $state("");
  #wanted: HistoryQuery | undefined;

  groups: HitGroup[] = $derived(grouped(this.hits));

  async find(wanted: HistoryQuery): Promise<void> {
    this.#wanted = wanted;
    if (wanted.text.trim() === "") {
      this.forget();
      this.hits = [];
      this.hasMore = false;
      this.shownFor = "";
      return;
    }
    await this.#ask(wanted, 0);
  }

  async more(): Promise<void> {
    if (this.#wanted && this.hasMore && !this.isRunning) await this.#ask(this.#wanted, this.hits.length);
  }

  async again(): Promise<void> {
    if (this.#wanted) await this.find(this.#wanted);
  }

  #ask(wanted: HistoryQuery, offset: number): Promise<void> {
    return this.run(() => app.client.call("search", paramsOf(wanted, offset)), ({ hits }) => {
      this.hits = offset === 0 ? hits : [...this.hits, ...hits];
      this.hasMore = hits.length === PAGE;
      this.shownFor = wanted.text;
    });
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
