/** Frames of a page, from the browser's own trace: how far apart they are, and how much the page works for each. */
import { writeFileSync } from "node:fs";
import type { Browser, Page } from "@playwright/test";

import { percentile } from "./figures.ts";

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  ts: number;
  dur?: number;
  /** Of it on a core; the rest other programs had. */
  tdur?: number;
  ph: string;
}

export interface Spread {
  p50: number;
  p95: number;
  p99: number;
  most: number;
}

export interface FrameFigures {
  /** A second, for as long as was recorded. */
  rate: number;
  /** Milliseconds from one animation frame to the next; 16.7 on a screen of 60 Hz. */
  distance: Spread;
  /** Milliseconds the page's thread worked from one animation frame to the next: script, style, layout and paint. */
  work: Spread;
  /** The same, counting only the time it had a core: what a busy machine adds is not in it. */
  cpu: Spread;
}

export class Frames {
  readonly #browser: Browser;
  readonly #page: Page;

  private constructor(browser: Browser, page: Page) {
    this.#browser = browser;
    this.#page = page;
  }

  /** From now on; the page asks for every animation frame, so that idle ones are seen too. */
  static async record(browser: Browser, page: Page): Promise<Frames> {
    await page.evaluate(() => {
      const recording = globalThis as unknown as { isRecording: boolean; distances: number[] };
      recording.isRecording = true;
      recording.distances = [];
      let last: number | undefined;
      const next = (now: number) => {
        if (last !== undefined) recording.distances.push(now - last);
        last = now;
        if (recording.isRecording) requestAnimationFrame(next);
      };
      requestAnimationFrame(next);
    });
    await browser.startTracing(page, { categories: ["-*", "devtools.timeline", "disabled-by-default-devtools.timeline"] });
    return new Frames(browser, page);
  }

  async end(): Promise<FrameFigures> {
    const distances = await this.#page.evaluate(() => {
      const recording = globalThis as unknown as { isRecording: boolean; distances: number[] };
      recording.isRecording = false;
      return recording.distances;
    });
    const written = await this.#browser.stopTracing();
    // To be looked at in the browser's own tools.
    const file = process.env["QD_BENCH_TRACE"];
    if (file !== undefined) writeFileSync(file, written);
    const { traceEvents } = JSON.parse(written.toString()) as { traceEvents: TraceEvent[] };
    const frames = framesOf(traceEvents);
    const work = frames.map((tasks) => sum(tasks, (task) => task.dur ?? 0));
    const cpu = frames.map((tasks) => sum(tasks, (task) => task.tdur ?? task.dur ?? 0));
    const rate = distances.length / (distances.reduce((all, distance) => all + distance, 0) / 1000);
    return { rate, distance: spread(distances), work: spread(work), cpu: spread(cpu) };
  }
}

/**
 * The tasks of each frame, of the thread that has most animation frames: the page's. A frame begins with the task that
 * calls for animation, in which style, layout and paint follow, and has all tasks up to the next of that kind.
 */
function framesOf(events: readonly TraceEvent[]): TraceEvent[][] {
  const threadOf = (event: TraceEvent) => `${event.pid}/${event.tid}`;
  const calls = events.filter((event) => event.name === "FireAnimationFrame" && event.ph === "X");
  const counts = new Map<string, number>();
  for (const call of calls) counts.set(threadOf(call), (counts.get(threadOf(call)) ?? 0) + 1);
  const thread = [...counts].toSorted((one, other) => other[1] - one[1])[0]?.[0];
  const starts = calls.filter((call) => threadOf(call) === thread).map(({ ts }) => ts).toSorted((one, other) => one - other);
  const frames: TraceEvent[][] = [];
  let call = 0;
  let end = 0;
  for (const task of tasksOf(events.filter((event) => threadOf(event) === thread))) {
    // A task inside another is counted with that one.
    if (task.ts < end) continue;
    end = task.ts + (task.dur ?? 0);
    while ((starts[call] ?? Infinity) < task.ts) call += 1;
    if ((starts[call] ?? Infinity) <= end) frames.push([]);
    frames.at(-1)?.push(task);
  }
  // The first and the last may not be whole.
  return frames.slice(1, -1);
}

/** A task has one event of this name; `ThreadControllerImpl::RunTask` of other categories would be the same time again. */
function tasksOf(events: readonly TraceEvent[]): TraceEvent[] {
  return events.filter((event) => event.name === "RunTask" && event.ph === "X").toSorted((one, other) => one.ts - other.ts);
}

/** In milliseconds. */
function sum(tasks: readonly TraceEvent[], timeOf: (task: TraceEvent) => number): number {
  return tasks.reduce((all, task) => all + timeOf(task), 0) / 1000;
}

function spread(values: readonly number[]): Spread {
  return { p50: percentile(values, 0.5), p95: percentile(values, 0.95), p99: percentile(values, 0.99), most: Math.max(...values) };
}
