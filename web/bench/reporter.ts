/** Prints the figures of all benches as one table, and says of each whether it keeps what was promised. */
import type { FullResult, Reporter, TestCase, TestResult } from "@playwright/test/reporter";

import { FIGURE, type Figure } from "./figures.ts";

export default class Table implements Reporter {
  readonly #figures: Figure[] = [];

  onTestEnd(test: TestCase, result: TestResult): void {
    for (const { type, description } of result.annotations) {
      if (type === FIGURE && description !== undefined) this.#figures.push(JSON.parse(description) as Figure);
    }
    if (result.status === "skipped") process.stderr.write(`skipped: ${test.title}\n`);
    for (const error of result.errors) process.stderr.write(`${test.title}: ${error.message ?? "failed"}\n`);
  }

  onStdErr(chunk: string | Buffer): void {
    process.stderr.write(chunk);
  }

  onEnd(_result: FullResult): void {
    const rows = this.#figures.map(({ what, value, target, least, unit }) => {
      const bound = target ?? least;
      if (bound === undefined) return [what, `${shown(value)} ${unit}`, "", ""];
      const isKept = target === undefined ? value >= bound : value <= bound;
      return [what, `${shown(value)} ${unit}`, `${target === undefined ? "≥" : "≤"} ${shown(bound)} ${unit}`, isKept ? "kept" : "MISSED"];
    });
    const all = [["Figure", "Measured", "Target", ""], ...rows];
    const widths = [0, 1, 2].map((column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
    for (const [place, row] of all.entries()) {
      process.stdout.write(`${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ").trimEnd()}\n`);
      if (place === 0) process.stdout.write(`${"-".repeat(widths.reduce((sum, width) => sum + width + 2, 6))}\n`);
    }
  }
}

function shown(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}
