import { test } from "@playwright/test";

export const FIGURE = "figure";

export interface Figure {
  what: string;
  value: number;
  unit: string;
  /** It is to be no more than this. */
  target?: number;
  /** It is to be no less than this. */
  least?: number;
}

export function figure(what: string, value: number, unit: string, target?: number): void {
  tell({ what, value, unit, ...(target === undefined ? {} : { target }) });
}

/** A figure that is to be no less than `least`. */
export function atLeast(what: string, value: number, unit: string, least: number): void {
  tell({ what, value, unit, least });
}

function tell(found: Figure): void {
  test.info().annotations.push({ type: FIGURE, description: JSON.stringify(found) });
}

export function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}
