/**
 * Answers of servers that know no codes: those older than the codes, and other servers of the pi-server document. This
 * is the only place that reads sentences; it is not extended.
 */
import type { ErrorCode } from "../generated/canonical.ts";

const BEGINNINGS: readonly (readonly [string, ErrorCode])[] = [
  ["Rate limit exceeded", "rate_limited"],
  ["Global rate limit exceeded", "rate_limited"],
  ["Extension UI response rate limit exceeded", "rate_limited"],
  ["Server busy", "busy"],
  ["Too many pending commands", "too_many_in_flight"],
  ["Too many commands in flight", "too_many_in_flight"],
  ["Server is shutting down", "shutting_down"],
  ["Message size ", "too_large"],
];

/** The code of a sentence. */
export function codeOfWords(error: string): ErrorCode {
  if (/^Session \S+ not found/.test(error)) return "session_not_found";
  return BEGINNINGS.find(([beginning]) => error.startsWith(beginning))?.[1] ?? "failed";
}

/** The limit that a refusal names. Without a code it is in the sentence: `(max 16)` or `exceeds limit 16`. */
export function limitOf(response: { code?: ErrorCode; limit?: number; error?: string }): number | undefined {
  if (response.code !== undefined) return response.limit;
  const limit = /\(max (\d+)\)|exceeds limit (\d+)$/.exec(response.error ?? "");
  const digits = limit?.[1] ?? limit?.[2];
  return digits === undefined ? undefined : Number(digits);
}
