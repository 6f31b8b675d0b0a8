import type { UsageData, UsageRow } from "@quarterdeck/client";
import { rest } from "../lib/rest.ts";
import { bounds, type Range } from "./ranges.ts";

export type { UsageData, UsageRow };
/** What bars and charts compare. */
export type Measure = "cost" | "tokens";
export type UsageSum = UsageData["total"];

export interface Usage {
  total: UsageSum;
  days: UsageRow[];
  models: UsageRow[];
  sessions: UsageRow[];
  /** There are more sessions than the hub tells at once. */
  isCut: boolean;
}

export function allTokens(sum: UsageSum): number {
  return sum.input_tokens + sum.output_tokens + sum.cache_read_tokens + sum.cache_write_tokens;
}

/** What was used on these days, by the clock of this browser. */
export async function load(range: Range): Promise<Usage> {
  const { from, to } = bounds(range);
  // Days are cut by the clock's distance from UTC now; where it changed within the range an hour may fall to a neighbour.
  const offset = -new Date(to - 1).getTimezoneOffset();
  const ask = (by: string) => rest<UsageData>("GET", `/api/usage?by=${by}&from=${from}&to=${to}&tz_offset_minutes=${offset}`);
  const [days, models, sessions] = await Promise.all([ask("day"), ask("model"), ask("session")]);
  return {
    total: days.total,
    days: days.rows,
    models: models.rows,
    sessions: sessions.rows,
    isCut: sessions.truncated === true,
  };
}

export function modelName(row: UsageRow): string {
  if (row.model === undefined) return "Unknown";
  return row.provider === undefined ? row.model : `${row.model} (${row.provider})`;
}

/** What a sum is compared to those of, the greatest first. */
export function sorted(rows: readonly UsageRow[], measure: Measure): UsageRow[] {
  const size = (row: UsageRow) => (measure === "cost" ? row.cost_usd : allTokens(row));
  return rows.toSorted((one, other) => size(other) - size(one) || allTokens(other) - allTokens(one));
}
