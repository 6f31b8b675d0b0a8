/** How numbers and times look everywhere in the app. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** How long something takes or took: "0.4 s", "12 s", "3 m 05 s", "2 h 07 m", "3 d 4 h". */
export function duration(milliseconds: number): string {
  const time = Math.max(0, milliseconds);
  if (time < 10 * SECOND) return `${(time / SECOND).toFixed(1)} s`;
  return elapsed(time);
}

/** The same for what still runs, where tenths of a second would flicker. */
export function elapsed(milliseconds: number): string {
  const time = Math.max(0, milliseconds);
  if (time < MINUTE) return `${Math.floor(time / SECOND)} s`;
  if (time < HOUR) return `${Math.floor(time / MINUTE)} m ${two(Math.floor((time % MINUTE) / SECOND))} s`;
  if (time < DAY) return `${Math.floor(time / HOUR)} h ${two(Math.floor((time % HOUR) / MINUTE))} m`;
  return `${Math.floor(time / DAY)} d ${Math.floor((time % DAY) / HOUR)} h`;
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}

/** How long ago: "now", "5 m", "3 h", "2 d", then the date. */
export function relative(at: number, now: number = Date.now()): string {
  const ago = now - at;
  if (ago < MINUTE) return "now";
  if (ago < HOUR) return `${Math.floor(ago / MINUTE)} m`;
  if (ago < DAY) return `${Math.floor(ago / HOUR)} h`;
  if (ago < 7 * DAY) return `${Math.floor(ago / DAY)} d`;
  return shortDate(at, now);
}

/** The same in a sentence: "just now", "5 m ago", "on 3 Nov". */
export function ago(at: number, now: number = Date.now()): string {
  if (now - at < MINUTE) return "just now";
  return now - at < 7 * DAY ? `${relative(at, now)} ago` : `on ${shortDate(at, now)}`;
}

/** Making a format takes the browser longer than a whole row of a list: each is made once, when it is first needed. */
function dateFormat(options: Intl.DateTimeFormatOptions): (at: number) => string {
  let made: Intl.DateTimeFormat | undefined;
  return (at) => (made ??= new Intl.DateTimeFormat([], options)).format(at);
}

const clockFormat = dateFormat({ hour: "2-digit", minute: "2-digit" });
const weekdayFormat = dateFormat({ weekday: "short" });
const dayFormat = dateFormat({ day: "numeric", month: "short" });
const dateOnlyFormat = dateFormat({ dateStyle: "medium" });
const dateTimeFormat = dateFormat({ dateStyle: "medium", timeStyle: "short" });

/** "14:05" today, "Tue 14:05" this week, otherwise with the date. */
export function time(at: number, now: number = Date.now()): string {
  const clock = clockFormat(at);
  if (new Date(at).toDateString() === new Date(now).toDateString()) return clock;
  if (Math.abs(now - at) < 6 * DAY) return `${weekdayFormat(at)} ${clock}`;
  return `${shortDate(at, now)} ${clock}`;
}

/** The whole of it, for tooltips and lists of history. */
export function dateTime(at: number): string {
  return dateTimeFormat(at);
}

function shortDate(at: number, now: number): string {
  const isThisYear = new Date(at).getFullYear() === new Date(now).getFullYear();
  return isThisYear ? dayFormat(at) : dateOnlyFormat(at);
}

/** A count of tokens: "950", "12.3k", "4.6M". */
export function tokens(count: number): string {
  if (count < 1000) return String(Math.round(count));
  if (count < 99_950) return `${(count / 1000).toFixed(1)}k`;
  if (count < 999_500) return `${Math.round(count / 1000)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}

/** Dollars: "$0.00", "<$0.01", "$1.27", "$1,204". */
export function money(dollars: number): string {
  if (dollars === 0) return "$0.00";
  if (dollars < 0.01) return "<$0.01";
  if (dollars < 1000) return `$${dollars.toFixed(2)}`;
  return `$${Math.round(dollars).toLocaleString("en")}`;
}

/** "912 B", "4.2 kB", "17 MB", "1.3 GB", in steps of 1000. */
export function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = count / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** "1 message", "3 messages". */
export function plural(count: number, one: string, many: string = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** The end of a path, which is what tells two apart: "…/work/app". */
export function shortPath(path: string, parts = 2): string {
  const names = path.split("/").filter((name) => name !== "");
  if (names.length <= parts) return path === "" ? "/" : path;
  return `…/${names.slice(-parts).join("/")}`;
}

/** The last name of a path. */
export function baseName(path: string): string {
  return path.split("/").findLast((name) => name !== "") ?? "/";
}

/** The name of a harness as people know it. */
export function harnessName(harness: string, tool?: string): string {
  if (harness === "pty" || harness === "terminal") return tool ?? "terminal";
  return harness;
}

/** What an error says to a person. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
