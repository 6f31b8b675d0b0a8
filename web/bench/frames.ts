/** Frames of a page, from the browser's own trace: how far apart they are, and how much the page works for each. */
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
  args?: { name?: string };
}

export interface Spread {
  p50: number;
  p95: number;
  p99: number;
  most: number;
}

export interface FrameFigures {
  count: number;
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
    await browser.startTracing(page, { categories: ["-*", "toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"] });
    return new Frames(browser, page);
  }

  async end(): Promise<FrameFigures> {
    const trace = JSON.parse((await this.#browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
    const distances = await this.#page.evaluate(() => {
      const recording = globalThis as unknown as { isRecording: boolean; distances: number[] };
      recording.isRecording = false;
      return recording.distances;
    });
    const work = workOf(trace.traceEvents, (task) => task.dur ?? 0);
    const cpu = workOf(trace.traceEvents, (task) => task.tdur ?? task.dur ?? 0);
    return { count: work.length, distance: spread(distances), work: spread(work), cpu: spread(cpu) };
  }
}

/** The work between the animation frames of the thread that has most of them: the page's. */
function workOf(events: readonly TraceEvent[], timeOf: (task: TraceEvent) => number): number[] {
  const frames = events.filter((event) => event.name === "FireAnimationFrame" && event.ph === "X");
  const counts = new Map<string, number>();
  const threadOf = (event: TraceEvent) => `${event.pid}/${event.tid}`;
  for (const frame of frames) counts.set(threadOf(frame), (counts.get(threadOf(frame)) ?? 0) + 1);
  const thread = [...counts].toSorted((one, other) => other[1] - one[1])[0]?.[0];
  const starts = frames.filter((frame) => threadOf(frame) === thread).map((frame) => frame.ts).toSorted((one, other) => one - other);
  // Two callbacks of one frame are one frame.
  const edges = starts.filter((start, place) => place === 0 || start - (starts[place - 1] ?? 0) > 4000);
  const tasks = events.filter((event) => event.ph === "X" && /RunTask$/.test(event.name) && threadOf(event) === thread);
  const work = edges.map(() => 0);
  for (const task of tasks) {
    const end = task.ts + (task.dur ?? 0);
    // The frame in which it ends is the one that had to wait for it.
    let low = 0;
    let high = edges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((edges[middle] ?? 0) < end) low = middle + 1;
      else high = middle;
    }
    const place = low - 1;
    if (place >= 0 && place < work.length) work[place] = (work[place] ?? 0) + timeOf(task) / 1000;
  }
  return work.slice(1, -1);
}

function spread(values: readonly number[]): Spread {
  return { p50: percentile(values, 0.5), p95: percentile(values, 0.95), p99: percentile(values, 0.99), most: Math.max(...values) };
}
